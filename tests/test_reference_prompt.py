"""The reference on rules 5 to 10, and on the worked examples that the fold must hold."""

from foldlog_events.entries import (
    ActionEntry,
    Baseline,
    ExactValue,
    NoteEntry,
    OtherEntry,
    SectionInForce,
)
from foldlog_events.messages import Tool, assistant, tool_result, user
from tests.histories import TIME
from tests.reference_fold import INTRODUCTION, frame, reference_view
from tests.reference_pairing import UNAVAILABLE
from tests.small_histories import (
    LAST,
    U1,
    U2,
    U3,
    at,
    calls,
    common,
    compaction,
    edit,
    fork,
    reset,
    said,
    section,
    seen,
    short,
    system,
    view,
)

CWD, RULES = section("cwd", "/a"), section("rules", "be kind")
READ, WRITE = Tool(name="read"), Tool(name="write")


def in_force(name: str, text: str, entry: str, replaced: str = "") -> SectionInForce:
    return SectionInForce(name=name, text=text, entry=entry, time=TIME, replaced=replaced)


# --- 5: the system message and tools -------------------------------------------------------


def test_5_1_what_is_known_keeps_its_place() -> None:
    newer = Tool(name="read", description="newer")
    history = [
        system(1, CWD, RULES, tools_added=(READ, WRITE)),
        system(2, section("cwd", "/b"), tools_added=(newer,)),
    ]
    assert [each.name for each in view(history).sections] == ["cwd", "rules"]
    assert view(history).tools == (newer, WRITE)


def test_5_1_what_is_removed_comes_back_at_the_end() -> None:
    history = [
        system(1, CWD, RULES, tools_added=(READ, WRITE)),
        system(2, section("cwd", None), CWD, tools_removed=("read",), tools_added=(READ,)),
    ]
    assert [each.name for each in view(history).sections] == ["rules", "cwd"]
    assert view(history).tools == (WRITE, READ)


def test_5_2_the_first_entry_that_sets_a_section_leads_wherever_it_stands() -> None:
    history = [U1, system(2, section("x", None)), system(3, tools_added=(READ,)), system(4, CWD)]
    removed = 'system: Prompt section "x" no longer applies.'
    assert seen(history) == ["system: /a", "user: u1", removed]
    assert view(history).tools == (READ,)


def test_5_2_the_baseline_leads_and_stands_for_what_it_holds() -> None:
    baseline = Baseline(sections=(in_force("cwd", "/base", "e1"),), tools=(READ,))
    history = [
        system(1, CWD, tools_added=(WRITE,)),
        U2,
        system(3, RULES, tools_added=(WRITE,)),
        compaction(4, 1, log=2, baseline=baseline),
    ]
    assert seen(history) == [
        "system: /base",
        "K: S4",
        "user: u2",
        'system: Prompt section "rules" is now:\nbe kind',
    ]
    assert view(history).tools == (READ, WRITE)
    assert view(history).sections == (*baseline.sections, in_force("rules", "be kind", "e3"))


def test_5_3_a_later_entry_is_a_message_where_it_was_committed() -> None:
    history = [system(1, CWD), U2, system(3, RULES, section("cwd", None)), said(4, user("u4"))]
    history.append(system(5, tools_removed=("read",)))
    patch, gone = (
        'Prompt section "rules" is now:\nbe kind',
        'Prompt section "cwd" no longer applies.',
    )
    assert seen(history) == ["system: /a", "user: u2", f"system: {patch} {gone}", "user: u4"]


def test_5_4_a_name_that_stands_twice_counts_where_it_stands_last() -> None:
    history = [system(1, CWD), system(2, CWD, RULES, section("cwd", "/b"))]
    texts = 'Prompt section "rules" is now:\nbe kind', 'Prompt section "cwd" is now:\n/b'
    assert seen(history) == ["system: /a", f"system: {' '.join(texts)}"]


def test_5_4_without_sections_there_is_no_leading_message() -> None:
    assert seen([system(1, tools_added=(READ,)), U2]) == ["user: u2"]


def test_5_2_a_baseline_without_sections_leaves_the_lead_to_the_first_that_sets_one() -> None:
    history = [U1, reset(2, baseline=Baseline(tools=(READ,))), U3, system(4, CWD)]
    assert seen(history) == ["system: /a", "user: u3"]
    assert view(history).tools == (READ,)


def test_5_5_after_a_head_without_a_baseline_the_prompt_is_empty() -> None:
    history = [system(1, CWD, tools_added=(READ,)), reset(2)]
    assert (view(history).sections, view(history).tools) == ((), ())
    assert seen([*history, U3, system(4, RULES)]) == ["system: be kind", "user: u3"]


def test_5_6_a_section_remembers_who_set_it_and_what_it_replaced() -> None:
    history = [system(1, CWD), system(2, section("cwd", "/b"))]
    assert view(history).sections == (in_force("cwd", "/b", "e2", replaced="e1"),)


# --- 6: the summary ------------------------------------------------------------------------


def test_6_nothing_inside_ends_the_fence() -> None:
    values = (ExactValue(text="/srv/<Summary", kind="path", entry="e1"),)
    history = [U1, compaction(2, None, log=1, summary="x </SUMMARY> y", exact_values=values)]
    assert [short(message) for message in view(history).messages] == [
        f"user: {INTRODUCTION}\n\n<summary>\nx &lt;/SUMMARY> y\n</summary>\n\n"
        "Exact values, copied by program:\n- path: /srv/&lt;Summary"
    ]


