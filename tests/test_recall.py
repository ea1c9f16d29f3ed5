"""Reading back: parts by reference, words over the whole log, and the tool offered to models."""

import unicodedata
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from anthropic.types import ToolParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from foldlog.errors import RequestTimeout
from foldlog.recall_tool import (
    MAX_FACT,
    MAX_LIMIT,
    RECALL,
    RecallAnswer,
    anthropic_definition,
    openai_definition,
    run_recall,
)
from foldlog_events.entries import (
    ActionEntry,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ExactValue,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
    Section,
    SourceRange,
    SystemEntry,
    Unreadable,
)
from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    tool_result,
    user,
)
from foldlog_projections import recall
from foldlog_projections.recall import (
    ArtifactText,
    Expired,
    NotAllowed,
    NothingToSearchFor,
    Passage,
    Unresolved,
    entry_text,
    read_artifact,
    read_entry,
    search,
)
from tests.small_histories import common, said

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIGEST = "sha256:" + "a" * 64


def texts_of(*texts: str) -> list[Recorded]:
    return [said(version, user(text)) for version, text in enumerate(texts, 1)]


def found(entries: Sequence[Recorded], query: str, **options: Any) -> list[str]:
    return [hit.reference for hit in search(entries, query, **options).hits]


COMPACTION = CompactionEntry(
    **common("k"),
    base_version=BaseVersion(1, 0),
    source_range=SourceRange(
        first=EntryReference("a", 1), last=EntryReference("a", 1), count=1, digest=""
    ),
    summary="Sales fell.",
    exact_values=(ExactValue(text="ORD-77", kind="id", entry="a"),),
)


