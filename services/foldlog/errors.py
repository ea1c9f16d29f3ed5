"""Errors of the broker's side. Each says in one line what is wrong and what to do."""

from foldlog_events.entries import Recorded, Unreadable
from foldlog_events.errors import (
    EntryTooLarge,
    FoldlogError,
    InvalidEntry,
    InvalidIdentifier,
    UndecodableEntry,
)


class BrokerUnreachable(FoldlogError):
    """No connection to the broker, now or within the time given. Nothing was written."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"the broker at {url} cannot be reached ({reason}): "
            "check the address, or start one with `foldlog up`"
        )
        self.url = url
        self.reason = reason


class ConnectionClosed(FoldlogError):
    """The connection is closed for good and never comes back: open a new one, or exit."""

    def __init__(self, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(
            f"the connection to the broker is closed{because}: connect again, or restart"
        )
        self.reason = reason


class RequestTimeout(FoldlogError):
    """The broker did not answer within the time given, or the connection broke meanwhile."""


class JetStreamUnavailable(FoldlogError):
    """The broker is there, but JetStream (or the stream asked for) does not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"JetStream does not answer ({reason}): start nats-server with `--jetstream`, "
            "and enable JetStream for this account"
        )
        self.reason = reason


class StreamMismatch(FoldlogError):
    """A stream of this name exists with a configuration that foldlog cannot work with."""

    def __init__(self, stream: str, field: str, existing: object, wanted: object) -> None:
        super().__init__(
            f"stream {stream} has {field} = {existing!r} and foldlog needs {wanted!r}: "
            f"change the stream with `nats stream edit {stream}`, remove it if it is not "
            "foldlog's, or use another account; nothing was changed"
        )
        self.stream = stream
        self.field = field
        self.existing = existing
        self.wanted = wanted


class BrokerRefused(FoldlogError):
    """The broker answered with an error of its own; nothing was written."""

    def __init__(self, code: int, description: str, *, what: str = "the request") -> None:
        super().__init__(f"the broker refused {what}: {description} (code {code})")
        self.code = code
        self.description = description


class VersionConflict(FoldlogError):
    """The lane has moved on from the expected version. Nothing was written.

    `entries` are those of the lane after `expected`, in order, for the caller to fold and decide.
    """

    def __init__(
        self, expected: int, actual: int, entries: tuple[Recorded | Unreadable, ...]
    ) -> None:
        super().__init__(
            f"expected version {expected} and the lane is at {actual}, {len(entries)} entries "
            "later: fold them, decide anew, and append with the new version"
        )
        self.expected = expected
        self.actual = actual
        self.entries = entries


class AppendOutcomeUnknown(FoldlogError):
    """It could not be learnt in time whether the entries are in the log.

    Appending the same entries again (the same ids) is safe: it returns the versions they have,
    or stores them once.
    """

    def __init__(self, ids: tuple[str, ...], reason: str) -> None:
        super().__init__(
            f"it is not known whether entry {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''} "
            f"was stored ({reason}): append the same entries again"
        )
        self.ids = ids
        self.reason = reason


class AppendTimedOut(FoldlogError):
    """The deadline passed, and nothing was written."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(
            f"nothing was written within {seconds:g} s ({reason}): try again, or allow more time"
        )
        self.seconds = seconds
        self.reason = reason


class StaleRead(FoldlogError):
    """The log does not hold a version that it should: it was restored, or is not yet in step."""

    def __init__(self, wanted: int, found: int) -> None:
        super().__init__(
            f"version {wanted} should be in the log and the last one found is {found}: "
            "the stream was restored to an earlier state, or its leader is not reachable"
        )
        self.wanted = wanted
        self.found = found


class UnknownConversation(FoldlogError):
    """No entry of this conversation is in the log."""

    def __init__(self, conversation: str, *, tenant: str = "default") -> None:
        super().__init__(
            f"conversation {conversation!r} of tenant {tenant!r} has no entries: "
            "`foldlog conversations` lists those that have"
        )
        self.conversation = conversation
        self.tenant = tenant


class ConversationExists(FoldlogError):
    """A conversation that was to be new has entries already."""

    def __init__(self, conversation: str, *, tenant: str = "default") -> None:
        super().__init__(
            f"conversation {conversation!r} of tenant {tenant!r} has entries already: "
            "choose another name"
        )
        self.conversation = conversation
        self.tenant = tenant


class UnknownArtifact(FoldlogError):
    """No artifact with this digest is stored."""

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"no artifact {digest} is stored: check the digest, or whether it was erased"
        )
        self.digest = digest


class CorruptArtifact(FoldlogError):
    """Stored content whose hash is not the one it is addressed by."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"artifact {digest} is damaged ({reason}): store its content again")
        self.digest = digest
        self.reason = reason


class ViewConflict(FoldlogError):
    """Another process stored the view meanwhile: read it again. Nothing was written."""

    def __init__(self, key: str, expected: int) -> None:
        super().__init__(
            f"view {key} is no longer at revision {expected}: read it again and put anew"
        )
        self.key = key
        self.expected = expected


BROKER_TROUBLE = (
    AppendOutcomeUnknown,
    AppendTimedOut,
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
    ViewConflict,
)
"""No fault of what was to be handled: however long it lasts, that is not given up."""

__all__ = [
    "BROKER_TROUBLE",
    "AppendOutcomeUnknown",
    "AppendTimedOut",
    "BrokerRefused",
    "BrokerUnreachable",
    "ConnectionClosed",
    "ConversationExists",
    "CorruptArtifact",
    "EntryTooLarge",
    "FoldlogError",
    "InvalidEntry",
    "InvalidIdentifier",
    "JetStreamUnavailable",
    "RequestTimeout",
    "StaleRead",
    "StreamMismatch",
    "UndecodableEntry",
    "UnknownArtifact",
    "UnknownConversation",
    "VersionConflict",
    "ViewConflict",
]
