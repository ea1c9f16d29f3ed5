"""The streams: their names, subjects and settings, in one place.

A setting listed here is essential: an existing stream that differs in it is refused.
"""

from typing import Any

from foldlog_events.subjects import view_key

ENTRIES = "ENTRIES"
VIEWS_BUCKET = "VIEWS"
VIEWS = f"KV_{VIEWS_BUCKET}"
PRESSURE = "PRESSURE"
COMPACTIONS = "COMPACTIONS"
DEAD = "DEAD"
CANCEL = "foldlog.cancel"
"""Subjects by which the attempt at a conversation is cancelled: no stream keeps them."""
ARTIFACTS_BUCKET = "ARTIFACTS"
ARTIFACTS = f"OBJ_{ARTIFACTS_BUCKET}"

DUPLICATE_WINDOW = 120.0
"""Seconds in which the broker itself recognises a message id that it has stored."""

_SECOND = 1_000_000_000
_DAY = 24 * 3600 * _SECOND

Settings = dict[str, Any]
"""A stream's configuration in the broker's own field names; durations are nanoseconds."""


def entries_stream(tenant: str, conversation: str) -> str:
    """The stream that holds a conversation's entries.

    All partitions share one stream; which stream holds which partition is decided here alone.
    """
    return ENTRIES


def entries_streams() -> tuple[str, ...]:
    """Every stream that holds entries."""
    return (ENTRIES,)


def _stream(name: str, subjects: list[str], **settings: Any) -> Settings:
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
        "max_age": 0,
        "allow_direct": True,
        "duplicate_window": int(DUPLICATE_WINDOW * _SECOND),
        **settings,
    }


STREAMS: tuple[Settings, ...] = (
    _stream(ENTRIES, ["entry.>"], allow_atomic=True, allow_batched=True),
    _stream(
        VIEWS,
        [f"$KV.{VIEWS_BUCKET}.>"],
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        deny_delete=True,
    ),
    _stream(
        PRESSURE,
        ["pressure.>"],
        retention="workqueue",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
    ),
    _stream(COMPACTIONS, ["compaction.>"], discard="old", max_age=30 * _DAY),
    _stream(DEAD, ["dead.>"]),
    _stream(
        ARTIFACTS,
        [f"$O.{ARTIFACTS_BUCKET}.C.>", f"$O.{ARTIFACTS_BUCKET}.M.>"],
        allow_rollup_hdrs=True,
    ),
)


def pressure_subject(tenant: str, conversation: str) -> str:
    """Where a conversation's pressure is announced: one message at a time."""
    return f"pressure.{view_key(tenant, conversation)}"


def cancel_subject(tenant: str, conversation: str) -> str:
    """Where the worker that has a conversation in hand is asked to let go of it."""
    return f"{CANCEL}.{pressure_subject(tenant, conversation)}"


def compaction_subject(tenant: str, conversation: str) -> str:
    """Where the records of a conversation's compaction attempts are kept."""
    return f"compaction.{view_key(tenant, conversation)}"


def dead_subject(what: str, tenant: str, conversation: str) -> str:
    """Where what could not be handled is kept; `what` is one token, such as `entry`."""
    return f"dead.{what}.{view_key(tenant, conversation)}"
