"""Where a compaction cuts: each rule of design section 8.2 by itself, and all of them together."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog_events.entries import Section
from foldlog_events.messages import (
    AnyPart,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    tool_result,
    user,
)
from foldlog_projections.cut import (
    PATIENCE,
    Cut,
    CutItem,
    Declined,
    choose_cut,
    items_of,
    legal_pairing,
    legal_pending,
    legal_start,
    newest_indivisible_unit,
    read,
    why_illegal,
)
from foldlog_projections.pairing import RESULT_UNAVAILABLE, Transcript
from foldlog_projections.state import Active, PromptPatch


def calling(*ids: str, text: str = "") -> Message:
    return assistant(text, *(ToolCall(id=i, name="look_up") for i in ids))


def item(number: int, *messages: Message, tokens: int = 10, kind: str = "message") -> CutItem:
    return CutItem(id=f"e{number}", version=number, kind=kind, messages=messages, tokens=tokens)


def history(*messages: Message | tuple[Message, ...], tokens: int = 10) -> list[CutItem]:
    """One item of `tokens` for each message."""
    return [
        item(n, *(m if isinstance(m, tuple) else (m,)), tokens=tokens)
        for n, m in enumerate(messages)
    ]


def legal(items: Sequence[CutItem]) -> list[int]:
    return [index for index in range(len(items)) if why_illegal(items, index) is None]


def the_cut(found: Cut | Declined) -> Cut:
    assert isinstance(found, Cut)
    return found


# --- each rule --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "good"),
    [
        ((user("u"),), True),
        ((assistant("a"),), True),
        ((calling("c"),), True),
        ((tool_result("c", "r"),), False),
        ((Message(role="user", parts=(ToolCallResponse(id="c", result="r"),)),), False),
        ((tool_result("c", "r"), user("u")), False),
        ((user("u"), assistant("a")), True),
        ((Message(role="system", parts=(Text(content="s"),)),), False),
        ((), False),
        ((assistant("cut o", finish_reason="aborted"),), False),
        ((Message(role="assistant", parts=(Reasoning(content="hm"),)),), False),
        ((assistant("", finish_reason="error"), user("again")), True),
    ],
)
def test_legal_start_is_a_user_or_an_assistant_message(
    messages: tuple[Message, ...], good: bool
) -> None:
    assert legal_start(read([item(0, *messages)]), 0) is good


@pytest.mark.parametrize("kind", ["compaction", "reset"])
def test_legal_start_is_no_head_marker(kind: str) -> None:
    assert not legal_start(read([item(0, user("summary"), kind=kind)]), 0)


def test_legal_pairing_keeps_a_call_and_its_results_together() -> None:
    items = history(user("u"), calling("c1", "c2"), tool_result("c1", "1"), tool_result("c2", "2"))
    reading = read(items)
    assert [legal_pairing(reading, n) for n in range(4)] == [True, True, False, False]


def test_legal_pairing_goes_by_occurrence_where_ids_repeat() -> None:
    """Case 1."""
    items = history(
        calling("X"), tool_result("X", "r0"), calling("X"), tool_result("X", "r1"), calling("X")
    )
    reading = read(items)
    assert [legal_pairing(reading, n) for n in range(5)] == [True, False, True, False, True]


def test_legal_pairing_reaches_over_a_steer_to_a_result_that_came_late() -> None:
    """Case 6: [A(c1), user steer, A(plain), T(c1)]."""
    items = history(calling("c1"), user("steer"), assistant("plain"), tool_result("c1", "late"))
    items.append(item(9, user("next")))
    reading = read(items)
    assert [legal_pairing(reading, n) for n in range(5)] == [True, False, False, False, True]


def test_legal_pairing_is_not_hindered_by_orphans_and_duplicates() -> None:
    """Case 8: neither belongs to a call."""
    items = history(
        tool_result("zz", "orphan"),
        calling("c1"),
        tool_result("c1", "1"),
        user("u"),
        tool_result("c1", "again"),
        user("v"),
    )
    reading = read(items)
    assert [legal_pairing(reading, n) for n in range(6)] == [True, True, False, True, True, True]


def test_legal_pending_keeps_a_call_that_still_waits() -> None:
    items = history(user("u"), calling("c1"), user("steer"), assistant("plain"))
    reading = read(items)
    assert [legal_pending(reading, n) for n in range(4)] == [True, True, False, False]


def test_legal_pending_lets_go_of_a_call_that_the_conversation_left_behind() -> None:
    """Case 22: a call that never gets a result does not block later compactions."""
    items = history(calling("c1"), *(user(f"u{n}") for n in range(PATIENCE)))
    assert legal_pending(read(items), PATIENCE)
    assert not legal_pending(read(items[:-1]), PATIENCE - 1)
    assert not legal_pending(read(items, running={"c1"}), PATIENCE)


def test_legal_pending_lets_go_of_a_call_whose_id_was_used_again() -> None:
    items = history(calling("X"), calling("X"), tool_result("X", "r"), user("u"))
    assert legal_pending(read(items), 3)


def test_legal_pending_does_not_wait_for_a_call_of_an_aborted_reply() -> None:
    """Case 7."""
    aborted = assistant("", ToolCall(id="c1", name="f"), finish_reason="aborted")
    assert legal_pending(read(history(user("u"), aborted, user("v"))), 2)


# --- the choice -------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 10, 11, 20, 25])
def test_the_budget_running_out_between_results_keeps_their_call(budget: int) -> None:
    """Case 11, first history."""
    items = history(user("u"), calling("c1", "c2"), tool_result("c1", "1"), tool_result("c2", "2"))
    cut = the_cut(choose_cut(items, budget))
    assert cut.kept_from.id == "e1"


def test_calls_of_two_messages_answered_later_stay_together() -> None:
    """Case 11, second history: [A(c1), A(c2), T1, T2]."""
    items = history(
        user("u"), calling("c1"), calling("c2"), tool_result("c1", "1"), tool_result("c2", "2")
    )
    assert legal(items) == [0, 1]
    assert the_cut(choose_cut(items, 15)).kept_from.id == "e1"


def test_a_budget_never_reached_declines() -> None:
    """Case 11, third."""
    assert choose_cut(history(user("u"), assistant("a")), 21) == Declined("budget_not_reached")
    assert choose_cut([], 5) == Declined("budget_not_reached")


def test_the_first_legal_cut_at_or_after_the_budget_is_taken() -> None:
    items = history(
        user("u1"), assistant("a1"), user("u2"), calling("c"), tool_result("c", "r"), user("u3")
    )
    assert the_cut(choose_cut(items, 10)).index == 5
    assert the_cut(choose_cut(items, 20)).index == 5, "index 4 is a result"
    assert the_cut(choose_cut(items, 30)).index == 3
    assert the_cut(choose_cut(items, 40)).index == 2


def test_a_cut_at_a_user_message_leaves_the_turn_whole() -> None:
    items = history(user("u1"), assistant("a1"), user("u2"), assistant("a2"))
    cut = the_cut(choose_cut(items, 20))
    assert (cut.summarised, cut.turn_prefix, cut.kept_from.id) == (("e0", "e1"), (), "e2")
    assert (cut.summarised_tokens, cut.kept_tokens) == (20, 20)


def test_one_giant_turn_is_cut_inside_and_its_first_part_set_apart() -> None:
    items = history(
        user("earlier"),
        assistant("done"),
        user("do everything"),
        calling("c1"),
        tool_result("c1", "1"),
        calling("c2"),
        tool_result("c2", "2"),
        calling("c3"),
        tool_result("c3", "3"),
    )
    cut = the_cut(choose_cut(items, 40))
    assert cut.kept_from.id == "e5"
    assert cut.summarised == ("e0", "e1")
    assert cut.turn_prefix == ("e2", "e3", "e4")


def test_one_giant_turn_and_nothing_else_has_only_a_prefix() -> None:
    items = history(user("go"), calling("c1"), tool_result("c1", "1"), assistant("half"))
    cut = the_cut(choose_cut(items, 10))
    assert (cut.summarised, cut.turn_prefix) == ((), ("e0", "e1", "e2"))


def test_a_turn_whose_user_message_was_compacted_before_has_no_prefix() -> None:
    summary = item(0, user("summary"), kind="compaction")
    items = [summary, *history(calling("c1"), tool_result("c1", "1"), assistant("a"))]
    cut = the_cut(choose_cut(items, 10))
    assert (cut.summarised, cut.turn_prefix) == (("e0", "e1"), ())


def test_nothing_but_the_old_summary_before_the_cut_declines() -> None:
    summary = item(0, user("summary"), kind="compaction", tokens=500)
    items = [summary, item(1, user("u1")), item(2, assistant("a1"))]
    assert choose_cut(items, 20) == Declined("nothing_to_summarise")
    assert choose_cut(items, 21) == Declined("budget_not_reached"), "the summary is not kept"


def test_system_patches_and_notes_are_nothing_to_summarise() -> None:
    patch = Message(role="system", parts=(Text(content="now"),))
    items = [item(0, patch, kind="system"), item(1, kind="note"), item(2, user("u"))]
    assert choose_cut(items, 10) == Declined("nothing_to_summarise")


def test_a_first_message_that_takes_all_the_room_is_summarised() -> None:
    """Case 23: keeping it for its size alone would leave nothing to do for ever."""
    items = [item(0, user("huge"), tokens=90_000), item(1, assistant("a")), item(2, user("u"))]
    assert the_cut(choose_cut(items, 20_000)).turn_prefix == ("e0",)


def test_a_giant_result_at_the_end_is_kept_with_its_call() -> None:
    """Case 23."""
    items = history(user("u1"), assistant("a1"), user("u2"), calling("c"))
    items.append(item(4, tool_result("c", "giant"), tokens=482_000))
    cut = the_cut(choose_cut(items, 20_000))
    assert (cut.kept_from.id, cut.turn_prefix) == ("e3", ("e2",))


def test_no_legal_cut_declines() -> None:
    orphans = history(tool_result("c", "r"), tool_result("c", "r"))
    assert choose_cut(orphans, 10) == Declined("no_legal_cut")
    assert newest_indivisible_unit(orphans) == Declined("no_legal_cut")


def test_a_pending_call_is_kept_however_small_the_budget() -> None:
    """Case 22."""
    items = history(user("u"), assistant("a"), calling("c1"), user("steer"), assistant("ok"))
    assert the_cut(choose_cut(items, 1)).kept_from.id == "e2"


def test_every_entry_between_two_compactions_is_summarised_or_kept() -> None:
    """Case 12: after K1(kept u2) the range is u2 a2 u3 a3 u4 a4, not what follows K1."""
    turns = history(*(m for n in (2, 3, 4) for m in (user(f"u{n}"), assistant(f"a{n}"))))
    cut = the_cut(choose_cut([item(99, user("K1"), kind="compaction"), *turns], 20))
    assert cut.summarised == ("e0", "e1", "e2", "e3")
    assert cut.kept_from.id == "e4"


def test_the_tail_is_sized_by_the_budget_given() -> None:
    """Case 24: a smaller window keeps less of the same items."""
    items = history(*(user(f"u{n}") for n in range(100)), tokens=1_000)
    assert the_cut(choose_cut(items, 20_000)).kept_tokens == 20_000
    assert the_cut(choose_cut(items, 5_120)).kept_tokens == 6_000


def test_after_an_overflow_only_the_newest_unit_is_kept() -> None:
    items = history(
        user("u1"),
        assistant("a1"),
        user("u2"),
        calling("c1", "c2"),
        tool_result("c1", "1"),
        tool_result("c2", "2"),
    )
    cut = the_cut(newest_indivisible_unit(items))
    assert (cut.kept_from.id, cut.turn_prefix) == ("e3", ("e2",))
    assert newest_indivisible_unit(items[:1]) == Declined("nothing_to_summarise")
    assert newest_indivisible_unit([]) == Declined("no_legal_cut")


def test_reasons_are_told() -> None:
    items = history(calling("c1"), tool_result("c1", "1"), calling("c2"), user("u"))
    assert why_illegal(items, 0) is None
    assert "begin with" in (why_illegal(items, 1) or "")
    assert "still waits" in (why_illegal(items, 3) or "")
    steer = history(calling("c1"), user("u"), tool_result("c1", "1"))
    assert "parted" in (why_illegal(steer, 1) or "")


def test_items_come_from_the_folds_active_entries() -> None:
    patch = PromptPatch(sections=(Section(name="role", text="You keep the books."),))
    active = (
        Active(version=3, id="a", kind="system", patch=patch),
        Active(version=4, id="b", kind="message", messages=(user("hello"),)),
        Active(version=5, id="b", kind="message", messages=(user("hello"),)),
    )
    items = items_of(active)
    assert [(i.id, i.version, i.kind) for i in items] == [
        ("a", 3, "system"),
        ("b", 4, "message"),
        ("b", 5, "message"),
    ]
    assert items[0].tokens > 0
    assert items[1].tokens > 0
    assert (items[2].messages, items[2].tokens) == ((), 0), "a repeat contributes nothing"


# --- all rules together, by an independent check ----------------------------------------------

KINDS = ("user", "user", "assistant", "call", "call", "result", "result", "aborted", "odd")
ROLES: tuple[Role, ...] = ("user", "system", "tool", "assistant")
IDS = st.sampled_from(["c1", "c2", "X"])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    number = draw(st.integers(0, 10**9))
    kind = draw(st.sampled_from(KINDS))
    calls = [ToolCall(id=i, name="f") for i in draw(st.lists(IDS, min_size=1, max_size=3))]
    results = tuple(
        ToolCallResponse(id=i, result=f"real {number} {n}")
        for n, i in enumerate(draw(st.lists(IDS, min_size=1, max_size=2)))
    )
    match kind:
        case "user":
            return user(f"u {number}")
        case "assistant":
            return assistant(f"a {number}")
        case "call":
            return assistant(draw(st.sampled_from(["", f"a {number}"])), *calls)
        case "result":
            return Message(role="tool", parts=results)
        case "aborted":
            return assistant("", *calls, finish_reason="aborted")
        case _:
            role = draw(st.sampled_from(ROLES))
            text = Text(content=draw(st.sampled_from(["", f"odd {number}"])))
            parts: list[AnyPart] = [text, *results]
            return Message(role=role, parts=tuple(draw(st.permutations(parts))))


@st.composite
def ranges(draw: st.DrawFn) -> list[CutItem]:
    lists = draw(st.lists(st.lists(messages(), max_size=3), max_size=14))
    items = [
        item(n, *each, tokens=draw(st.integers(0, 40)), kind="message" if each else "note")
        for n, each in enumerate(lists, 1)
    ]
    if draw(st.booleans()):
        items.insert(0, item(0, user("summary"), kind="compaction", tokens=30))
    return items


def shown(items: Sequence[CutItem]) -> list[Message]:
    transcript = Transcript()
    for each in items:
        for message in each.messages:
            transcript.add(message)
    return transcript.messages


def waits(message: Message) -> bool:
    return any(
        isinstance(p, ToolCallResponse) and p.result == RESULT_UNAVAILABLE for p in message.parts
    )


def check_legal(items: Sequence[CutItem], index: int) -> None:
    """By what a model would be shown, not by the rules' own code."""
    whole, before, kept = shown(items), shown(items[:index]), shown(items[index:])
    assert whole == before + kept, "the parts are paired as the whole is"
    assert kept[0].role in ("user", "assistant")
    for place, message in enumerate(before):
        if waits(message) and not _left_behind(items, whole, place):
            raise AssertionError("a pending call is summarised away")


