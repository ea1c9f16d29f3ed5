"""The broker's secure delete: a message is overwritten in its file, and gone."""

import asyncio
from collections.abc import Iterable

from foldlog.broker import REQUEST_TIMEOUT, Broker
from foldlog.errors import BrokerRefused, FoldlogError, RequestTimeout

_FAILED = 10057
_GONE = ("no message found", "stream store eof", "message was deleted", "deleted message")
_IN_FLIGHT = 16


class ErasureNotPermitted(FoldlogError):
    """The broker does not let this account or user delete; nothing was written or removed."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(
            f"the broker does not allow deleting from {stream} ({reason}): connect as the "
            "operator, who may use $JS.API.STREAM.MSG.DELETE and $JS.API.STREAM.PURGE"
        )
        self.stream = stream
        self.reason = reason


async def erase_messages(broker: Broker, stream: str, versions: Iterable[int]) -> None:
    """Overwrites these messages; one that is gone already is no error.

    Raises BrokerRefused, RequestTimeout.
    """
    left = list(versions)
    while left:
        now, left = left[:_IN_FLIGHT], left[_IN_FLIGHT:]
        await asyncio.gather(*(_erase(broker, stream, version) for version in now))


async def require_permission(broker: Broker, stream: str) -> None:
    """Raises ErasureNotPermitted where a delete would be refused; deletes nothing itself."""
    broker.last_error = ""
    try:
        await _erase(broker, stream, 0, within=2.0)
    except RequestTimeout:
        if "permissions violation" in broker.last_error.lower():
            raise ErasureNotPermitted(stream, broker.last_error) from None
        raise
    except BrokerRefused as error:
        raise ErasureNotPermitted(stream, error.description) from None


async def _erase(
    broker: Broker, stream: str, version: int, *, within: float = REQUEST_TIMEOUT
) -> None:
    try:
        await broker.api(
            f"STREAM.MSG.DELETE.{stream}", {"seq": version, "no_erase": False}, within=within
        )
    except BrokerRefused as error:
        if error.code != _FAILED or not error.description.lower().startswith(_GONE):
            raise
