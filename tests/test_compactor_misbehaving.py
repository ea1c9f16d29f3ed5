"""Summarisers that misbehave: the conversation goes on, and what is paid for nothing is bounded."""

import asyncio
import time
from typing import Any

import pytest

from foldlog import Foldlog, Section, connect
from foldlog.attempt_log import AttemptLog
from foldlog.policies import policies_of
from foldlog.summarisers import (
    Summariser,
    SummariserRefused,
    SummariserUnavailable,
    SummaryRequest,
    SummaryResult,
)
from foldlog.summarising import MOST_REQUESTS
from foldlog_projections.attempts import ENDS, CompactionRecord
from foldlog_projections.policy import load
from foldlog_projections.pressure import assess, is_left_alone
from tests.test_compactor import GOOD, talk
from tests.workers import eventually, running_compactor, running_projector, small_settings

IMPATIENT = {
    "preset": "default",
    "window": 2_400,
    "max_attempts": 3,
    "backoff": 0.05,
    "cooldown": 3_600.0,
}


class Fails:
    """Counts its calls, and fails in one way or another."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.calls = 0

    async def summarise(self, request: SummaryRequest) -> Any:
        self.calls += 1
        match self.how:
            case "fails":
                raise SummariserUnavailable("down")
            case "refuses":
                raise SummariserRefused("no")
            case "never answers":
                await asyncio.Event().wait()
            case "breaks":
                raise KeyError("choices")
            case "answers no summary":
                return "a string"
            case "answers rubbish":
                return SummaryResult(text="lorem ipsum")
        return SummaryResult(text=GOOD.replace("Find out", "Find out about 987654 orders, and"))


async def records_of(foldlog: Foldlog) -> list[CompactionRecord]:
    return await AttemptLog(foldlog.records).read("default", "c")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", "SummariserUnavailable: down"),
        ("refuses", "SummariserRefused: no"),
        ("never answers", "timed out: no summary within 0.2 seconds"),
        ("breaks", "the summariser broke: KeyError: 'choices'"),
        ("answers no summary", "the summariser broke: it answered str, and no summary"),
        ("answers rubbish", "section_missing: "),
        ("invents", "ungrounded: "),
    ],
)
async def test_appends_and_contexts_go_on_and_calls_are_bounded(
    nats_url: str, how: str, reason: str
) -> None:
    summariser = Fails(how)
    settings = small_settings(policy=IMPATIENT, summary_deadline=0.2)
    policy = load(IMPATIENT)
    since = time.monotonic()
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        as_a_summariser: Summariser = summariser
        async with (
            running_projector(nats_url, settings),
            running_compactor(nats_url, settings, as_a_summariser),
        ):
            asked = 0

            async def is_left_alone_by_now() -> bool:
                nonlocal asked
                await talk(session, 1, start=asked)
                asked += 1
                last = await AttemptLog(foldlog.records).last("default", "c")
                return is_left_alone(await session.context(), policy, last)

            await eventually(is_left_alone_by_now, within=60)
            for _ in range(10):
                await talk(session, 1, start=asked)
                asked += 1
            version = (await session.context()).version

            async def is_projected() -> bool:
                stored = await foldlog.contexts.stored("default", "c")
                return stored is not None and stored.version >= version

            await eventually(is_projected)
        view = await session.context()
        assert view.head is None
        assert len(view.messages) == 4 * asked
        records = await records_of(foldlog)
    ended = [record for record in records if record.state in ENDS]
    assert [record.state for record in ended] == ["failed"] * policy.max_attempts
    assert all(record.reason.startswith(reason) for record in ended), ended
    assert [record.attempt.failures for record in ended if record.attempt] == [1, 2, 3]
    bound = policy.most_attempts(time.monotonic() - since)
    assert summariser.calls <= MOST_REQUESTS * bound
    if how != "invents":
        assert summariser.calls == policy.max_attempts == bound


async def test_a_conversation_left_alone_leaves_others_be(nats_url: str) -> None:
    """The breaker is the conversation's own."""

    class FailsForOne:
        def __init__(self) -> None:
            self.calls = 0

        async def summarise(self, request: SummaryRequest) -> SummaryResult:
            from foldlog.summarisers.extractive import Extractive

            if "unlucky" in str(request.messages[0].message):
                raise SummariserUnavailable("down for this one")
            self.calls += 1
            return await Extractive().summarise(request)

    settings = small_settings(policy=IMPATIENT)
    async with connect(nats_url) as foldlog:
        from foldlog import user

        unlucky, lucky = foldlog.session("c"), foldlog.session("d")
        await unlucky.append(user("unlucky"))
        await talk(unlucky, 25)
        async with (
            running_compactor(nats_url, settings, FailsForOne()),
            running_projector(nats_url, settings),
        ):

            async def is_failed() -> bool:
                return bool(await records_of(foldlog))

            await eventually(is_failed)
            await talk(lucky, 25)

            async def is_smaller() -> bool:
                return (await lucky.context()).head is not None

            await eventually(is_smaller)
        assert (await unlucky.context()).head is None


async def test_another_policy_or_model_is_judged_at_once(nats_url: str) -> None:
    """A conversation that is left alone under one policy is compacted under the next one."""
    broken = small_settings(policy=IMPATIENT)
    wider = small_settings(policy=dict(IMPATIENT, window=2_600))
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        await session.prepare([Section(name="role", text="You are an analyst.")])
        await talk(session, 25)
        async with running_compactor(nats_url, broken, Fails("fails")):
            for _ in range(3):
                assert (await session.compact(within=30)).state == "failed"
        view = await session.context()
        last = await AttemptLog(foldlog.records).last("default", "c")
        assert last is not None
        policy = policies_of(broken).of(None)
        assert is_left_alone(view, policy, last)
        assert assess(view, policy, last, last.at + 60) is None
        async with running_compactor(nats_url, wider), running_projector(nats_url, wider):

            async def is_compacted() -> bool:
                return (await session.context()).head is not None

            await eventually(is_compacted)


async def test_a_model_with_a_smaller_window_brings_pressure_at_once(nats_url: str) -> None:
    """The model that answered last decides; the answer is all it takes."""
    from foldlog import assistant

    settings = small_settings(
        policy={"preset": "default", "window": 100_000},
        policies={"small": {"preset": "default", "window": 2_400}},
    )
    async with connect(nats_url, policies=policies_of(settings)) as foldlog:
        session = foldlog.session("c")
        await talk(session, 25)
        async with running_projector(nats_url, settings), running_compactor(nats_url, settings):

            async def is_projected() -> bool:
                stored = await foldlog.contexts.stored("default", "c")
                return stored is not None and stored.version >= version

            version = (await session.context()).version
            await eventually(is_projected)
            assert not await records_of(foldlog)
            await session.append(assistant("I answer from now on.", model="small"))

            async def is_compacted() -> bool:
                return (await session.context()).head is not None

            await eventually(is_compacted)
        records = await records_of(foldlog)
    assert {record.level for record in records} == {"hard"}
