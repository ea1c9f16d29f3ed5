"""The entries of a conversation: immutable events, one struct for each kind.

An entry's position is not part of it: its **version** is the sequence that the stream gave it,
and order is version, nothing else.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from foldlog_events.messages import Message, Tool, Usage

Lane = Literal["log", "shape"]
"""`log` holds what was said and done, `shape` what changes how earlier entries are seen."""

FIRST_SCHEMA = 1
"""The schema version of an entry that does not state one."""

SCHEMA = 1
"""The schema version this release writes."""

DEFAULT_TENANT = "default"


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every entry carries."""

    id: str
    """UUIDv7, chosen once by the caller; a retry reuses it."""
    conversation: str
    time: datetime
    """The writer's clock, for people; it never decides order."""
    tenant: str = DEFAULT_TENANT
    schema: int = SCHEMA
    actor: str = ""
    """Which agent or process wrote it."""
    causation: str | None = None
    """Id of the entry that led to this one."""


class EntryReference(msgspec.Struct, frozen=True):
    """An entry of the same conversation (or of one it was forked from) and its version."""

    id: str
    version: int


class MessageEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """One or more model messages, said together."""

    messages: tuple[Message, ...]


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named part of the system prompt; a `text` of None removes it."""

    name: str
    text: str | None
    exact: bool = False
    """The text must stay word for word, whatever is summarised around it."""


class SystemEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="system"):
    """A patch of the prompt's sections and of the tools on offer, applied in the order given."""

    sections: tuple[Section, ...] = ()
    tools_removed: tuple[str, ...] = ()
    tools_added: tuple[Tool, ...] = ()


class NoteEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="note"):
    """Data for people and programs; it never reaches a model."""

    name: str = ""
    data: Any = None


ActionStep = Literal["requested", "approved", "denied", "started", "succeeded", "failed", "unknown"]


class ActionEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="action"):
    """One step of an action outside the conversation; the record of what was really done."""

    action: str
    """Id of the action, shared by its steps."""
    step: ActionStep
    name: str = ""
    arguments: dict[str, Any] | None = None
    arguments_digest: str | None = None
    """Of the exact arguments that were requested, approved or run."""
    expires: datetime | None = None
    """An approval is void from this moment on."""
    result: Any = None
    reason: str = ""


class ForkEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="fork"):
    """First entry of a child conversation: it inherits the parent's up to a version."""

    parent: str
    parent_version: int


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one earlier entry contributes from now on: nothing, or these messages."""

    target: str
    """Entry id."""
    replace: tuple[Message, ...] | None = None
    """None omits the target."""


class EditEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="edit"):
    """Omits or replaces what earlier entries contribute."""

    edits: tuple[Edit, ...]
    reason: str = ""


class BaseVersion(msgspec.Struct, frozen=True):
    """The last version of each lane that a decision was made on; 0 where a lane was empty."""

    log: int
    shape: int


class SourceRange(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary stands for: entries from `first` to `last`, `count` of them.

    `digest` is of the messages they contributed when they were read.
    """

    first: EntryReference
    last: EntryReference
    count: int
    digest: str


class ExactValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that must stay exact, taken from its source by a program."""

    text: str
    kind: str
    entry: str


class SectionInForce(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt section as it stands, and where it comes from."""

    name: str
    text: str
    exact: bool = False
    entry: str = ""
    """Id of the entry that set it."""
    actor: str = ""
    time: datetime | None = None
    replaced: str = ""
    """Id of the entry whose text it replaced; empty where it was new."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole prompt in force at a head marker: all sections in order, and all tools."""

    sections: tuple[SectionInForce, ...] = ()
    tools: tuple[Tool, ...] = ()


class CompactionEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="compaction"):
    """A summary that stands for a range; from `kept_from` on entries are seen verbatim."""

    base_version: BaseVersion
    source_range: SourceRange
    kept_from: EntryReference | None = None
    """None keeps only what came after `base_version.log`."""
    summary: str
    exact_values: tuple[ExactValue, ...] = ()
    baseline: Baseline | None = None
    """The prompt in force at `base_version.log`."""
    tokens_before: int = 0
    tokens_after: int = 0
    calibration: float = 1.0
    """Measured tokens for each estimated one, at the base version."""
    model: str = ""
    usage: Usage | None = None
    policy: str = ""
    attempt: str = ""


class ResetEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="reset"):
    """The context starts anew, with a handoff where one is given."""

    handoff: tuple[Message, ...] = ()
    baseline: Baseline | None = None
    reason: str = ""


class ErasedEntry(Envelope, frozen=True, kw_only=True, omit_defaults=True, tag="erased"):
    """Tombstone of an entry whose content was removed."""

    target: str
    """Entry id; empty where the whole conversation was removed up to `target_version`."""
    target_version: int
    reason: str = ""


class OtherEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An application's own kind, or one of a later release.

    A reader that does not know the kind keeps the entry and passes over it, unless `required`.
    """

    kind: str
    id: str
    conversation: str
    time: datetime
    tenant: str = DEFAULT_TENANT
    schema: int = SCHEMA
    actor: str = ""
    causation: str | None = None
    data: Any = None
    messages: tuple[Message, ...] = ()
    required: bool = False


KnownEntry = (
    MessageEntry
    | SystemEntry
    | NoteEntry
    | ActionEntry
    | ForkEntry
    | EditEntry
    | CompactionEntry
    | ResetEntry
    | ErasedEntry
)
Entry = KnownEntry | OtherEntry
HeadMarker = CompactionEntry | ResetEntry

SHAPE_KINDS = (EditEntry, CompactionEntry, ResetEntry, ErasedEntry)


def lane_of(entry: Entry) -> Lane:
    """The lane an entry belongs to."""
    return "shape" if isinstance(entry, SHAPE_KINDS) else "log"


def kind_of(entry: Entry) -> str:
    """The entry's kind as it is written."""
    if isinstance(entry, OtherEntry):
        return entry.kind
    return str(type(entry).__struct_config__.tag)


class Recorded(msgspec.Struct, frozen=True):
    """An entry and its place in the log."""

    version: int
    entry: Entry
    predecessor: int | None = None
    """Version of the entry before it in its lane (0: none); None where that is not known."""


class Unreadable(msgspec.Struct, frozen=True):
    """A place in the log whose bytes are no entry that this release reads.

    The other entries of its conversation are not touched by it.
    """

    version: int
    lane: Lane
    reason: str
    predecessor: int | None = None
    """As in Recorded."""
