"""Contexts as of any moment, read from a real log: the same as folding everything up to it."""

import asyncio

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from foldlog import Foldlog, connect
from foldlog.reading import EXPECTED
from foldlog.streams import set_up
from foldlog.topology import ENTRIES
from foldlog_events.entries import CompactionEntry, Recorded, lane_of
from foldlog_events.subjects import subject_of
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.state import FoldState
from tests.histories import TENANT, Family, families
from tests.test_fold_agrees import state_at


async def publish(foldlog: Foldlog, family: Family) -> None:
    """Put a generated family into the log at the very versions that it has."""
    recorded = sorted(
        (one for conversation in family.conversations for one in conversation.history),
        key=lambda one: one.version,
    )
    at = 0
    for one in recorded:
        while at + 1 < one.version:
            await foldlog.broker.request("entry.0.another.tenant.log", b"{}")
            at += 1
        await foldlog.broker.request(
            subject_of(TENANT, one.entry.conversation, lane_of(one.entry)),
            msgspec.json.encode(one.entry),
            headers={EXPECTED: str(one.predecessor)},
        )
        at = one.version


@pytest.mark.timeout(900)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(family=families())
def test_a_context_at_any_version_equals_a_fold_of_everything(
    nats_url: str, family: Family
) -> None:
    asyncio.run(compare(nats_url, family))


def is_honest(before: FoldState, recorded: Recorded) -> bool:
    """Whether a compaction that passed the broker's guard was chosen from the range it replaces.

    Time travel looks up one head marker and trusts this; only folding everything could tell.
    """
    entry = recorded.entry
    if not isinstance(entry, CompactionEntry) or (entry.base_version.shape != recorded.predecessor):
        return True
    if entry.kept_from is None:
        return entry.base_version.log == before.log_version
    return any(
        (one.id, one.version) == (entry.kept_from.id, entry.kept_from.version)
        for one in before.active
    )


async def compare(url: str, family: Family) -> None:
    async with connect(url) as foldlog:
        await foldlog.broker.api(f"STREAM.DELETE.{ENTRIES}")
        await set_up(foldlog.broker)
        await publish(foldlog, family)
        dishonest: set[str] = set()
        for conversation in family.conversations:
            before = empty(TENANT, conversation.name)
            for one in conversation.history:
                if conversation.parent in dishonest or not is_honest(before, one):
                    dishonest.add(conversation.name)
                    break
                before = state_at(family, conversation, one.version)
                context = await foldlog.contexts.at(TENANT, conversation.name, one.version)
                assert context.view() == ContextFold(before).view()
