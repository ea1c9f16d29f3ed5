"""What each kind of entry contributes to a context (rules 1.3, 5.2 and 7)."""

from foldlog_events.entries import (
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    ErasedEntry,
    HeadMarker,
    MessageEntry,
    OtherEntry,
    SystemEntry,
    kind_of,
)
from foldlog_events.messages import Message
from foldlog_projections.state import Active, PromptPatch
from foldlog_projections.summary import frame
from foldlog_projections.tokens import estimate_message


def contribution(version: int, entry: Entry) -> Active:
    """An entry of the range, before any edit."""
    messages: tuple[Message, ...] = ()
    patch = None
    edits: tuple[Edit, ...] = ()
    erases = fault = ""
    match entry:
        case MessageEntry():
            messages = entry.messages
        case SystemEntry():
            patch = PromptPatch(
                sections=entry.sections,
                tools_removed=entry.tools_removed,
                tools_added=entry.tools_added,
                actor=entry.actor,
                time=entry.time,
            )
        case EditEntry():
            edits = entry.edits
        case ErasedEntry():
            erases = entry.target
        case OtherEntry(required=True):
            fault = f"the kind {entry.kind!r} is required and this release does not know it"
        case OtherEntry():
            messages = entry.messages
        case _:
            pass
    return Active(
        version=version,
        id=entry.id,
        kind=kind_of(entry),
        messages=messages,
        estimates=tuple(map(estimate_message, messages)),
        patch=patch,
        edits=edits,
        erases=erases,
        fault=fault,
    )


def head_contribution(version: int, entry: HeadMarker) -> Active:
    """A head marker: its summary, or its handoff."""
    messages = (
        (frame(entry.summary, entry.exact_values),)
        if isinstance(entry, CompactionEntry)
        else entry.handoff
    )
    return Active(version=version, id=entry.id, kind=kind_of(entry), messages=messages)
