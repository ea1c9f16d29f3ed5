"""JSON lines of OpenAI chat conversations: one conversation a line.

A line is an object with `messages` (and perhaps `tools` and an id, as in fine-tuning files), or
the bare list of messages. Each message becomes one entry, so every step has its own version;
system messages that open the conversation become one system entry with the tools on offer.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from foldlog.importers.conversations import (
    ImportedConversation,
    ImportedItem,
    checked,
    derived_id,
)
from foldlog.importers.detect import OPENAI_CHAT
from foldlog.importers.errors import MalformedRecord
from foldlog.importers.lines import Line
from foldlog.importers.openai_messages import (
    SYSTEM_ROLES,
    MessageReader,
    convert_tools,
    text_of,
)
from foldlog.importers.report import LineReport
from foldlog.importers.source import Source, time_of
from foldlog_events.entries import Entry, MessageEntry, NoteEntry, Section, SystemEntry
from foldlog_events.errors import FoldlogError
from foldlog_events.subjects import encode_token

ACTOR = "import:openai-chat"
_IDS = ("conversation", "conversation_id", "id")
_TIMES = ("created", "created_at", "timestamp", "time")
_READ = {"messages", "tools", "functions"}


def read(
    lines: Iterable[Line], source: Source, report: LineReport
) -> Iterator[ImportedConversation]:
    """The conversation of each line, as soon as the line has been read."""
    named: dict[str, int] = {}
    for line in lines:
        if line.blank:
            report.skipped(line.number, "blank")
            continue
        if line.fault:
            report.malformed(line.number, line.fault)
            continue
        lost: list[str] = []
        try:
            conversation = _convert_line(line, source, named, lost)
        except FoldlogError as error:
            report.malformed(line.number, str(error))
            continue
        report.imported(line.number, tuple(item.entry.id for item in conversation.items))
        for what in lost:
            report.not_carried(line.number, what)
        stated = _stated_id(line.value)
        if stated is not None and conversation.conversation != stated:
            report.remark(
                line.number,
                f"line {named[stated]} has the id {stated!r} too: "
                f"this conversation is {conversation.conversation!r}",
            )
        yield conversation


def _convert_line(
    line: Line, source: Source, named: dict[str, int], lost: list[str]
) -> ImportedConversation:
    record = line.value if isinstance(line.value, dict) else {"messages": line.value}
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise MalformedRecord("a conversation is a list of messages, or an object with them")
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise MalformedRecord("every message is an object with a role")
    conversation = _stated_id(record) or f"{source.stem}-{line.number}"
    if conversation in named:
        conversation = f"{conversation}#{line.number}"
    encode_token(conversation)
    stated = next((t for key in _TIMES if (t := _created(record.get(key))) is not None), None)
    envelope = {
        "conversation": conversation,
        "tenant": source.tenant,
        "time": stated or source.time,
        "actor": ACTOR,
    }
    entries = []
    for key, fields in _drafts(record, messages, lost):
        entry_id = derived_id(OPENAI_CHAT, conversation, key, time=stated)
        draft: Entry = fields.pop("as")(**envelope, id=entry_id, **fields)
        entries.append(checked(draft, repair=source.repair))
    named.setdefault(conversation, line.number)
    return ImportedConversation(
        format=OPENAI_CHAT,
        tenant=source.tenant,
        conversation=conversation,
        items=tuple(ImportedItem(line.number, entry) for entry in entries),
    )


def _drafts(
    record: dict[str, Any], messages: list[dict[str, Any]], lost: list[str]
) -> Iterator[tuple[str | int, dict[str, Any]]]:
    """The entries of a conversation without their envelopes: a key of each, and its fields."""
    used = _READ | {key for key in (*_IDS, *_TIMES) if key in record}
    more = {key: value for key, value in record.items() if key not in used}
    if more:
        yield "record", {"as": NoteEntry, "name": "openai-chat.record", "data": more}
    opening = list(takewhile(lambda m: m["role"] in SYSTEM_ROLES, messages))
    tools = convert_tools(record, lost.append)
    if opening or tools:
        sections = tuple(_section(number, m, lost) for number, m in enumerate(opening, start=1))
        yield "prompt", {"as": SystemEntry, "sections": sections, "tools_added": tools}
    number = len(opening)
    reader = MessageReader(lost.append)
    for index, message in enumerate(messages[len(opening) :], start=len(opening)):
        if message["role"] in SYSTEM_ROLES:
            number += 1
            sections = (_section(number, message, lost),)
            yield index, {"as": SystemEntry, "sections": sections}
            continue
        try:
            converted = reader.convert(index, message)
        except MalformedRecord as error:
            raise MalformedRecord(f"messages[{index}]: {error}") from None
        yield index, {"as": MessageEntry, "messages": (converted,)}


def _section(number: int, message: dict[str, Any], lost: list[str]) -> Section:
    lost.extend(f"system.{key}" for key in sorted(message.keys() - {"role", "content"}))
    name = "system" if number == 1 else f"system-{number}"
    return Section(name=name, text=text_of(message.get("content")))


def _stated_id(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    for key in _IDS:
        value = record.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _created(value: Any) -> Any:
    """OpenAI states seconds; texts are ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return time_of(value * 1000)
    return time_of(value)