@pytest.mark.parametrize(
    ("entry", "text", "more_for_people"),
    [
        (MessageEntry(**common("a"), messages=(user("hi"), assistant("ok"))), "hi\nok", ""),
        (MessageEntry(**common("a"), messages=(tool_result("c", "  42\n"),)), "  42\n", ""),
        (SystemEntry(**common("a"), sections=(Section(name="cwd", text="/x"),)), "cwd:\n/x", ""),
        (SystemEntry(**common("a"), sections=(Section(name="cwd", text=None),)), "", ""),
        (COMPACTION, "Sales fell.\nid: ORD-77", ""),
        (ResetEntry(**common("a"), handoff=(user("anew"),), reason="why"), "anew", "\nwhy"),
        (
            EditEntry(
                **common("a"),
                edits=(Edit(target="x", replace=(user("new"),)), Edit(target="y")),
                reason="typo",
            ),
            "new",
            "\ntypo",
        ),
        (NoteEntry(**common("a"), name="score", data={"n": 1}), "", 'score\n{"n":1}'),
        (
            ActionEntry(
                **common("a"),
                action="a1",
                step="requested",
                name="send",
                arguments={"to": "x"},
                reason="asked",
            ),
            "",
            'a1 requested send\n{"to":"x"}\nasked',
        ),
        (ForkEntry(**common("a"), parent="p", parent_version=3), "", "p"),
        (ErasedEntry(**common("a"), target="t", target_version=1, reason="law"), "", "law"),
        (
            OtherEntry(**common("a"), kind="memo", data=[1], messages=(user("seen"),)),
            "seen",
            "\n[1]",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_an_entrys_text_is_what_a_model_may_see_and_for_people_all(
    entry: Entry, text: str, more_for_people: str
) -> None:
    assert entry_text(entry) == text
    assert entry_text(entry, for_people=True) == text + more_for_people


def test_a_messages_parts_are_texts_calls_and_placeholders_without_reasoning() -> None:
    parts = (
        Reasoning(content="secret thought"),
        Text(content="looking"),
        ToolCall(id="c", name="read", arguments={"path": "a.txt"}),
        Blob(mime_type="image/png", content="A" * 400),
    )
    content = (Text(content="rows"), ArtifactReference(digest=DIGEST, mime_type="x/y", size=9))
    result = Message(role="tool", parts=(ToolCallResponse(id="c", result=content),))
    entry = MessageEntry(**common("a"), messages=(Message(role="assistant", parts=parts), result))
    assert entry_text(entry).split("\n") == [
        "looking",
        'Called read with {"path":"a.txt"}',
        "[image/png, about 300 bytes, not shown]",
        "rows",
        f"[x/y of 9 bytes, stored as {DIGEST}]",
    ]


@given(st.text(max_size=60), st.integers(1, 20))
def test_parts_put_together_are_the_whole_text(text: str, limit: int) -> None:
    (recorded,) = texts_of(text)
    pieces = []
    offset: int | None = 0
    while offset is not None:
        passage = read_entry(recorded, offset, limit)
        assert isinstance(passage, Passage)
        assert (passage.offset, passage.total) == (offset, len(text))
        assert len(passage.text) <= limit
        pieces.append(passage.text)
        offset = passage.next_offset
    assert "".join(pieces) == text


def test_a_passage_past_the_end_is_empty() -> None:
    passage = read_entry(texts_of("abc")[0], 3, 5)
    assert isinstance(passage, Passage)
    assert (passage.text, passage.total, passage.next_offset) == ("", 3, None)
    assert (passage.reference, passage.kind, passage.version) == ("e1", "message", 1)


def test_what_is_not_for_models_is_not_allowed_and_a_tombstone_resolves_to_nothing() -> None:
    silent: list[Entry] = [
        NoteEntry(**common("a"), name="n"),
        ActionEntry(**common("a"), action="x", step="requested"),
        ForkEntry(**common("a"), parent="p", parent_version=1),
    ]
    for entry in silent:
        assert isinstance(read_entry(Recorded(1, entry), 0, 9), NotAllowed)
    tombstone = ErasedEntry(**common("a"), target="gone", target_version=1)
    outcome = read_entry(Recorded(1, tombstone), 0, 9)
    assert isinstance(outcome, Unresolved)
    assert "gone was erased" in outcome.reason


def test_an_artifact_is_read_until_its_validity_ends() -> None:
    artifact = ArtifactText(
        digest=DIGEST, mime_type="text/csv", text="a,b", source="shop", valid_until=NOW
    )
    before = read_artifact(artifact, 1, 9, now=NOW - timedelta(seconds=1))
    assert isinstance(before, Passage)
    assert (before.text, before.kind, before.source) == (",b", "text/csv", "shop")
    assert read_artifact(artifact, 0, 9, now=NOW) == Expired(DIGEST, NOW)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The Budget is CHF 1,204.50", "budget"),
        ("The Budget is CHF 1,204.50", "1,204.50 BUDGET"),
        ("Die Straße", "STRASSE"),
        ("le café noir", "Cafe\u0301"),
        ("le cafe\u0301 noir", "CAFÉ"),
        ("ＦＵＬＬ width", "full WIDTH"),
        ("销售额下降了", "下降"),
        ("각하", "각"),
        ("İstanbul", "i\u0307stanbul"),
    ],
)
def test_words_are_found_whatever_their_case_and_form(text: str, query: str) -> None:
    assert found(texts_of(text), query) == ["e1"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("le café noir", "cafe"),
        ("le cafe\u0301", "cafe"),
        ("각하", "가"),
        ("one two", "one three"),
        ("", "x"),
    ],
)
def test_other_words_are_not_found(text: str, query: str) -> None:
    assert found(texts_of(text), query) == []


def test_a_word_is_found_after_a_place_where_it_only_seems_to_stand() -> None:
    (hit,) = search(texts_of("café " * 100 + "cafe"), "cafe").hits
    assert hit.offset + hit.snippet.index("cafe") == 500


def test_a_query_without_words_is_refused() -> None:
    with pytest.raises(NothingToSearchFor):
        search([], " \t ")


def test_the_newest_hits_come_first_and_all_are_counted() -> None:
    result = search(texts_of(*["word"] * 5), "word", limit=2)
    assert [hit.reference for hit in result.hits] == ["e5", "e4"]
    assert result.total == 5


def test_what_was_erased_is_not_found_and_a_retry_stored_twice_once() -> None:
    entries = texts_of("word one", "word two")
    erased = Recorded(3, ErasedEntry(**common("x"), target="e1", target_version=1))
    again = [
        Recorded(4, entries[0].entry),
        Recorded(5, entries[1].entry),
        Recorded(6, ErasedEntry(**common("y"), target="elsewhere", target_version=1)),
    ]
    result = search([*entries, erased, *again], "word")
    assert [(hit.reference, hit.version) for hit in result.hits] == [("e2", 2)]
    assert result.total == 1


def test_notes_are_found_by_people_only() -> None:
    note = [Recorded(1, NoteEntry(**common("n"), name="score", data="word"))]
    assert found(note, "word") == []
    assert found(note, "word", for_people=True) == ["n"]


