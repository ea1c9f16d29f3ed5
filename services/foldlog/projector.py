"""The projector: keeps a view of every conversation, and announces those under pressure.

Any number of projectors share one durable consumer; each may be killed at any moment.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

import structlog
from faststream import AckPolicy, Context, FastStream
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.message import NatsBatchMessage
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from foldlog.announcing import Announcer
from foldlog.artifacts import Artifacts
from foldlog.broker import Broker
from foldlog.contexts import Contexts
from foldlog.dead_letters import DeadLetter, bury
from foldlog.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    FoldlogError,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
    ViewConflict,
)
from foldlog.log import Log
from foldlog.logging_setup import configure
from foldlog.policies import policies_of
from foldlog.projection import ConversationKey, Projection, ProjectionLimits
from foldlog.reading import Read, Stored, read_stored
from foldlog.records import Records
from foldlog.service import Gone, broker_with_streams, run, stream_broker
from foldlog.settings import Settings, load
from foldlog.topology import ENTRIES
from foldlog.views import Views
from foldlog_events.entries import Recorded
from foldlog_events.errors import InvalidIdentifier
from foldlog_events.subjects import decode_token, parse_subject

CONSUMER = "projector"
BATCH = 1_000
GATHER = 0.05
"""Seconds a batch is gathered for; an entry is in its view at the latest this much later."""
REST = 1.0
"""Seconds after which a large view is stored though few of its entries are new."""
TRIES = 5
RETRY_DELAY = 1.0
"""Seconds before a conversation that could not be projected is tried again, times the tries."""
BROKER_TROUBLE = (
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
    ViewConflict,
)
"""No fault of an entry: however long it lasts, the entry is not given up."""

_logger = structlog.get_logger("foldlog.projector")


class Projector:
    """Takes batches from the consumer and gives each conversation its own outcome."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        log = Log(broker)
        self._records = Records(broker)
        self._unacknowledged: dict[ConversationKey, list[Msg]] = {}
        self.projection = Projection(
            Contexts(log, views := Views(broker, Artifacts(broker))),
            views,
            Announcer(self._records, policies_of(settings)).announce,
            ProjectionLimits(views_in_memory=settings.views_in_memory),
        )

    @contextlib.asynccontextmanager
    async def storing_rested_views(self) -> AsyncIterator[None]:
        """Store large views, which wait for more entries, soon after the last one came."""

        async def store() -> None:
            while True:
                await asyncio.sleep(REST)
                with contextlib.suppress(FoldlogError):
                    await self.flush()

        storing = asyncio.create_task(store())
        try:
            yield
        finally:
            storing.cancel()

    async def flush(self) -> None:
        """Store what is not stored yet, and acknowledge it."""
        failed = await self.projection.flush()
        await self._settle(failed)

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Project one batch; acknowledge what is in views, give back what is not."""
        groups: dict[ConversationKey, list[Msg]] = {}
        reads: dict[ConversationKey, list[Read]] = {}
        unknown: list[tuple[Msg, Read]] = []
        for message in messages:
            read = read_stored(_stored(message))
            key = _key(read, message.subject)
            if key is None:
                unknown.append((message, read))
                continue
            groups.setdefault(key, []).append(message)
            reads.setdefault(key, []).append(read)
        for key, group in groups.items():
            self._unacknowledged.setdefault(key, []).extend(group)
        failed = await self.projection.project(reads, is_whole=not unknown)
        for message, read in unknown:
            tokens = parse_subject(message.subject)
            key = ConversationKey(tokens.tenant, tokens.conversation)
            await self._give_up(key, message, f"nobody can say whose entry this is: {read}")
        await self._settle(failed)

    async def _settle(self, failed: Mapping[ConversationKey, Exception]) -> None:
        """Acknowledge what stored views hold; a worker killed now leaves nothing behind."""
        for key in tuple(self._unacknowledged):
            if key in failed:
                await self._retry(key, self._unacknowledged.pop(key), failed[key])
            elif self.projection.is_stored(key):
                for message in self._unacknowledged.pop(key):
                    await message.ack()

    async def _retry(self, key: ConversationKey, group: list[Msg], error: Exception) -> None:
        _logger.warning("not projected", conversation=key.conversation, error=str(error))
        for message in group:
            tries = message.metadata.num_delivered
            if tries >= TRIES and not isinstance(error, BROKER_TROUBLE):
                await self._give_up(key, message, f"{type(error).__name__}: {error}")
            else:
                await message.nak(delay=RETRY_DELAY * min(tries, TRIES))

    async def _give_up(self, key: ConversationKey, message: Msg, reason: str) -> None:
        version = message.metadata.sequence.stream
        _logger.error("gave up", conversation=key.conversation, version=version, reason=reason)
        letter = DeadLetter(
            tenant=key.tenant,
            conversation=key.conversation,
            reason=reason,
            version=version,
            tries=message.metadata.num_delivered,
        )
        await bury(self._records, "entry", letter)
        await message.ack()


def _stored(message: Msg) -> Stored:
    return Stored(
        message.subject, message.metadata.sequence.stream, message.headers or {}, message.data
    )


def _key(read: Read, subject: str) -> ConversationKey | None:
    if isinstance(read, Recorded):
        return ConversationKey(read.entry.tenant, read.entry.conversation)
    parts = parse_subject(subject)
    try:
        tenant, conversation = decode_token(parts.tenant), decode_token(parts.conversation)
    except InvalidIdentifier:
        return None
    return ConversationKey(tenant, conversation) if tenant and conversation else None


def application(projector: Projector, messages: NatsBroker, patience: float) -> FastStream:
    """The FastStream application around a projector; `patience` as in the settings."""

    @messages.subscriber(
        "entry.>",
        stream=JStream(ENTRIES, declare=False),
        durable=CONSUMER,
        pull_sub=PullSub(batch_size=BATCH, timeout=GATHER, batch=True),
        ack_policy=AckPolicy.MANUAL,
        config=ConsumerConfig(
            deliver_policy=DeliverPolicy.ALL,
            ack_wait=patience,
            max_ack_pending=20 * BATCH,
            inactive_threshold=0,
        ),
        decoder=_undecoded,
    )
    async def project(message: Annotated[NatsBatchMessage, Context("message")]) -> None:
        await projector.handle(message.raw_message)

    app = FastStream(messages, logger=None, lifespan=projector.storing_rested_views)
    app.on_shutdown(projector.flush)
    return app


async def _undecoded(message: NatsBatchMessage) -> list[Msg]:
    return message.raw_message


async def serve(settings: Settings, url: str) -> None:
    """Run a projector until told to stop. Raises what made it impossible to go on."""
    gone = Gone()
    messages = stream_broker(url, "foldlog-projector", settings.broker_patience, gone)
    async with broker_with_streams(url, "foldlog-projector") as broker:
        app = application(Projector(broker, settings), messages, settings.projector_patience)
        await run(app, (ENTRIES, CONSUMER), broker, gone)


def main() -> None:
    """Run a projector on the broker of the settings (`python -m foldlog.projector`)."""
    settings = load()
    logger = configure("projector", settings)
    try:
        asyncio.run(serve(settings, settings.url or "nats://127.0.0.1:4222"))
    except FoldlogError as error:
        logger.error("stopped", error=str(error))
        sys.exit(3)


if __name__ == "__main__":
    main()
