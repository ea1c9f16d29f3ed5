"""Bytes of entries: what every reader can read, or a refusal at the door that names the place."""

import itertools
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from foldlog_events import codec, upcasters
from foldlog_events.codec import MAX_DEPTH, decode, encode
from foldlog_events.entries import (
    SCHEMA,
    ActionEntry,
    Edit,
    EditEntry,
    Entry,
    ForkEntry,
    KnownEntry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    ResetEntry,
    kind_of,
)
from foldlog_events.errors import InvalidEntry, UndecodableEntry
from foldlog_events.messages import (
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Usage,
    assistant,
    user,
)
from tests.golden_entries import ENTRIES, GOLDEN

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)


def note(data: Any, **fields: Any) -> NoteEntry:
    return NoteEntry(**{"id": "n", "conversation": "c", "time": TIME, "data": data, **fields})


def said(*messages: Message, **fields: Any) -> MessageEntry:
    return MessageEntry(
        **{"id": "m", "conversation": "c", "time": TIME, "messages": messages, **fields}
    )


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


@pytest.mark.parametrize("name", ENTRIES)
def test_every_kind_is_decoded_from_its_golden_file_and_encoded_to_its_bytes(name: str) -> None:
    golden = (GOLDEN / f"schema-{SCHEMA}" / f"{name}.json").read_bytes()
    assert decode(golden) == ENTRIES[name]
    assert encode(ENTRIES[name]) == golden


def test_the_golden_files_are_of_every_kind_and_none_is_forgotten() -> None:
    kinds = {kind_of(entry) for entry in ENTRIES.values()}
    known = {str(one.__struct_config__.tag) for one in KnownEntry.__args__}
    assert kinds == known | {"app.consent"}
    assert known == codec.KNOWN_KINDS
    assert {path.stem for path in (GOLDEN / f"schema-{SCHEMA}").iterdir()} == set(ENTRIES)


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_golden_files_of_every_schema_are_there_and_decode(schema: int) -> None:
    files = list((GOLDEN / f"schema-{schema}").glob("*.json"))
    assert files
    for file in files:
        assert decode(file.read_bytes()).schema == SCHEMA


def test_every_earlier_schema_has_an_upcaster() -> None:
    assert set(upcasters.UPCASTERS) == set(range(1, SCHEMA))


def test_what_is_written_is_json_for_strict_readers() -> None:
    for entry in ENTRIES.values():

        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        json.loads(encode(entry).decode("utf-8", "strict"), parse_constant=refuse)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (math.nan, r"\$\.data: nan is no JSON number"),
        (math.inf, r"\$\.data: inf is no JSON number"),
        ({"a": [1, {"b": -math.inf}]}, r"\$\.data\.a\[1\]\.b: -inf"),
        (float("1e400"), r"\$\.data: inf"),
        (10**4_999, r"\$\.data: an integer beyond 64 bits"),
        ([2**64], r"\$\.data\[0\]: an integer beyond 64 bits"),
        ({"n": -(2**63) - 1}, r"\$\.data\.n: an integer beyond 64 bits"),
        ({1: "a"}, r"\$\.data: the key 1 is no text"),
        ({"a": object()}, r"\$\.data\.a: object is no JSON value"),
        ({"a": "x\ud800y"}, r"\$\.data\.a: the text holds a lone surrogate"),
        ({"x\udfff": 1}, "the text holds a lone surrogate"),
        ("\udc80", r"\$\.data: the text holds a lone surrogate"),
        (nested(250), f"nested deeper than {MAX_DEPTH} levels"),
        (nested(100_000), f"nested deeper than {MAX_DEPTH} levels"),
    ],
    ids=itertools.count(),
)
def test_35_what_no_reader_could_use_is_refused_at_the_door_by_its_place(
    data: Any, place: str
) -> None:
    with pytest.raises(InvalidEntry, match=place):
        encode(note(data))
    call = ToolCall(id="c", name="f", arguments={"deep": data})
    with pytest.raises(InvalidEntry, match=r"\$\.messages|surrogate"):
        encode(said(assistant("", call)))


