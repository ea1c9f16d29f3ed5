"""Sessions of the Pi coding agent, versions 1 to 3, as conversations.

What Pi shows to a model becomes messages; everything else becomes notes. A boundary of
compaction keeps its place: Pi's own loader and the fold keep the same messages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from foldlog.importers.conversations import (
    ForkPoint,
    ImportedCompaction,
    ImportedConversation,
    ImportedFork,
    ImportedItem,
    Item,
    checked,
    derived_id,
    source_of,
)
from foldlog.importers.detect import PI
from foldlog.importers.errors import MalformedRecord
from foldlog.importers.lines import Line
from foldlog.importers.pi_messages import (
    BRANCH_INTRODUCTION,
    COMPACTION_INTRODUCTION,
    content_parts,
    convert_message,
    convert_usage,
    summary_text,
)
from foldlog.importers.pi_tree import Branch, Node, Session, read_session
from foldlog.importers.report import LineReport
from foldlog.importers.source import Source, time_of
from foldlog_events.entries import (
    Entry,
    MessageEntry,
    NoteEntry,
    ResetEntry,
)
from foldlog_events.errors import FoldlogError, InvalidIdentifier
from foldlog_events.messages import Message, user
from foldlog_events.subjects import encode_token

ACTOR = "import:pi"
_ENVELOPE = {"type", "id", "parentId", "timestamp"}


@dataclass(slots=True)
class _Conversation:
    """One branch while its nodes become entries."""

    conversation: str
    session: str
    source: Source
    report: LineReport
    nodes_by_id: dict[str, Node]
    range: list[tuple[Node, Entry]]
    """What a fold has in its range, with the node of each entry."""
    lost: list[str] = field(default_factory=list)
    """Fields of the node at hand that are not carried over."""

    def envelope(self, node: Node, suffix: str = "") -> dict[str, Any]:
        stated = time_of(node.record.get("timestamp"))
        return {
            "id": derived_id(PI, self.session, node.line, suffix, time=stated),
            "conversation": self.conversation,
            "tenant": self.source.tenant,
            "time": stated or self.source.time,
            "actor": ACTOR,
        }


@dataclass(slots=True)
class _File:
    """A file while its branches become conversations."""

    name: str
    """The session's."""
    source: Source
    report: LineReport
    branch_points: set[int]
    """Nodes that branches leave from."""
    owners: dict[int, str] = field(default_factory=dict)
    """The conversation of each node that is done."""
    ranges: dict[int, list[tuple[Node, Entry]]] = field(default_factory=dict)
    """The range after each branch point: what a branch inherits."""


def read(
    lines: Iterable[Line], source: Source, report: LineReport
) -> Iterator[ImportedConversation]:
    """The session's main conversation, then a fork for every other branch."""
    session = read_session(lines, report)
    name = _session_name(session, source, report)
    branches = session.branches()
    points = {id(branch.parent) for branch in branches if branch.parent is not None}
    file = _File(name, source, report, points)
    for branch in branches:
        conversation = _convert_branch(branch, file)
        if conversation is not None:
            yield conversation


def _session_name(session: Session, source: Source, report: LineReport) -> str:
    stated = session.header.get("id")
    if isinstance(stated, str):
        try:
            encode_token(stated)
        except InvalidIdentifier as error:
            report.remark(1, f"the session is named after its file: {error}")
        else:
            return stated
    return source.stem


