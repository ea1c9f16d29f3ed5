"""The fold's state in the form that is stored: what is in force, and nothing older.

Its size is bounded by the active range, never by the history.
"""

from datetime import datetime

import msgspec

from foldlog_events.entries import Baseline, Edit, ExactValue, Section
from foldlog_events.messages import Message, Tool

SHAPE_OF_STATE = 1
"""Raised whenever the fold or this form changes; a stored state of another one is rebuilt."""

ERASED = 2**63 - 1
"""The version of an edit that no later one outranks."""


class PromptPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a system entry changes, and who changed it."""

    sections: tuple[Section, ...] = ()
    tools_removed: tuple[str, ...] = ()
    tools_added: tuple[Tool, ...] = ()
    actor: str = ""
    time: datetime | None = None


class Active(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry in force and what it contributes, edits applied."""

    version: int
    id: str
    kind: str
    messages: tuple[Message, ...] = ()
    estimates: tuple[int, ...] = ()
    """Tokens of each message, so that a stored state is not estimated again; empty: not known."""
    patch: PromptPatch | None = None
    edits: tuple[Edit, ...] = ()
    edited_at: int = 0
    """Version of the edit that made it what it is; `ERASED` for a tombstone."""
    erases: str = ""
    """Id of the entry whose tombstone this is."""
    fault: str = ""
    """Why it could not be read."""


class FoldState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that folding on needs."""

    tenant: str
    conversation: str
    shape: int = 0
    """As above; never left to a default, which would be left out and read as the reader's own."""
    version: int = 0
    log_version: int = 0
    shape_version: int = 0
    head: Active | None = None
    baseline: Baseline | None = None
    """The prompt that the head carries."""
    baseline_version: int = 0
    """System entries up to this version are part of the baseline."""
    summary: str = ""
    """Of the head, where it is a compaction that no edit changed."""
    exact_values: tuple[ExactValue, ...] = ()
    active: tuple[Active, ...] = ()
    stale_compactions: int = 0
    calibration: float = 1.0
    """Measured tokens for each estimated one."""
    usage_void_to: int = 0
    """Usage reported at or before this version measured a context that is no more."""


def empty(tenant: str, conversation: str) -> FoldState:
    """The state of a conversation without entries."""
    return FoldState(tenant=tenant, conversation=conversation, shape=SHAPE_OF_STATE)