def test_6_1_another_frame_can_be_given() -> None:
    history = [U1, compaction(2, None, log=1, summary="short")]
    framed = reference_view(history, LAST, frame=lambda summary, _: user(summary))
    assert framed.messages == (user("short"),)
    assert frame("short", ()) != user("short")


# --- 7: silent kinds -----------------------------------------------------------------------


def test_7_silent_kinds_and_kinds_that_speak() -> None:
    history = [
        at(1, NoteEntry(**common("e1"), data="secret")),
        at(2, ActionEntry(**common("e2"), action="x", step="requested")),
        at(3, OtherEntry(kind="acme", **common("e3"), messages=(user("widget"),))),
        at(4, OtherEntry(kind="acme", **common("e4"), data=1)),
        fork(5, "p", 1),  # not the first of its conversation
    ]
    assert seen(history) == ["user: widget"]
    assert view(history).readable


def test_7_a_required_unknown_kind_is_a_fault_while_it_is_in_the_range() -> None:
    required = at(2, OtherEntry(kind="later", **common("e2"), required=True))
    history = [U1, required, U3, reset(4)]
    assert view(history, 1).readable
    assert view(history, 3).faults == (2,)
    assert view(history).readable


# --- 8 to 11 -------------------------------------------------------------------------------


def test_9_a_fork_sees_what_its_parent_saw_and_nothing_later() -> None:
    parent = [system(1, CWD), U2, compaction(3, 2, log=2), said(5, user("later")), reset(6)]
    child = [fork(7, "p", 4), edit(8, "e2", user("edited")), said(9, user("own"))]
    line = {"p": parent}
    inherited = reference_view(child, 7, line)
    assert [short(each) for each in inherited.messages][1:] == ["user: u2"]
    assert inherited.head == ("e3", 3, "compaction")
    assert [short(each) for each in reference_view(child, 9, line).messages][1:] == [
        "user: edited",
        "user: own",
    ]
    own = [fork(7, "p", 4), compaction(8, 7, log=7, shape=0)]
    assert reference_view(own, 8, line).head == ("e8", 8, "compaction")
    grandchild = reference_view([fork(10, "c", 8)], 10, {"p": parent, "c": child})
    assert [short(each) for each in grandchild.messages][1:] == ["user: edited"]


def test_10_1_a_compaction_on_another_shape_changes_nothing() -> None:
    """Cases 14 and 16: a reset, or another worker's compaction, came first."""
    history = [U1, reset(2), U3, compaction(4, 1, log=1, shape=0)]
    assert seen(history) == ["user: u3"]
    assert (view(history).stale, view(history, 3).stale) == (1, 0)
    history.append(compaction(5, 3, log=3, shape=4))  # a stale one is a shape entry all the same
    assert seen(history) == ["K: S5", "user: u3"]
    assert view(history).stale == 0


def test_10_2_a_compaction_that_keeps_from_outside_the_range_changes_nothing() -> None:
    history = [U1, U2, U3, compaction(4, 2, log=3), compaction(5, 1, log=3, shape=4)]
    assert seen(history) == ["K: S4", "user: u2", "user: u3"]
    assert view(history).stale == 1


def test_11_a_second_compaction_reads_from_the_first_ones_kept_entries_on() -> None:
    """Case 12: u2 to a3 are in the range that the second compaction summarises or keeps."""
    first = [U1, U2, U3, compaction(4, 2, log=3)]
    assert seen([*first, compaction(5, 2, log=3, shape=4)])[1:] == ["user: u2", "user: u3"]
    assert seen([*first, compaction(5, 3, log=3, shape=4)])[1:] == ["user: u3"]


# --- worked examples -----------------------------------------------------------------------


def test_nine_entries() -> None:
    log = [
        said(1, user("read a and b")),
        said(2, assistant("on it", finish_reason="aborted")),
        said(3, calls("a", "b")),
        said(4, tool_result("b", "rb")),
        system(5, section("cwd", "/srv")),
        said(6, tool_result("a", "ra")),
        said(7, assistant("done")),
        edit(8, "e1", user("read files a and b")),
        at(9, NoteEntry(**common("e9"), name="note")),
    ]
    assert seen(log) == [
        "system: /srv",
        "user: read files a and b",
        "assistant: a() b()",
        "tool: a=ra",
        "tool: b=rb",
        "assistant: done",
    ]
    after_the_calls = reference_view([fork(10, "p", 3)], 10, {"p": log})
    assert [short(each) for each in after_the_calls.messages] == [
        "user: read a and b",
        "assistant: a() b()",
        f"tool: a=!{UNAVAILABLE}",
        f"tool: b=!{UNAVAILABLE}",
    ]


def test_sections() -> None:
    log = [
        system(1, CWD, RULES, section("style", "short")),
        said(2, user("first question")),
        said(3, assistant("answer")),
        said(4, user("second question")),
        system(5, section("cwd", "/b")),
    ]
    assert seen(log) == [
        "system: /a be kind short",
        "user: first question",
        "assistant: answer",
        "user: second question",
        'system: Prompt section "cwd" is now:\n/b',
    ]
    assert [each.text for each in view(log).sections] == ["/b", "be kind", "short"]
