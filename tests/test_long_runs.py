"""Thirty compactions in a row over a generated working day: nothing grows, nothing is lost."""

import random

import pytest

from foldlog import Section, Session, ToolCall, assistant, connect, tool_result, user
from foldlog_projections.recall import SearchResult
from foldlog_projections.summary import INTRODUCTION, OPEN
from tests.test_compactor import check_coverage, compactions
from tests.workers import running_compactor, small_settings

COMPACTIONS = 30
ROLE = Section(name="role", text="You are an analyst. Cite `report-7/a` to the cent.", exact=True)
LAW = Section(name="law", text="A refund over CHF 1,204.50 needs two people: no exception.")
PLACES = ("Zürich", "Genève", "Basel", "Lugano", "St. Gallen", "Chur")
GOODS = ("apron", "teapot", "throw", "lamp", "press", "kettle")


async def hour(session: Session, number: int, chance: random.Random) -> str:
    """An hour of a working day; a sentence of it that occurs nowhere else."""
    place, good = chance.choice(PLACES), chance.choice(GOODS)
    needle = f"In hour {number} the {good} of {place} was returned as RMA-{number:03}-{good}."
    await session.append(user(f"What about the {good} in {place}? {needle}"))
    for step in range(6):
        call = ToolCall(id=f"call-{step}", name="orders", arguments={"hour": number, "step": step})
        rows = "\n".join(
            f"{place} | {chance.choice(GOODS)} | {chance.randint(10, 9_999):,} | "
            f"{chance.randint(100, 99_999) / 100:,.2f}"
            for _ in range(14)
        )
        result = tool_result(call.id, f"place | product | pieces | CHF\n{rows}")
        await session.append(assistant("", call), result)
    await session.append(assistant(f"The {good} in {place} sells as before; I go on with it."))
    return needle


@pytest.mark.timeout(300)
async def test_21_thirty_compactions_over_a_working_day(nats_url: str) -> None:
    chance = random.Random(30)
    settings = small_settings()
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        needles, sizes, summaries = [], [], []
        async with running_compactor(nats_url, settings):
            for number in range(COMPACTIONS):
                await session.prepare([ROLE, LAW])
                needles.append(await hour(session, number, chance))
                ended = await session.compact(within=60)
                assert ended.state == "committed", ended
                view = await session.prepare([ROLE, LAW])
                sizes.append(view.tokens)
                head = (await compactions(foldlog, "c"))[-1][1]
                summaries.append(head.summary)
                system = view.messages[0]
                assert system.role == "system"
                for section in (ROLE, LAW):
                    assert section.text
                    assert section.text in str(system)
                assert str(view.messages[1]).count(OPEN) == 1
        assert max(sizes[10:]) <= 1.25 * max(sizes[3:10])
        assert max(sizes) < 3_250
        assert not any(OPEN in one or INTRODUCTION in one for one in summaries)
        assert all(one.count("## Goal") == 1 for one in summaries)
        assert max(map(len, summaries[10:])) <= 1.25 * max(map(len, summaries[3:10]))
        assert await check_coverage(foldlog, "c") == COMPACTIONS
        # What was cut is found, word for word, by what a model would search for.
        shown = str((await session.context()).messages)
        gone = [needle for needle in needles if needle not in shown]
        assert len(gone) >= COMPACTIONS // 3
        for needle in gone:
            found = await session.recall(query=needle.split()[-1].rstrip("."))
            assert isinstance(found, SearchResult)
            assert needle in str(found.hits[0]), needle
