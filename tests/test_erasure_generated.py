"""Erasure in generated histories: whatever they hold, what is left folds the same in every way."""

import asyncio

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from foldlog import Foldlog, connect
from foldlog.audit import verify
from foldlog.streams import set_up
from foldlog.topology import ENTRIES, VIEWS
from foldlog_events.entries import ErasedEntry, ForkEntry, Recorded
from foldlog_projections.state import empty
from tests.histories import TENANT, Family, families
from tests.test_fold_agrees import state_at
from tests.test_time_travel import is_honest, publish


def is_family_honest(family: Family) -> bool:
    for conversation in family.conversations:
        before = empty(TENANT, conversation.name)
        for one in conversation.history:
            if not is_honest(before, one):
                return False
            before = state_at(family, conversation, one.version)
    return True


@pytest.mark.timeout(900)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(family=families(), data=st.data())
def test_what_is_left_after_an_erasure_holds_together(
    nats_url: str, family: Family, data: st.DataObject
) -> None:
    assume(is_family_honest(family))
    erasable = [
        (conversation.name, one)
        for conversation in family.conversations
        for one in conversation.history
    ]
    never = {one.entry.id for _, one in erasable if isinstance(one.entry, ErasedEntry | ForkEntry)}
    erasable = [(name, one) for name, one in erasable if one.entry.id not in never]
    assume(erasable)
    name, target = data.draw(st.sampled_from(erasable))
    asyncio.run(check(nats_url, family, name, target))


async def check(url: str, family: Family, name: str, target: Recorded) -> None:
    async with connect(url, tenant=TENANT) as foldlog:
        await foldlog.broker.api(f"STREAM.DELETE.{ENTRIES}")
        await foldlog.broker.api(f"STREAM.PURGE.{VIEWS}", {})
        await set_up(foldlog.broker)
        await publish(foldlog, family)
        before = await differences(foldlog)
        erasure = await foldlog.erase(name, target.entry.id)
        assert erasure.entries
        for conversation in family.conversations:
            await compare(foldlog, conversation.name)
        reads = await foldlog.log.read_all(TENANT, name)
        ids = [read.entry.id for read in reads if isinstance(read, Recorded)]
        assert target.entry.id not in ids
        assert await differences(foldlog) <= before
        again = await foldlog.erase(name, target.entry.id)
        assert (again.entries, again.summaries_remade) == (0, 0)


async def differences(foldlog: Foldlog) -> set[tuple[str, int, str]]:
    """But for tombstones of what is still there: generated ones remove nothing."""
    return {
        (one.conversation, one.version, one.kind)
        for one in (await verify(foldlog)).differences
        if one.kind != "erased"
    }


async def compare(foldlog: Foldlog, name: str) -> None:
    session = await foldlog.session(name).context()
    rebuilt = await foldlog.contexts.rebuilt(TENANT, name)
    assert rebuilt.view() == session
