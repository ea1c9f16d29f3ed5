"""Pruning tool results without a model (design section 8.1)."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog_events.entries import MessageEntry, Recorded
from foldlog_events.messages import (
    Blob,
    Content,
    Message,
    ProviderPayload,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    tool_result,
    user,
)
from foldlog_projections.cut import CutItem
from foldlog_projections.graphemes import boundary_after, boundary_before, is_boundary
from foldlog_projections.informative import condense
from foldlog_projections.policy import default, pi
from foldlog_projections.prune import Pruned, prune, recall_marker, shorten_text
from foldlog_projections.recall import Passage, read_entry
from foldlog_projections.tokens import estimate_messages

POLICY = pi(200_000)
"""Head and tail only."""
OURS = default(200_000)


def calling(*ids: str) -> Message:
    return assistant("", *(ToolCall(id=i, name="look_up") for i in ids))


def history(*messages: Message | tuple[Message, ...]) -> list[CutItem]:
    grouped = [m if isinstance(m, tuple) else (m,) for m in messages]
    return [
        CutItem(id=f"e{n}", version=n, kind="message", messages=m, tokens=estimate_messages(m))
        for n, m in enumerate(grouped)
    ]


def applied(items: Sequence[CutItem], pruned: Pruned) -> list[CutItem]:
    edits = {edit.target: edit.replace or () for edit in pruned.edits}
    return [
        msgspec.structs.replace(i, messages=edits[i.id], tokens=estimate_messages(edits[i.id]))
        if i.id in edits
        else i
        for i in items
    ]


def text_of(message: Message) -> str:
    (part,) = message.parts
    assert isinstance(part, ToolCallResponse)
    assert isinstance(part.result, str)
    return part.result


def text_in(content: Content) -> str:
    assert isinstance(content, Text)
    return content.content


def with_result(result: str, *, newest: str = "ok") -> list[CutItem]:
    """An old batch with this result, and a newest one."""
    return history(calling("a"), tool_result("a", result), calling("b"), tool_result("b", newest))


def letters(count: int, seed: int = 1) -> str:
    """A text without structure and without repetition."""
    return "".join(chr(97 + (i * i * seed + i * 7 + seed) % 26) for i in range(count))


# --- length -----------------------------------------------------------------------------------


def test_a_long_result_becomes_head_marker_and_tail() -> None:
    text = letters(20_000)
    items = with_result(text)
    (edit,) = prune(items, POLICY).edits
    assert edit.target == "e1"
    assert edit.replace is not None
    marker = recall_marker(20_000 - 4_096 - 1_024, "e1", 4_096)
    assert text_of(edit.replace[0]) == f"{text[:4_096]}\n{marker}\n{text[-1_024:]}"
    assert marker == (
        '[… 14,880 code points left out here; read them with recall(reference="e1", '
        "offset=4096, limit=4000) …]"
    )


@pytest.mark.parametrize(("size", "edits"), [(8_192, 0), (8_193, 1)])
def test_the_limit_is_in_code_points(size: int, edits: int) -> None:
    assert len(prune(with_result("é" * size), POLICY).edits) == edits


def test_what_is_saved_is_told() -> None:
    items = with_result(letters(50_000))
    pruned = prune(items, POLICY)
    before = sum(i.tokens for i in items)
    assert pruned.tokens_saved == before - sum(i.tokens for i in applied(items, pruned))
    assert pruned.tokens_saved > 8_000


def test_the_newest_batch_is_never_pruned() -> None:
    long = letters(30_000)
    items = history(
        calling("a"),
        tool_result("a", long),
        calling("b", "c"),
        tool_result("b", letters(30_000, 3)),
        user("and now?"),
        tool_result("c", letters(30_000, 5)),
        assistant("here is what I found"),
        user("thanks"),
    )
    assert [edit.target for edit in prune(items, POLICY).edits] == ["e1"]


def test_a_result_that_comes_late_is_new_to_the_model() -> None:
    late = letters(30_000)
    items = history(calling("a"), user("steer"), calling("b"), tool_result("a", late))
    assert prune(items, POLICY).edits == ()


def test_pruning_twice_is_pruning_once() -> None:
    items = with_result(letters(20_000))
    once = applied(items, prune(items, POLICY))
    assert prune(once, POLICY) == Pruned()
    smaller = msgspec.structs.replace(POLICY, result_limit=2_048, head=512, tail=128)
    assert prune(once, smaller) == Pruned(), "never twice, under another policy neither"


def test_the_entrys_other_messages_and_parts_stay() -> None:
    call = calling("a")
    result = Message(
        role="tool",
        parts=(
            ToolCallResponse(id="a", result=letters(9_000), is_error=True),
            Text(content="beside"),
        ),
    )
    items = history((call, result, user("next")), calling("b"))
    (edit,) = prune(items, POLICY).edits
    assert edit.replace is not None
    assert edit.replace[0] == call
    assert edit.replace[2] == user("next")
    shortened, beside = edit.replace[1].parts
    assert beside == Text(content="beside")
    assert isinstance(shortened, ToolCallResponse)
    assert (shortened.id, shortened.is_error) == ("a", True)


def test_the_marker_leads_to_what_was_left_out_whatever_else_the_entry_says() -> None:
    texts = letters(9_000, 1), letters(9_000, 3)
    said = (
        user("before"),
        calling("a", "b"),
        Message(
            role="tool",
            parts=(
                ToolCallResponse(id="a", result=texts[0]),
                ToolCallResponse(id="b", result=(Text(content=texts[1]),)),
            ),
        ),
    )
    items = history(said, calling("c"))
    (edit,) = prune(items, POLICY).edits
    assert edit.replace is not None
    recorded = Recorded(
        1,
        MessageEntry(
            id="e0", conversation="c", time=datetime(2026, 1, 1, tzinfo=UTC), messages=said
        ),
    )
    for part, text in zip(edit.replace[2].parts, texts, strict=True):
        assert isinstance(part, ToolCallResponse)
        shown = part.result if isinstance(part.result, str) else text_in(part.result[0])
        offset = int(shown.split("offset=")[1].split(",")[0])
        missing = int(shown.split("[… ")[1].split(" ")[0].replace(",", ""))
        passage = read_entry(recorded, offset, missing)
        assert isinstance(passage, Passage)
        assert passage.text == text[4_096:-1_024]


def test_a_result_in_parts_is_judged_as_a_whole_and_keeps_its_images() -> None:
    image = Blob(mime_type="image/png", content="AAAA")
    content: tuple[Content, ...] = (
        Text(content=letters(5_000)),
        image,
        Text(content=letters(5_000, 3)),
    )
    result = Message(role="tool", parts=(ToolCallResponse(id="a", result=content),))
    (edit,) = prune(history(calling("a"), result, calling("b")), POLICY).edits
    assert edit.replace is not None
    (part,) = edit.replace[0].parts
    assert isinstance(part, ToolCallResponse)
    assert not isinstance(part.result, str)
    text, kept = part.result
    assert kept == image
    assert isinstance(text, Text)
    assert "4,881 code points left out" in text.content


def test_a_providers_own_form_does_not_bring_the_whole_back() -> None:
    payload = ProviderPayload(provider="x", data={"content": letters(9_000)})
    part = ToolCallResponse(id="a", result=letters(9_000), payload=payload)
    items = history(calling("a"), Message(role="tool", parts=(part,)), calling("b"))
    (edit,) = prune(items, POLICY).edits
    assert edit.replace is not None
    assert edit.replace[0].parts[0].payload is None


def test_what_a_model_is_not_shown_is_not_pruned() -> None:
    aborted = assistant("", ToolCall(id="a", name="f"), finish_reason="aborted")
    items = history(
        tool_result("zz", letters(9_000)), aborted, tool_result("a", letters(9_000)), calling("b")
    )
    assert prune(items, POLICY) == Pruned()


def test_user_and_assistant_messages_are_never_pruned() -> None:
    items = history(user(letters(90_000)), assistant(letters(90_000)), calling("b"))
    assert prune(items, POLICY) == Pruned()


def test_an_entry_id_of_any_length_cannot_make_the_result_longer() -> None:
    text = letters(8_200)
    assert shorten_text(text, "x" * 5_000, POLICY) == text


# --- repetition -------------------------------------------------------------------------------


def test_of_repeated_results_the_last_stays() -> None:
    listing = letters(2_000)
    items = history(
        *(m for i in "abc" for m in (calling(i), tool_result(i, listing))),
        calling("d"),
        tool_result("d", "other"),
    )
    pruned = prune(items, POLICY)
    assert [edit.target for edit in pruned.edits] == ["e1", "e3"]
    for edit in pruned.edits:
        assert edit.replace is not None
        assert text_of(edit.replace[0]) == '[… same result as in entry "e5", which comes later …]'
    assert prune(applied(items, pruned), POLICY) == Pruned()


def test_a_repetition_in_the_newest_batch_stands_for_the_old_one() -> None:
    listing = letters(2_000)
    pruned = prune(with_result(listing, newest=listing), POLICY)
    assert [edit.target for edit in pruned.edits] == ["e1"]


def test_short_repetitions_stay() -> None:
    assert prune(with_result("ok", newest="ok"), POLICY) == Pruned()


def test_a_failure_is_not_the_same_as_a_success_of_the_same_words() -> None:
    text = letters(2_000)
    items = history(
        calling("a"), tool_result("a", text, is_error=True), calling("b"), tool_result("b", text)
    )
    assert prune(items, POLICY) == Pruned()


def test_a_duplicate_that_is_not_shown_does_not_stand_for_the_first() -> None:
    """Case 8: of T(c1) T(c1) only the first is shown."""
    text = letters(2_000)
    items = history(calling("a"), tool_result("a", text), tool_result("a", text), calling("b"))
    assert prune(items, POLICY) == Pruned()


# --- structure --------------------------------------------------------------------------------


def test_a_long_list_keeps_its_keys_first_rows_and_total() -> None:
    rows = [
        {"customer": f"C-{n:05}", "due": f"{n}.10", "note": letters(40, n + 1)} for n in range(999)
    ]
    rows.append({"customer": "TOTAL", "due": "1234567890123456789.10", "note": ""})
    text = json.dumps({"status": "ok", "rows": rows, "next": None})
    shorter = shorten_text(text, "e1", OURS)
    assert '"status": "ok"' in shorter
    assert '"customer": "C-00000"' in shorter
    assert '"customer": "TOTAL", "due": "1234567890123456789.10"' in shorter
    assert '"next": null' in shorter
    assert "more items" in shorter
    assert 'recall(reference="e1", offset=0, limit=4000)' in shorter
    assert len(shorter) < 5_120 + 512


def test_a_condensed_json_text_is_json_and_its_numbers_are_as_written() -> None:
    text = '[{"amount": 1234567.10, "id": 90071992547409931234, "rate": 1e-7}' + (
        ', {"amount": 0.30, "id": 1, "rate": 2}' * 1_000 + "]"
    )
    shorter = condense(text, 5_120)
    assert shorter is not None
    assert '{"amount": 1234567.10, "id": 90071992547409931234, "rate": 1e-7}' in shorter
    assert isinstance(json.loads(shorter), list)


def test_a_long_text_inside_json_keeps_its_beginning_and_its_end() -> None:
    text = json.dumps({"exit_code": 1, "output": "start " + letters(50_000) + " failed: disk full"})
    shorter = condense(text, 5_120)
    assert shorter is not None
    assert '"exit_code": 1' in shorter
    assert "start " in shorter
    assert "failed: disk full" in shorter
    assert len(shorter) > 2_500, "the room is used"


def test_a_table_keeps_its_header_first_rows_totals_and_last_rows() -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["customer", "invoice", "amount"])
    for n in range(2_000):
        writer.writerow([f"Müller, {n}", f"R-{n}", f"{n}.00"])
        if n == 1_000:
            writer.writerow(["Subtotal north", "", "500500.00"])
    writer.writerow(["Total", "", "1999000.00"])
    text = out.getvalue().replace("\r\n", "\n")
    shorter = shorten_text(text, "e1", OURS)
    lines = shorter.split("\n")
    assert lines[0] == "customer,invoice,amount"
    assert lines[1] == '"Müller, 0",R-0,0.00'
    assert "Subtotal north,,500500.00" in lines
    assert lines[-2] == "Total,,1999000.00"
    assert "rows left out" in shorter
    assert all(line in text or line.startswith("[…") for line in lines)


def test_rows_that_are_left_out_are_counted() -> None:
    text = "\n".join(["a|b|c", "-|-|-", *(f"{n}|x|y" for n in range(5_000))])
    shorter = condense(text, 1_000)
    assert shorter is not None
    left_out = int(shorter.split("[… ")[1].split(" rows")[0].replace(",", ""))
    kept = [line for line in shorter.split("\n") if not line.startswith("[…")]
    assert left_out + len(kept) == 5_002
    assert kept[:3] == ["a|b|c", "-|-|-", "0|x|y"]
    assert kept[-1] == "4999|x|y"


@pytest.mark.parametrize(
    "text",
    [
        letters(20_000),
        "{" + letters(20_000),
        "[" * 20_000 + "]" * 20_000,
        "2026-01-01 12:00:00,123 INFO started\n" * 500,
        "A sentence, with a comma. " * 500,
        "",
        " ",
        json.dumps({letters(60, n + 1): 1 for n in range(5_000)})[:-1],
    ],
    ids=["prose", "broken", "deep", "log", "sentences", "empty", "blank", "cut off"],
)
def test_what_is_no_structure_is_left_to_head_and_tail(text: str) -> None:
    assert condense(text, 5_120) is None


def test_a_lone_surrogate_escaped_in_json_stays_escaped() -> None:
    text = '["\\ud83d", ' + ", ".join('"x"' for _ in range(5_000)) + "]"
    shorter = condense(text, 1_000)
    assert shorter is not None
    shorter.encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=8), inner, max_size=40)
    ),
    max_leaves=200,
)


@given(JSON.filter(lambda value: isinstance(value, list | dict)), st.integers(20, 600))
def test_any_json_is_condensed_into_json_within_the_room(value: object, room: int) -> None:
    shorter = condense(json.dumps(value), room)
    if shorter is not None:
        assert len(shorter) <= room
        assert type(json.loads(shorter)) is type(value)


# --- characters -------------------------------------------------------------------------------

CLUSTERS = [
    "e\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f",
    "\U0001f1e9\U0001f1ea",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\u0e01\u0e33",
    "\u0915\u094d\u0937\u093f",
    "\u1112\u1161\u11ab",
    "\r\n",
    "\ud83d\ude00",
    "a\u0308\u0304\u0323",
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=ascii)
def test_a_cluster_is_not_torn(cluster: str) -> None:
    text = f"ab{cluster}cd"
    end = 2 + len(cluster)
    assert [n for n in range(2, end + 1) if is_boundary(text, n)] == [2, end]
    for place in range(3, end):
        assert boundary_before(text, place) == 2
        assert boundary_after(text, place) == end


def test_flags_are_parted_between_pairs() -> None:
    flags = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ee\U0001f1f9"
    assert [n for n in range(7) if is_boundary(flags, n)] == [0, 2, 4, 6]


@given(st.lists(st.sampled_from([*CLUSTERS, "x", "中", " "]), max_size=30), st.integers(0, 90))
def test_boundaries_lie_on_either_side_and_parts_make_the_whole(
    clusters: list[str], place: int
) -> None:
    text = "".join(clusters)
    before, after = boundary_before(text, place), boundary_after(text, place)
    assert before <= min(place, len(text)) <= after or place > len(text)
    assert text[:before] + text[before:] == text
    assert is_boundary(text, before)
    assert is_boundary(text, after)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=ascii)
@pytest.mark.parametrize("shift", range(4))
def test_pruning_tears_no_cluster(cluster: str, shift: int) -> None:
    text = "x" * shift + cluster * 6_000
    shorter = shorten_text(text, "e1", POLICY)
    head, rest = shorter.split("\n[… ", 1)
    tail = rest.split(" …]\n", 1)[1]
    assert head == "x" * shift + cluster * ((4_096 - shift) // len(cluster))
    assert tail == cluster * (1_024 // len(cluster))
    missing = int(rest.split(" ")[0].replace(",", ""))
    assert len(head) + missing + len(tail) == len(text)


# --- all together -----------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> list[CutItem]:
    long = (letters(9_000), letters(9_000, 3), letters(1_000), "中" * 8_500, "ok")
    ids = st.sampled_from(["a", "b"])
    kinds = draw(st.lists(st.sampled_from(["user", "call", "result", "plain"]), max_size=14))
    made: list[Message] = []
    for kind in kinds:
        match kind:
            case "user":
                made.append(user("go on"))
            case "call":
                made.append(calling(*draw(st.lists(ids, min_size=1, max_size=2))))
            case "result":
                made.append(tool_result(draw(ids), draw(st.sampled_from(long))))
            case _:
                made.append(assistant("done"))
    return history(*made)


@given(ranges())
def test_pruning_any_range_is_idempotent_and_never_touches_the_newest_batch(
    items: list[CutItem],
) -> None:
    pruned = prune(items, POLICY)
    after = applied(items, pruned)
    assert prune(after, POLICY) == Pruned()
    assert sum(i.tokens for i in items) - sum(i.tokens for i in after) == pruned.tokens_saved
    calls = [n for n, i in enumerate(items) if any(isinstance(p, ToolCall) for p in _parts(i))]
    newest = max(calls, default=-1)
    assert all(int(edit.target[1:]) < newest for edit in pruned.edits)


def _parts(each: CutItem) -> list[object]:
    return [part for message in each.messages for part in message.parts]
