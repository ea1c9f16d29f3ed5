"""Making views anew from the log, without disturbing who reads the live ones."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import structlog

from foldlog.broker import Broker
from foldlog.contexts import Contexts, decode_state
from foldlog.errors import BrokerRefused, FoldlogError, ViewConflict
from foldlog.log import Log
from foldlog.topology import ENTRIES, VIEWS
from foldlog.view_headers import view_headers
from foldlog.views import Views
from foldlog_events.subjects import encode_token
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import SHAPE_OF_STATE
from foldlog_projections.views import ContextView

BESIDE = "VIEWS_BESIDE"
"""Bucket that views are made in before they are swapped; it exists for the time of a rebuild."""
_TRIES = 20
_COPIED = frozenset(
    {
        "retention",
        "storage",
        "discard",
        "max_msgs_per_subject",
        "allow_direct",
        "allow_rollup_hdrs",
        "deny_delete",
        "num_replicas",
    }
)

_encode = msgspec.json.Encoder().encode
_logger = structlog.get_logger("foldlog.rebuild")


class ViewsAhead(FoldlogError):
    """Stored views hold entries that the log does not: it was restored to an earlier state."""

    def __init__(self, count: int, last: int) -> None:
        super().__init__(
            f"{count:,} stored views are of versions after {last:,}, where the log ends: it was "
            "restored to an earlier state; run `foldlog rebuild`, which makes the views anew"
        )
        self.count = count
        self.last = last


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild did."""

    views: int
    failed: dict[str, str] = {}
    """By conversation, why its view stays as it was."""
    removed: int = 0
    """Views of conversations that the log does not hold."""


async def make_view_anew(
    tenant: str, conversation: str, contexts: Contexts, views: Views
) -> ContextView:
    """Fold a conversation from the log and put that in place of its stored view.

    Raises ViewConflict where others keep replacing it, and what folding raises.
    """
    tries = 0
    while True:
        tries += 1
        stored = await views.get(tenant, conversation)
        fold = await contexts.rebuilt(tenant, conversation)
        revision = stored.revision if stored else 0
        data = _encode(fold.state())
        try:
            await views.put(tenant, conversation, data, revision=revision, version=fold.version)
        except ViewConflict:
            if tries == _TRIES:
                raise
            continue
        return fold.view()


async def check_views(broker: Broker) -> None:
    """Raises ViewsAhead where stored views are of versions that the log does not reach."""
    ahead = 0
    last = (await broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]["last_seq"]
    suspects = [one async for one in view_headers(broker) if one.version > last]
    if suspects:
        # The log may have grown since it was asked.
        last = (await broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]["last_seq"]
        ahead = sum(one.version > last for one in suspects)
    if ahead:
        raise ViewsAhead(ahead, last)


async def rebuild_outdated(broker: Broker, contexts: Contexts, views: Views) -> int:
    """Make the views of an older shape anew; how many there were.

    A view of a later shape is left to the later release that made it.
    """
    outdated = {
        (one.tenant, one.conversation)
        async for one in view_headers(broker)
        if one.shape < SHAPE_OF_STATE
    }
    done = 0
    if not outdated:
        return done
    async for tenant, conversation in _known(Log(broker)):
        if (encode_token(tenant), encode_token(conversation)) in outdated:
            with contextlib.suppress(FoldlogError):
                await make_view_anew(tenant, conversation, contexts, views)
                done += 1
    if done:
        _logger.info("views of an older shape made anew", views=done)
    return done


async def rebuild_all(
    broker: Broker,
    contexts: Contexts,
    live: Views,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Rebuilt:
    """Make every view anew beside the live ones, then put each in place of its live one.

    Until all are made, no live view is touched; an entry that comes meanwhile is folded in when
    its view is swapped. What cannot be folded keeps the view that it has.
    """
    names = [name async for name in _known(Log(broker))]
    beside = Views(broker, live.artifacts, BESIDE)
    await _clear(broker, beside)
    await broker.api(f"STREAM.CREATE.KV_{BESIDE}", await _settings(broker))
    failed: dict[str, str] = {}
    made: list[tuple[str, str]] = []
    for done, (tenant, conversation) in enumerate(names):
        progress(done, 2 * len(names))
        try:
            await make_view_anew(tenant, conversation, contexts, beside)
        except Exception as error:
            failed[conversation] = f"{type(error).__name__}: {error}"
        else:
            made.append((tenant, conversation))
    for done, (tenant, conversation) in enumerate(made):
        progress(len(names) + done, 2 * len(names))
        try:
            await _swap(tenant, conversation, contexts, live, beside)
        except Exception as error:
            failed[conversation] = f"{type(error).__name__}: {error}"
    removed = await _remove_leftovers(live, names)
    await _clear(broker, beside)
    await _remove_consumers_ahead(broker)
    return Rebuilt(views=len(names) - len(failed), failed=failed, removed=removed)


async def _swap(
    tenant: str, conversation: str, contexts: Contexts, live: Views, beside: Views
) -> None:
    made = await beside.get(tenant, conversation)
    state = decode_state(made.data) if made else None
    if state is None:
        raise ViewConflict(f"{tenant}.{conversation}", 0)
    fold = ContextFold(state)
    tries = 0
    while True:
        tries += 1
        stored = await live.get(tenant, conversation)
        await contexts.advance(fold)
        try:
            await live.put(
                tenant,
                conversation,
                _encode(fold.state()),
                revision=stored.revision if stored else 0,
                version=fold.version,
            )
            return
        except ViewConflict:
            if tries == _TRIES:
                raise


async def _known(log: Log) -> AsyncIterator[tuple[str, str]]:
    async for summary in log.conversations():
        yield summary.tenant, summary.conversation


async def _remove_leftovers(live: Views, names: Sequence[tuple[str, str]]) -> int:
    """Remove the views of conversations that were not there, and have not come since."""
    known = {(encode_token(tenant), encode_token(conversation)) for tenant, conversation in names}
    left = [key async for key in live.keys() if key not in known]  # noqa: SIM118 - no mapping
    if left:
        known |= {
            (encode_token(tenant), encode_token(conversation))
            async for tenant, conversation in _known(Log(live.broker))
        }
    gone = [key for key in left if key not in known]
    for tenant, conversation in gone:
        await live.delete_key(tenant, conversation)
    return len(gone)


async def _remove_consumers_ahead(broker: Broker) -> None:
    """A consumer that has passed the end of the log would miss what comes; services remake it."""
    last = (await broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]["last_seq"]
    for name in (await broker.api(f"CONSUMER.NAMES.{ENTRIES}")).get("consumers") or ():
        with contextlib.suppress(BrokerRefused):
            info = await broker.api(f"CONSUMER.INFO.{ENTRIES}.{name}")
            if info["delivered"]["stream_seq"] > last:
                await broker.api(f"CONSUMER.DELETE.{ENTRIES}.{name}")


async def _settings(broker: Broker) -> dict[str, Any]:
    """Of the bucket beside: those of the live one."""
    config: dict[str, Any] = (await broker.api(f"STREAM.INFO.{VIEWS}"))["config"]
    return {name: value for name, value in config.items() if name in _COPIED} | {
        "name": f"KV_{BESIDE}",
        "subjects": [f"$KV.{BESIDE}.>"],
    }


async def _clear(broker: Broker, beside: Views) -> None:
    """Remove the bucket beside, which a rebuild that was killed may have left."""
    with contextlib.suppress(BrokerRefused):
        async for tenant, conversation in beside.keys():
            await beside.delete_key(tenant, conversation)
        await broker.api(f"STREAM.DELETE.KV_{BESIDE}")
