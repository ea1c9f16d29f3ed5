"""What comes to a worker again because the one before it was killed."""

from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg

from foldlog.announcing import publish
from foldlog.compactor import CONSUMER, Compactor
from foldlog.projection import ConversationKey, Projection
from foldlog.session import Session, connect
from foldlog.settings import Settings
from foldlog.summarisers.extractive import Extractive
from foldlog.topology import PRESSURE
from foldlog_events.messages import assistant, user
from foldlog_projections.attempts import CompactionRecord, unended
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Pressure, manual
from foldlog_projections.views import ContextView

TALK = ConversationKey("default", "talk")
POLICY = Policy(window=2_000, reserve_output=200, keep_recent=100)


async def test_an_entry_that_is_in_its_view_already_is_told_of_by_the_next_projector(
    nats_url: str,
) -> None:
    told: list[int] = []

    async def dies(view: ContextView) -> None:
        raise ConnectionError("killed before it announced anything")

    async def tells(view: ContextView) -> None:
        told.append(view.version)

    async with connect(nats_url) as log:
        (recorded,) = await log.session("talk").append(user("hello"))
        first = Projection(log.contexts, log.views, dies)
        assert TALK in await first.project({TALK: [recorded]})
        stored = await log.contexts.stored(*TALK)
        assert stored is not None
        assert stored.version == recorded.version
        second = Projection(log.contexts, log.views, tells)
        assert await second.project({TALK: [recorded]}) == {}
        assert told == [recorded.version]


async def test_an_attempt_whose_worker_died_is_ended_and_the_event_is_still_to_be_handled(
    nats_url: str,
) -> None:
    async with connect(nats_url) as log:
        pressure = await pressed(log.session("talk"))
        await log.attempts.add(record(pressure, "attempt", request=7))
        compactor = Compactor(log.broker, Settings(), Extractive())
        assert not await compactor.is_settled(pressure, 7)
        states = [(one.state, one.reason) for one in await log.attempts.read(*TALK)]
        assert states == [("started", ""), ("failed", "its worker died")]


async def test_an_event_whose_attempt_has_ended_is_not_handled_again(nats_url: str) -> None:
    settings = Settings(policy={"window": 2_000, "reserve_output": 200, "keep_recent": 100})
    async with connect(nats_url) as log:
        pressure = await pressed(log.session("talk"))
        sequence = await publish(log.records, pressure)
        assert sequence is not None
        compactor = Compactor(log.broker, settings, Extractive())
        ended = await compactor.handle(pressure, sequence)
        assert ended.state == "committed", ended
        assert await compactor.is_settled(pressure, sequence)
        assert not await compactor.is_settled(pressure, sequence + 1), "another event"


async def test_a_commit_whose_worker_died_behind_it_is_on_record_and_not_made_again(
    nats_url: str,
) -> None:
    settings = Settings(policy={"window": 2_000, "reserve_output": 200, "keep_recent": 100})
    async with connect(nats_url) as log:
        pressure = await pressed(log.session("talk"))
        compactor = Compactor(log.broker, settings, Extractive())
        ended = await compactor._compaction.run(pressure, POLICY, "attempt")
        assert ended.state == "committed", ended
        await log.attempts.add(record(pressure, "attempt", request=7))
        assert await compactor.is_settled(pressure, 7)
        last = (await log.attempts.read(*TALK))[-1]
        assert (last.state, last.entry) == ("committed", ended.entry)
        assert last.tokens_after == ended.tokens_after


async def test_whoever_handles_the_next_event_ends_what_dead_workers_left_open(
    nats_url: str,
) -> None:
    """Found by the faults: of two workers on one event, the one that died left its attempt open."""
    async with connect(nats_url) as log:
        pressure = await pressed(log.session("talk"))
        for identifier in ("dead", "alive"):
            await log.attempts.add(record(pressure, identifier, request=7))
        await log.attempts.add(
            msgspec.structs.replace(record(pressure, "alive", request=7), state="declined")
        )
        compactor = Compactor(log.broker, Settings(), Extractive())
        first = Msg.Metadata(
            sequence=Msg.Metadata.SequencePair(consumer=8, stream=8),
            num_pending=0,
            num_delivered=1,
            timestamp=datetime.now(UTC),
            stream=PRESSURE,
            consumer=CONSUMER,
        )
        await compactor.take_on(pressure, first)
        records = await log.attempts.read(*TALK)
        assert not unended(records)
        assert [one.state for one in records if one.id == "dead"] == ["started", "failed"]
        assert [one.state for one in records if one.id == "alive"] == ["started", "declined"]


async def pressed(session: Session) -> Pressure:
    for number in range(12):
        await session.append(user(f"Please look at order {number}, and only at that. " * 4))
        await session.append(assistant(f"Order {number} is paid, and it was sent on time. " * 4))
    return manual(await session.context(), POLICY)


def record(pressure: Pressure, identifier: str, *, request: int) -> CompactionRecord:
    return CompactionRecord(
        id=identifier,
        tenant=pressure.tenant,
        conversation=pressure.conversation,
        state="started",
        time=datetime.now(UTC),
        version=pressure.version,
        request=request,
    )
