"""Rollouts of Codex, as conversations: one file, one conversation.

Response items are what a model is shown; items that the model wrote together become one reply.
Developer messages are sections of the prompt, all other records become notes. A `compacted`
record begins the context anew with the history that Codex put in its place, a rollback omits the
turns that it takes back.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foldlog.importers.assembly import Assembly, Reply
from foldlog.importers.codex_items import (
    ENCRYPTED_SUMMARY,
    convert_history,
    convert_item,
    is_context,
)
from foldlog.importers.conversations import ImportedConversation
from foldlog.importers.detect import CODEX
from foldlog.importers.errors import MalformedRecord
from foldlog.importers.lines import Line
from foldlog.importers.report import LineReport
from foldlog.importers.source import Source, time_of
from foldlog_events.entries import (
    Baseline,
    Edit,
    EditEntry,
    Entry,
    MessageEntry,
    NoteEntry,
    ResetEntry,
    Section,
    SectionInForce,
    SystemEntry,
)
from foldlog_events.errors import FoldlogError, InvalidIdentifier
from foldlog_events.messages import Message, Reasoning, Text, user
from foldlog_events.subjects import encode_token
from foldlog_projections.usage import normalise_usage

INSTRUCTIONS = "instructions"
"""Name of the prompt section that holds a session's base instructions."""

KEPT_USER_CHARACTERS = 80_000
"""Of user messages that an older Codex keeps beside a summary: about its 20,000 tokens."""


@dataclass(slots=True)
class _Rollout:
    """A file while its records become entries."""

    assembly: Assembly
    model: str | None = None
    reply: Reply | None = None
    """The newest, which the next item may belong to."""
    instructions: SectionInForce | None = None
    developer_messages: int = 0
    """How many sections such messages have become."""
    begun: bool = False
    """Whether the session's own `session_meta` was read: a fork's file goes on with its parent's"""
    lost: list[str] = field(default_factory=list)
    """Fields of the record at hand that are not carried over."""


@dataclass(slots=True)
class _Record:
    line: int
    kind: str
    time: datetime | None
    payload: dict[str, Any]


def read(
    lines: Iterable[Line], source: Source, report: LineReport
) -> Iterator[ImportedConversation]:
    """The rollout's conversation; nothing where the file holds no record."""
    records = list(_records(lines, report))
    name = _session_name(records, source, report)
    rollout = _Rollout(Assembly(CODEX, name, name, source, report))
    for record in records:
        rollout.lost = []
        try:
            _convert(record, rollout)
        except FoldlogError as error:
            report.malformed(record.line, str(error))
            continue
        for what in rollout.lost:
            report.not_carried(record.line, what)
    conversation = rollout.assembly.finished()
    if conversation is not None:
        yield conversation


def _records(lines: Iterable[Line], report: LineReport) -> Iterator[_Record]:
    for line in lines:
        if line.blank:
            report.skipped(line.number, "blank")
        elif line.fault:
            report.malformed(line.number, line.fault)
        else:
            match line.value:
                case {"type": str() as kind, "payload": dict() as payload}:
                    time = time_of(line.value.get("timestamp"))
                    yield _Record(line.number, kind, time, payload)
                case _:
                    report.malformed(line.number, "a record has a type and a payload")


def _session_name(records: list[_Record], source: Source, report: LineReport) -> str:
    for record in records:
        stated = record.payload.get("id")
        if record.kind == "session_meta" and isinstance(stated, str):
            try:
                encode_token(stated)
            except InvalidIdentifier as error:
                report.remark(record.line, f"the session is named after its file: {error}")
                break
            return stated
    return source.stem


def _convert(record: _Record, rollout: _Rollout) -> None:
    match record.kind:
        case "response_item":
            _convert_item(record, rollout)
        case "compacted":
            _convert_compaction(record, rollout)
        case "session_meta":
            _convert_meta(record, rollout)
        case _:
            if record.kind == "turn_context" and isinstance(record.payload.get("model"), str):
                rollout.model = record.payload["model"]
            entries: list[Entry] = [_note(record, rollout)]
            if record.kind == "event_msg":
                _notice_event(record, rollout)
                entries += _rollback(record, rollout)
            rollout.assembly.add(record.line, entries)


