"""Sessions of Claude Code, as conversations: the main one, and a fork for every other branch.

What users, models and tools said becomes messages; all other records become notes. A compact
summary stands for everything before it, but for messages that its boundary says were kept.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from foldlog.importers.assembly import Assembly, Reply, in_range
from foldlog.importers.claude_messages import (
    content_parts,
    finish_reason,
    list_lost,
    model_and_usage,
    reply_parts,
    summary_of,
    user_messages,
)
from foldlog.importers.claude_tree import Branch, Node, Tree, is_boundary, read_tree, reply_key
from foldlog.importers.conversations import (
    ForkPoint,
    ImportedCompaction,
    ImportedConversation,
    ImportedFork,
    Item,
    source_of,
)
from foldlog.importers.detect import CLAUDE_CODE
from foldlog.importers.lines import Line
from foldlog.importers.report import LineReport
from foldlog.importers.source import Source, time_of
from foldlog_events.entries import Edit, EditEntry, Entry, MessageEntry, NoteEntry, ResetEntry
from foldlog_events.errors import FoldlogError, InvalidIdentifier
from foldlog_events.messages import Message, user
from foldlog_events.subjects import encode_token

_NAME = re.compile(r"[\w.-]{1,64}")
_HIDDEN = {"type", "parentUuid", "timestamp", "sessionId"}
REASON = "compacted by Claude Code"


@dataclass(slots=True)
class _File:
    """A file while its branches become conversations."""

    name: str
    """The session's."""
    source: Source
    report: LineReport
    tree: Tree
    owners: dict[int, Assembly] = field(default_factory=dict)
    """The conversation of each line that is done."""


@dataclass(slots=True)
class _Conversation:
    """One branch while its nodes become entries."""

    assembly: Assembly
    tree: Tree
    reply: Reply | None = None
    """The newest, which the next record may belong to."""
    key: tuple[str, ...] | None = None
    """Of that reply."""
    boundary: Node | None = None
    """Of a compaction whose summary has not come."""
    lost: list[str] = field(default_factory=list)
    """Fields of the node at hand that are not carried over."""


def read(
    lines: Iterable[Line], source: Source, report: LineReport
) -> Iterator[ImportedConversation]:
    """The session's main conversation, then a fork for every other branch."""
    tree = read_tree(lines, report)
    file = _File(_session_name(tree, source, report), source, report, tree)
    names: set[str] = set()
    for branch in tree.branches():
        name = _branch_name(branch, file.name, names)
        conversation = _convert_branch(branch, name, file)
        if conversation is not None:
            names.add(name)
            yield conversation


def _session_name(tree: Tree, source: Source, report: LineReport) -> str:
    for node in tree.nodes:
        stated = node.record.get("sessionId")
        if isinstance(stated, str):
            try:
                encode_token(stated)
            except InvalidIdentifier as error:
                report.remark(node.line, f"the session is named after its file: {error}")
                break
            return stated
    return source.stem


def _branch_name(branch: Branch, session: str, taken: set[str]) -> str:
    if not taken:
        return session
    first = next((n for n in branch.nodes if n.has_turn), branch.nodes[0])
    own = first.record.get("uuid")
    if isinstance(own, str) and _NAME.fullmatch(own) and f"{session}/{own}" not in taken:
        return f"{session}/{own}"
    return f"{session}/line-{first.line}"


def _convert_branch(branch: Branch, name: str, file: _File) -> ImportedConversation | None:
    """A branch's conversation; None where none of its records could be read."""
    point, inherited = _fork_point(branch.parent, file)
    assembly = Assembly(CLAUDE_CODE, file.name, name, file.source, file.report, inherited)
    state = _Conversation(assembly, file.tree)
    for node in branch.nodes:
        file.owners[node.line] = assembly
        state.lost = []
        try:
            _convert_node(node, state)
        except FoldlogError as error:
            file.report.malformed(node.line, str(error))
            continue
        for what in state.lost:
            file.report.not_carried(node.line, what)
    fork = None
    if point is not None:
        first = branch.nodes[0]
        envelope = assembly.envelope(first.line, time_of(first.record.get("timestamp")), "fork")
        fork = ImportedFork(**envelope, fork_of=point)
    return assembly.finished(fork)


def _fork_point(node: Node | None, file: _File) -> tuple[ForkPoint | None, tuple[Item, ...]]:
    """Where a branch leaves its parent, and what a fold has in its range there."""
    while node is not None:
        owner = file.owners[node.line]
        entries = owner.entries()
        if ids := owner.ids_of(node.line):
            at = next(place for place, entry in enumerate(entries) if entry.id == ids[-1])
            point = ForkPoint(owner.conversation, ids[-1])
            return point, tuple(in_range(entries[: at + 1]))
        node = node.parent
    return None, ()


def _convert_node(node: Node, state: _Conversation) -> None:
    record = node.record
    match node.kind:
        case "assistant":
            _end_boundary(state)
            _convert_reply(node, state)
        case "user" if record.get("isCompactSummary") is True:
            _add(node, state, [_compaction(node, state)])
            state.reply = state.boundary = None
        case "user" if record.get("isVisibleInTranscriptOnly") is not True:
            messages = user_messages(record, state.lost.append)
            if any(message.role == "user" for message in messages):
                _end_boundary(state)
                state.key = None
            _add(node, state, [MessageEntry(**_envelope(node, state), messages=messages)])
        case "attachment":
            _add(node, state, [_attachment(node, state)])
        case _:
            if is_boundary(record):
                _end_boundary(state)
                state.boundary = node
            _add(node, state, [_note(node, state), *_retraction(node, state)])