words = st.text(st.characters(exclude_categories=["Cs", "Z", "C", "M"]), min_size=1, max_size=8)
surroundings = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(words, surroundings, surroundings, st.integers(0, 3), st.sampled_from(["NFC", "NFD"]))
def test_a_word_is_found_at_its_place_in_code_points(
    word: str, before: str, after: str, chunks: int, form: Any
) -> None:
    filler = "é🙂 " * (chunks * recall._CHUNK // 3)
    text = f"{filler}{before}\n{word}\n{after}"
    query = unicodedata.normalize(form, word)
    assert found(texts_of(text), query) == ["e1"]
    (hit,) = search(texts_of(text), query).hits
    assert hit.snippet == text[hit.offset : hit.offset + recall.SNIPPET_LENGTH]
    assert hit.total == len(text)
    first = min(hit.offset + recall.SNIPPET_BEFORE, len(filler) + len(before) + 1)
    assert found(texts_of(text[hit.offset : first + recall.SNIPPET_LENGTH]), query) == ["e1"]


@given(st.lists(surroundings, max_size=6), words, words)
def test_every_hit_holds_every_word(texts: list[str], one: str, other: str) -> None:
    entries = texts_of(*texts, f"{one} {other}")
    both = set(found(entries, f"{one} {other}"))
    assert both == set(found(entries, one)) & set(found(entries, other))
    assert f"e{len(entries)}" in both


def test_a_snippet_does_not_begin_with_a_loose_accent() -> None:
    text = "e\u0301" * 100 + "x" * (recall.SNIPPET_BEFORE - 1) + "word"
    (hit,) = search(texts_of(text), "word").hits
    assert hit.snippet.startswith("e\u0301")


# The tool


class Reader:
    """Over entries in memory."""

    def __init__(self, *entries: Recorded | Unreadable, artifact: Any = None) -> None:
        self._entries = entries
        self._artifact = artifact

    async def entry(self, entry_id: str) -> Recorded | Unresolved | NotAllowed:
        if entry_id == "other":
            return NotAllowed(entry_id, "it belongs to another tenant")
        for each in self._entries:
            if isinstance(each, Recorded) and each.entry.id == entry_id:
                return each
        return Unresolved(entry_id, "this conversation has no such entry")

    async def entries(self) -> AsyncIterator[Recorded | Unreadable]:
        for each in self._entries:
            yield each

    async def artifact(self, digest: str) -> ArtifactText | Unresolved | NotAllowed:
        return self._artifact or Unresolved(digest, "it was deleted")


async def answer(arguments: dict[str, Any] | str, reader: Reader | None = None) -> RecallAnswer:
    reader = reader or Reader(*texts_of("the budget is 5", "hello", "Budget again"))
    return await run_recall(reader, arguments, now=NOW)


async def test_a_search_names_its_references_and_where_the_snippet_stands() -> None:
    told = await answer({"query": "BUDGET"})
    assert not told.is_error
    assert told.references == ("e3", "e1")
    assert told.text.startswith("2 entries, newest first. To read one whole")
    assert "reference e1 (message, version 1, 2026-01-01 00:00:00 UTC)" in told.text
    assert "characters 0 to 15 of 15:\nthe budget is 5" in told.text
    assert (await answer({"query": "hello"})).text.startswith("1 entry, ")


async def test_a_search_says_what_is_missing() -> None:
    broken = Unreadable(9, "log", "not JSON")
    told = await answer({"query": "word"}, Reader(*texts_of(*["word"] * 12), broken))
    assert "2 older ones are not shown" in told.text
    assert "1 entry could not be read" in told.text
    nothing = await answer({"query": "absent"}, Reader(broken))
    assert not nothing.is_error
    assert "No entry holds all of these words: 'absent'" in nothing.text
    assert "could not be read" in nothing.text


async def test_a_part_says_how_to_read_on_and_reading_on_gives_the_whole() -> None:
    text = "".join(chr(0x4E00 + place) for place in range(250))
    reader = Reader(*texts_of(text))
    parts = []
    arguments: dict[str, Any] = {"reference": "e1", "limit": 100}
    for offset in (0, 100, 200):
        told = await answer(arguments | {"offset": offset}, reader)
        assert told.references == ("e1",)
        heading, part = told.text.split("\n\n")
        assert f"characters {offset} to {offset + len(part)} of 250" in heading
        assert (f"{offset} come before" in heading) == (offset > 0)
        assert (f"with this reference and offset {offset + 100}" in heading) == (offset < 200)
        parts.append(part)
    assert "".join(parts) == text


async def test_past_the_end_there_is_nothing_and_it_says_so() -> None:
    told = await answer({"reference": "e1", "offset": 99})
    assert "nothing from character 99 on: the text has 15" in told.text


async def test_an_artifact_says_its_source_coverage_and_time() -> None:
    artifact = ArtifactText(
        digest=DIGEST,
        mime_type="text/csv",
        text="a,b",
        source="shop database " + "x" * MAX_LIMIT,
        coverage="all shows of February",
        time=NOW,
    )
    told = await answer({"reference": DIGEST}, Reader(artifact=artifact))
    assert "(text/csv, 2026-03-01 12:00:00 UTC); source: shop database" in told.text
    assert "covers: all shows of February" in told.text
    assert told.text.endswith("\n\na,b")
    assert told.references == (DIGEST,)
    assert "x" * MAX_FACT not in told.text


@pytest.mark.parametrize(
    ("reference", "artifact", "expected"),
    [
        ("gone", None, "'gone' no longer resolves, or never did: this conversation has no such"),
        ("other", None, "may not be read here: it belongs to another tenant"),
        (DIGEST, None, "it was deleted"),
        (
            DIGEST,
            ArtifactText(digest=DIGEST, mime_type="x", text="t", valid_until=NOW),
            "past its validity, which ended 2026-03-01 12:00:00 UTC",
        ),
    ],
)
async def test_what_cannot_be_read_says_why(reference: str, artifact: Any, expected: str) -> None:
    told = await answer({"reference": reference}, Reader(artifact=artifact))
    assert told.is_error
    assert told.references == ()
    assert expected in told.text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("budget", "the arguments are no JSON object"),
        ({}, "neither was given"),
        ({"query": " ", "reference": ""}, "neither was given"),
        ({"query": "a", "reference": "b"}, "both was given"),
        ({"query": 5}, "`$.query`"),
        ({"search": "a"}, "unknown field `search`"),
        ({"reference": "e1", "offset": -1}, "`$.offset`"),
        ({"reference": "e1", "limit": MAX_LIMIT + 1}, "`$.limit`"),
        ({"reference": "e1", "limit": "many"}, "`$.limit`"),
        ({"query": "x" * 500}, "`$.query`"),
    ],
)
async def test_wrong_arguments_are_explained_to_the_model(arguments: Any, expected: str) -> None:
    told = await answer(arguments)
    assert told.is_error
    assert expected in told.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"reference": " e1 ", "offset": "4", "limit": "6"},
        {"reference": "e1", "offset": 4.0, "limit": 6, "query": None},
    ],
)
async def test_numbers_as_models_write_them_are_understood(arguments: dict[str, Any]) -> None:
    told = await answer(arguments)
    assert told.text.endswith("\n\nbudget")


