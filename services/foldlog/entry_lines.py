"""JSON lines that people and programs append: whole entries, or bare messages.

A line is an entry without its envelope (`kind` and the kind's fields), where what is missing of
the envelope is filled in; or a message, `{"role", "parts"}` or `{"role", "content": "text"}`.
A field that has no meaning there is refused, never dropped.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, get_args

import msgspec

from foldlog_events.codec import decode, encode
from foldlog_events.entries import Entry, KnownEntry, MessageEntry, OtherEntry
from foldlog_events.errors import EntryTooLarge, FoldlogError, InvalidEntry, UndecodableEntry
from foldlog_events.messages import AnyPart, Message

ENVELOPE_OWNER = ("conversation", "tenant")
ELSEWHERE = {"compaction": "`foldlog compact`", "fork": "Session.fork", "erased": "an erasure"}
"""Kinds whose fields no one can know beforehand, and what writes them."""

_entry_fields = {
    str(struct.__struct_config__.tag): struct.__struct_encode_fields__
    for struct in get_args(KnownEntry)
}
_part_fields = {
    str(struct.__struct_config__.tag): struct.__struct_encode_fields__
    for struct in get_args(AnyPart)
}


class MalformedLine(FoldlogError):
    """A line of input that is no entry and no message. Nothing of the input was appended."""

    def __init__(self, line: int, reason: str, *, source: str) -> None:
        super().__init__(f"{source}, line {line}: {reason}; nothing was appended")
        self.line = line
        self.reason = reason


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry gets that does not say it itself."""

    conversation: str
    tenant: str
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    actor: str = ""


def parse_entries(
    lines: Iterable[bytes],
    filling: Filling,
    *,
    source: str,
    check: Callable[[Entry], object] = encode,
) -> list[Entry]:
    """An entry for each line that is not blank.

    `check` raises where an entry cannot be written. Raises MalformedLine for the first line that
    cannot be appended.
    """
    ids: set[str] = set()
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = _parse(line, filling)
            check(entry)
            if entry.id in ids:
                raise InvalidEntry(f"an earlier line has the id {entry.id!r} too", place="$.id")
        except (EntryTooLarge, InvalidEntry, UndecodableEntry) as error:
            raise MalformedLine(number, str(error), source=source) from None
        ids.add(entry.id)
        entries.append(entry)
    return entries


def _parse(line: bytes, filling: Filling) -> Entry:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEntry(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidEntry("a line is a JSON object: an entry with `kind`, a message with `role`")
    if "kind" in value:
        return _entry(value, filling)
    if "role" in value:
        return _entry({"kind": "message", "messages": [_message(value)]}, filling)
    raise InvalidEntry("neither an entry, which has a `kind`, nor a message, which has a `role`")


def _message(value: dict[str, Any]) -> dict[str, Any]:
    content = value.pop("content", None)
    if isinstance(content, str) and "parts" not in value:
        value["parts"] = [{"type": "text", "content": content}]
    elif content is not None:
        raise InvalidEntry(
            "a message has `parts`, or `content` that is text; `foldlog import` reads whole "
            "conversations in other forms",
            place="$.content",
        )
    return value


def _entry(value: dict[str, Any], filling: Filling) -> Entry:
    kind = value["kind"]
    if not isinstance(kind, str):
        raise InvalidEntry("a kind is text", place="$.kind")
    if kind in ELSEWHERE:
        raise InvalidEntry(f"a {kind} entry is written by {ELSEWHERE[kind]}", place="$.kind")
    known = _entry_fields.get(kind)
    names = known or OtherEntry.__struct_encode_fields__
    _check_names(value, ("kind", *names), f"an entry of kind {kind!r}", "$")
    for name in ENVELOPE_OWNER:
        wanted = getattr(filling, name)
        if value.setdefault(name, wanted) != wanted:
            raise InvalidEntry(f"the entry is of another {name} than {wanted!r}", place=f"$.{name}")
    value.setdefault("id", filling.new_id())
    value.setdefault("time", filling.now())
    if filling.actor:
        value.setdefault("actor", filling.actor)
    try:
        entry = decode(msgspec.json.encode(value))
    except UnicodeEncodeError:
        raise InvalidEntry("the text holds a lone surrogate") from None
    if isinstance(entry, MessageEntry):
        _check_messages(value["messages"], "$.messages")
    return entry


def _check_messages(messages: list[dict[str, Any]], place: str) -> None:
    """Refuse fields of messages and parts that decoding passed over."""
    for index, message in enumerate(messages):
        where = f"{place}[{index}]"
        _check_names(message, Message.__struct_encode_fields__, "a message", where)
        for part in message["parts"]:
            names = ("type", *_part_fields[part["type"]])
            _check_names(part, names, f"a {part['type']} part", f"{where}.parts")


def _check_names(value: dict[str, Any], known: tuple[str, ...], what: str, place: str) -> None:
    for name in value:
        if name not in known:
            raise InvalidEntry(
                f"{what} has no field {name!r}: known are {', '.join(known)}", place=place
            )