@pytest.mark.parametrize(
    "data",
    [
        2**64 - 1,
        -(2**63),
        5e-324,
        1.7976931348623157e308,
        -0.0,
        "\x00",
        {"\x00": "a\x00b"},
        "\u2028\u2029\ufeff\U0010ffff",
        nested(MAX_DEPTH - 2),
        "9" * 5_000,
        {"": ""},
        [],
    ],
    ids=itertools.count(),
)
def test_35_what_stands_just_within_the_limits_comes_back_as_it_was(data: Any) -> None:
    entry = note(data)
    assert decode(encode(entry)) == entry
    assert json.loads(encode(entry))["data"] == data


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "truncated"),
        (b"null", "object"),
        (b"[]", "object"),
        (b"\xff\xfe", "malformed|invalid"),
        (b"\xef\xbb\xbf{}", "malformed|invalid"),
        (b"{}", "kind"),
        (b'{"kind":7}', "kind|str"),
        (b'{"kind":"message"', "truncated"),
        (b'{"kind":"message"}', "missing required field"),
        (b'{"kind":"note","id":"n","conversation":"c","time":"yesterday"}', "time|datetime"),
        (
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","data":NaN}',
            "malformed|invalid",
        ),
        (
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","data":1e400}',
            "out of range",
        ),
        (
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","data":'
            b'"\\ud800"}',
            "surrogate|truncated",
        ),
        (
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","data":"\xed'
            b'\xa0\x80"}',
            "utf-8|invalid",
        ),
        (
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","data":'
            + b"[" * 100_000,
            "recursion|truncated",
        ),
    ],
    ids=itertools.count(),
)
def test_35_stored_bytes_that_are_no_entry_are_undecodable_and_say_why(
    raw: bytes, reason: str
) -> None:
    with pytest.raises(UndecodableEntry, match=f"(?i){reason}"):
        decode(raw)


def test_a_repair_writes_what_can_be_read() -> None:
    broken = {"x\ud800": ["a\udfffb", math.nan, math.inf, 1.5]}
    repaired = decode(encode(note(broken), repair=True))
    assert isinstance(repaired, NoteEntry)
    assert repaired.data == {"x\ufffd": ["a\ufffdb", None, None, 1.5]}
    other = OtherEntry(kind="app.x", id="o", conversation="c", time=TIME, data="\ud800")
    assert decode(encode(other, repair=True)) == msgspec.structs.replace(other, data="\ufffd")
    with pytest.raises(InvalidEntry, match="beyond 64 bits"):
        encode(note(2**64), repair=True)
    with pytest.raises(InvalidEntry, match="nested deeper"):
        encode(note(nested(250)), repair=True)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
@pytest.mark.parametrize(
    "build",
    [
        lambda text: said(user(text)),
        lambda text: said(user("fine"), actor=text),
        lambda text: said(user("fine"), conversation=text),
        lambda text: EditEntry(id="e", conversation="c", time=TIME, edits=(Edit(target=text),)),
    ],
)
def test_35_a_lone_surrogate_is_refused_wherever_text_stands(
    build: Callable[[str], Entry], text: str
) -> None:
    with pytest.raises(InvalidEntry, match="lone surrogate"):
        encode(build(text))


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (said(user("x"), id=""), r"\$\.id"),
        (said(user("x"), id="has space"), r"\$\.id"),
        (said(user("x"), id="x" * 129), r"\$\.id"),
        (said(user("x"), id="ü"), r"\$\.id"),
        (said(user("x"), id="a\r\nb"), r"\$\.id"),
        (said(user("x"), time=datetime(2026, 3, 1)), r"\$\.time"),
        (said(user("x"), schema=SCHEMA + 1), r"\$\.schema"),
        (said(), r"\$\.messages"),
        (said(Message(role="system", parts=())), r"\$\.messages\[0\]\.role"),
        (said(Message(role="user", parts=(), model="m")), r"\$\.messages\[0\]"),
        (said(Message(role="tool", parts=(), usage=Usage())), r"\$\.messages\[0\]"),
        (
            said(user("x"), Message(role="user", parts=(Reasoning(content="r"),))),
            r"\$\.messages\[1\]\.parts\[0\]",
        ),
        (said(Message(role="tool", parts=(ToolCall(id="c", name="f"),))), r"parts\[0\]"),
        (
            said(Message(role="assistant", parts=(ToolCallResponse(id="c", result=""),))),
            r"parts\[0\]",
        ),
        (said(assistant("t", ToolCall(id="", name="f"))), r"parts\[1\]"),
        (said(assistant("t", ToolCall(id="c", name=""))), r"parts\[1\]"),
        (
            said(Message(role="tool", parts=(ToolCallResponse(id="", result=""),))),
            r"parts\[0\]\.id",
        ),
        (
            ResetEntry(
                id="r", conversation="c", time=TIME, handoff=(Message(role="system", parts=()),)
            ),
            r"\$\.handoff\[0\]\.role",
        ),
        (EditEntry(id="e", conversation="c", time=TIME, edits=()), r"\$\.edits"),
        (
            EditEntry(
                id="e", conversation="c", time=TIME, edits=(Edit(target="a"), Edit(target="a"))
            ),
            r"\$\.edits",
        ),
        (
            EditEntry(
                id="e",
                conversation="c",
                time=TIME,
                edits=(Edit(target="a", replace=(Message(role="system", parts=()),)),),
            ),
            r"\$\.edits\[0\]\.replace\[0\]\.role",
        ),
        (msgspec.structs.replace(ENTRIES["compaction"], summary=" \n"), r"\$\.summary"),
        (
            ForkEntry(id="f", conversation="c", time=TIME, parent="", parent_version=1),
            r"\$\.parent",
        ),
        (
            ForkEntry(id="f", conversation="c", time=TIME, parent="p", parent_version=-1),
            r"\$\.parent",
        ),
        (
            ActionEntry(id="a", conversation="c", time=TIME, action="", step="started"),
            r"\$\.action",
        ),
        (OtherEntry(kind="message", id="o", conversation="c", time=TIME), r"\$\.kind"),
        (OtherEntry(kind="App", id="o", conversation="c", time=TIME), r"\$\.kind"),
        (OtherEntry(kind="a" * 65, id="o", conversation="c", time=TIME), r"\$\.kind"),
        (
            OtherEntry(
                kind="app.x",
                id="o",
                conversation="c",
                time=TIME,
                messages=(Message(role="system", parts=()),),
            ),
            r"\$\.messages\[0\]\.role",
        ),
    ],
)
def test_what_says_nothing_sensible_is_refused_by_its_place(entry: Entry, place: str) -> None:
    with pytest.raises(InvalidEntry, match=place):
        encode(entry)