def _note(record: _Record, rollout: _Rollout, data: dict[str, Any] | None = None) -> NoteEntry:
    payload = record.payload if data is None else data
    name = f"codex.{record.kind}"
    if record.kind in ("event_msg", "response_item"):
        name = f"codex.{record.payload.get('type')}"
    return NoteEntry(**_envelope(record, rollout, "note"), name=name, data=payload)


def _envelope(record: _Record, rollout: _Rollout, *suffix: str) -> dict[str, Any]:
    return rollout.assembly.envelope(record.line, record.time, *suffix)


def _convert_item(record: _Record, rollout: _Rollout) -> None:
    match convert_item(record.payload, rollout.lost.append):
        case tuple() as parts:
            _extend_reply(record, parts, rollout)
        case Message(role="system") as message:
            section = Section(name=_developer_section(rollout), text=_text(message))
            rollout.assembly.add(
                record.line, [SystemEntry(**_envelope(record, rollout), sections=(section,))]
            )
        case Message() as message:
            rollout.assembly.add(
                record.line, [MessageEntry(**_envelope(record, rollout), messages=(message,))]
            )
            if rollout.reply is not None:
                rollout.reply.closed = True
        case None:
            rollout.assembly.add(record.line, [_note(record, rollout)])


def _developer_section(rollout: _Rollout) -> str:
    rollout.developer_messages += 1
    return f"developer-{rollout.developer_messages}"


def _extend_reply(record: _Record, parts: tuple[Any, ...], rollout: _Rollout) -> None:
    reply = rollout.reply
    if reply is None or reply.closed:
        reply = rollout.assembly.open_reply(record.line, record.time, parts)
        reply.model = rollout.model
        rollout.reply = reply
    else:
        rollout.assembly.extend_reply(reply, record.line, parts)
    reply.finish_reason = "tool_call" if reply.calls else "stop"


def _notice_event(record: _Record, rollout: _Rollout) -> None:
    """What an event says of the newest reply."""
    reply = rollout.reply
    match record.payload:
        case {"type": "token_count", "info": {"last_token_usage": used}} if reply is not None:
            usage = normalise_usage(used)
            if reply.usage is None and usage is not None and usage.context_tokens:
                reply.usage = usage
            reply.closed = True
        case {"type": "turn_aborted"} if reply is not None and not reply.closed:
            # Codex goes on to show the items that were finished: only a reply that came to
            # nothing is lost with the stream.
            if all(isinstance(part, Reasoning) for part in reply.parts):
                reply.finish_reason = "aborted"
            reply.closed = True
        case _:
            pass


def _convert_meta(record: _Record, rollout: _Rollout) -> None:
    if rollout.begun:
        rollout.assembly.add(record.line, [_note(record, rollout)])
        return
    data = dict(record.payload)
    entries: list[Entry] = []
    given = data.get("base_instructions")
    text = given.get("text") if isinstance(given, dict) else given
    if isinstance(text, str) and text:
        del data["base_instructions"]
        section = Section(name=INSTRUCTIONS, text=text)
        entries.append(SystemEntry(**_envelope(record, rollout), sections=(section,)))
    if data.get("dynamic_tools"):
        rollout.lost.append("session_meta.dynamic_tools on offer (its other tools are not stored)")
    rollout.assembly.add(record.line, [*entries, _note(record, rollout, data)])
    rollout.begun = True
    if entries and isinstance(text, str):
        prompt = entries[0]
        rollout.instructions = SectionInForce(
            name=INSTRUCTIONS, text=text, entry=prompt.id, actor=prompt.actor, time=prompt.time
        )


def _convert_compaction(record: _Record, rollout: _Rollout) -> None:
    payload, lost = record.payload, rollout.lost.append
    replacement, message = payload.get("replacement_history"), payload.get("message")
    if isinstance(replacement, list):
        handoff = convert_history(replacement, lost)
    elif isinstance(message, str):
        handoff = _rebuilt_history(message, rollout)
        rollout.assembly.report.remark(
            record.line, "holds no history: it is rebuilt as Codex does, from the user's messages"
        )
    else:
        raise MalformedRecord("a compacted record needs a message or a replacement_history")
    if any(
        isinstance(part, Text) and part.content == ENCRYPTED_SUMMARY
        for shown in handoff
        for part in shown.parts
    ):
        rollout.assembly.report.remark(
            record.line, "its summary is encrypted: it is kept, but only OpenAI can read it"
        )
    data = {name: value for name, value in payload.items() if name != "replacement_history"}
    reset = _reset(record, handoff, "compacted by Codex", rollout)
    rollout.assembly.add(record.line, [reset, _note(record, rollout, data)])
    rollout.reply = None


