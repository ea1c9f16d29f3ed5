"""Watching the log: entries as they are stored, in order, each once.

A consumer without acknowledgements is pulled; the broker numbers what it delivers, so that a
loss shows, and then the consumer is made anew behind the last version that arrived. The same
happens when the connection breaks, the broker restarts or the consumer is removed.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from nats.aio.msg import Msg

from foldlog.broker import Broker, status_of
from foldlog.errors import (
    BrokerRefused,
    BrokerUnreachable,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
)
from foldlog.reading import Read, Stored, read_stored

_SECOND = 1_000_000_000
_BATCH = 256
_EXPIRES = 30.0
"""Seconds after which a pull is over that brought nothing."""
_HEARTBEAT = 2.0
"""Seconds between the broker's signs of life; after three without one the consumer is lost."""
_INACTIVE = 60
"""Seconds after which the broker drops a consumer that nobody pulls."""
_PAUSE = 0.2
_REFUSALS = 50
"""Refusals in a row after which a broker that says no is believed."""

_HEARTBEAT_STATUS = "100"
_PULL_OVER = frozenset({"404", "408"})
_PULL_FULL = frozenset({"Batch Completed", "Message Size Exceeds MaxBytes"})

_encode = msgspec.json.Encoder().encode


class _Lost(Exception):
    """The consumer is gone, or something it delivered did not arrive."""


async def watch(
    broker: Broker, stream: str, subject: str, *, after: int
) -> AsyncGenerator[Read, None]:
    """What is on a subject after a version, then what comes, without end.

    Raises StaleRead where the stream does not reach up to `after`, ConnectionClosed once the
    connection is closed for good, BrokerRefused where the broker keeps saying no.
    """
    await _check_reach(broker, stream, after)
    last = after
    refusals = 0
    while True:
        try:
            consumer = await _create(broker, stream, subject, after=last)
        except (BrokerUnreachable, RequestTimeout, JetStreamUnavailable):
            await _wait(broker)
            continue
        except BrokerRefused:
            refusals += 1
            if refusals == _REFUSALS:
                raise
            await _wait(broker)
            continue
        refusals = 0
        try:
            async with contextlib.aclosing(_consume(broker, stream, consumer)) as delivered:
                async for stored in delivered:
                    if stored.version > last:
                        last = stored.version
                        yield read_stored(stored)
        except (_Lost, BrokerUnreachable, RequestTimeout, JetStreamUnavailable):
            await _wait(broker)
        finally:
            await _delete(broker, stream, consumer)


async def _check_reach(broker: Broker, stream: str, after: int) -> None:
    if after:
        state = (await broker.api(f"STREAM.INFO.{stream}"))["state"]
        if state["last_seq"] < after:
            raise StaleRead(after, state["last_seq"])


async def _wait(broker: Broker) -> None:
    await asyncio.sleep(_PAUSE)
    while not broker.is_connected:
        with contextlib.suppress(BrokerUnreachable):
            await broker.wait_connected(_HEARTBEAT)


async def _create(broker: Broker, stream: str, subject: str, *, after: int) -> str:
    config: dict[str, Any] = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "ack_policy": "none",
        "filter_subject": subject,
        "inactive_threshold": _INACTIVE * _SECOND,
        "mem_storage": True,
        "num_replicas": 1,
    }
    reply = await broker.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    return str(reply["name"])


async def _delete(broker: Broker, stream: str, consumer: str) -> None:
    """Removes the consumer where that is quickly done; else the broker does, in a minute."""
    if broker.is_connected:
        with contextlib.suppress(Exception):
            await broker.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", b"")


async def _consume(broker: Broker, stream: str, consumer: str) -> AsyncGenerator[Stored, None]:
    """What the consumer delivers. Raises _Lost as soon as something is missing."""
    delivered = 0
    async with broker.inbox() as inbox:
        for pull in itertools.count():
            await inbox.request(
                f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", _pull(broker), str(pull)
            )
            received = 0
            while received < _BATCH:
                message = await inbox.next(3 * _HEARTBEAT)
                if status_of(message) is None:
                    number, stored = _delivery(message)
                    if number != delivered + 1:
                        raise _Lost
                    delivered = number
                    received += 1
                    yield stored
                elif message.subject == f"{inbox.subject}.{pull}" and _is_over(message, delivered):
                    break


def _pull(broker: Broker) -> bytes:
    return _encode(
        {
            "batch": _BATCH,
            # A pull whose first message is over this brings nothing, for ever.
            "max_bytes": 2 * broker.max_payload,
            "expires": int(_EXPIRES * _SECOND),
            "idle_heartbeat": int(_HEARTBEAT * _SECOND),
        }
    )


def _is_over(message: Msg, delivered: int) -> bool:
    """Whether a status ends its pull. Raises _Lost where it ends more than that."""
    status = status_of(message)
    headers = message.headers or {}
    if status == _HEARTBEAT_STATUS:
        if int(headers.get("Nats-Last-Consumer", delivered)) > delivered:
            raise _Lost
        return False
    description = str(headers.get("Description", ""))
    if status in _PULL_OVER or description in _PULL_FULL:
        return True
    raise _Lost


def _delivery(message: Msg) -> tuple[int, Stored]:
    """The consumer's number of a message, and the message as it was stored."""
    tokens = message.reply.split(".")
    version, number = int(tokens[-4]), int(tokens[-3])
    return number, Stored(message.subject, version, message.headers or {}, message.data)
