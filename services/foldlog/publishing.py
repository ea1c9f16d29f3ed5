"""One attempt to publish entries, and what the broker's answer to it means."""

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from secrets import token_hex

import msgspec
from nats.aio.msg import Msg

from foldlog.broker import NO_RESPONDERS, Broker, status_of
from foldlog.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    EntryTooLarge,
    InvalidEntry,
    RequestTimeout,
)
from foldlog.reading import EXPECTED, PREDECESSOR
from foldlog_events.codec import encode
from foldlog_events.entries import Entry, Lane, lane_of
from foldlog_events.subjects import message_id, subject_of

MAX_BATCH = 1000
"""Entries the broker takes in one atomic batch."""
HEADROOM = 1024
"""Bytes kept free below the payload limit for the headers that the broker adds for readers."""

_MESSAGE_ID = "Nats-Msg-Id"
_BATCH_ID = "Nats-Batch-Id"
_BATCH_SEQUENCE = "Nats-Batch-Sequence"
_BATCH_COMMIT = "Nats-Batch-Commit"
_LONGEST_NUMBER = "9" * 20

_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
_DUPLICATE = frozenset({10158, 10201})
_LOST_BATCH = frozenset({10176, 10211})
_NOT_NOW = frozenset({10008, 10009, 10074, 10118})


class Prepared(msgspec.Struct, frozen=True):
    """An entry ready to be sent."""

    entry: Entry
    lane: Lane
    subject: str
    data: bytes
    message_id: str


class Outcome(Enum):
    """What is known after an attempt."""

    STORED = "stored"
    CONFLICT = "conflict"
    """Not written: the lane's last version is another one."""
    DUPLICATE = "duplicate"
    """Not written: the broker remembers the id of one of the entries."""
    NOT_WRITTEN = "not written"
    """The broker could not take it now."""
    REFUSED = "refused"
    """Not written, and another attempt would not be either."""
    UNKNOWN = "unknown"


class Answer(msgspec.Struct, frozen=True):
    """The outcome of an attempt."""

    outcome: Outcome
    version: int = 0
    """Of the last entry, where stored; of the lane's last entry, where known of a conflict."""
    duplicate: bool = False
    """It was stored by an earlier attempt."""
    code: int = 0
    reason: str = ""


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Acknowledgement(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None


_acknowledgement = msgspec.json.Decoder(_Acknowledgement)


def prepare(entries: Sequence[Entry], max_payload: int) -> tuple[Prepared, ...]:
    """Encodes and checks what is to be appended together.

    Raises InvalidEntry, EntryTooLarge, InvalidIdentifier; nothing was sent then.
    """
    if not entries:
        raise InvalidEntry("nothing to append: give at least one entry")
    if len(entries) > MAX_BATCH:
        raise InvalidEntry(
            f"{len(entries):,} entries at once and the broker takes {MAX_BATCH:,}: split them"
        )
    first = entries[0]
    if any(
        entry.conversation != first.conversation or entry.tenant != first.tenant
        for entry in entries
    ):
        raise InvalidEntry(
            "entries appended together belong to one conversation", place="$.conversation"
        )
    if len(entries) > 1 and len({entry.id for entry in entries}) < len(entries):
        raise InvalidEntry("two entries of one append have the same id", place="$.id")
    prepared = tuple(_prepare(entry) for entry in entries)
    for one in prepared:
        _check_size(one, max_payload, batched=len(prepared) > 1)
    return prepared


def _prepare(entry: Entry) -> Prepared:
    data = encode(entry)
    lane = lane_of(entry)
    return Prepared(
        entry,
        lane,
        subject_of(entry.tenant, entry.conversation, lane),
        data,
        message_id(entry.tenant, entry.conversation, entry.id),
    )


def header_size(headers: Mapping[str, str]) -> int:
    """Bytes that headers take on the wire."""
    return 14 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())