def test_values_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidEntry):
        encode(said(Message(role="user", parts=(Text(content=7),))))  # type: ignore[arg-type]
    with pytest.raises(InvalidEntry):
        encode(said(user("x"), actor=None))


def test_a_kind_that_nobody_knows_is_kept() -> None:
    raw = (
        b'{"kind":"later.kind","id":"x","conversation":"c","time":"2026-03-01T12:00:00Z",'
        b'"data":{"a":1},"unknown":[1,2]}'
    )
    entry = decode(raw)
    assert isinstance(entry, OtherEntry)
    assert (entry.kind, entry.data, entry.required) == ("later.kind", {"a": 1}, False)


def test_a_field_that_a_later_release_added_is_passed_over() -> None:
    raw = encode(said(user("x")))
    assert decode(b'{"new":{"deep":[1]},' + raw[1:]) == said(user("x"))


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> int:
    """This release after the schema was raised: what was `tenant` is now called `owner`."""
    following = SCHEMA + 1

    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in fields.items() if name != "owner"}
        return {**kept, "tenant": fields["owner"]} if "owner" in fields else kept

    for module in (codec, upcasters):
        monkeypatch.setattr(module, "SCHEMA", following)
    monkeypatch.setattr(upcasters, "UPCASTERS", {**upcasters.UPCASTERS, SCHEMA: renamed})
    return following


def test_an_entry_of_an_earlier_schema_is_read_through_its_upcaster(next_schema: int) -> None:
    old = (
        b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z",'
        b'"owner":"acme","data":1}'
    )
    assert decode(old) == note(1, tenant="acme", schema=next_schema)
    for name, entry in ENTRIES.items():
        golden = (GOLDEN / f"schema-{SCHEMA}" / f"{name}.json").read_bytes()
        assert decode(golden) == msgspec.structs.replace(entry, schema=next_schema)


def test_what_a_raised_schema_writes_says_its_schema(
    next_schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = note(1, schema=next_schema)
    assert json.loads(encode(entry))["schema"] == next_schema
    assert decode(encode(entry)) == entry
    with pytest.raises(InvalidEntry, match=f"writes schema {next_schema}"):
        encode(note(1))
    # A release that raises the schema has it as the default, which encoding leaves out.
    monkeypatch.setattr(codec, "DEFAULT_SCHEMA", next_schema)
    monkeypatch.setattr(codec, "_encoder", msgspec.json.Encoder(), raising=True)
    assert codec._state_schema(b'{"kind":"note"}', entry) == (
        b'{"schema":%d,"kind":"note"}' % next_schema
    )


def test_an_entry_of_a_later_schema_says_that_foldlog_is_too_old() -> None:
    for raw in (
        b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","schema":9}',
        b'{"kind":"note","schema":9,"everything":"else changed"}',
        b'{"kind":"brand.new","schema":9,"id":7}',
    ):
        with pytest.raises(UndecodableEntry, match=r"schema 9 is newer than .*upgrade foldlog"):
            decode(raw)
    with pytest.raises(UndecodableEntry, match="never a schema 0"):
        decode(
            b'{"kind":"note","id":"n","conversation":"c","time":"2026-03-01T12:00:00Z","schema":0}'
        )


def test_an_upcaster_that_fails_makes_its_entry_undecodable_and_no_other(
    next_schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "data": fields["nothing"]}

    monkeypatch.setattr(upcasters, "UPCASTERS", {SCHEMA: failing})
    with pytest.raises(UndecodableEntry, match="cannot be brought to"):
        decode(encode(note(1, schema=next_schema)).replace(b'"schema":2,', b""))
    assert decode(encode(note(1, schema=next_schema))) == note(1, schema=next_schema)
