"""The compactor: takes pressure from the work queue and makes contexts smaller.

Any number of compactors share the queue, which holds one message for each conversation. A second
worker on one conversation does no harm: the commit is guarded.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import structlog
from faststream import AckPolicy, Context, FastStream
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.message import NatsMessage
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from uuid_utils import uuid7

from foldlog.announcing import Announcer, model_of
from foldlog.artifacts import Artifacts
from foldlog.attempt_log import AttemptLog
from foldlog.broker import Broker
from foldlog.compaction import Compaction, Ended
from foldlog.contexts import Contexts, given_up
from foldlog.dead_letters import NOBODY, DeadLetter, bury
from foldlog.errors import BROKER_TROUBLE, FoldlogError
from foldlog.health import Health, health_of
from foldlog.log import Log
from foldlog.logging_setup import configure
from foldlog.policies import policies_of
from foldlog.records import Records
from foldlog.service import Gone, broker_with_streams, run, stream_broker
from foldlog.settings import Settings, load
from foldlog.summarisers import Summariser, close
from foldlog.summarisers.choosing import summariser_of
from foldlog.topology import CANCEL, PRESSURE, pressure_subject
from foldlog.views import Views
from foldlog.work import CANCELLED, Work
from foldlog_events.entries import CompactionEntry, Recorded
from foldlog_events.errors import InvalidIdentifier
from foldlog_events.subjects import decode_token
from foldlog_projections.attempts import CompactionRecord, unended
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Attempt, Outcome, Pressure, attempted, level_of

CONSUMER = "compactor"
SIGNS_OF_LIFE = 3
"""Signs of life within the patience of the queue."""
TRIES = 5
DELIVERIES = 10
"""Attempts that ended with their worker after which an event is buried."""
WORKER_DIED = "its worker died"
RETRY_DELAY = 2.0

_logger = structlog.get_logger("foldlog.compactor")
_decode = msgspec.json.Decoder(Pressure).decode


class Compactor:
    """Handles one pressure event at a time, and records how each attempt went."""

    def __init__(self, broker: Broker, settings: Settings, summariser: Summariser) -> None:
        self._log = log = Log(broker)
        self._records = Records(broker)
        self._attempts = AttemptLog(self._records)
        self._views = Views(broker, Artifacts(broker))
        self._contexts = Contexts(log, self._views)
        self._policies = policies_of(settings)
        self._announcer = Announcer(self._records, self._policies)
        self._worker = f"compactor-{str(uuid7())[-12:]}"
        self._compaction = Compaction(
            log, self._contexts, summariser, self._worker, deadline=settings.summary_deadline
        )
        self._prices = settings.prices

    async def is_settled(self, pressure: Pressure, request: int) -> bool:
        """Whether this event, which comes again, was dealt with: its worker ended behind that."""
        records = await self._ended(pressure)
        return any(one.request == request and one.attempt is not None for one in records)

    async def take_on(self, pressure: Pressure, delivery: Msg.Metadata) -> None:
        """What a delivery of a pressure event asks for, unless it was dealt with before."""
        request = delivery.sequence.stream
        is_settled = await self.is_settled(pressure, request)
        if delivery.num_delivered == 1 or not is_settled:
            await self.handle(pressure, request)

    async def has_killed(self, pressure: Pressure, delivery: Msg.Metadata) -> bool:
        """Whether so many workers died of an event that no other should take it on."""
        deaths = [
            one
            for one in await self._ended(pressure)
            if one.request == delivery.sequence.stream and one.reason == WORKER_DIED
        ]
        return len(deaths) >= DELIVERIES

    async def _ended(self, pressure: Pressure) -> list[CompactionRecord]:
        """The conversation's records, once those that dead workers left open have their ends."""
        records = await self._attempts.read(pressure.tenant, pressure.conversation)
        return records + [await self._close(one, pressure) for one in unended(records)]

    async def handle(self, pressure: Pressure, request: int = 0) -> Ended:
        """One attempt, with its start and its end on record; `request` as in the record."""
        context = await self._contexts.current(
            pressure.tenant, pressure.conversation, at_least=pressure.version
        )
        policy = self._policies.of(pressure.model or model_of(context.view()))
        last = await self._attempts.last(pressure.tenant, pressure.conversation)
        started = CompactionRecord(
            id=str(uuid7()),
            tenant=pressure.tenant,
            conversation=pressure.conversation,
            state="started",
            time=datetime.now(UTC),
            worker=self._worker,
            request=request,
            trigger=pressure.reason,
            level=pressure.level,
            version=pressure.version,
            tokens_before=pressure.tokens,
            policy=policy.name,
        )
        await self._attempts.add(started)
        since = time.monotonic()
        try:
            ended = await self._compaction.run(pressure, policy, started.id)
        except asyncio.CancelledError as cancelled:
            ended = _failed(pressure, str(cancelled) or "cancelled")
            if CANCELLED in cancelled.args:
                attempt = _attempt(pressure, policy, ended, last)
                started = msgspec.structs.replace(started, attempt=attempt)
            await asyncio.shield(self._end(started, ended, since))
            raise
        except Exception as error:
            await self._end(started, _failed(pressure, f"{type(error).__name__}: {error}"), since)
            raise
        attempt = _attempt(pressure, policy, ended, last)
        await self._end(msgspec.structs.replace(started, attempt=attempt), ended, since)
        return ended

    async def _close(self, started: CompactionRecord, pressure: Pressure) -> CompactionRecord:
        """Give an attempt whose worker died its end: the log says whether it committed."""
        ended = _failed(pressure, WORKER_DIED)
        attempt = None
        async for read in self._log.read(
            started.tenant, started.conversation, after=started.version, lane="shape"
        ):
            entry = read.entry if isinstance(read, Recorded) else None
            if isinstance(entry, CompactionEntry) and entry.attempt == started.id:
                ended = Ended(
                    state="committed",
                    reason="its worker died after the commit",
                    entry=entry.id,
                    tokens_before=entry.tokens_before,
                    tokens_after=entry.tokens_after,
                )
                context = await self._contexts.current(started.tenant, started.conversation)
                policy = self._policies.of(pressure.model or model_of(context.view()))
                last = await self._attempts.last(started.tenant, started.conversation)
                attempt = _attempt(pressure, policy, ended, last)
        seconds = (datetime.now(UTC) - started.time).total_seconds()
        started = msgspec.structs.replace(started, attempt=attempt)
        return await self._end(started, ended, time.monotonic() - seconds)

    async def look_again(self, pressure: Pressure) -> None:
        """Announce what came up meanwhile: while this work was queued, nothing else could be."""
        context = await self._contexts.current(pressure.tenant, pressure.conversation)
        await self._announcer.announce(context.view())

    async def bury(self, message: Msg, reason: str) -> None:
        """Keep an event that cannot be handled, with its error."""
        tenant, conversation, subject = _whose(message.subject)
        letter = DeadLetter(
            tenant=tenant,
            conversation=conversation,
            reason=reason,
            tries=message.metadata.num_delivered,
            data=message.data.decode(errors="replace"),
            subject=subject,
        )
        _logger.error("gave up", conversation=letter.conversation, reason=reason)
        await bury(self._records, "pressure", letter)
        if not subject:
            mark = given_up(0, f"a compaction was given up: {reason}")
            with contextlib.suppress(FoldlogError):
                await self._views.mark(tenant, conversation, mark)

    async def _end(self, started: CompactionRecord, ended: Ended, since: float) -> CompactionRecord:
        spent = ended.spent
        price = self._prices.get(spent.model)
        record = msgspec.structs.replace(
            started,
            state=ended.state,
            time=datetime.now(UTC),
            reason=ended.reason,
            entry=ended.entry,
            tokens_before=ended.tokens_before or started.tokens_before,
            tokens_after=ended.tokens_after,
            seconds=round(time.monotonic() - since, 3),
            model=spent.model,
            usage=spent.usage,
            calls=spent.calls,
            cost=price.of(spent.usage) if price and spent.usage else None,
        )
        await self._attempts.add(record)
        _logger.info(
            f"compaction {ended.state}",
            conversation=started.conversation,
            reason=ended.reason,
            tokens_before=record.tokens_before,
            tokens_after=record.tokens_after,
            seconds=record.seconds,
        )
        return record