def _check_size(one: Prepared, max_payload: int, *, batched: bool) -> None:
    if len(one.data) + 2 * HEADROOM <= max_payload:
        return
    headers = {_MESSAGE_ID: one.message_id, EXPECTED: _LONGEST_NUMBER}
    if batched:
        headers |= {_BATCH_ID: "x" * 16, _BATCH_SEQUENCE: "1000", _BATCH_COMMIT: "1"}
    size = len(one.data) + header_size(headers)
    limit = max_payload - HEADROOM
    if size > limit:
        raise EntryTooLarge(size, limit)


async def attempt(
    broker: Broker,
    prepared: Sequence[Prepared],
    expected: Mapping[Lane, int],
    *,
    within: float,
    grace: float,
) -> Answer:
    """Publishes once: one request for one entry, one atomic batch for several.

    A cancellation waits up to `grace` s for the answer, and only then takes effect: the raised
    CancelledError carries the Answer as its argument.
    """
    try:
        if len(prepared) == 1:
            one = prepared[0]
            future = await broker.send(
                one.subject,
                one.data,
                {EXPECTED: str(expected[one.lane]), _MESSAGE_ID: one.message_id},
            )
        else:
            future = await _send_batch(broker, prepared, expected)
    except BrokerUnreachable as error:
        return Answer(Outcome.NOT_WRITTEN, reason=error.reason)
    try:
        await asyncio.wait((future,), timeout=within)
    except asyncio.CancelledError as cancelled:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=grace)
        cancelled.args = (interpret(future),)
        raise
    return interpret(future)


async def _send_batch(
    broker: Broker, prepared: Sequence[Prepared], expected: Mapping[Lane, int]
) -> asyncio.Future[Msg]:
    batch = token_hex(8)
    previous: dict[Lane, int] = {}
    for index, one in enumerate(prepared):
        headers = {
            _MESSAGE_ID: one.message_id,
            _BATCH_ID: batch,
            _BATCH_SEQUENCE: str(index + 1),
        }
        if one.lane in previous:
            headers[PREDECESSOR] = str(previous[one.lane] - index)
        else:
            headers[EXPECTED] = str(expected[one.lane])
        previous[one.lane] = index
        if index < len(prepared) - 1:
            await broker.publish(one.subject, one.data, headers)
        else:
            headers[_BATCH_COMMIT] = "1"
    return await broker.send(prepared[-1].subject, prepared[-1].data, headers)


def interpret(future: "asyncio.Future[Msg]") -> Answer:
    """What is known once an attempt was answered, or was not."""
    if not future.done():
        future.cancel()
        return Answer(Outcome.UNKNOWN, reason="no answer in time")
    try:
        message = future.result()
    except (RequestTimeout, ConnectionClosed) as broken:
        return Answer(Outcome.UNKNOWN, reason=str(broken))
    return meaning(message)


def meaning(message: Msg) -> Answer:
    """What a stream's answer to a publish means."""
    if status_of(message) == NO_RESPONDERS:
        return Answer(Outcome.NOT_WRITTEN, reason="no stream takes it: set up the streams")
    acknowledgement = _acknowledgement.decode(message.data)
    error = acknowledgement.error
    if error is None:
        return Answer(Outcome.STORED, acknowledgement.seq, acknowledgement.duplicate)
    code, reason = error.err_code, error.description
    if code in _WRONG_LAST_SEQUENCE:
        tail = re.search(r"\d+$", reason)
        return Answer(Outcome.CONFLICT, int(tail[0]) if tail else 0, code=code, reason=reason)
    if code in _DUPLICATE:
        return Answer(Outcome.DUPLICATE, code=code, reason=reason)
    if code in _LOST_BATCH:
        return Answer(Outcome.UNKNOWN, code=code, reason=reason)
    outcome = Outcome.NOT_WRITTEN if code in _NOT_NOW else Outcome.REFUSED
    return Answer(outcome, code=code, reason=reason)
