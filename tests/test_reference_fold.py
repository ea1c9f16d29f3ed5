"""The reference itself, on histories small enough to check by eye: rules 1 to 4."""

import pytest

from foldlog_events.entries import ErasedEntry, NoteEntry
from foldlog_events.messages import (
    FinishReason,
    Message,
    Reasoning,
    Text,
    ToolCallResponse,
    assistant,
    tool_result,
    user,
)
from tests.small_histories import (
    LOST,
    U1,
    U2,
    U3,
    at,
    call,
    calls,
    common,
    compaction,
    edit,
    erased,
    reset,
    said,
    section,
    seen,
    system,
    view,
)

# --- 1: head and range ---------------------------------------------------------------------


def test_1_1_only_the_newest_head_renders() -> None:
    history = [U1, compaction(2, None, log=1), U3, compaction(4, None, log=3, shape=2)]
    assert seen(history) == ["K: S4"]
    assert view(history).head == ("e4", 4, "compaction")
    assert view(history, 3).head == ("e2", 2, "compaction")
    assert view(history, 1).head is None


def test_1_2_a_reset_starts_after_itself() -> None:
    history = [U1, reset(2, user("handoff")), U3]
    assert seen(history) == ["user: handoff", "user: u3"]


def test_1_2_a_compaction_keeps_from_an_entry_on() -> None:
    assert seen([U1, U2, U3, compaction(4, 2, log=3)]) == ["K: S4", "user: u2", "user: u3"]


def test_1_2_without_kept_from_what_came_after_the_base_stays() -> None:
    """Case 13: a user message that lands while the summary is being made."""
    history = [U1, U2, U3, compaction(4, None, log=2), said(5, user("u5"))]
    assert seen(history) == ["K: S4", "user: u3", "user: u5"]


def test_1_2_what_had_left_the_range_does_not_come_back() -> None:
    history = [U1, reset(2), U3, compaction(4, None, log=0, shape=2)]
    assert seen(history) == ["K: S4", "user: u3"]


def test_1_4_a_retry_that_was_stored_twice_says_it_once() -> None:
    again = said(2, user("u1"), id="e1")
    assert seen([U1, again, U3]) == ["user: u1", "user: u3"]
    assert seen([U1, again, U3, compaction(4, None, log=1)]) == ["K: S4", "user: u1", "user: u3"]


def test_1_4_the_head_comes_first_so_a_kept_entry_with_its_id_is_the_repeat() -> None:
    history = [U1, said(2, user("kept"), id="e4"), edit(3, "e1", omit=True, id="e4")]
    history.append(compaction(4, 1, log=2, shape=3))
    assert seen(history, 3) == ["user: u1", "user: kept"]
    assert seen(history) == ["K: S4", "user: u1"]


# --- 2: edits ------------------------------------------------------------------------------


def test_2_1_the_newest_edit_wins() -> None:
    history = [U1, edit(2, "e1", user("second")), edit(3, "e1", user("third")), edit(4, "e4")]
    assert seen(history) == ["user: third"]
    assert seen(history, 2) == ["user: second"]
    assert seen([*history, edit(5, "e1", omit=True)]) == []


def test_2_1_an_edit_acts_on_the_head_from_then_on() -> None:
    head = compaction(4, 2, log=3, shape=3)
    kept = edit(3, "e4", user("too early"))
    assert seen([U1, U2, kept, head]) == ["K: S4", "user: u2"]
    assert seen([U1, U2, kept, head, edit(5, "e4", user("new"))]) == ["user: new", "user: u2"]


def test_2_1_an_edit_left_out_as_a_repeat_does_not_act() -> None:
    history = [U1, edit(2, "e9", omit=True), edit(3, "e1", omit=True, id="e2")]
    assert seen(history) == ["user: u1"]


def test_2_2_whatever_its_kind_an_entry_says_what_replaced_it() -> None:
    note = at(2, NoteEntry(**common("e2"), name="n"))
    history = [system(1, section("cwd", "/a")), note]
    history += [edit(3, "e1", user("was a system entry")), edit(4, "e2", user("was a note"))]
    assert seen(history, 2) == ["system: /a"]
    assert seen(history) == ["user: was a system entry", "user: was a note"]
    assert view(history).sections == ()


def test_2_3_an_edited_edit_speaks_and_still_acts() -> None:
    history = [U1, edit(2, "e1", omit=True), edit(3, "e2", user("was an edit"))]
    assert seen(history) == ["user: was an edit"]


@pytest.mark.parametrize("target", ["nowhere", "e3", "e2"])
def test_2_4_an_edit_of_no_earlier_context_entry_does_nothing(target: str) -> None:
    assert seen([U1, edit(2, target, user("x")), U3]) == ["user: u1", "user: u3"]


def test_2_4_an_edit_of_a_summarised_entry_does_nothing() -> None:
    history = [U1, U2, compaction(3, 2, log=2), edit(4, "e1", user("x"))]
    assert seen(history) == ["K: S3", "user: u2"]


def test_2_5_no_edit_brings_an_erased_entry_back() -> None:
    history = [U1, U2, erased(3, "e1"), edit(4, "e1", user("back"))]
    assert seen(history) == ["user: u2"]
    early = [at(1, ErasedEntry(**common("e1"), target="e2", target_version=2)), U2]
    assert seen(early) == []
    assert seen([*early, erased(3, "e2")]) == []
    assert seen([*early, edit(3, "e2", user("edited"))]) == []