def _whose(subject: str) -> tuple[str, str, str]:
    """Tenant and conversation of a pressure event; their tokens and the subject where unknown."""
    tokens = [*subject.split(".")[1:], NOBODY, NOBODY]
    try:
        tenant, conversation = decode_token(tokens[0]), decode_token(tokens[1])
    except InvalidIdentifier:
        tenant = conversation = None
    if tenant and conversation and pressure_subject(tenant, conversation) == subject:
        return tenant, conversation, ""
    return tokens[0], tokens[1], subject


def _failed(pressure: Pressure, reason: str) -> Ended:
    return Ended(state="failed", reason=reason, tokens_before=pressure.tokens)


def _attempt(pressure: Pressure, policy: Policy, ended: Ended, last: Attempt | None) -> Attempt:
    return attempted(
        pressure,
        policy,
        _outcome(ended, policy),
        last,
        head=ended.entry or pressure.head,
        now=time.time(),
        wait=ended.retry_after,
    )


def _outcome(ended: Ended, policy: Policy) -> Outcome:
    match ended.state:
        case "committed" | "pruned":
            return "fruitless" if level_of(ended.tokens_after, policy) else "committed"
        case "declined" | "stale" | "failed":
            return ended.state
        case _:
            return "failed"


@contextlib.asynccontextmanager
async def _signs_of_life(message: NatsMessage, patience: float) -> AsyncIterator[None]:
    """Tell the queue that this worker is at it, for as long as it is."""

    async def signal() -> None:
        while True:
            await asyncio.sleep(patience / SIGNS_OF_LIFE)
            await message.in_progress()

    signalling = asyncio.create_task(signal())
    try:
        yield
    finally:
        signalling.cancel()