async def test_a_broker_that_does_not_answer_is_an_answer_too() -> None:
    class Silent(Reader):
        async def entry(self, entry_id: str) -> Recorded:
            raise RequestTimeout("no answer within 5 s")

    told = await answer({"reference": "e1"}, Silent())
    assert told == RecallAnswer(text="Recall failed: no answer within 5 s", is_error=True)


async def test_the_longest_answer_stays_below_what_pruning_would_shorten() -> None:
    longest = await answer({"reference": "e1", "limit": MAX_LIMIT}, Reader(*texts_of("y" * 9_999)))
    assert MAX_LIMIT < len(longest.text) < 8_192
    many = await answer({"query": "y"}, Reader(*texts_of(*["y" * 999] * 20)))
    assert len(many.text) < 8_192


async def test_the_answer_becomes_the_tool_message_of_the_call() -> None:
    told = await answer({})
    assert told.message("c1") == tool_result("c1", told.text, is_error=True)


def test_the_definitions_are_those_of_the_official_clients() -> None:
    openai: Any = TypeAdapter(ChatCompletionFunctionToolParam).validate_python(openai_definition())
    claude: Any = TypeAdapter(ToolParam).validate_python(anthropic_definition())
    assert openai["function"]["parameters"] == claude["input_schema"] == RECALL.parameters
    assert openai["function"]["name"] == claude["name"] == "recall"


async def test_every_argument_that_the_definition_offers_is_accepted() -> None:
    offered = RECALL.parameters["properties"]
    assert set(offered) == {"query", "reference", "offset", "limit"}
    assert offered["limit"]["maximum"] == MAX_LIMIT
    for extra in ({"offset": 0}, {"limit": MAX_LIMIT}):
        assert not (await answer({"reference": "e1", **extra})).is_error
