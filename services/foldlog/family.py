"""Forks as a family: a conversation's children, and how a child becomes independent."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foldlog.composing import envelope
from foldlog.contexts import Contexts
from foldlog.errors import VersionConflict
from foldlog.seeking import first_entry
from foldlog_events.entries import Baseline, ForkEntry, NoteEntry, Recorded, ResetEntry
from foldlog_events.messages import Message, ToolCallResponse
from foldlog_projections.pairing import RESULT_UNAVAILABLE
from foldlog_projections.views import ContextView

if TYPE_CHECKING:
    from foldlog.session import Foldlog

MATERIALISED = "materialised"
"""Reason of the reset, and name of the note, that make a child independent."""


class Child(NamedTuple):
    """A conversation that was forked from another one."""

    conversation: str
    fork: ForkEntry
    version: int
    """Of its fork entry."""


async def children(foldlog: "Foldlog", conversation: str) -> AsyncIterator[Child]:
    """The conversations forked from this one.

    The log has no index of them: the first entry of each of the tenant's conversations is read.
    """
    async for one in foldlog.log.conversations(foldlog.tenant):
        first = await first_entry(foldlog.broker, foldlog.tenant, one.conversation)
        entry = first.entry if isinstance(first, Recorded) else None
        if first and isinstance(entry, ForkEntry) and entry.parent == conversation:
            yield Child(one.conversation, entry, first.version)


async def needs_parent(contexts: Contexts, tenant: str, child: Child) -> bool:
    """Whether the child's context is folded from its parent's entries still."""
    return await contexts.range_start(tenant, child.conversation) < child.version


async def materialise(foldlog: "Foldlog", conversation: str) -> Recorded | None:
    """Makes a child independent of its parent, which may be deleted then; None where it was.

    A reset takes over what the child shows: its messages as the handoff, its prompt as the
    baseline. The context stays as it is. What was before stays with the parent and goes with it:
    older contexts of the child, recall of inherited entries, and inherited actions, which a note
    keeps for people.
    """
    tenant = foldlog.tenant
    first = await first_entry(foldlog.broker, tenant, conversation)
    entry = first.entry if isinstance(first, Recorded) else None
    if first is None or not isinstance(entry, ForkEntry):
        return None
    child = Child(conversation, entry, first.version)
    session = foldlog.session(conversation)
    while await needs_parent(foldlog.contexts, tenant, child):
        view = await session.context()
        ledger = await session.actions()
        note = NoteEntry(
            **envelope(tenant, conversation, foldlog.actor),
            name=MATERIALISED,
            data={
                "parent": entry.parent,
                "parent_version": entry.parent_version,
                "inherited_actions": msgspec.to_builtins(
                    [one for one in ledger.actions.values() if one.inherited]
                ),
            },
        )
        reset = ResetEntry(
            **envelope(tenant, conversation, foldlog.actor),
            handoff=carried_over(view),
            baseline=Baseline(sections=view.sections, tools=view.tools),
            reason=MATERIALISED,
        )
        try:
            _, recorded = await foldlog.log.append((note, reset), expect=view.base_version)
        except VersionConflict:
            continue
        return recorded
    return None


def carried_over(view: ContextView) -> tuple[Message, ...]:
    """The messages of a view as a handoff that shows the same.

    The prompt goes into the baseline. A synthetic result is left out: it is made again, until the
    real one comes.
    """
    return tuple(
        message
        for message in view.messages
        if message.role != "system" and not _is_synthetic(message)
    )


def _is_synthetic(message: Message) -> bool:
    return any(
        isinstance(part, ToolCallResponse) and part.is_error and part.result == RESULT_UNAVAILABLE
        for part in message.parts
    )
