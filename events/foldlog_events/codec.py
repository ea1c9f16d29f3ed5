"""Entries as bytes: JSON that every reader can read, or a typed error before it is written.

Python's own `json` writes lone surrogates and NaN, which strict readers refuse; here whatever
is encoded has been decoded once by the reader's own decoder.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from foldlog_events.entries import (
    FIRST_SCHEMA,
    SCHEMA,
    ActionEntry,
    CompactionEntry,
    EditEntry,
    Entry,
    ForkEntry,
    KnownEntry,
    MessageEntry,
    OtherEntry,
    ResetEntry,
    kind_of,
)
from foldlog_events.errors import InvalidEntry, UndecodableEntry
from foldlog_events.messages import (
    Message,
    Reasoning,
    ToolCall,
    ToolCallResponse,
)
from foldlog_events.upcasters import upcast

MAX_DEPTH = 100
"""Levels of nesting in an entry; readers in other languages stop at about this depth."""
MAX_INTEGER = 2**64 - 1
MIN_INTEGER = -(2**63)

KNOWN_KINDS = frozenset(
    {"message", "system", "note", "action", "fork", "edit", "compaction", "reset", "erased"}
)
_ID = re.compile(r"[!-~]{1,128}")
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

DEFAULT_SCHEMA = SCHEMA
"""What a struct holds that was given no schema; it is left out when an entry is encoded."""

_encoder = msgspec.json.Encoder()
_known = msgspec.json.Decoder(KnownEntry)
_other = msgspec.json.Decoder(OtherEntry)


class _Head(msgspec.Struct):
    kind: str
    schema: int = FIRST_SCHEMA


_head = msgspec.json.Decoder(_Head)
_fields = msgspec.json.Decoder(dict[str, Any])


def encode(entry: Entry, *, repair: bool = False) -> bytes:
    """The bytes to publish.

    With `repair`, lone surrogates become U+FFFD and numbers that JSON does not have become
    null. Raises InvalidEntry, which names the place, for anything else a reader would refuse.
    """
    try:
        if repair:
            entry = _repaired(entry)
        _check(entry)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        # A value of the wrong type: the reader's own decoder says where.
        raise InvalidEntry(_decoders_reason(entry) or str(error)) from None
    try:
        encoded = _state_schema(_encoder.encode(entry), entry)
    except UnicodeEncodeError:
        place = next(_faults(msgspec.to_builtins(entry), "$"))[0]
        raise InvalidEntry(
            "the text holds a lone surrogate: remove it, or encode with repair", place=place
        ) from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidEntry(f"cannot be written as JSON: {error}") from None
    try:
        decode(encoded)
    except UndecodableEntry as error:
        raise InvalidEntry(error.reason) from None
    return encoded


def _decoders_reason(entry: Entry) -> str:
    try:
        decode(_encoder.encode(entry))
    except UndecodableEntry as error:
        return error.reason
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        return f"cannot be written as JSON: {error}"
    return ""


def decode(data: bytes) -> Entry:
    """The entry behind stored bytes, of this schema or an earlier one. Raises UndecodableEntry."""
    try:
        if SCHEMA == FIRST_SCHEMA:
            try:
                entry: Entry = _known.decode(data)
            except msgspec.ValidationError:
                entry = _decode_by_head(data)
        else:
            entry = _decode_by_head(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableEntry(str(error)) from None
    _check_schema(entry.schema)
    return entry


def _decode_by_head(data: bytes) -> Entry:
    """Decode what may be of another schema, or of a kind that this release does not know."""
    head = _head.decode(data)
    _check_schema(head.schema)
    if head.schema < SCHEMA:
        try:
            data = _encoder.encode(upcast(_fields.decode(data), head.schema))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UndecodableEntry(
                f"an entry of schema {head.schema} that cannot be brought to {SCHEMA}: {error!r}"
            ) from None
    if head.kind in KNOWN_KINDS:
        return _known.decode(data)
    return _other.decode(data)


def _check_schema(schema: int) -> None:
    if schema > SCHEMA:
        raise UndecodableEntry(
            f"schema {schema} is newer than {SCHEMA}, the newest this release reads: "
            "upgrade foldlog"
        )
    if schema < FIRST_SCHEMA:
        raise UndecodableEntry(f"there was never a schema {schema}")


def _state_schema(encoded: bytes, entry: Entry) -> bytes:
    """An encoded entry that says its schema: one that says none is of the first."""
    if SCHEMA == FIRST_SCHEMA or entry.schema != DEFAULT_SCHEMA:
        return encoded
    return b'{"schema":%d,' % SCHEMA + encoded[1:]


def _check(entry: Entry) -> None:
    if not _ID.fullmatch(entry.id):
        raise InvalidEntry(
            "an entry id is 1 to 128 printable ASCII characters without spaces", place="$.id"
        )
    if entry.time.tzinfo is None:
        raise InvalidEntry("a time needs its offset from UTC", place="$.time")
    if entry.schema != SCHEMA:
        raise InvalidEntry(f"this release writes schema {SCHEMA}", place="$.schema")
    _check_kind(entry)
    for place, reason in _structural_faults(entry):
        raise InvalidEntry(reason, place=place)


def _check_kind(entry: Entry) -> None:
    match entry:
        case MessageEntry(messages=messages):
            if not messages:
                raise InvalidEntry("a message entry needs a message", place="$.messages")
            _check_messages(messages, "$.messages")
        case ResetEntry(handoff=messages):
            _check_messages(messages, "$.handoff")
        case EditEntry(edits=edits):
            if not edits:
                raise InvalidEntry("an edit entry needs an edit", place="$.edits")
            if len({edit.target for edit in edits}) < len(edits):
                raise InvalidEntry("an entry edits a target once", place="$.edits")
            for index, edit in enumerate(edits):
                _check_messages(edit.replace or (), f"$.edits[{index}].replace")
        case CompactionEntry(summary=summary):
            if not summary.strip():
                raise InvalidEntry("a summary must say something", place="$.summary")
        case ForkEntry(parent=parent, parent_version=version):
            if not parent or version < 0:
                raise InvalidEntry("a fork names its parent and a version", place="$.parent")
        case ActionEntry(action=action):
            if not action:
                raise InvalidEntry("an action needs its id", place="$.action")
        case OtherEntry(kind=kind, messages=messages):
            if kind in KNOWN_KINDS or not _KIND.fullmatch(kind):
                raise InvalidEntry(
                    "a kind of your own is up to 64 of a-z, 0-9, _ . - and not one of foldlog's",
                    place="$.kind",
                )
            _check_messages(messages, "$.messages")
        case _:
            pass


def _check_messages(messages: tuple[Message, ...], place: str) -> None:
    for at, message in enumerate(messages):
        if message.role == "system":
            raise InvalidEntry(
                "system text belongs to a system entry's sections", place=f"{place}[{at}].role"
            )
        if message.role != "assistant" and (
            message.finish_reason or message.usage or message.seen or message.model
        ):
            raise InvalidEntry(
                "finish_reason, model, usage and seen belong to assistant messages",
                place=f"{place}[{at}]",
            )
        for index, part in enumerate(message.parts):
            spot = f"{place}[{at}].parts[{index}]"
            if isinstance(part, ToolCall | Reasoning) and message.role != "assistant":
                raise InvalidEntry("only an assistant calls and reasons", place=spot)
            if isinstance(part, ToolCallResponse) and message.role == "assistant":
                raise InvalidEntry("an assistant does not answer its own call", place=spot)
            if isinstance(part, ToolCall) and not (part.id and part.name):
                raise InvalidEntry("a tool call needs an id and a name", place=spot)
            if isinstance(part, ToolCallResponse) and not part.id:
                raise InvalidEntry("a result names the call it answers", place=f"{spot}.id")


def _structural_faults(entry: Entry) -> Iterator[tuple[str, str]]:
    """Faults of nesting, numbers and keys; only values of free form can have them."""
    fields = ((name, getattr(entry, name)) for name in entry.__struct_fields__ if name != "time")
    for name, value in fields:
        if isinstance(value, str):
            continue
        yield from _faults(value, f"$.{name}", texts=False)


def _faults(
    value: Any, place: str, depth: int = 1, *, texts: bool = True
) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        yield place, f"nested deeper than {MAX_DEPTH} levels: flatten it, or send it as text"
        return
    match value:
        case None | bool():
            pass
        case str():
            if texts and not value.isascii() and _LONE.search(value):
                yield place, "a lone surrogate"
        case int():
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                yield place, "an integer beyond 64 bits: send it as text"
        case float():
            if not math.isfinite(value):
                yield place, f"{value} is no JSON number: send null or text"
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _faults(item, f"{place}[{index}]", depth + 1, texts=texts)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    yield place, f"the key {key!r} is no text"
                else:
                    yield from _faults(key, f"{place}.{key!r}", depth + 1, texts=texts)
                    yield from _faults(item, f"{place}.{key}", depth + 1, texts=texts)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                item = getattr(value, name)
                if not isinstance(item, str) or texts:
                    yield from _faults(item, f"{place}.{name}", depth + 1, texts=texts)
        case _:
            if not hasattr(value, "isoformat"):
                yield place, f"{type(value).__name__} is no JSON value"


_LONE = re.compile("[\ud800-\udfff]")


def _repaired(entry: Entry) -> Entry:
    return msgspec.convert(
        _repaired_value(msgspec.to_builtins(entry)),
        OtherEntry if isinstance(entry, OtherEntry) else KnownEntry,
    )


def _repaired_value(value: Any) -> Any:
    match value:
        case str():
            return _LONE.sub("\ufffd", value)
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [_repaired_value(item) for item in value]
        case dict():
            return {_repaired_value(key): _repaired_value(item) for key, item in value.items()}
        case _:
            return value


__all__ = ["KNOWN_KINDS", "MAX_DEPTH", "decode", "encode", "kind_of"]