def _convert_branch(branch: Branch, file: _File) -> ImportedConversation | None:
    """A branch's conversation; None where none of its records could be read."""
    first = branch.nodes[0]
    state = _Conversation(
        conversation=_name_of(branch, file),
        session=file.name,
        source=file.source,
        report=file.report,
        nodes_by_id=_ids_on_path(branch),
        range=list(file.ranges.get(id(branch.parent), ())),
    )
    fork_of = _fork_point(branch.parent, file.owners)
    items: list[ImportedItem] = []
    for node in branch.nodes:
        file.owners[id(node)] = state.conversation
        items.extend(_convert_node(node, state))
        if id(node) in file.branch_points:
            file.ranges[id(node)] = list(state.range)
    if not items:
        return None
    if fork_of is not None:
        fork = ImportedFork(**state.envelope(first, "fork"), fork_of=fork_of)
        items.insert(0, ImportedItem(items[0].line, fork))
        file.report.imported(items[0].line, (fork.id,))
    return ImportedConversation(
        format=PI,
        tenant=file.source.tenant,
        conversation=state.conversation,
        items=tuple(items),
        fork_of=fork_of,
    )


def _name_of(branch: Branch, file: _File) -> str:
    if not file.owners:
        return file.name
    first = branch.nodes[0]
    own = first.record.get("id")
    return f"{file.name}/{own if isinstance(own, str) and own else f'line-{first.line}'}"


def _ids_on_path(branch: Branch) -> dict[str, Node]:
    return {
        node.record["id"]: node
        for node in branch.nodes[-1].path()
        if isinstance(node.record.get("id"), str)
    }


def _fork_point(node: Node | None, owners: dict[int, str]) -> ForkPoint | None:
    while node is not None and not node.entries:
        node = node.parent
    return None if node is None else ForkPoint(owners[id(node)], node.entries[-1])


def _convert_node(node: Node, state: _Conversation) -> list[ImportedItem]:
    """The entries of one record; one that cannot be read is reported and gives none."""
    state.lost = []
    try:
        entries = [checked(e, repair=state.source.repair) for e in _entries_of(node, state)]
    except FoldlogError as error:
        state.report.malformed(node.line, str(error))
        return []
    for entry in entries:
        if isinstance(entry, ImportedCompaction | ResetEntry):
            _move_range(entry, state)
        elif not isinstance(entry, ImportedFork):
            state.range.append((node, entry))
        node.entries.append(entry.id)
    for what in state.lost:
        state.report.not_carried(node.line, what)
    state.report.imported(node.line, tuple(node.entries))
    return [ImportedItem(node.line, entry) for entry in entries]


def _entries_of(node: Node, state: _Conversation) -> Iterator[Item]:
    record, lost = node.record, state.lost.append
    match node.kind:
        case "message":
            yield from _message_entries(node, state)
        case "compaction":
            yield _compaction(node, state)
        case "branch_summary":
            summary = record.get("summary")
            if not isinstance(summary, str) or not summary:
                raise MalformedRecord("a branch summary needs its text")
            for name in sorted(record.keys() - _ENVELOPE - {"summary"}):
                lost(f"branch_summary.{name}")
            yield MessageEntry(
                **state.envelope(node),
                messages=(user(summary_text(BRANCH_INTRODUCTION, summary)),),
            )
        case "custom_message":
            for name in sorted(record.keys() - _ENVELOPE - {"content"}):
                lost(f"custom_message.{name}")
            parts = content_parts(record.get("content"), "custom_message", lost)
            yield MessageEntry(
                **state.envelope(node), messages=(Message(role="user", parts=parts),)
            )
        case kind:
            yield NoteEntry(**state.envelope(node), name=f"pi.{kind}", data=_note_data(node, state))


def _note_data(node: Node, state: _Conversation) -> dict[str, Any]:
    hidden = _ENVELOPE - {"id"} if node.kind == "session" else _ENVELOPE
    data = {name: value for name, value in node.record.items() if name not in hidden}
    target = state.nodes_by_id.get(str(data.get("targetId")))
    if target is not None and target.entries:
        data["entry"] = target.entries[0]
    return data