# --- 3: replies that do not count ----------------------------------------------------------


@pytest.mark.parametrize("reason", ["aborted", "error", "deferred"])
def test_3_a_failed_reply_and_its_results_are_left_out(reason: FinishReason) -> None:
    """Case 7."""
    failed = said(2, calls("a", text="cut", finish_reason=reason))
    history = [U1, failed, said(3, tool_result("a", "late")), said(4, user("u4"))]
    assert seen(history) == ["user: u1", "user: u4"]


def test_3_1_a_reply_without_content_is_left_out() -> None:
    """Case 9."""
    empty = Message(role="assistant", parts=())
    hollow = Message(role="assistant", parts=(Reasoning(content="hm"), Text(content=" \n")))
    thoughtful = Message(role="assistant", parts=(Reasoning(content="hm"), Text(content="so")))
    assert seen([said(1, empty, hollow, thoughtful)]) == ["assistant: (reasoning) so"]


def test_3_2_a_failed_call_takes_the_result_that_an_earlier_one_waits_for() -> None:
    history = [said(1, calls("a")), said(2, calls("a", finish_reason="error"))]
    history.append(said(3, tool_result("a", "r")))
    assert seen(history) == ["assistant: a()", LOST]


# --- 4: calls and results ------------------------------------------------------------------


def test_4_1_each_call_of_a_repeated_id_has_its_own_result() -> None:
    """Case 1."""
    history = []
    for turn in range(4):
        history += [
            said(2 * turn + 1, calls("a")),
            said(2 * turn + 2, tool_result("a", f"r{turn}")),
        ]
    assert seen(history) == [
        line for turn in range(4) for line in ("assistant: a()", f"tool: a=r{turn}")
    ]


def test_4_1_an_unanswered_call_stays_so_once_its_id_is_used_again() -> None:
    history = [said(1, calls("a")), said(2, calls("a")), said(3, tool_result("a", "r"))]
    assert seen(history) == ["assistant: a()", LOST, "assistant: a()", "tool: a=r"]


def test_4_2_orphans_and_duplicates_are_dropped() -> None:
    """Case 8; the user's text beside them stays."""
    orphan = ToolCallResponse(id="a", result="orphan")
    mixed = Message(role="user", parts=(orphan, Text(content="hi")))
    history = [said(1, mixed), said(2, calls("a")), said(3, tool_result("a", "one"))]
    history.append(said(4, tool_result("a", "two")))
    assert seen(history) == ["user: hi", "assistant: a()", "tool: a=one"]


def test_4_3_results_stand_in_call_order_directly_after_the_reply() -> None:
    """Cases 3 and 4."""
    history = [
        system(1, section("cwd", "/a")),
        said(2, calls("a", "b")),
        system(3, section("cwd", "/b")),
        said(4, tool_result("b", "rb"), tool_result("a", "ra", is_error=True)),
    ]
    assert seen(history) == [
        "system: /a",
        "assistant: a() b()",
        "tool: a=!ra",
        "tool: b=rb",
        'system: Prompt section "cwd" is now:\n/b',
    ]


def test_4_4_a_late_result_takes_the_synthetic_ones_place() -> None:
    """Case 6; the earlier view does not change."""
    history = [said(1, calls("a")), U2, said(3, assistant("ok")), said(4, tool_result("a", "r"))]
    assert seen(history, 3) == ["assistant: a()", LOST, "user: u2", "assistant: ok"]
    assert seen(history) == ["assistant: a()", "tool: a=r", "user: u2", "assistant: ok"]


def test_4_4_only_the_call_without_a_result_gets_a_synthetic_one() -> None:
    """Case 5."""
    history = [said(1, calls("b", "a")), said(2, tool_result("b", "r"))]
    assert seen(history) == ["assistant: b() a()", "tool: b=r", LOST]


def test_4_5_calls_that_share_an_id_are_told_apart() -> None:
    """Case 2."""
    history = [said(1, calls("a", "a", "a-2")), said(2, tool_result("a", "one"))]
    history.append(said(3, tool_result("a", "two"), tool_result("a-2", "other")))
    assert seen(history) == [
        "assistant: a() a-2-2() a-2()",
        "tool: a=one",
        "tool: a-2-2=two",
        "tool: a-2=other",
    ]


def test_4_6_what_remains_of_a_tool_message_is_the_users() -> None:
    parts = (ToolCallResponse(id="a", result="r"), Text(content="beside"))
    rest = Message(role="tool", parts=parts)
    history = [said(1, calls("a")), U2, said(3, rest), said(4, Message(role="user", parts=()))]
    assert seen(history) == ["assistant: a()", "tool: a=r", "user: u2", "user: beside"]


def test_4_7_tool_parts_in_the_wrong_role_are_left_out() -> None:
    asked = Message(role="user", parts=(Text(content="hi"), call("a")))
    result = ToolCallResponse(id="a", result="r")
    answered = Message(role="assistant", parts=(Text(content="so"), result))
    alone = Message(role="assistant", parts=(result, Reasoning(content="hm")))
    history = [said(1, asked), said(2, calls("a")), said(3, answered, alone)]
    assert seen(history) == ["user: hi", "assistant: a()", LOST, "assistant: so"]
