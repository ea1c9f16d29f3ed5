"""JSON lines to append: entries and messages, and what is said of lines that are neither."""

import itertools
from datetime import UTC, datetime

import pytest

from foldlog.entry_lines import Filling, MalformedLine, parse_entries
from foldlog_events.entries import EditEntry, Entry, MessageEntry, NoteEntry, OtherEntry
from foldlog_events.errors import EntryTooLarge
from foldlog_events.messages import assistant, user

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def parsed(*lines: str) -> list[Entry]:
    ids = itertools.count(1)
    filling = Filling(
        conversation="c",
        tenant="t",
        actor="someone",
        new_id=lambda: f"new-{next(ids)}",
        now=lambda: NOW,
    )
    return parse_entries([line.encode() for line in lines], filling, source="input")


def test_a_message_becomes_an_entry_of_its_own() -> None:
    text, parts = parsed(
        '{"role":"user","content":"hello"}',
        '{"role":"assistant","parts":[{"type":"text","content":"hi"}],"finish_reason":"stop"}',
    )
    assert text == MessageEntry(
        id="new-1",
        conversation="c",
        tenant="t",
        time=NOW,
        actor="someone",
        messages=(user("hello"),),
    )
    assert isinstance(parts, MessageEntry)
    assert parts.messages == (assistant("hi"),)


def test_what_an_entry_says_itself_stays() -> None:
    (entry,) = parsed(
        '{"kind":"note","id":"n1","time":"2020-01-01T00:00:00Z","actor":"a","tenant":"t",'
        '"conversation":"c","name":"x","data":[1]}'
    )
    assert entry == NoteEntry(
        id="n1",
        conversation="c",
        tenant="t",
        time=datetime(2020, 1, 1, tzinfo=UTC),
        actor="a",
        name="x",
        data=[1],
    )


def test_shape_entries_and_kinds_of_an_application_are_entries_too() -> None:
    edit, other = parsed(
        '{"kind":"edit","edits":[{"target":"x"}]}', '{"kind":"my.kind","data":{"a":1}}'
    )
    assert isinstance(edit, EditEntry)
    assert isinstance(other, OtherEntry)
    assert other.kind == "my.kind"


def test_blank_lines_are_passed_over_and_still_counted() -> None:
    with pytest.raises(MalformedLine, match=r"^input, line 3: .*nothing was appended$") as caught:
        parsed('{"role":"user","content":"a"}', "  ", "{")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "a line is a JSON object"),
        ('{"text":"x"}', "neither an entry"),
        ("\x00", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"role":"user"}', "parts"),
        ('{"role":"nobody","content":"x"}', "role"),
        ('{"role":"user","content":[{"type":"text","text":"x"}]}', "foldlog import"),
        ('{"role":"user","content":"x","parts":[]}', "foldlog import"),
        ('{"role":"assistant","content":"x","tool_calls":[]}', "no field 'tool_calls'"),
        ('{"role":"user","parts":[{"type":"text","content":"x","text":"y"}]}', "no field 'text'"),
        ('{"role":"user","parts":[{"type":"song"}]}', "song"),
        ('{"kind":"note","nmae":"x"}', "no field 'nmae'"),
        ('{"kind":"my.kind","payload":1}', "no field 'payload'"),
        ('{"kind":"Bad Kind"}', "kind"),
        ('{"kind":5}', "no field|kind"),
        ('{"kind":"message","messages":[]}', "needs a message"),
        ('{"kind":"note","conversation":"other"}', "another conversation than 'c'"),
        ('{"kind":"note","tenant":"other"}', "another tenant than 't'"),
        ('{"kind":"note","schema":99}', "schema 99 is newer"),
        ('{"kind":"note","id":"with space"}', r"\$\.id"),
        ('{"kind":"compaction"}', "foldlog compact"),
        ('{"kind":"note","data":"\\ud800"}', "surrogate|JSON"),
    ],
)
def test_a_line_that_cannot_be_appended_is_named(line: str, said: str) -> None:
    with pytest.raises(MalformedLine, match=said) as caught:
        parsed('{"role":"user","content":"before"}', line)
    assert caught.value.line == 2


def test_two_lines_of_one_id_are_refused() -> None:
    with pytest.raises(MalformedLine, match=r"line 2: .*'a' too"):
        parsed('{"kind":"note","id":"a"}', '{"kind":"note","id":"a"}')


def test_an_entry_over_the_limit_is_named_by_its_line() -> None:
    def check(entry: Entry) -> None:
        raise EntryTooLarge(9, 8)

    filling = Filling(conversation="c", tenant="t", new_id=lambda: "x", now=lambda: NOW)
    with pytest.raises(MalformedLine, match=r"line 1: .*9 bytes"):
        parse_entries([b'{"kind":"note"}'], filling, source="input", check=check)