def _reset(
    record: _Record, shown: tuple[Message, ...], reason: str, rollout: _Rollout
) -> ResetEntry:
    """A new beginning with this history: what developers said in it is the prompt's."""
    rollout.developer_messages = 0
    sections = [] if rollout.instructions is None else [rollout.instructions]
    sections += [
        SectionInForce(name=_developer_section(rollout), text=_text(message), time=record.time)
        for message in shown
        if message.role == "system"
    ]
    return ResetEntry(
        **_envelope(record, rollout, "reset"),
        handoff=tuple(message for message in shown if message.role != "system"),
        baseline=Baseline(sections=tuple(sections)) if sections else None,
        reason=reason,
    )


def _rebuilt_history(summary: str, rollout: _Rollout) -> tuple[Message, ...]:
    """What an older Codex shows after a summary: its context, the user's messages, the summary."""
    shown = [message for _, message in _history(rollout)]
    asked = [m for m in shown if m.role == "user" and not is_context(m)]
    first = next((at for at, m in enumerate(shown) if m in asked), len(shown))
    context = [m for m in shown[:first] if m.role in ("user", "system")]
    marks = summary.split("\n", 1)[0]
    asked = [m for m in asked if not (marks and _text(m).startswith(f"{marks}\n"))]
    kept: list[Message] = []
    room = KEPT_USER_CHARACTERS
    for message in reversed(asked):
        text = _text(message)
        if not text or room <= 0:
            continue
        kept.append(user(text[:room]))
        room -= len(text)
    return (*context, *reversed(kept), user(summary or "(no summary available)"))


def _text(message: Message) -> str:
    return "\n".join(part.content for part in message.parts if isinstance(part, Text))


def _history(rollout: _Rollout) -> list[tuple[str | None, Message]]:
    """What Codex shows now, with the entry of each message; None where a reset holds it."""
    history: list[tuple[str | None, Message]] = []
    for entry in rollout.assembly.entries():
        match entry:
            case MessageEntry():
                history += [(entry.id, message) for message in entry.messages]
            case SystemEntry():
                history += [(entry.id, said) for said in _developer_messages(entry.sections)]
            case ResetEntry():
                sections = entry.baseline.sections if entry.baseline else ()
                history = [(None, said) for said in _developer_messages(sections)]
                history += [(None, message) for message in entry.handoff]
            case EditEntry():
                omitted = {edit.target for edit in entry.edits}
                history = [shown for shown in history if shown[0] not in omitted]
            case _:
                pass
    return history


def _developer_messages(sections: Iterable[Section | SectionInForce]) -> Iterator[Message]:
    for section in sections:
        if section.name != INSTRUCTIONS:
            yield Message(role="system", parts=(Text(content=section.text or ""),))


def _rollback(record: _Record, rollout: _Rollout) -> list[Entry]:
    """The entry that takes back the newest turns of the user, where the event says so."""
    turns = record.payload.get("num_turns")
    if record.payload.get("type") != "thread_rolled_back" or not isinstance(turns, int):
        return []
    history = _history(rollout)
    rollout.reply = None
    begins = [at for at, (_, m) in enumerate(history) if m.role == "user" and not is_context(m)]
    if turns <= 0 or not begins:
        return []
    cut = begins[max(0, len(begins) - turns)]
    targets = [entry for entry, _ in history[cut:]]
    reason = "rolled back in Codex"
    if None in targets:
        return [_reset(record, tuple(m for _, m in history[:cut]), reason, rollout)]
    edits = tuple(Edit(target=target) for target in targets if target is not None)
    return [EditEntry(**_envelope(record, rollout, "rollback"), edits=edits, reason=reason)]
