"""What changed between two views, and why: complete, minimal, and explained."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog_events.entries import (
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ForkEntry,
    NoteEntry,
    Recorded,
    ResetEntry,
    Section,
    SectionInForce,
    SourceRange,
    SystemEntry,
)
from foldlog_events.messages import Message, Tool, ToolCall, assistant, tool_result, user
from foldlog_projections.alignment import Pair, in_order
from foldlog_projections.diff import Cause, ContextDiff, MessageChange, diff
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.views import ContextView
from tests.histories import TENANT, Conversation, Family, families
from tests.small_histories import at, common, said

thoroughly = settings(
    max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def views_of(history: Sequence[Recorded], start: ContextFold | None = None) -> list[ContextView]:
    """The view before the first entry, and after each."""
    context = start or ContextFold(empty(TENANT, "c"))
    views = [context.view()]
    for recorded in history:
        if start is not None and recorded is history[0] and isinstance(recorded.entry, ForkEntry):
            context.inherit(recorded.version, recorded.entry)
        else:
            context.apply(recorded.version, recorded.entry)
        views.append(context.view())
    return views


def fold_of(family: Family, conversation: Conversation, up_to: int) -> ContextFold:
    """The conversation's context at a version, its ancestors' included."""
    parents = [each for each in family.conversations if each.name == conversation.parent]
    if not parents:
        context = ContextFold(empty(TENANT, conversation.name))
    else:
        context = fold_of(family, parents[0], conversation.parent_version)
    for recorded in conversation.history:
        if recorded.version > up_to:
            break
        if parents and recorded is conversation.history[0]:
            assert isinstance(recorded.entry, ForkEntry)
            context.inherit(recorded.version, recorded.entry)
        else:
            context.apply(recorded.version, recorded.entry)
    return context


def all_views(family: Family, conversation: Conversation) -> list[ContextView]:
    parents = [each for each in family.conversations if each.name == conversation.parent]
    if not parents:
        return views_of(conversation.history)
    return views_of(conversation.history, fold_of(family, parents[0], conversation.parent_version))


def patched(before: ContextView, changes: ContextDiff) -> tuple[Message, ...]:
    """The messages after, from those before and the changes alone."""
    gone = {change.place_before for change in changes.messages}
    messages = [m for place, m in enumerate(before.messages) if place not in gone]
    came = {c.place_after: c.after for c in changes.messages if c.place_after is not None}
    for place in sorted(came):
        message = came[place]
        assert message is not None
        messages.insert(place, message)
    return tuple(messages)


def check(before: ContextView, after: ContextView, changes: ContextDiff) -> None:
    assert patched(before, changes) == after.messages
    same_sections = [(s.name, s.text, s.exact) for s in before.sections] == [
        (s.name, s.text, s.exact) for s in after.sections
    ]
    assert (not changes.sections) == same_sections
    assert (not changes.tools) == (before.tools == after.tools)
    assert (not changes.messages) == (before.messages == after.messages)
    for change in changes.messages:
        old = None if change.place_before is None else before.messages[change.place_before]
        new = None if change.place_after is None else after.messages[change.place_after]
        assert (change.before, change.after) == (old, new)
        assert (old is None) == (change.change == "entered")
        assert (new is None) == (change.change == "left")
        if change.change == "replaced":
            assert old != new
        if change.change == "reordered":
            assert old == new


def causes_of(changes: ContextDiff) -> list[Cause | None]:
    return [
        *(change.cause for change in changes.messages),
        *(change.cause for change in changes.sections),
        *(change.cause for change in changes.tools),
    ]


@thoroughly
@given(families())
def test_between_neighbours_every_change_is_caused_by_the_entry_between(family: Family) -> None:
    for conversation in family.conversations:
        views = all_views(family, conversation)
        for place, recorded in enumerate(conversation.history):
            before, after = views[place], views[place + 1]
            changes = diff(before, after, (recorded,))
            check(before, after, changes)
            for cause in causes_of(changes):
                assert cause is not None
                assert (cause.id, cause.version) == (recorded.entry.id, recorded.version)


@thoroughly
@given(families(), st.data())
def test_between_any_two_versions_it_is_complete_and_explained(
    family: Family, data: st.DataObject
) -> None:
    for conversation in family.conversations:
        history = conversation.history
        views = all_views(family, conversation)
        first = data.draw(st.integers(0, len(history)))
        last = data.draw(st.integers(first, len(history)))
        between = history[first:last]
        changes = diff(views[first], views[last], between)
        check(views[first], views[last], changes)
        known = {(each.entry.id, each.version) for each in between}
        assert all(cause and (cause.id, cause.version) in known for cause in causes_of(changes))
        check(views[last], views[first], diff(views[last], views[first]))
        assert diff(views[last], views[last]).empty


def entry_at(version: int, kind: Callable[..., Entry], **fields: Any) -> Recorded:
    return at(version, kind(**common(f"e{version}"), **fields))


def system(version: int, *sections: Section, **tools: Any) -> Recorded:
    return entry_at(version, SystemEntry, sections=sections, **tools)


def edit(version: int, target: str, *messages: Message) -> Recorded:
    replace = messages or None
    return entry_at(version, EditEntry, edits=(Edit(target=target, replace=replace),))


def compaction(version: int, kept: int, base: BaseVersion, **fields: Any) -> Recorded:
    reference = EntryReference(f"e{kept}", kept)
    source = SourceRange(first=reference, last=reference, count=1, digest="")
    return entry_at(
        version,
        CompactionEntry,
        base_version=base,
        source_range=source,
        kept_from=reference,
        summary="What was said.",
        **fields,
    )


def between(history: Sequence[Recorded], after: int, until: int | None = None) -> ContextDiff:
    """From the view at a version to that at another (the last by default)."""
    views = {view.version: view for view in views_of(history)}
    until = history[-1].version if until is None else until
    entries = [each for each in history if after < each.version <= until]
    return diff(views[after], views[until], entries)


def short(changes: Sequence[MessageChange]) -> list[tuple[str, int | None, int | None, str]]:
    return [
        (c.change, c.place_before, c.place_after, c.cause.id if c.cause else "") for c in changes
    ]


CALL = assistant("", ToolCall(id="a", name="f"))
HELLO = (said(1, user("hi")), said(2, assistant("ok")), said(3, user("go on")))


def test_what_is_said_enters_by_its_own_entry() -> None:
    changes = between(HELLO, 1)
    assert short(changes.messages) == [("entered", None, 1, "e2"), ("entered", None, 2, "e3")]
    assert changes.messages[0].cause == Cause("e2", 2, "message")
    assert (changes.version_before, changes.version_after) == (1, 3)
    assert changes.tokens_after > changes.tokens_before


def test_what_says_nothing_changes_nothing() -> None:
    assert between((*HELLO, entry_at(4, NoteEntry, name="n")), 3).empty


def test_without_the_entries_between_no_cause_is_claimed() -> None:
    views = views_of(HELLO)
    assert [change.cause for change in diff(views[2], views[3]).messages] == [None]


def test_a_late_result_replaces_the_synthetic_one_and_is_its_cause() -> None:
    history = (
        said(1, user("hi")),
        said(2, CALL),
        said(3, user("meanwhile")),
        said(4, assistant("fine")),
        said(5, tool_result("a", "42")),
    )
    assert short(between(history, 3).messages) == [
        ("replaced", 2, 2, "e5"),
        ("entered", None, 4, "e4"),
    ]


def test_an_edited_entry_is_replaced_an_omitted_one_left() -> None:
    history = (*HELLO, edit(4, "e1", user("hello")), edit(5, "e2"), said(6, user("x")))
    assert short(between(history, 3).messages) == [
        ("replaced", 0, 0, "e4"),
        ("left", 1, None, "e5"),
        ("entered", None, 2, "e6"),
    ]


def test_one_of_two_equal_messages_is_told_from_the_other() -> None:
    history = (said(1, user("ok")), said(2, user("ok")), edit(3, "e1"))
    (change,) = between(history, 2).messages
    assert (change.change, change.place_before) == ("left", 0)
    assert change.origin_before == EntryReference("e1", 1)


def test_equal_messages_that_change_places_are_no_change_for_a_model() -> None:
    one = views_of((said(1, user("ok")), said(2, user("ok"))))[-1]
    other = msgspec.structs.replace(one, origins=one.origins[::-1])
    assert diff(one, other).empty


def test_a_result_that_answers_another_call_with_the_same_words_is_reordered() -> None:
    both = (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    history = (said(1, assistant("", *both)), edit(2, "e1", assistant("", *reversed(both))))
    changes = between(history, 1)
    assert [(c.change, c.place_before, c.place_after) for c in changes.messages] == [
        ("replaced", 0, 0),
        ("reordered", 1, 2),
    ]


def test_an_omitted_call_takes_its_result_with_it_and_an_omitted_result_is_replaced() -> None:
    history = (said(1, CALL), said(2, tool_result("a", "42")), said(3, user("x")))
    call_omitted = (*history, edit(4, "e1"), said(5, user("y")))
    assert short(between(call_omitted, 3).messages) == [
        ("left", 0, None, "e4"),
        ("left", 1, None, "e4"),
        ("entered", None, 1, "e5"),
    ]
    result_omitted = (*history, edit(4, "e2"), said(5, user("y")))
    assert short(between(result_omitted, 3).messages) == [
        ("replaced", 1, 1, "e4"),
        ("entered", None, 3, "e5"),
    ]


def test_an_erased_entry_leaves_by_its_tombstone() -> None:
    tombstone = entry_at(4, ErasedEntry, target="e1", target_version=1)
    history = (*HELLO, tombstone, said(5, user("x")))
    assert short(between(history, 3).messages)[0] == ("left", 0, None, "e4")


def test_a_compaction_explains_what_left_and_its_summary() -> None:
    history = (*HELLO, compaction(4, 3, BaseVersion(3, 0)), said(5, assistant("x")))
    changes = between(history, 3)
    assert short(changes.messages) == [
        ("left", 0, None, "e4"),
        ("left", 1, None, "e4"),
        ("entered", None, 0, "e4"),
        ("entered", None, 2, "e5"),
    ]
    assert changes.head_before is None
    assert changes.head_after is not None
    assert changes.head_after.id == "e4"


def test_a_stale_compaction_changes_nothing() -> None:
    assert between((*HELLO, compaction(4, 3, BaseVersion(3, 99))), 3).empty


def test_a_reset_explains_what_left() -> None:
    history = (*HELLO, entry_at(4, ResetEntry, handoff=(user("anew"),)), said(5, user("x")))
    assert [cause and cause.id for cause in causes_of(between(history, 3))] == [
        "e4",
        "e4",
        "e4",
        "e4",
        "e5",
    ]


def test_the_first_system_entry_enters_at_the_top_and_an_omitted_one_is_replaced() -> None:
    history = (
        *HELLO,
        system(4, Section(name="rules", text="Be brief.")),
        system(5, Section(name="cwd", text="/tmp")),
        edit(6, "e4"),
    )
    assert short(between(history, 3, 4).messages) == [("entered", None, 0, "e4")]
    changes = between(history, 4)
    assert short(changes.messages) == [("replaced", 0, 0, "e6")]
    assert [(c.change, c.name, c.cause and c.cause.id) for c in changes.sections] == [
        ("left", "rules", "e6"),
        ("entered", "cwd", "e5"),
    ]


def test_results_change_places_when_an_edit_changes_which_call_they_answer() -> None:
    both = (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    history = (
        said(1, assistant("", *both)),
        said(2, tool_result("a", "1"), tool_result("b", "2")),
        edit(3, "e1", assistant("", *reversed(both))),
    )
    changes = between(history, 2)
    assert [(c.change, c.cause and c.cause.id) for c in changes.messages] == [
        ("replaced", "e3"),
        ("reordered", "e3"),
    ]


def test_sections_and_tools_say_which_entry_changed_them() -> None:
    one, other, third = (Tool(name=name) for name in "fgh")
    rules, style = Section(name="rules", text="r"), Section(name="style", text="s")
    history = (
        system(1, rules, style, tools_added=(one, other)),
        system(2, Section(name="rules", text="R", exact=True)),
        system(3, Section(name="style", text=None), tools_removed=("f",)),
        system(4, tools_added=(third, Tool(name="g", description="new"))),
    )
    changes = between(history, 1)
    assert [(c.change, c.name, c.cause and c.cause.id) for c in changes.sections] == [
        ("left", "style", "e3"),
        ("replaced", "rules", "e2"),
    ]
    assert [(c.change, c.name, c.cause and c.cause.id) for c in changes.tools] == [
        ("left", "f", "e3"),
        ("replaced", "g", "e4"),
        ("entered", "h", "e4"),
    ]


def test_a_reordered_prompt_is_said_once_for_what_moved() -> None:
    names = ("a", "b", "c")
    sections = [Section(name=name, text=name) for name in names]
    tools = [Tool(name=name) for name in names]
    history = (
        system(1, *sections, tools_added=tuple(tools)),
        system(
            2,
            *(Section(name=name, text=None) for name in names),
            *(sections[place] for place in (1, 2, 0)),
            tools_removed=names,
            tools_added=tuple(tools[place] for place in (1, 2, 0)),
        ),
    )
    changes = between(history, 1)
    assert [(c.change, c.name) for c in changes.sections] == [("reordered", "a")]
    assert [(c.change, c.name) for c in changes.tools] == [("reordered", "a")]


def test_a_head_without_the_prompt_explains_that_it_is_gone() -> None:
    start = system(1, Section(name="rules", text="r"), tools_added=(Tool(name="f"),))
    kept = SectionInForce(name="rules", text="other")
    for baseline, expected in ((None, "left"), (Baseline(sections=(kept,)), "replaced")):
        reset = entry_at(2, ResetEntry, baseline=baseline)
        changes = between((start, reset, said(3, user("x"))), 1)
        assert [(c.change, c.cause and c.cause.id) for c in changes.sections] == [(expected, "e2")]
        assert [(c.change, c.cause and c.cause.id) for c in changes.tools] == [("left", "e2")]


def test_a_tool_set_before_a_new_head_is_explained_by_the_head() -> None:
    tool = Tool(name="f")
    history = (
        said(1, user("hi")),
        system(2, tools_added=(Tool(name="f", description="old"),)),
        entry_at(3, ResetEntry, baseline=Baseline(tools=(tool,))),
    )
    (change,) = between(history, 1).tools
    assert (change.change, change.cause) == ("entered", Cause("e3", 3, "reset"))


@given(st.permutations(range(8)))
def test_what_stays_in_order_is_as_much_as_can(places: list[int]) -> None:
    pairs = [Pair(place, after) for place, after in enumerate(places)]
    run = in_order(pairs)
    assert run == sorted(run)
    assert [pair.after for pair in run] == sorted(pair.after for pair in run)
    longest = [1] * len(places)
    for end in range(len(places)):
        for start in range(end):
            if places[start] < places[end]:
                longest[end] = max(longest[end], longest[start] + 1)
    assert len(run) == max(longest)