def _left_behind(items: Sequence[CutItem], whole: list[Message], place: int) -> bool:
    """Whether a late result would find no call, or many messages followed the call's."""
    (part,) = whole[place].parts
    assert isinstance(part, ToolCallResponse)
    armed_id = part.id.split("-")[0]
    probe = item(10_000, *(tool_result(armed_id, f"probe {n}") for n in range(4)))
    late = shown([*items, probe])[place].parts[0]
    assert isinstance(late, ToolCallResponse)
    if late.result == RESULT_UNAVAILABLE:
        return True
    after = [m for m in whole[place + 1 :] if m.role == "assistant" or m.role == "user"]
    return len(after) >= PATIENCE


@given(ranges(), st.integers(0, 200))
def test_a_cut_is_legal_by_every_rule_or_there_is_none(items: list[CutItem], budget: int) -> None:
    for found in (choose_cut(items, budget), newest_indivisible_unit(items)):
        if isinstance(found, Declined):
            continue
        assert why_illegal(items, found.index) is None
        check_legal(items, found.index)
        assert items[found.index].id == found.kept_from.id
        in_range = tuple(i.id for i in items if i.kind != "compaction")
        kept = tuple(i.id for i in items[found.index :])
        assert found.summarised + found.turn_prefix + kept == in_range
        assert found.summarised + found.turn_prefix


@given(ranges(), st.integers(1, 200))
def test_the_cut_taken_is_the_first_legal_one_after_the_budget(
    items: list[CutItem], budget: int
) -> None:
    found = choose_cut(items, budget)
    if not isinstance(found, Cut):
        return
    sizes = [0 if i.kind == "compaction" else i.tokens for i in items]
    budget_at = max(n for n in range(len(items)) if sum(sizes[n:]) >= budget)
    at_or_after = [n for n in legal(items) if n >= budget_at]
    if not at_or_after:
        assert found.index == max(n for n in legal(items) if n < budget_at)
    elif found.index != at_or_after[0]:
        assert sum(sizes[at_or_after[0] :]) > 2 * budget
        assert all(i.kind in ("compaction", "note") or _only_system(i) for i in items[:budget_at])


def _only_system(each: CutItem) -> bool:
    return all(m.role == "system" for m in each.messages)


@given(ranges())
def test_only_a_range_without_a_legal_cut_has_none(items: list[CutItem]) -> None:
    if newest_indivisible_unit(items) == Declined("no_legal_cut"):
        assert legal(items) == []
