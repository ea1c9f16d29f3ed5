"""Records of compaction attempts: every attempt has a start and an end."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from foldlog_events.messages import Usage
from foldlog_projections.pressure import Attempt, Level, Reason

AttemptState = Literal["started", "committed", "pruned", "declined", "failed", "stale"]

ENDS: frozenset[AttemptState] = frozenset({"committed", "pruned", "declined", "failed", "stale"})
"""In all but `committed` and `pruned` the view is as it was before."""


class CompactionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one attempt to make a context smaller."""

    id: str
    """Of the attempt: the same for its start and its end."""
    tenant: str
    conversation: str
    state: AttemptState
    time: datetime
    worker: str = ""
    request: int = 0
    """Sequence of the pressure event in its queue; 0 where the attempt was asked for directly."""
    trigger: Reason = "limit"
    level: Level = "soft"
    version: int = 0
    """Of the view that was to be made smaller."""
    reason: str = ""
    """Why it ended as it did."""
    entry: str = ""
    """Id of the compaction or edit entry that was committed."""
    tokens_before: int = 0
    tokens_after: int = 0
    seconds: float = 0.0
    model: str = ""
    usage: Usage | None = None
    """Of all model calls of the attempt."""
    calls: int = 0
    """Calls of a model that it took."""
    cost: float | None = None
    """By the prices of the settings, in their currency; None where the model has none."""
    policy: str = ""
    attempt: Attempt | None = None
    """What decides when the next attempt is due; on ends only."""


def unended(records: Sequence[CompactionRecord]) -> tuple[CompactionRecord, ...]:
    """The starts of attempts that have no end on record, oldest first."""
    ended = {one.id for one in records if one.state in ENDS}
    return tuple(one for one in records if one.state == "started" and one.id not in ended)