def _add(node: Node, state: _Conversation, entries: list[Item]) -> None:
    state.assembly.add(node.line, entries)


def _envelope(node: Node, state: _Conversation, *suffix: str) -> dict[str, Any]:
    return state.assembly.envelope(node.line, time_of(node.record.get("timestamp")), *suffix)


def _note(node: Node, state: _Conversation, name: str = "") -> NoteEntry:
    data = {key: value for key, value in node.record.items() if key not in _HIDDEN}
    return NoteEntry(**_envelope(node, state), name=f"claude-code.{name or node.kind}", data=data)


def _convert_reply(node: Node, state: _Conversation) -> None:
    record, lost = node.record, state.lost.append
    parts, key = reply_parts(record, lost), reply_key(record)
    reply = state.reply
    if reply is None or reply.closed or key is None or key != state.key:
        time = time_of(record.get("timestamp"))
        reply = state.assembly.open_reply(node.line, time, parts)
        state.reply, state.key = reply, key
    else:
        state.assembly.extend_reply(reply, node.line, parts)
    # Only the last record of a reply states how it ended, and all of its tokens.
    model, usage = model_and_usage(record)
    reply.finish_reason = finish_reason(record, lost) or reply.finish_reason
    reply.model = model or reply.model
    reply.usage = usage or reply.usage


def _attachment(node: Node, state: _Conversation) -> Entry:
    """A prompt that waited while the model worked is a message; how others are shown is unknown."""
    attachment = node.record.get("attachment")
    if not isinstance(attachment, dict):
        return _note(node, state)
    match attachment:
        case {"type": "queued_command", "prompt": str() | list() as prompt}:
            _end_boundary(state)
            state.key = None
            list_lost(attachment, {"type", "prompt"}, "attachment", state.lost.append)
            blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else prompt
            parts = content_parts(
                [b for b in blocks if isinstance(b, dict)], "attachment", state.lost.append
            )
            message = Message(role="user", parts=parts)
            return MessageEntry(**_envelope(node, state), messages=(message,))
        case _:
            kind = attachment.get("type")
            state.lost.append(f"attachment of type {kind!r} as a message")
    return _note(node, state)


def _compaction(node: Node, state: _Conversation) -> Item:
    summary = summary_of(node.record, state.lost.append)
    held = in_range(state.assembly.entries())
    envelope = _envelope(node, state)
    if not held:
        return ResetEntry(**envelope, handoff=(user(summary),), reason=REASON)
    kept = _kept_from(state, held)
    return ImportedCompaction(
        **envelope,
        **source_of(held, kept),
        kept_from_id=None if kept is None else held[kept].id,
        summary=summary,
        tokens_before=_tokens_before(state.boundary),
    )


def _kept_from(state: _Conversation, held: list[Entry]) -> int | None:
    """Where in the range the boundary says that messages are kept; None where nowhere."""
    if state.boundary is None:
        return None
    metadata = state.boundary.record.get("compactMetadata")
    segment = metadata.get("preservedSegment") if isinstance(metadata, dict) else None
    if not isinstance(segment, dict):
        return None
    head = state.tree.by_uuid.get(str(segment.get("headUuid")))
    ids = state.assembly.ids_of(head.line) if head is not None else ()
    for place, entry in enumerate(held):
        if entry.id in ids:
            return place
    state.assembly.report.remark(
        state.boundary.line,
        f"keeps from {segment.get('headUuid')!r}, on no line of its own before it: "
        "nothing older is kept",
    )
    return None


def _tokens_before(boundary: Node | None) -> int:
    metadata = boundary.record.get("compactMetadata") if boundary is not None else None
    tokens = metadata.get("preTokens") if isinstance(metadata, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _end_boundary(state: _Conversation) -> None:
    """A compaction without a summary: Claude Code shows nothing that came before it."""
    node, state.boundary = state.boundary, None
    if node is None:
        return
    held = in_range(state.assembly.entries())
    kept = _kept_from(_with_boundary(state, node), held)
    shown = held[kept:] if kept is not None else []
    handoff = tuple(m for e in shown if isinstance(e, MessageEntry) for m in e.messages)
    _add(
        node, state, [ResetEntry(**_envelope(node, state, "reset"), handoff=handoff, reason=REASON)]
    )
    state.assembly.report.remark(node.line, "a compaction without its summary: a new beginning")
    state.reply = None


def _with_boundary(state: _Conversation, node: Node) -> _Conversation:
    return _Conversation(state.assembly, state.tree, boundary=node)


def _retraction(node: Node, state: _Conversation) -> list[Entry]:
    """An edit that omits the messages which a refused request took back."""
    stated = node.record.get("retractedMessageUuids")
    if not isinstance(stated, list) or not stated:
        return []
    held = {entry.id for entry in in_range(state.assembly.entries())}
    targets: dict[str, None] = {}
    for uuid in stated:
        found = state.tree.by_uuid.get(str(uuid))
        ids = [i for i in state.assembly.ids_of(found.line) if i in held] if found else []
        if not ids:
            state.assembly.report.remark(
                node.line, f"takes back {str(uuid)!r}, which is not in this conversation's range"
            )
        targets |= dict.fromkeys(ids)
    if not targets:
        return []
    edits = tuple(Edit(target=target) for target in targets)
    return [EditEntry(**_envelope(node, state, "retraction"), edits=edits, reason="retracted")]
