"""The real fold against the reference: the same view at every version of generated histories."""

import os

import msgspec
from hypothesis import HealthCheck, given, settings

from foldlog_events.codec import decode, encode
from foldlog_events.entries import (
    SHAPE_KINDS,
    Entry,
    ForkEntry,
    MessageEntry,
    OtherEntry,
    Recorded,
    SystemEntry,
)
from foldlog_events.errors import InvalidEntry
from foldlog_events.messages import Text, ToolCallResponse
from foldlog_projections.fold import apply, empty, fold, inherit, render
from foldlog_projections.state import FoldState
from foldlog_projections.views import ContextView
from tests.histories import TENANT, Conversation, Family, families, histories
from tests.reference_fold import ReferenceView, reference_view

thoroughly = settings(
    max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def as_reference(view: ContextView) -> ReferenceView:
    """The fields of a view that the rules speak of."""
    return ReferenceView(
        version=view.version,
        base_version=view.base_version,
        messages=view.messages,
        tools=view.tools,
        sections=view.sections,
        head=None if view.head is None else (view.head.id, view.head.version, view.head.kind),
        stale=view.stale_compactions,
        faults=tuple(fault.version for fault in view.faults),
    )


def state_at(family: Family, conversation: Conversation, version: int) -> FoldState:
    """Folded from scratch, the ancestors too."""
    state = empty(TENANT, conversation.name)
    for recorded in conversation.history:
        if recorded.version <= version:
            state = folded(family, conversation, state, recorded)
    return state


def folded(
    family: Family, conversation: Conversation, state: FoldState, recorded: Recorded
) -> FoldState:
    if recorded is conversation.history[0] and isinstance(recorded.entry, ForkEntry):
        parent = next(c for c in family.conversations if c.name == conversation.parent)
        inherited = state_at(family, parent, conversation.parent_version)
        return inherit(inherited, recorded.version, recorded.entry)
    return apply(state, recorded.version, recorded.entry)


def stored_and_read(state: FoldState) -> FoldState:
    return msgspec.json.decode(msgspec.json.encode(state), type=FoldState)


@thoroughly
@given(families())
def test_the_fold_agrees_with_the_rules_at_every_version(family: Family) -> None:
    for conversation in family.conversations:
        state = empty(TENANT, conversation.name)
        for recorded in conversation.history:
            state = folded(family, conversation, state, recorded)
            expected = reference_view(conversation.history, recorded.version, family.histories)
            view = render(state)
            assert as_reference(view) == expected
            assert len(view.origins) == len(view.messages)


@thoroughly
@given(families())
def test_a_fold_resumed_from_any_stored_state_ends_the_same(family: Family) -> None:
    for conversation in family.conversations:
        whole = (
            state_at(family, conversation, conversation.history[-1].version)
            if (conversation.history)
            else empty(TENANT, conversation.name)
        )
        state = empty(TENANT, conversation.name)
        for index, recorded in enumerate(conversation.history):
            state = folded(family, conversation, state, recorded)
            resumed = fold(stored_and_read(state), conversation.history[index + 1 :])
            assert resumed == whole
            assert render(resumed) == render(whole)


@thoroughly
@given(families())
def test_9_a_fork_sees_what_its_parent_saw(family: Family) -> None:
    for child in family.conversations[1:]:
        first = child.history[0]
        parent = next(c for c in family.conversations if c.name == child.parent)
        seen = render(state_at(family, parent, child.parent_version))
        inherited = render(state_at(family, child, first.version))
        assert inherited.messages == seen.messages
        assert (inherited.tools, inherited.sections) == (seen.tools, seen.sections)
        assert (inherited.head, inherited.faults) == (seen.head, seen.faults)


@thoroughly
@given(histories())
def test_8_a_view_begins_with_the_one_before(history: tuple[Recorded, ...]) -> None:
    state = empty(TENANT, "root")
    before = render(state)
    for recorded in history:
        state = apply(state, recorded.version, recorded.entry)
        after = render(state)
        assert (after.digest == before.digest) == (after.messages == before.messages)
        if only_adds(recorded.entry, before):
            assert after.messages[: len(before.messages)] == before.messages
        before = after


def only_adds(entry: Entry, before: ContextView) -> bool:
    """Whether rule 8 has no exception for an entry."""
    if isinstance(entry, SHAPE_KINDS):
        return False
    if isinstance(entry, SystemEntry):
        return is_led(before)
    if isinstance(entry, MessageEntry | OtherEntry):
        parts = [part for message in entry.messages for part in message.parts]
        return not any(isinstance(part, ToolCallResponse) for part in parts)
    return True


def is_led(view: ContextView) -> bool:
    """Whether the sections of a baseline or of a first system entry stand first."""
    texts = [
        part.content
        for message in view.messages[:1]
        for part in message.parts
        if (isinstance(part, Text))
    ]
    return any(text.startswith(("section ", "baseline ")) for text in texts)


@thoroughly
@given(families())
def test_generated_entries_survive_their_encoding(family: Family) -> None:
    """Each is read back as it was, also where this release would refuse to write it."""
    for conversation in family.conversations:
        for recorded in conversation.history:
            assert decode(msgspec.json.encode(recorded.entry)) == recorded.entry
            try:
                encoded = encode(recorded.entry)
            except InvalidEntry:
                continue
            assert decode(encoded) == recorded.entry
