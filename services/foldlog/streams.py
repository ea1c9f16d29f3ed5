"""Setting up the streams: what is missing is made, what differs is refused, nothing is changed."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from foldlog.broker import Broker
from foldlog.errors import BrokerRefused, JetStreamUnavailable, StreamMismatch
from foldlog.topology import ENTRIES, STREAMS, Settings

_STREAM_NOT_FOUND = 10059
_NAME_IN_USE = 10058
_SUBJECTS_OVERLAP = 10065
_NOT_ENABLED = frozenset({10039, 10076})
_UNSET: tuple[object, ...] = (None, False, 0, "", [])


async def set_up(broker: Broker, *, replicas: int = 1) -> None:
    """Makes sure that every stream exists and is as foldlog needs it.

    `replicas` (1, 3 or 5) is what new streams get, and the least that existing ones must have.
    Raises StreamMismatch, JetStreamUnavailable, BrokerRefused.
    """
    if replicas not in (1, 3, 5):
        raise ValueError(f"replicas is 1, 3 or 5, not {replicas}")
    try:
        await asyncio.gather(*(_ensure(broker, wanted, replicas) for wanted in STREAMS))
        await _compare_clocks(broker)
    except BrokerRefused as error:
        if error.code in _NOT_ENABLED:
            raise JetStreamUnavailable(error.description) from None
        raise


async def _ensure(broker: Broker, wanted: Settings, replicas: int) -> None:
    existing = await _existing(broker, wanted["name"])
    if existing is None:
        try:
            await broker.api(
                f"STREAM.CREATE.{wanted['name']}", {**wanted, "num_replicas": replicas}
            )
        except BrokerRefused as error:
            if error.code == _SUBJECTS_OVERLAP:
                raise StreamMismatch(
                    wanted["name"],
                    "subjects",
                    "taken by another stream of this account",
                    wanted["subjects"],
                ) from None
            if error.code != _NAME_IN_USE:
                raise
            existing = await _existing(broker, wanted["name"])
        else:
            return
    check(existing or {}, wanted, replicas)


async def _existing(broker: Broker, name: str) -> dict[str, Any] | None:
    try:
        config: dict[str, Any] = (await broker.api(f"STREAM.INFO.{name}"))["config"]
    except BrokerRefused as error:
        if error.code == _STREAM_NOT_FOUND:
            return None
        raise
    return config


def check(existing: Settings, wanted: Settings, replicas: int = 1) -> None:
    """Compares an existing configuration with the wanted one. Raises StreamMismatch."""
    for field, value in wanted.items():
        found = existing.get(field)
        if isinstance(value, list):
            same = sorted(found or []) == sorted(value)
        else:
            same = found == value or (found in _UNSET and value in _UNSET)
        if not same:
            raise StreamMismatch(wanted["name"], field, found, value)
    if (found := existing.get("num_replicas", 1)) < replicas:
        raise StreamMismatch(wanted["name"], "num_replicas", found, replicas)


async def _compare_clocks(broker: Broker) -> None:
    info = await broker.api(f"STREAM.INFO.{ENTRIES}")
    if isinstance(stamp := info.get("ts"), str):
        theirs = datetime.fromisoformat(f"{stamp[:19]}+00:00")
        broker.clock_offset = (theirs - datetime.now(UTC)).total_seconds()
