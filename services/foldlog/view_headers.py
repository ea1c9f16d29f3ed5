"""What the headers of all stored views say, without reading the views."""

from collections.abc import AsyncIterator

import msgspec
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from foldlog.broker import Broker
from foldlog.topology import VIEWS, VIEWS_BUCKET
from foldlog.views import SHAPE, VERSION

_BATCH = 256
_PATIENCE = 5.0
_INACTIVE = 30.0


class ViewHeader(msgspec.Struct, frozen=True):
    """A stored view from outside; tenant and conversation are subject tokens."""

    tenant: str
    conversation: str
    shape: int
    """Of the state in it; 0 where it does not say."""
    version: int
    """Of the last entry in it; 0 where it does not say."""


async def view_headers(broker: Broker) -> AsyncIterator[ViewHeader]:
    """The headers of every stored view."""
    subscription = await broker.client.jetstream().pull_subscribe(
        f"$KV.{VIEWS_BUCKET}.>",
        stream=VIEWS,
        config=ConsumerConfig(
            headers_only=True,
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_INACTIVE,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    try:
        left = (await subscription.consumer_info()).num_pending or 0
        while left > 0:
            try:
                batch = await subscription.fetch(min(left, _BATCH), timeout=_PATIENCE)
            except nats.errors.TimeoutError:
                return  # what was replaced meanwhile is another message, later in the stream
            left -= len(batch)
            for message in batch:
                _, _, tenant, conversation = message.subject.split(".")
                headers = message.headers or {}
                yield ViewHeader(
                    tenant, conversation, _number(headers.get(SHAPE)), _number(headers.get(VERSION))
                )
    finally:
        await subscription.unsubscribe()


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