def application(
    compactor: Compactor,
    messages: NatsBroker,
    patience: float,
    at_once: int = 1,
    health: Health | None = None,
) -> FastStream:
    """The FastStream application around a compactor; `patience` as in the settings.

    It works on up to `at_once` conversations at the same time.
    """
    work = Work()

    async def compact(message: Annotated[NatsMessage, Context("message")]) -> None:
        raw = message.raw_message
        if work.is_stopping:
            await message.nack(delay=RETRY_DELAY)
            return
        try:
            pressure = _decode(raw.data)
        except msgspec.DecodeError as error:
            await compactor.bury(raw, f"no pressure event: {error}")
            await message.ack()
            return
        tries = raw.metadata.num_delivered
        try:
            if tries > DELIVERIES and await compactor.has_killed(pressure, raw.metadata):
                await compactor.bury(raw, f"{DELIVERIES} workers died of it, or were killed")
                await message.ack()
                return
            async with _signs_of_life(message, patience):
                await work.run(raw.subject, compactor.take_on(pressure, raw.metadata))
        except asyncio.CancelledError as cancelled:
            if not work.is_stopping and CANCELLED in cancelled.args:
                await message.ack_sync()
                return
            # Not at once: this worker's own open requests would be given it, and drop it.
            with contextlib.suppress(Exception):
                await message.nack(delay=RETRY_DELAY)
            if not work.is_stopping:
                raise
        except Exception as error:
            _logger.warning(
                "not compacted", conversation=pressure.conversation, error=str(error), tries=tries
            )
            if tries < TRIES or isinstance(error, BROKER_TROUBLE):
                await message.nack(delay=RETRY_DELAY * min(tries, TRIES))
            else:
                await compactor.bury(raw, f"{type(error).__name__}: {error}")
                await message.ack()
        else:
            await message.ack_sync()
            await compactor.look_again(pressure)

    async def taken(message: Annotated[NatsMessage, Context("message")]) -> None:
        with health.work() if health else contextlib.nullcontext():
            await compact(message)

    # Each takes one event at a time. FastStream's own workers would hold others in a buffer
    # meanwhile, unacknowledged and without a sign of life, until the queue gave them away too.
    for _ in range(at_once):
        messages.subscriber(
            "pressure.>",
            stream=JStream(PRESSURE, declare=False),
            durable=CONSUMER,
            pull_sub=PullSub(batch_size=1, timeout=1.0),
            ack_policy=AckPolicy.MANUAL,
            config=ConsumerConfig(ack_wait=patience, max_ack_pending=1_000),
            decoder=_undecoded,
        )(taken)

    @messages.subscriber(f"{CANCEL}.>", no_reply=True)
    async def cancel(message: Annotated[NatsMessage, Context("message")]) -> None:
        raw = message.raw_message
        if work.cancel(raw.subject.removeprefix(f"{CANCEL}.")) and raw.reply:
            await raw.respond(b"cancelled")

    app = FastStream(messages, logger=None)
    app.on_shutdown(work.stop)
    return app


async def _undecoded(message: NatsMessage) -> bytes:
    return bytes(message.raw_message.data)


async def serve(settings: Settings, url: str, summariser: Summariser | None = None) -> None:
    """Run a compactor until told to stop, with the summariser of the settings or another.

    Raises what made it impossible to go on.
    """
    gone = Gone()
    messages = stream_broker(url, "foldlog-compactor", settings.broker_patience, gone)
    async with broker_with_streams(url, "foldlog-compactor") as broker:
        summarises = summariser or summariser_of(settings)
        compactor = Compactor(broker, settings, summarises)
        health = health_of(settings, CONSUMER)
        app = application(
            compactor,
            messages,
            settings.compactor_patience,
            settings.compactions_at_once,
            health,
        )
        try:
            await run(app, (PRESSURE, CONSUMER), broker, gone, settings, health)
        finally:
            await close(summarises)


def main() -> None:
    """Run a compactor on the broker of the settings (`python -m foldlog.compactor`)."""
    settings = load()
    logger = configure("compactor", settings)
    try:
        asyncio.run(serve(settings, settings.url or "nats://127.0.0.1:4222"))
    except FoldlogError as error:
        logger.error("stopped", error=str(error))
        sys.exit(3)


if __name__ == "__main__":
    main()
