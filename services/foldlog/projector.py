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
from foldlog.contexts import Contexts, given_up
from foldlog.dead_letters import NOBODY, DeadLetter, bury
from foldlog.errors import BROKER_TROUBLE, FoldlogError
from foldlog.giving_back import Deliveries
from foldlog.health import Health, health_of
from foldlog.log import Log
from foldlog.logging_setup import configure
from foldlog.policies import policies_of
from foldlog.projection import ConversationKey, Projection, ProjectionLimits
from foldlog.reading import Read, Stored, read_stored
from foldlog.rebuilding import check_views, rebuild_outdated
from foldlog.records import Records
from foldlog.service import Gone, broker_with_streams, run, stream_broker
from foldlog.settings import Settings, load
from foldlog.topology import ENTRIES
from foldlog.views import Views
from foldlog_events.entries import Recorded
from foldlog_events.errors import InvalidIdentifier
from foldlog_events.subjects import decode_token, parse_subject, subject_of

CONSUMER = "projector"
BATCH = 1_000
GATHER = 0.05
"""Seconds a batch is gathered for; an entry is in its view at the latest this much later."""
REST = 1.0
"""Seconds after which a large view is stored though few of its entries are new."""
RENEW = 60.0
"""Seconds between two looks for views that an older release stored."""
TRIES = 5
RETRY_DELAY = 1.0
"""Seconds before a conversation that could not be projected is tried again, times the tries."""

_logger = structlog.get_logger("foldlog.projector")


class Projector:
    """Takes batches from the consumer and gives each conversation its own outcome."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        log = Log(broker)
        self._records = Records(broker)
        self._broker = broker
        self._views = views = Views(broker, Artifacts(broker))
        self.deliveries = Deliveries()
        self._unacknowledged: dict[ConversationKey, list[Msg]] = {}
        self._contexts = Contexts(log, views)
        self.projection = Projection(
            self._contexts,
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
                    await self._settle(await self.projection.rest())

        tasks = (asyncio.create_task(store()), asyncio.create_task(self._renew()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _renew(self) -> None:
        """Make the views of an older release anew, and those that one beside this still stores."""
        while True:
            try:
                await rebuild_outdated(self._broker, self._contexts, self._views)
            except Exception as error:
                _logger.warning("older views not made anew", error=str(error))
            await asyncio.sleep(RENEW)

    async def flush(self) -> None:
        """Store what is not stored yet, and acknowledge it."""
        failed = await self.projection.flush()
        await self._settle(failed)

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Project one batch; acknowledge what is in views, give back what is not."""
        groups: dict[ConversationKey, list[Msg]] = {}
        reads: dict[ConversationKey, list[Read]] = {}
        unknown: list[tuple[Msg, str]] = []
        for message in messages:
            try:
                read = read_stored(_stored(message))
                key = _key(read, message.subject)
            except InvalidIdentifier as error:
                unknown.append((message, str(error)))
                continue
            groups.setdefault(key, []).append(message)
            reads.setdefault(key, []).append(read)
        failed = await self.projection.project(reads, is_whole=not unknown)
        # Only now: what is not folded yet is not in a view that is stored meanwhile.
        for key, group in groups.items():
            self._unacknowledged.setdefault(key, []).extend(group)
        for message, reason in unknown:
            await self._bury_nobodys(message, reason)
        await self._settle(failed)

    async def _settle(self, failed: Mapping[ConversationKey, Exception]) -> None:
        """Acknowledge what stored views hold; a worker killed now leaves nothing behind."""
        for key in tuple(self._unacknowledged):
            # A batch and a rest may settle at the same time; each message is one's.
            if key in failed:
                await self._retry(key, self._unacknowledged.pop(key, []), failed[key])
            elif self.projection.is_stored(key):
                for message in self._unacknowledged.pop(key, []):
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
        try:
            await self._views.mark(*key, given_up(version, reason))
        except FoldlogError as error:
            _logger.warning("view not marked", conversation=key.conversation, error=str(error))
        await message.ack()

    async def _bury_nobodys(self, message: Msg, reason: str) -> None:
        """Keep a message that is on no conversation's subject; it is in nobody's context."""
        version = message.metadata.sequence.stream
        _logger.error("nobody's entry", subject=message.subject, version=version, reason=reason)
        tokens = [*message.subject.split(".")[2:4], NOBODY, NOBODY]
        letter = DeadLetter(
            tenant=tokens[0],
            conversation=tokens[1],
            reason=reason,
            version=version,
            tries=message.metadata.num_delivered,
            subject=message.subject,
        )
        await bury(self._records, "entry", letter)
        await message.ack()


def _stored(message: Msg) -> Stored:
    return Stored(
        message.subject, message.metadata.sequence.stream, message.headers or {}, message.data
    )


def _key(read: Read, subject: str) -> ConversationKey:
    """Whose entry it is. Raises InvalidIdentifier where no conversation is on the subject."""
    if isinstance(read, Recorded):
        return ConversationKey(read.entry.tenant, read.entry.conversation)
    parts = parse_subject(subject)
    tenant, conversation = decode_token(parts.tenant), decode_token(parts.conversation)
    if tenant is None or conversation is None:
        raise InvalidIdentifier(f"the id behind {subject!r} stands in its entries alone")
    if subject_of(tenant, conversation, parts.lane) != subject:
        raise InvalidIdentifier(f"no conversation has the subject {subject!r}")
    return ConversationKey(tenant, conversation)


def application(
    projector: Projector,
    messages: NatsBroker,
    patience: float,
    health: Health | None = None,
) -> FastStream:
    """The FastStream application around a projector; `patience` as in the settings."""
    subscriber = messages.subscriber(
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

    @subscriber
    async def project(message: Annotated[NatsBatchMessage, Context("message")]) -> None:
        with health.work() if health else contextlib.nullcontext():
            try:
                await projector.handle(message.raw_message)
            except Exception as error:
                _logger.exception("batch not handled", error=str(error))
                for one in message.raw_message:
                    if not one.is_acked:
                        await one.nak(delay=RETRY_DELAY)

    projector.deliveries.follow(subscriber)
    app = FastStream(messages, logger=None, lifespan=projector.storing_rested_views)
    app.on_shutdown(projector.deliveries.stop)
    app.on_shutdown(projector.flush)
    app.on_shutdown(projector.deliveries.give_back)
    return app


async def _undecoded(message: NatsBatchMessage) -> list[Msg]:
    return message.raw_message


async def serve(settings: Settings, url: str) -> None:
    """Run a projector until told to stop. Raises what made it impossible to go on."""
    gone = Gone()
    messages = stream_broker(url, "foldlog-projector", settings.broker_patience, gone)
    async with broker_with_streams(url, "foldlog-projector") as broker:
        await check_views(broker)
        health = health_of(settings, CONSUMER)
        app = application(
            Projector(broker, settings), messages, settings.projector_patience, health
        )
        await run(app, (ENTRIES, CONSUMER), broker, gone, settings, health)


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
