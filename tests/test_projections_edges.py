"""The branches of the projections that ordinary histories do not take."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog_events.entries import (
    Baseline,
    BaseVersion,
    ForkEntry,
    Recorded,
    ResetEntry,
    SectionInForce,
)
from foldlog_events.messages import (
    ArtifactReference,
    File,
    Message,
    Seen,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
    Usage,
    assistant,
    tool_result,
    user,
)
from foldlog_projections import recall
from foldlog_projections.attempts import CompactionRecord, unended
from foldlog_projections.cut import Cut, CutItem, choose_cut
from foldlog_projections.fold import ContextFold, ForkWithoutParent, empty
from foldlog_projections.graphemes import boundary_before
from foldlog_projections.grounding import ungrounded
from foldlog_projections.informative import condense
from foldlog_projections.meter import is_usable
from foldlog_projections.policy import default
from foldlog_projections.prompt import plan_prompt
from foldlog_projections.prune import prune
from foldlog_projections.summary_source import (
    SourceMessage,
    informative,
    plain_text,
    source_text,
)
from foldlog_projections.tokens import estimate_message, estimate_tools
from tests.histories import TENANT, TIME
from tests.small_histories import (
    calls,
    common,
    compaction,
    edit,
    reset,
    said,
    section,
    seen,
    system,
)


def folded() -> ContextFold:
    context = ContextFold(empty(TENANT, "c"))
    context.apply(1, said(1, user("one")).entry)
    return context


# --- the fold's own side doors ---------------------------------------------------------------


def test_an_entry_that_was_folded_before_changes_nothing() -> None:
    context = folded()
    context.apply(3, said(3, user("three")).entry)
    before = context.state()
    for version in (1, 2, 3):
        context.apply(version, said(9, user("other")).entry)
    context.apply_unreadable(1, "log", "again")
    context.apply_unreadable(3, "log", "again")
    assert context.state() == before


def test_a_first_fork_needs_its_parents_context() -> None:
    fork = ForkEntry(**common("f"), parent="p", parent_version=7)
    with pytest.raises(ForkWithoutParent, match="up to version 7"):
        ContextFold(empty(TENANT, "c")).apply(1, fork)


def test_an_unreadable_place_is_a_fault_and_moves_its_lane() -> None:
    context = folded()
    context.apply_unreadable(5, "shape", "no JSON")
    view = context.view()
    assert [(fault.version, fault.reason) for fault in view.faults] == [(5, "no JSON")]
    assert view.base_version == BaseVersion(log=1, shape=5)
    assert context.active_count == 2
    assert context.ids() == {"e1", "5"}


def test_older_heads_and_unread_ends_move_the_versions_only() -> None:
    context = folded()
    context.apply_older_head(4)
    context.apply(6, said(6, user("six")).entry)
    context.reach(BaseVersion(log=3, shape=5))
    assert context.base_version == BaseVersion(log=6, shape=5)
    context.reach(BaseVersion(log=9, shape=2))
    assert context.base_version == BaseVersion(log=6, shape=5)
    assert len(context.view().messages) == 2


def test_a_known_head_is_taken_as_in_force() -> None:
    context = folded()
    context.apply_known_head(9, compaction(9, 1, log=1, shape=8).entry)  # type: ignore[arg-type]
    assert context.view().head is not None
    context.apply_known_head(10, ResetEntry(**common("r")))
    assert context.view().messages == ()


def test_system_entries_of_before_a_head_without_baseline_are_superseded() -> None:
    context = ContextFold(empty(TENANT, "c"))
    context.apply(1, system(1, section("a", "x")).entry)
    assert context.superseded_prompts() == ()
    context.apply(2, said(2, user("u")).entry)
    context.apply(3, compaction(3, 1, log=2).entry)
    context.apply(4, system(4, section("a", "y")).entry)
    assert context.superseded_prompts() == ("e1",)


def test_a_call_in_a_users_message_is_left_out_and_its_words_stay() -> None:
    message = Message(role="user", parts=(ToolCall(id="a", name="f"), Text(content="hi")))
    assert seen([said(1, message)]) == ["user: hi"]


def test_a_usage_that_is_none_tells_nothing() -> None:
    assert not is_usable(None)


# --- what a context weighs ---------------------------------------------------------------------


def weighed(*history: Recorded) -> ContextFold:
    context = ContextFold(empty(TENANT, "c"))
    for one in history:
        context.apply(one.version, one.entry)
    assert ContextFold(context.state()).view() == context.view()
    return context


def test_tools_weigh_while_they_are_on_offer() -> None:
    tool = Tool(name="f", description="d" * 400)
    bare = weighed(system(1, section("a", "x"))).tokens()
    one = weighed(system(1, section("a", "x"), tools_added=(tool,)))
    assert one.tokens() == bare + estimate_tools((tool,))
    other = Tool(name="g", description="e" * 90)
    more = weighed(
        system(1, section("a", "x"), tools_added=(tool,)), system(2, tools_added=(other,))
    )
    assert more.tokens() == bare + estimate_tools((tool, other))
    gone = weighed(
        system(1, section("a", "x"), tools_added=(tool,)), system(2, tools_removed=("f",))
    )
    assert gone.tokens() == bare


def test_a_late_result_weighs_instead_of_the_synthetic_one() -> None:
    early = weighed(said(1, calls("a")), said(2, tool_result("a", "r" * 900)), said(3, user("u")))
    late = weighed(said(1, calls("a")), said(2, user("u")), said(3, tool_result("a", "r" * 900)))
    assert late.tokens() == early.tokens()
    assert late.tokens() == sum(map(estimate_message, late.view().messages))


def measured(version: int, tokens: int, seen_version: int | None = None) -> Recorded:
    message = assistant("ok", usage=Usage(input_tokens=tokens - 1, output_tokens=1))
    if seen_version is not None:
        message = msgspec.structs.replace(message, seen=Seen(version=seen_version, digest=""))
    return said(version, message)


def test_a_measurement_counts_unless_the_context_changed_since_it_was_sent() -> None:
    first = said(1, user("x" * 4_000))
    assert weighed(first, measured(2, 5_000)).tokens() == 5_000
    assert weighed(first, measured(2, 5_000, seen_version=1)).tokens() == 5_000
    after_edit = (first, edit(2, "e1", user("y" * 4_000)))
    assert weighed(*after_edit, measured(3, 5_000)).tokens() == 5_000
    stale = weighed(*after_edit, measured(3, 5_000, seen_version=1))
    assert stale.tokens() == stale.view().estimated_tokens
    same = weighed(*after_edit, measured(3, 5_000, seen_version=2))
    assert same.tokens() == same.view().estimated_tokens, "it was sent as the edit came"


def test_a_reset_forgets_the_calibration_and_a_compaction_brings_its_own() -> None:
    history = (said(1, user("x" * 8_000)), measured(2, 3_000))
    assert weighed(*history).state().calibration != 1.0
    assert weighed(*history, reset(3)).state().calibration == 1.0
    kept = weighed(*history, compaction(3, 2, log=2, calibration=1.5))
    assert kept.state().calibration == 1.5


@pytest.mark.parametrize(("shape", "is_stale"), [(0, True), (2, False), (9, True)])
def test_a_compaction_of_another_shape_is_stale(shape: int, is_stale: bool) -> None:
    history = (said(1, user("u")), edit(2, "e1", user("v")), said(3, user("w")))
    context = weighed(*history, compaction(4, 3, log=3, shape=shape))
    assert context.view().stale_compactions == int(is_stale)
    assert (context.view().head is None) is is_stale


def test_a_system_entry_at_the_base_version_is_in_the_baseline() -> None:
    sections = (SectionInForce(name="a", text="x", entry="e2"),)
    history = (said(1, user("u")), system(2, section("a", "x")), said(3, user("w")))
    context = weighed(*history, compaction(4, 2, log=2, baseline=Baseline(sections=sections)))
    roles = [message.role for message in context.view().messages]
    assert roles == ["system", "user", "user"]


# --- prompt plans ----------------------------------------------------------------------------


def test_a_new_order_is_all_removed_and_all_added() -> None:
    context = ContextFold(empty(TENANT, "c"))
    tools = (Tool(name="f"), Tool(name="g"))
    context.apply(1, system(1, section("a", "1"), section("b", "2"), tools_added=tools).entry)
    view = context.view()
    wanted = (section("b", "2"), section("a", "1"))
    plan = plan_prompt(view.sections, view.tools, wanted, tools[::-1])
    assert plan.sections == (section("a", None), section("b", None), *wanted)
    assert (plan.tools_removed, plan.tools_added) == (("f", "g"), tools[::-1])


def test_a_plan_names_what_changed_and_nothing_else() -> None:
    f, g, h = Tool(name="f"), Tool(name="g"), Tool(name="h")
    context = weighed(
        system(1, section("a", "1"), section("b", "2"), section("c", "3"), tools_added=(f, g))
    )
    view = context.view()
    in_force = view.sections, view.tools
    same = (section("a", "1"), section("b", "2"), section("c", "3"))
    assert plan_prompt(*in_force, same, (Tool(name="f"), Tool(name="g"))).changes_nothing
    for text in ("0", "9"):
        changed = (same[0], section("b", text), same[2], section("d", "4"))
        plan = plan_prompt(*in_force, changed, (f, Tool(name="g", description=text), h))
        assert plan.sections == (section("b", text), section("d", "4"))
        assert (plan.tools_removed, plan.tools_added) == (
            (),
            (Tool(name="g", description=text), h),
        )
    one_more = plan_prompt(*in_force, (*same, section("d", "4")), (f, g))
    assert (one_more.changes_nothing, one_more.tools_removed, one_more.tools_added) == (
        False,
        (),
        (),
    )
    without_tool = plan_prompt(*in_force, same, (f,))
    assert (without_tool.changes_nothing, without_tool.tools_removed) == (False, ("g",))
    with_tool = plan_prompt(*in_force, same, (f, g, h))
    assert (with_tool.changes_nothing, with_tool.tools_added) == (False, (h,))
    fewer = plan_prompt(*in_force, (same[1],), (g,))
    assert fewer.sections == (section("a", None), section("c", None))
    assert (fewer.tools_removed, fewer.tools_added) == (("f",), ())
    for wanted in ((same[1], same[0], same[2]), *((section(name, "4"), *same) for name in "0d")):
        assert plan_prompt(*in_force, wanted, (f, g)).sections[-len(wanted) :] == wanted


# --- attempts --------------------------------------------------------------------------------


def test_starts_without_an_end() -> None:
    def record(attempt: str, state: str) -> CompactionRecord:
        return CompactionRecord(
            id=attempt,
            tenant="t",
            conversation="c",
            state=state,  # type: ignore[arg-type]
            time=TIME,
        )

    records = [record("a", "started"), record("b", "started"), record("a", "failed")]
    assert unended(records) == (records[1],)


# --- cuts and pruning ------------------------------------------------------------------------


def item(version: int, *messages: Message) -> CutItem:
    tokens = sum(map(estimate_message, messages))
    return CutItem(
        id=f"e{version}", version=version, kind="message", messages=messages, tokens=tokens
    )


def test_a_cut_is_not_made_before_words_that_are_none() -> None:
    """A user message in which nothing is said begins nothing."""
    long = "words " * 400
    silent = Message(role="user", parts=(ToolCall(id="a", name="f"),))
    items = [item(1, user(long)), item(2, assistant(long)), item(3, silent)]
    items += [item(4, user("real"), assistant("answer " * 20))]
    cut = choose_cut(items, 30)
    assert isinstance(cut, Cut)
    assert items[cut.index].id == "e4"


def test_pruning_leaves_alone_what_would_gain_nothing() -> None:
    policy = default(200_000)
    image = Uri(uri="https://example.org/a.png")
    short = (Text(content="short " * 60), image)
    items = [
        item(1, calls("a")),
        item(2, Message(role="tool", parts=(ToolCallResponse(id="a", result=short),))),
        item(3, calls("b")),
        item(4, tool_result("b", "newest")),
    ]
    assert prune(items, policy).edits == ()


def test_a_repetition_stays_where_its_marker_would_be_longer() -> None:
    result = "row 4711, EUR 12\n" * 60
    named = [item(n, calls(f"c{n}"), tool_result(f"c{n}", result)) for n in (1, 2, 3)]
    assert len(prune(named, default(200_000)).edits) == 2
    long_id = "e" * 9_000
    unnamed = [msgspec.structs.replace(one, id=f"{long_id}{one.version}") for one in named]
    assert prune(unnamed, default(200_000)).edits == ()


# --- texts -----------------------------------------------------------------------------------


def test_an_accent_does_not_join_a_control_character() -> None:
    assert boundary_before("\n\u0301", 1) == 1
    assert boundary_before("e\u0301", 1) == 0


@pytest.mark.parametrize("limit", range(200, 1_200, 61))
def test_a_text_of_many_small_facts_is_capped_with_its_gaps(limit: int) -> None:
    rows = "\n".join("filler " * 6 + ("id 4711" if n % 2 else "") for n in range(60))
    assert len(informative(rows, limit)) <= limit


@pytest.mark.parametrize(
    ("text", "parted"),
    [("각ᆨ", False), ("가각", True), ("각", False), ("각각", True), ("힝ᅵ", True)],
)
def test_a_syllable_is_not_parted(text: str, parted: bool) -> None:
    assert (boundary_before(text, 1) == 1) is parted


def test_a_currency_sign_that_two_currencies_share_agrees_with_either() -> None:
    assert not ungrounded("It cost ¥5,200.", "The price: 5,200 CNY.")


def test_deep_and_wide_json_is_condensed_with_what_is_left_out() -> None:
    deep: object = "bottom"
    for _ in range(260):
        deep = {"level": deep}
    told = condense(json.dumps({"deep": deep, "pad": ["x" * 50] * 400}), 6_000)
    assert told is not None
    assert "nested deeper" in told
    wide = condense(json.dumps({f"field {n}": n for n in range(3_000)}), 2_000)
    assert wide is not None
    assert "more fields" in wide


def test_a_table_keeps_its_head_and_end_or_is_not_condensed() -> None:
    rows = [f"{n},{n * 7},store {n % 9}" for n in range(400)]
    table = "\n".join(["id,sales,store", *rows])
    told = condense(table, 600)
    assert told is not None
    assert told.startswith("id,sales,store")
    assert rows[-1] in told
    assert condense(table, 20) is None
    assert condense(table, len(table) * 2) == table


@given(st.integers(0, 400))
def test_a_capped_text_is_never_longer(limit: int) -> None:
    text = "Order 4711 of 2026-05-01: EUR 1,204.50; " * 40
    assert len(informative(text, limit)) <= limit


def test_every_kind_of_content_has_words_in_a_summarys_source() -> None:
    parts = (
        File(file_id="f1", mime_type="application/pdf"),
        File(file_id="f2"),
        Uri(uri="https://example.org/x"),
        ArtifactReference(digest="sha256:0", mime_type="text/csv", size=9, preview="a,b"),
    )
    assert plain_text(Message(role="user", parts=parts)) == (
        "[application/pdf f1]\n[file f2]\n[content at https://example.org/x]\n"
        "[text/csv of 9 bytes, stored as sha256:0]\na,b"
    )
    assert source_text(None, []) == ""
    only_turn = source_text("old", [], turn_prefix=[SourceMessage("e1", 1, user("hi"))])
    assert "<conversation>" not in only_turn
    assert "<turn-beginning>" in only_turn


def test_a_query_character_whose_parts_hold_a_space_is_one_word() -> None:
    """`´` is a space and an accent in its parts."""
    found = recall.search([said(1, user("cost: 0´ each"))], "0´")
    assert [hit.reference for hit in found.hits] == ["e1"]


def test_a_reset_of_nothing_shows_nothing() -> None:
    assert seen([reset(1)]) == []
