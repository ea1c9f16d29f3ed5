"""Setting up the streams: what is missing is made, what differs is refused, nothing is changed."""

import asyncio
from typing import Any

from foldlog.broker import Broker
from foldlog.errors import BrokerRefused, JetStreamUnavailable, StreamMismatch
from foldlog.topology import STREAMS, Settings

_STREAM_NOT_FOUND = 10059
_NAME_IN_USE = 10058
_SUBJECTS_OVERLAP = 10065
_NOT_ENABLED = frozenset({10039, 10076})
_UNSET: tuple[object, ...] = (None, False, 0, "", [])


async def set_up(broker: Broker, *, replicas: int | None = None) -> None:
    """Makes sure that every stream exists and is as foldlog needs it.

    `replicas`, 1 or 3, is what new streams get (1 where None) and, where given, what existing
    ones must have. Raises StreamMismatch, JetStreamUnavailable, BrokerRefused.
    """
    if replicas not in (None, 1, 3, 5):
        raise ValueError(f"replicas is 1, 3 or 5, not {replicas}")
    try:
        await asyncio.gather(*(_ensure(broker, wanted, replicas) for wanted in STREAMS))
    except BrokerRefused as error:
        if error.code in _NOT_ENABLED:
            raise JetStreamUnavailable(error.description) from None
        raise


async def _ensure(broker: Broker, wanted: Settings, replicas: int | None) -> None:
    existing = await _existing(broker, wanted["name"])
    if existing is None:
        try:
            await broker.api(
                f"STREAM.CREATE.{wanted['name']}", {**wanted, "num_replicas": replicas or 1}
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


def check(existing: Settings, wanted: Settings, replicas: int | None = None) -> None:
    """Compares an existing configuration with the wanted one. Raises StreamMismatch."""
    if replicas is not None:
        wanted = {**wanted, "num_replicas": replicas}
    for field, value in wanted.items():
        found = existing.get(field)
        if isinstance(value, list):
            same = sorted(found or []) == sorted(value)
        else:
            same = found == value or (found in _UNSET and value in _UNSET)
        if not same:
            raise StreamMismatch(wanted["name"], field, found, value)