def _message_entries(node: Node, state: _Conversation) -> Iterator[Item]:
    stored = node.record.get("message")
    message = convert_message(stored, state.lost.append)
    if message is None:
        yield NoteEntry(**state.envelope(node), name="pi.message", data=stored)
        return
    entry = MessageEntry(**state.envelope(node), messages=(message,))
    yield entry
    if isinstance(stored, dict) and stored.get("errorMessage"):
        yield NoteEntry(
            **state.envelope(node, "error"),
            name="pi.error",
            data={"errorMessage": stored["errorMessage"]},
            causation=entry.id,
        )


def _compaction(node: Node, state: _Conversation) -> Item:
    record, lost = node.record, state.lost.append
    summary = record.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        raise MalformedRecord("a compaction needs its summary")
    carried = {
        "summary", "firstKeptEntryIndex", "firstKeptEntryId", "tokensBefore", "usage",
        "retainedTail",
    }  # fmt: skip
    for name in sorted(record.keys() - _ENVELOPE - carried):
        lost(f"compaction.{name}")
    tail = record.get("retainedTail")
    kept = _kept_from(node, state)
    if not state.range or (isinstance(tail, list) and kept is None):
        # What is kept stands in the record itself and not in the log: a new beginning says so.
        kept_messages = (convert_message(m, lost) for m in (tail if isinstance(tail, list) else ()))
        handoff = (
            user(summary_text(COMPACTION_INTRODUCTION, summary)),
            *(message for message in kept_messages if message is not None),
        )
        return ResetEntry(**state.envelope(node), handoff=handoff, reason="compacted by Pi")
    return _compaction_item(node, state, kept, summary)


def _compaction_item(
    node: Node, state: _Conversation, kept: int | None, summary: str
) -> ImportedCompaction:
    entries = [entry for _, entry in state.range]
    tokens = node.record.get("tokensBefore")
    return ImportedCompaction(
        **state.envelope(node),
        **source_of(entries, kept),
        kept_from_id=None if kept is None else entries[kept].id,
        summary=summary,
        tokens_before=tokens if isinstance(tokens, int) and tokens > 0 else 0,
        usage=convert_usage(node.record.get("usage"), state.lost.append, "compaction"),
    )


def _kept_from(node: Node, state: _Conversation) -> int | None:
    """Where in the range Pi starts to keep; None where it keeps nothing of it.

    A place among notes moves on to the first message after it, which keeps the same messages.
    """
    target = _boundary(node, state)
    if target is None:
        return None
    if state.range and target.depth < state.range[0][0].depth and target.kind != "session":
        state.report.remark(
            node.line,
            "keeps messages that an earlier compaction had removed: "
            "what that one kept is kept, and no more",
        )
    for place, (origin, entry) in enumerate(state.range):
        if origin.depth >= target.depth and isinstance(entry, MessageEntry):
            return place
    return None


def _boundary(node: Node, state: _Conversation) -> Node | None:
    """The record that Pi keeps from, as the record says it: by id, by index or by its content."""
    tail = node.record.get("retainedTail")
    if isinstance(tail, list):
        shown = [origin for origin, entry in state.range if isinstance(entry, MessageEntry)]
        last = shown[len(shown) - len(tail) :] if tail and len(tail) <= len(shown) else []
        same = last and [origin.record.get("message") for origin in last] == tail
        return last[0] if same else None
    kept_id = node.record.get("firstKeptEntryId")
    if isinstance(kept_id, str):
        if kept_id not in state.nodes_by_id:
            state.report.remark(
                node.line, f"keeps from {kept_id!r}, on no line before it: nothing older is kept"
            )
        return state.nodes_by_id.get(kept_id)
    index = node.record.get("firstKeptEntryIndex")
    if not isinstance(index, int):
        return None
    return next((n for n in node.path()[:-1] if n.index >= index), None)


def _move_range(entry: Item, state: _Conversation) -> None:
    kept = entry.kept_from_id if isinstance(entry, ImportedCompaction) else None
    start = next(
        (place for place, (_, held) in enumerate(state.range) if held.id == kept),
        len(state.range),
    )
    state.range = state.range[start:]
