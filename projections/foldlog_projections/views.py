"""What a fold yields: the context a model is shown, with its place in the log."""

import msgspec

from foldlog_events.entries import BaseVersion, EntryReference, SectionInForce
from foldlog_events.messages import Message, Tool


class Head(msgspec.Struct, frozen=True):
    """The head marker in force."""

    id: str
    version: int
    kind: str
    """`compaction` or `reset`."""


class Fault(msgspec.Struct, frozen=True):
    """An entry that could not be folded; the view is what the other entries say."""

    version: int
    reason: str


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is shown at a version: the messages in order, and the tools on offer."""

    tenant: str
    conversation: str
    version: int
    """Of the last entry folded, on either lane; 0 where there is none."""
    base_version: BaseVersion
    """The last version of each lane."""
    head: Head | None
    tokens: int
    """Size of the context, measured where a provider reported it and estimated from there on."""
    estimated_tokens: int
    """The same without any measurement."""
    digest: str
    """`sha256:` and 64 hexadecimal digits: the same messages have the same digest."""
    messages: tuple[Message, ...]
    origins: tuple[EntryReference, ...] = ()
    """For each message, the entry that made it what it is."""
    tools: tuple[Tool, ...] = ()
    sections: tuple[SectionInForce, ...] = ()
    stale_compactions: int = 0
    """Compactions that were refused since the head, in the sense of rule 10."""
    faults: tuple[Fault, ...] = ()
