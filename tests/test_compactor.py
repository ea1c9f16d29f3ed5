"""The compactor on a real broker: guarded, checked, recorded, and in nobody's way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from foldlog import Foldlog, Section, Session, ToolCall, assistant, connect, tool_result, user
from foldlog.announcing import publish
from foldlog.compaction import digest_of
from foldlog.errors import FoldlogError
from foldlog.summarisers import SummaryRequest, SummaryResult
from foldlog.summarisers.choosing import Paced
from foldlog.summarisers.extractive import Extractive
from foldlog_events.entries import CompactionEntry, Recorded
from foldlog_projections.attempts import ENDS, CompactionRecord
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.policy import load
from foldlog_projections.pressure import manual
from foldlog_projections.summary_source import SourceMessage
from foldlog_projections.views import ContextView
from tests.test_session import said
from tests.workers import SMALL, Gated, eventually, running_compactor, running_projector

POLICY = load(SMALL)
LINE = "The figures of the evening show are in, and they are lower than last week's by a third. "


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


async def talk(session: Session, turns: int, *, start: int = 0) -> None:
    """Turns of a question, a call, its result and an answer: about 110 tokens each."""
    for turn in range(start, start + turns):
        call = ToolCall(id=f"call-{turn}", name="figures", arguments={"show": turn})
        await session.append(user(f"Question {turn}: {LINE}"))
        found = tool_result(call.id, f"show {turn}: 12{turn:02} orders. {LINE}")
        await session.append(assistant("", call), found)
        await session.append(assistant(f"Show {turn} had 12{turn:02} orders."))


async def ask(foldlog: Foldlog, conversation: str, instructions: str = "") -> None:
    view = await foldlog.session(conversation).context()
    assert await publish(foldlog.records, manual(view, POLICY, instructions))


async def ends(foldlog: Foldlog, conversation: str) -> list[CompactionRecord]:
    records = await foldlog.attempts.read("default", conversation)
    return [record for record in records if record.state in ENDS]


async def compactions(
    foldlog: Foldlog, conversation: str
) -> list[tuple[Recorded, CompactionEntry]]:
    return [
        (read, read.entry)
        async for read in foldlog.log.read("default", conversation)
        if isinstance(read, Recorded) and isinstance(read.entry, CompactionEntry)
    ]


async def check_coverage(foldlog: Foldlog, conversation: str) -> int:
    """Rule 11 and §8.5 by the log alone: each compaction stands for what it read, and no more.

    Every entry in the range just before it is in its source range or kept; its source's digest is
    of the messages seen at its base version. Returns how many compactions there are.
    """
    fold = ContextFold(empty("default", conversation))
    views: dict[int, ContextView] = {}
    count = 0
    async for read in foldlog.log.read("default", conversation):
        assert isinstance(read, Recorded)
        entry = read.entry
        if isinstance(entry, CompactionEntry):
            count += 1
            source, kept = entry.source_range, entry.kept_from
            assert kept is not None
            in_range = fold.state().active
            summarised = [one for one in in_range if one.version < kept.version]
            assert source.first.version == in_range[0].version
            assert source.last.version == summarised[-1].version <= entry.base_version.log
            assert source.count == len(summarised)
            seen = views[
                max(v for v in views if v <= max(entry.base_version.log, entry.base_version.shape))
            ]
            ids = {one.id for one in summarised}
            messages = [
                SourceMessage(origin.id, origin.version, message)
                for origin, message in zip(seen.origins, seen.messages, strict=True)
                if origin.id in ids and message.role != "system"
            ]
            assert source.digest == digest_of(messages)
        fold.apply(read.version, entry)
        views[read.version] = fold.view()
    assert fold.view().stale_compactions == 0
    return count


async def test_pressure_leads_to_a_smaller_context(nats_url: str, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.prepare([Section(name="role", text="You are an analyst.", exact=True)])
    async with running_projector(nats_url), running_compactor(nats_url):
        await talk(session, 30)
        await eventually(lambda: ends(foldlog, "c"))
    view = await session.context()
    assert view.head is not None
    assert view.head.kind == "compaction"
    assert said(view)[0] == "system: You are an analyst."
    assert view.messages[1].role == "user"
    assert "<summary>" in said(view)[1]
    assert await check_coverage(foldlog, "c") >= 1


async def test_with_a_writer_at_work_twenty_compactions_commit_and_no_append_fails(
    nats_url: str, foldlog: Foldlog
) -> None:
    """A compaction never makes an append fail, and an append never makes a compaction stale."""
    session = foldlog.session("c")
    await talk(session, 12)
    appended = 0
    stop = asyncio.Event()

    async def write() -> None:
        nonlocal appended
        writer = foldlog.session("c")
        while not stop.is_set():
            await writer.append(user(f"wish {appended}: {LINE}"), assistant(f"Noted {appended}."))
            appended += 1
            await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=0.03)

    async with running_compactor(nats_url, summariser=Paced(Extractive(), 0.3)):
        writing = asyncio.create_task(write())
        for _ in range(20):
            ended = await session.compact(within=30)
            assert ended.state == "committed", ended
        stop.set()
        await writing
    assert appended > 20 * 0.3 / 0.1
    assert await check_coverage(foldlog, "c") == 20
    text = "\n".join(said(await session.context()))
    assert f"wish {appended - 1}: " in text


async def test_13_a_message_during_the_summary_stands_after_it(
    nats_url: str, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await talk(session, 12)
    gate = Gated()
    async with running_compactor(nats_url, summariser=gate):
        compacting = asyncio.create_task(session.compact(within=30))
        await gate.begun.wait()
        await foldlog.session("c").append(user("One more wish."))
        gate.may_end.set()
        assert (await compacting).state == "committed"
    lines = said(await session.context())
    assert "<summary>" in lines[0]
    assert lines[-1] == "user: One more wish."
    assert len(lines) > 2


@pytest.mark.parametrize("change", ["reset", "edit of a summarised entry", "edit of the summary"])
async def test_14_and_15_a_change_of_what_was_read_makes_the_summary_stale(
    nats_url: str, foldlog: Foldlog, change: str
) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("The first question of all.")))[0]
    await talk(session, 12)
    if change == "edit of the summary":
        async with running_compactor(nats_url):
            assert (await session.compact()).state == "committed"
        await talk(session, 12, start=12)
    gate = Gated()
    async with running_compactor(nats_url, summariser=gate):
        compacting = asyncio.create_task(session.compact(within=30))
        await gate.begun.wait()
        if change == "reset":
            await session.reset([user("Start anew.")])
        elif change == "edit of the summary":
            head = (await session.context()).head
            assert head is not None
            await session.edit(head.id, [user("What happened so far is a secret.")])
        else:
            await session.edit(first.entry.id, [user("Another first question.")])
        before = await session.context()
        gate.may_end.set()
        ended = await compacting
    assert ended.state == "stale", ended
    assert (await session.context()).messages == before.messages


async def test_15_an_edit_of_what_is_kept_leaves_the_summary_good(
    nats_url: str, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await talk(session, 12)
    last = (await session.append(user("The last question.")))[0]
    gate = Gated()
    async with running_compactor(nats_url, summariser=gate):
        compacting = asyncio.create_task(session.compact(within=30))
        await gate.begun.wait()
        await session.edit(last.entry.id, [user("The last question, corrected.")])
        gate.may_end.set()
        ended = await compacting
    assert ended.state == "committed", ended
    assert gate.calls == 1
    assert said(await session.context())[-1] == "user: The last question, corrected."


async def test_16_two_workers_and_one_pressure_give_one_summary(
    nats_url: str, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await talk(session, 12)
    gates = Gated(), Gated()
    async with (
        running_compactor(nats_url, summariser=gates[0]),
        running_compactor(nats_url, summariser=gates[1]),
    ):
        compacting = asyncio.create_task(session.compact(within=30))
        begun = [asyncio.create_task(gate.begun.wait()) for gate in gates]
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
        view = await session.context()
        assert not await publish(foldlog.records, manual(view, POLICY))
        for gate in gates:
            gate.may_end.set()
        assert (await compacting).state == "committed"
        for task in begun:
            task.cancel()
    assert sum(gate.calls for gate in gates) == 1
    assert len(await compactions(foldlog, "c")) == 1


def answers(text: str = "", **fields: object) -> object:
    def answer(request: SummaryRequest) -> SummaryResult:
        return SummaryResult(text=text, **fields)  # type: ignore[arg-type]

    return answer


GOOD = "\n\n".join(
    f"## {heading}\n{text}"
    for heading, text in {
        "Goal": "Find out about the shows.",
        "Constraints and preferences": "(none)",
        "Progress": "(none)",
        "Decisions": "(none)",
        "Next steps": "(none)",
        "Critical context": "(none)",
    }.items()
)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": ""}, "empty"),
        ({"text": GOOD, "finish_reason": "length"}, "unfinished"),
        ({"text": GOOD, "finish_reason": "content_filter"}, "unfinished"),
        ({"text": GOOD, "tool_called": True}, "tool_call"),
        ({"text": "Just a sentence."}, "section_missing"),
        ({"text": GOOD + "\n- 98765 orders were lost."}, "ungrounded"),
        ({"text": GOOD.replace("(none)", LINE * 60)}, "not_smaller"),
    ],
)
async def test_19_and_20_a_bad_summary_is_refused_recorded_and_changes_nothing(
    nats_url: str, foldlog: Foldlog, fields: dict[str, object], reason: str
) -> None:
    session = foldlog.session("c")
    await talk(session, 12)
    before = await session.context()
    gate = Gated(answers(**fields))  # type: ignore[arg-type]
    gate.may_end.set()
    async with running_compactor(nats_url, summariser=gate):
        ended = await session.compact(within=30)
    assert ended.state == "failed"
    assert reason in ended.reason
    assert await session.context() == before
    assert gate.calls == (2 if reason == "ungrounded" else 1)
    states = [one.state for one in await foldlog.attempts.read("default", "c")]
    assert states == ["started", "failed"]


async def test_17_usage_from_before_a_compaction_is_no_pressure_after_it(
    nats_url: str, foldlog: Foldlog
) -> None:
    from foldlog_events.messages import Usage

    session = foldlog.session("c")
    await talk(session, 12)
    await session.append(assistant("Large.", usage=Usage(input_tokens=3_400, output_tokens=10)))
    async with running_compactor(nats_url), running_projector(nats_url):
        await eventually(lambda: ends(foldlog, "c"))
        await session.append(user("And now?"))
        view = await session.context()
        assert view.tokens < POLICY.soft_limit

        async def is_projected() -> bool:
            stored = await foldlog.contexts.stored("default", "c")
            return stored is not None and stored.version == view.version

        await eventually(is_projected)
    assert len(await ends(foldlog, "c")) == 1


async def test_18_a_prompt_over_the_limit_is_said_once(nats_url: str, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.prepare([Section(name="law", text=LINE * 220)])
    async with running_compactor(nats_url), running_projector(nats_url):
        for turn in range(5):
            await session.append(user(f"Question {turn}"))
        await eventually(lambda: ends(foldlog, "c"))
        version = (await session.append(user("One more")))[0].version

        async def is_projected() -> bool:
            stored = await foldlog.contexts.stored("default", "c")
            return stored is not None and stored.version == version

        await eventually(is_projected)
    records = await foldlog.attempts.read("default", "c")
    assert [record.state for record in records] == ["declined"]
    assert "the prompt alone takes" in records[0].reason


async def test_pruning_comes_first_and_may_be_enough(nats_url: str, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    call = ToolCall(id="big", name="read")
    words = " ".join(f"word{n}" for n in range(1_700))
    await session.append(user("Read it."), assistant("", call), tool_result("big", words))
    await session.append(assistant("Read."), user("Again?"))
    other = ToolCall(id="small", name="read")
    await session.append(assistant("", other), tool_result("small", "nothing"))
    before = await session.context()
    assert before.tokens > POLICY.soft_limit
    gate = Gated()
    async with running_projector(nats_url), running_compactor(nats_url, summariser=gate):
        await eventually(lambda: ends(foldlog, "c"))
    (ended,) = await ends(foldlog, "c")
    assert ended.state == "pruned"
    assert gate.calls == 0
    after = await session.context()
    assert after.tokens < before.tokens
    assert "code points left out here" in "\n".join(said(after))
    assert await session.context(at=before.version) == before


async def test_an_error_of_the_summariser_is_an_end(nats_url: str, foldlog: Foldlog) -> None:
    from foldlog.summarisers import SummariserUnavailable

    class Down:
        async def summarise(self, request: SummaryRequest) -> SummaryResult:
            raise SummariserUnavailable("the provider is down")

    session = foldlog.session("c")
    await talk(session, 12)
    async with running_compactor(nats_url, summariser=Down()):
        ended = await session.compact(within=30)
    assert (ended.state, ended.reason) == (
        "failed",
        "SummariserUnavailable: the provider is down",
    )


async def test_nobody_compacts_is_an_error_of_its_own(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await talk(session, 2)
    with pytest.raises(FoldlogError, match="see that a compactor runs"):
        await session.compact(within=0.5)
