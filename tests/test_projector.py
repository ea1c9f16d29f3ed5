"""Projectors on a real broker: the stored view is what a fold of the log says, whoever projects."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from foldlog import Foldlog, OtherEntry, Section, assistant, connect, user
from foldlog.contexts import decode_state
from foldlog.projection import ConversationKey, DeliveredRun, Projection, ProjectionLimits
from foldlog.settings import Settings
from foldlog_events.entries import Recorded
from foldlog_events.subjects import subject_of
from foldlog_projections.fold import empty, render
from foldlog_projections.state import SHAPE_OF_STATE
from foldlog_projections.views import ContextView
from tests.workers import eventually, running_projector


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


async def is_current(foldlog: Foldlog, conversation: str) -> bool:
    last = await foldlog.log.last_versions("default", conversation)
    stored = await foldlog.contexts.stored("default", conversation)
    return stored is not None and stored.base_version == last


async def check_view(foldlog: Foldlog, conversation: str) -> None:
    """The stored view against a fold of every entry."""
    await eventually(lambda: is_current(foldlog, conversation))
    stored = await foldlog.views.get("default", conversation)
    assert stored is not None
    state = decode_state(stored.data)
    assert state is not None
    fresh = await foldlog.contexts.rebuilt("default", conversation)
    assert render(state) == fresh.view()
    assert state == fresh.state()


async def write(foldlog: Foldlog, conversation: str, steps: int, seed: int) -> None:
    """One writer among several: messages, prompts, edits, resets, forks."""
    chance = random.Random(seed)
    session = foldlog.session(conversation)
    own: list[Recorded] = []
    for step in range(steps):
        match chance.randrange(10):
            case 0 if own:
                target = chance.choice(own).entry.id
                with contextlib.suppress(Exception):
                    await session.edit(target, [user(f"edited {step}")])
            case 1 if chance.random() < 0.3:
                await session.reset([user(f"handoff {step}")])
            case 2:
                await session.prepare([Section(name="step", text=f"{seed}.{step}")])
            case 3 if own:
                await session.fork(f"{conversation}/{seed}.{step}", at=chance.choice(own).version)
            case 4:
                own += await session.append(user(f"{step} a"), assistant(f"{step} b"))
            case _:
                own += await session.append(user(f"message {seed}.{step}"))


@pytest.mark.parametrize("projectors", [1, 2, 3])
async def test_any_number_of_projectors_give_the_views_of_one(
    nats_url: str, foldlog: Foldlog, projectors: int
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(projectors):
            await stack.enter_async_context(running_projector(nats_url))
        await asyncio.gather(*(write(foldlog, f"c{n % 4}", 25, seed=n) for n in range(8)))
        names = [one.conversation async for one in foldlog.log.conversations("default")]
        assert len(names) > 4
        for name in names:
            await check_view(foldlog, name)


async def test_a_projector_catches_up_with_what_came_before_it(
    nats_url: str, foldlog: Foldlog
) -> None:
    await write(foldlog, "c", 40, seed=1)
    async with running_projector(nats_url):
        await check_view(foldlog, "c")
    await write(foldlog, "c", 40, seed=2)
    async with running_projector(nats_url):
        await check_view(foldlog, "c")


async def test_little_memory_is_no_loss(nats_url: str, foldlog: Foldlog) -> None:
    async with running_projector(nats_url, Settings(views_in_memory=2)):
        await asyncio.gather(*(write(foldlog, f"c{n}", 10, seed=n) for n in range(12)))
        for n in range(12):
            await check_view(foldlog, f"c{n}")


async def test_behind_it_stores_views_once_for_many_batches_and_tells_of_each(
    foldlog: Foldlog,
) -> None:
    """A projector that catches up has stored and told of everything before it rests."""
    told: list[tuple[str, int]] = []

    async def tell(view: ContextView) -> None:
        told.append((view.conversation, view.version))

    limits = ProjectionLimits(behind_from_entries=2, behind_entries=5)
    projection = Projection(foldlog.contexts, foldlog.views, tell, limits)
    keys = [ConversationKey("default", name) for name in ("a", "b")]
    for key in keys:
        await foldlog.session(key.conversation).append(*(user(f"{n}") for n in range(3)))
    for number in range(3, 5):
        batch = {}
        for key in keys:
            await foldlog.session(key.conversation).append(user(f"{number}"))
            batch[key] = (await foldlog.log.read_all(*key))[-1:]
        assert not await projection.project(batch)
        assert [projection.is_stored(key) for key in keys] == [False, False]
    assert told == []
    assert not await projection.rest()
    assert told == []
    assert not await projection.rest()
    for key in keys:
        await check_view(foldlog, key.conversation)
    last = [(key.conversation, (await foldlog.log.last_versions(*key)).log) for key in keys]
    assert sorted(told) == last
    await foldlog.session("a").append(user("6"))
    batch = {keys[0]: (await foldlog.log.read_all(*keys[0]))[-1:]}
    assert not await projection.project(batch)
    await check_view(foldlog, "a")


async def test_a_conversation_that_begins_is_not_looked_for_in_the_log(
    foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(view: ContextView) -> None:
        pass

    projection = Projection(foldlog.contexts, foldlog.views, nothing)
    session = foldlog.session("c")
    for number in range(3):
        await session.append(user(f"{number}"))
    key = ConversationKey("default", "c")
    reads = await foldlog.log.read_all(*key)
    with monkeypatch.context() as patched:
        patched.setattr(foldlog.contexts, "rebuilt", None)
        patched.setattr(foldlog.contexts, "advance", None)
        assert not await projection.project({key: reads})
    await check_view(foldlog, "c")
    child = await session.fork("child")
    await child.append(user("own"))
    key = ConversationKey("default", "child")
    assert not await projection.project({key: await foldlog.log.read_all(*key)})
    await check_view(foldlog, "child")


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"\xff", b'{"tenant":"t","conversation":"c","shape":999}']
)
async def test_a_view_that_cannot_be_read_is_made_anew(
    nats_url: str, foldlog: Foldlog, damage: bytes
) -> None:
    session = foldlog.session("c")
    await session.append(user("one"))
    await foldlog.views.put("default", "c", damage, revision=0)
    expected = [user("one")]
    assert list((await session.context()).messages) == expected
    async with running_projector(nats_url):
        await check_view(foldlog, "c")


async def test_38_an_entry_that_cannot_be_decoded_marks_its_conversation_alone(
    nats_url: str, foldlog: Foldlog
) -> None:
    async with running_projector(nats_url):
        await foldlog.session("bad").append(user("before"))
        await foldlog.broker.request(subject_of("default", "bad", "log"), b'{"kind":"message"')
        await foldlog.session("bad").append(user("after"))
        await foldlog.session("good").append(user("fine"))
        for name in ("bad", "good"):
            await check_view(foldlog, name)
    bad = await foldlog.session("bad").context()
    assert [fault.version for fault in bad.faults] == [2]
    assert list(bad.messages) == [user("before"), user("after")]
    assert not (await foldlog.session("good").context()).faults


async def test_a_required_kind_that_nobody_knows_is_said(nats_url: str, foldlog: Foldlog) -> None:
    entry = OtherEntry(
        kind="app.consent", id="x", conversation="c", time=datetime.now(UTC), required=True
    )
    await foldlog.session("c").append(entry)
    async with running_projector(nats_url):
        await check_view(foldlog, "c")
    (fault,) = (await foldlog.session("c").context()).faults
    assert "'app.consent'" in fault.reason


async def test_a_large_view_goes_to_the_artifacts(nats_url: str, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    for part in range(12):
        await session.append(*(user(f"{part}.{n} " + "words " * 1_000) for n in range(20)))
    async with running_projector(nats_url):
        await check_view(foldlog, "c")
        stored = await foldlog.views.get("default", "c")
        assert stored is not None
        assert len(stored.data) > 1_000_000
        await session.append(user("one more"))
        await check_view(foldlog, "c")


def test_a_run_of_deliveries_ends_at_each_gap() -> None:
    run = DeliveredRun()
    assert run.extend([1, 2, 3]) == 1
    assert run.extend([4, 5]) == 4
    assert (run.start, run.end) == (1, 5)
    assert run.extend([8, 9]) == 8
    assert (run.start, run.end) == (8, 9)
    assert run.extend([2, 10]) == 10
    assert (run.start, run.end) == (8, 10)
    assert run.extend([11, 13]) == 13
    assert (run.start, run.end) == (13, 13)
    assert run.extend([14], is_whole=False) == 15
    assert run.start == 15


def test_a_stored_state_is_json_for_every_reader() -> None:
    assert msgspec.json.decode(msgspec.json.encode(empty("t", "c"))) == {
        "tenant": "t",
        "conversation": "c",
        "shape": SHAPE_OF_STATE,
    }
