"""Faults of the services that users reported, by their numbers, with their neighbours."""

import asyncio
import itertools
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from foldlog import Foldlog, connect, user
from foldlog import projection as projection_module
from foldlog.broker import Broker
from foldlog.contexts import fold_in
from foldlog.dead_letters import Buried, letters
from foldlog.errors import FoldlogError
from foldlog.health import LAG_WINDOW, Backlog, Health
from foldlog.projector import CONSUMER, Projector, application
from foldlog.reading import Read
from foldlog.service import ConsumerAhead, Gone, broker_with_streams, look, run, stream_broker
from foldlog.settings import Settings
from foldlog.topology import ENTRIES
from foldlog_events.codec import encode
from foldlog_events.entries import ForkEntry, Recorded
from foldlog_events.subjects import subject_of
from foldlog_projections.fold import ContextFold
from tests.command_line import foldlog as command
from tests.conftest import Server, free_port
from tests.services import service
from tests.test_projector import check_view, is_current
from tests.workers import eventually, running_compactor, running_projector


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldlog.projector.RETRY_DELAY", 0.02)
    monkeypatch.setattr("foldlog.compactor.RETRY_DELAY", 0.02)


class Poison:
    """Folding an entry of this text raises, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        monkeypatch.setattr(projection_module, "fold_in", self.fold_in)
        monkeypatch.setattr("foldlog.contexts.fold_in", self.fold_in)

    def fold_in(self, context: ContextFold, read: Read) -> None:
        if isinstance(read, Recorded) and b"poison" in encode(read.entry) and self.left:
            self.left -= 1
            raise ValueError("this entry\ncannot be folded")
        fold_in(context, read)


async def buried(foldlog: Foldlog) -> list[Buried]:
    return [one async for one in letters(foldlog.records)]


@pytest.mark.parametrize("times", [1, 2, 4])
async def test_42_what_failed_is_delivered_again_and_nothing_is_skipped(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    for name, text in itertools.product(("a", "b", "c"), ("one", "poison", "three")):
        await foldlog.session(name).append(user(f"{text} of {name}" if name == "b" else "fine"))
    poison = Poison(monkeypatch, times)
    async with running_projector(nats_url):
        for name in ("a", "b", "c"):
            await check_view(foldlog, name)
    assert poison.left == 0
    assert await buried(foldlog) == []


async def test_45_a_poison_entry_is_dead_after_its_tries_and_the_rest_moves_on(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await foldlog.session("bad").append(user("before"))
    async with running_projector(nats_url):
        await check_view(foldlog, "bad")
        poison = Poison(monkeypatch, 10**9)
        (dead,) = await foldlog.session("bad").append(user("poison"))
        await foldlog.session("good").append(user("fine"))
        await check_view(foldlog, "good")

        async def is_buried() -> bool:
            return bool(await buried(foldlog))

        await eventually(is_buried)
        (one,) = await buried(foldlog)
        assert (one.what, one.letter.conversation) == ("entry", "bad")
        assert one.letter.version == dead.version
        assert one.letter.reason == "ValueError: this entry\ncannot be folded"
        assert one.letter.tries == 5

        async def is_marked() -> bool:
            stored = await foldlog.contexts.stored("default", "bad")
            return stored is not None and bool(stored.view().faults)

        await eventually(is_marked)
        poison.left = 0
        async with connect(nats_url) as reader:
            view = await reader.session("bad").context()
        (fault,) = view.faults
        assert (fault.version, fault.reason) == (dead.version, one.letter.reason)
        assert list(view.messages) == [user("before"), user("poison")]

        shown = await command("dead", "show", str(one.number), FOLDLOG_URL=nats_url)
        assert "cannot be folded" in shown.out
        requeued = await command("dead", "requeue", str(one.number), FOLDLOG_URL=nats_url)
        assert (requeued.code, requeued.err) == (0, "")
        assert await buried(foldlog) == []
        await check_view(foldlog, "bad")
        stored = await foldlog.contexts.stored("default", "bad")
        assert stored is not None
        assert stored.view().faults == ()


async def test_45_what_comes_after_a_dead_entry_takes_the_mark_away(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_projector(nats_url):
        poison = Poison(monkeypatch, 10**9)
        await foldlog.session("c").append(user("poison"))

        async def is_marked() -> bool:
            stored = await foldlog.views.get("default", "c")
            return stored is not None and bool(stored.mark)

        await eventually(is_marked)
        poison.left = 0
        assert (await foldlog.session("c").context()).faults
        await foldlog.session("c").append(user("after"))
        await check_view(foldlog, "c")
        assert not await is_marked()


async def test_45_a_requeue_that_fails_leaves_the_letter(nats_url: str, foldlog: Foldlog) -> None:
    assert (await command("dead", "requeue", "7", FOLDLOG_URL=nats_url)).code == 1
    assert (await command("dead", "requeue", FOLDLOG_URL=nats_url)).code == 2
    await foldlog.records.add_dead("entry", "default", "c", b"no letter")
    outcome = await command("dead", "requeue", "--all", FOLDLOG_URL=nats_url)
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    listed = await command("dead", "--json", FOLDLOG_URL=nats_url)
    (line,) = listed.json_lines
    assert "cannot be read" in line["letter"]["reason"]


@pytest.mark.parametrize(
    "subject",
    [
        "entry.x",
        "entry.0.default",
        "entry.0.default.c.other",
        "entry.99.default.c.log",
        "entry.0.=ZZ.c.log",
        f"entry.0.default.=={'0' * 64}.log",
        "entry.0.default.c.log.more",
    ],
)
async def test_38_45_a_message_on_nobodys_subject_is_buried_and_the_rest_moves_on(
    nats_url: str, foldlog: Foldlog, subject: str
) -> None:
    async with running_projector(nats_url):
        await foldlog.broker.request(subject, b"\xff garbage")
        await foldlog.session("c").append(user("fine"))
        await check_view(foldlog, "c")

        async def is_buried() -> bool:
            return [one.letter.subject for one in await buried(foldlog)] == [subject]

        await eventually(is_buried)
    assert (await foldlog.session("c").context()).faults == ()


@pytest.mark.parametrize("up_to", [1, 10**9])
async def test_45_a_fork_that_inherits_from_itself_or_the_future_is_a_fault(
    nats_url: str, foldlog: Foldlog, up_to: int
) -> None:
    entry = ForkEntry(
        id="f", conversation="c", time=datetime.now(UTC), parent="c", parent_version=up_to
    )
    await foldlog.broker.request(subject_of("default", "c", "log"), encode(entry))
    await foldlog.session("c").append(user("after"))
    async with running_projector(nats_url):
        await check_view(foldlog, "c")
    view = await foldlog.session("c").context()
    assert list(view.messages) == [user("after")]
    assert "cannot inherit" in view.faults[0].reason


@pytest.mark.parametrize("subject", ["pressure.x", "pressure.default.c", "pressure.a.b.c"])
async def test_45_what_is_no_pressure_event_is_buried(
    nats_url: str, foldlog: Foldlog, subject: str
) -> None:
    async with running_compactor(nats_url):
        await foldlog.broker.request(subject, b"garbage")

        async def is_buried() -> bool:
            return [one.letter.data for one in await buried(foldlog)] == ["garbage"]

        await eventually(is_buried)
        info = await foldlog.broker.api("STREAM.INFO.PRESSURE")
        assert info["state"]["messages"] == 0


async def test_43_a_service_outlives_a_restart_of_the_broker(
    own_server: Server, tmp_path: Path
) -> None:
    async with connect(own_server.url) as foldlog:
        await foldlog.session("c").append(user("before"))
        async with service("projector", own_server.url, tmp_path) as projector:
            await check_view(foldlog, "c")
            own_server.stop(kill=True)
            own_server.start()
            await foldlog.session("c").append(user("after"))
            await check_view(foldlog, "c")
            assert projector.process.returncode is None


@pytest.mark.parametrize("name", ["projector", "compactor"])
async def test_43_a_service_ends_with_an_error_when_the_broker_is_gone_for_good(
    own_server: Server, tmp_path: Path, name: str
) -> None:
    port = free_port()
    async with service(
        name, own_server.url, tmp_path, broker_patience=2, health_port=port
    ) as running:
        await eventually(lambda: answers(port, "/ready", 200))
        own_server.stop(kill=True)
        assert await running.ended() == 3
        assert "Traceback" not in running.said()
        assert "no connection" in running.said()


@pytest.mark.parametrize("lost", ["consumer", "stream"])
async def test_43_a_service_whose_consumer_is_gone_ends_and_its_successor_goes_on(
    nats_url: str, foldlog: Foldlog, tmp_path: Path, lost: str
) -> None:
    await foldlog.session("c").append(user("before"))
    async with service("projector", nats_url, tmp_path) as projector:
        await check_view(foldlog, "c")
        if lost == "consumer":
            await foldlog.broker.api(f"CONSUMER.DELETE.{ENTRIES}.{CONSUMER}")
        else:
            await foldlog.broker.api(f"STREAM.DELETE.{ENTRIES}")
        assert await projector.ended() == 3
        assert "is gone: start the service again" in projector.said()
    if lost == "stream":
        return
    await foldlog.session("c").append(user("after"))
    async with service("projector", nats_url, tmp_path):
        await check_view(foldlog, "c")


async def restored_to_an_earlier_state(server: Server, keep: Path) -> None:
    """Put the entries' messages of a copy back, under consumers that have gone on."""
    messages = next(server.folder.glob(f"data/jetstream/*/streams/{ENTRIES}/msgs"))
    server.stop()
    shutil.rmtree(messages)
    shutil.copytree(keep, messages)
    server.start()


async def test_46_services_on_a_restored_log_refuse_until_views_are_made_anew(
    own_server: Server, tmp_path: Path
) -> None:
    async with connect(own_server.url) as foldlog:
        await foldlog.session("c").append(user("one"))
        async with running_projector(own_server.url):
            await check_view(foldlog, "c")
        own_server.stop()
        messages = next(own_server.folder.glob(f"data/jetstream/*/streams/{ENTRIES}/msgs"))
        shutil.copytree(messages, tmp_path / "keep")
        own_server.start()
        await foldlog.broker.wait_connected(30)
        for name in "cd":
            await foldlog.session(name).append(user("lost with the log"))
        port = free_port()
        async with service("projector", own_server.url, tmp_path, health_port=port) as projector:
            await check_view(foldlog, "c")
            await check_view(foldlog, "d")
            await eventually(lambda: answers(port, "/ready", 200))
            await restored_to_an_earlier_state(own_server, tmp_path / "keep")
            assert await projector.ended() == 3
            assert "was restored to an earlier state" in projector.said()
    async with service("projector", own_server.url, tmp_path) as projector:
        assert await projector.ended() == 3
    rebuilt = await command("rebuild", "--json", FOLDLOG_URL=own_server.url)
    assert rebuilt.json == {"views": 1, "failed": {}, "removed": 1}
    async with (
        connect(own_server.url) as foldlog,
        service("projector", own_server.url, tmp_path),
    ):
        await foldlog.session("c").append(user("two"))
        await check_view(foldlog, "c")
        assert list((await foldlog.session("c").context()).messages) == [user("one"), user("two")]


async def test_46_a_cursor_ahead_of_its_stream_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers before 2.11 let a consumer stay ahead; this one puts it back by itself."""

    class Restored(Broker):
        def __init__(self) -> None:
            pass

        async def api(self, verb: str, body: object = None, *, within: float = 5) -> dict[str, Any]:
            if verb.startswith("CONSUMER.INFO"):
                return {"delivered": {"stream_seq": 9}, "num_pending": 0, "num_ack_pending": 0}
            return {"state": {"last_seq": 4}}

    with pytest.raises(ConsumerAhead, match="foldlog rebuild") as raised:
        await look(Restored(), ENTRIES, CONSUMER)
    assert (raised.value.at, raised.value.last) == (9, 4)


async def test_46_a_cursor_at_the_end_or_before_it_is_no_cursor_ahead(
    nats_url: str, foldlog: Foldlog
) -> None:
    async with running_projector(nats_url):
        await look(foldlog.broker, ENTRIES, CONSUMER)
        await foldlog.session("c").append(user("one"))
        await check_view(foldlog, "c")
        await look(foldlog.broker, ENTRIES, CONSUMER)
    await foldlog.session("c").append(user("two"))
    assert (await look(foldlog.broker, ENTRIES, CONSUMER)).waiting == 1


async def test_42_a_fetch_that_ends_with_pythons_own_timeout_loses_nothing(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastStream knows that of nats-py only, and what it had gathered would wait for minutes."""
    pulls = JetStreamContext.PullSubscription
    fetch = pulls.fetch
    fetched = 0

    async def failing(self: Any, *args: Any, **options: Any) -> list[Msg]:
        nonlocal fetched
        if fetched:
            fetched = 0
            raise TimeoutError
        messages = await fetch(self, *args, **options)
        fetched = len(messages)
        return messages

    monkeypatch.setattr(pulls, "fetch", failing)
    await foldlog.session("c").append(user("before"))
    messages = stream_broker(nats_url, "projector", 30, Gone())
    async with broker_with_streams(nats_url, "projector") as broker:
        projector = Projector(broker, Settings())
        app = application(projector, messages, 600.0)
        async with app.lifespan_context():
            await app.start()
            await check_view(foldlog, "c")
            for number in range(5):
                await foldlog.session("c").append(user(f"{number}"))
                await check_view(foldlog, "c")
            await app.stop()


async def test_a_service_that_is_given_none_of_what_waits_ends(
    nats_url: str, foldlog: Foldlog
) -> None:
    """Its pull loop hangs, which no error tells of."""
    await foldlog.session("c").append(user("one"))
    settings = Settings(silence_patience=0.3, check_seconds=0.05)
    gone = Gone()
    messages = stream_broker(nats_url, "deaf", 30, gone)

    from foldlog import projector as projector_module

    class Deaf(projector_module.Projector):
        async def handle(self, messages: object) -> None:
            raise AssertionError("nothing arrives here")

    async with broker_with_streams(nats_url, "deaf") as broker:
        health = Health(CONSUMER, silence=0.3, lag=10)
        app = projector_module.application(Deaf(broker, settings), messages, 5.0, health)

        async def never(*args: object, **kwargs: object) -> list[object]:
            await asyncio.Event().wait()
            return []

        async def deafen() -> None:
            (subscriber,) = messages.subscribers
            subscriber.subscription.fetch = never  # type: ignore[attr-defined]

        app.on_startup(lambda: None)
        app.after_startup(deafen)
        with pytest.raises(FoldlogError, match="none came for"):
            await run(app, (ENTRIES, CONSUMER), broker, gone, settings, health)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_silence_is_work_that_waits_while_nothing_is_given_or_in_hand() -> None:
    clock = Clock()
    health = Health("c", silence=10, lag=100, clock=clock)

    def after(seconds: float, backlog: Backlog) -> bool:
        clock.now += seconds
        health.observe(backlog)
        return health.silent() is not None

    waiting = Backlog(5)
    assert not after(0, waiting)
    assert not after(9, waiting)
    assert after(1, waiting)
    assert not after(1, Backlog(0))
    assert not after(1, waiting)
    with health.work():
        assert not after(60, waiting)
    assert not after(1, waiting)
    assert not after(9, waiting)
    with health.work():
        pass
    assert not after(1, waiting)
    assert not after(1, Backlog(5, has_room=False))
    assert not after(60, Backlog(5, has_room=False))


def test_lag_that_grows_is_told_and_lag_that_shrinks_is_not() -> None:
    clock = Clock()
    health = Health("c", silence=1e9, lag=100, clock=clock)
    health.is_started = True

    def after(seconds: float, waiting: int) -> bool:
        clock.now += seconds
        health.observe(Backlog(waiting))
        return health.is_falling_behind()

    assert not after(0, 1_000)
    assert not after(LAG_WINDOW / 2, 2_000)
    assert after(LAG_WINDOW / 2, 3_000)
    assert "3,000 messages wait" in health.unready_reasons()[0]
    assert health.dead_reasons() == []
    assert not after(1, 2_999)
    for _ in range(5):
        assert not after(LAG_WINDOW, 2_999)
    for waiting in (50, 60, 70, 80):
        assert not after(LAG_WINDOW, waiting)


async def answers(port: int, path: str, code: int) -> bool:
    def ask() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
                body = msgspec.json.decode(response.read())
                assert body == {"ok": True, "reasons": []}
                return int(response.status)
        except urllib.error.HTTPError as error:
            reasons = msgspec.json.decode(error.read())["reasons"]
            return error.code if reasons else 0
        except OSError:
            return 0

    return await asyncio.to_thread(ask) == code


async def test_a_service_tells_of_its_health_and_stops_without_an_error(
    nats_url: str, tmp_path: Path
) -> None:
    port = free_port()
    async with service("projector", nats_url, tmp_path, health_port=port) as projector:
        await eventually(lambda: answers(port, "/ready", 200))
        assert await answers(port, "/live", 200)
        assert await projector.stop() == 0


async def test_a_service_without_a_connection_is_not_ready_but_alive(
    own_server: Server, tmp_path: Path
) -> None:
    port = free_port()
    async with service("projector", own_server.url, tmp_path, health_port=port):
        await eventually(lambda: answers(port, "/ready", 200))
        own_server.stop(kill=True)
        await eventually(lambda: answers(port, "/ready", 503))
        assert await answers(port, "/live", 200)
        own_server.start()
        await eventually(lambda: answers(port, "/ready", 200))


async def test_a_port_that_is_taken_is_an_error_of_its_own(nats_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with service("projector", nats_url, tmp_path, health_port=port) as projector:
            assert await projector.ended() == 3
            assert "choose another health_port" in projector.said()


async def test_a_stop_under_load_gives_back_what_is_in_hand(
    nats_url: str, foldlog: Foldlog, tmp_path: Path
) -> None:
    """The broker would give away what a worker holds after ten minutes only."""
    writing = asyncio.create_task(_write(foldlog, 400))
    while not writing.done():
        port = free_port()
        async with service(
            "projector", nats_url, tmp_path, projector_patience=600, health_port=port
        ) as projector:
            await eventually(lambda port=port: answers(port, "/ready", 200))  # type: ignore[misc]
            assert await projector.stop() == 0
    await writing
    async with service("projector", nats_url, tmp_path, projector_patience=600):
        for name in ("c0", "c1", "c2"):
            await eventually(lambda name=name: is_current(foldlog, name))  # type: ignore[misc]


async def _write(foldlog: Foldlog, count: int) -> None:
    for number in range(count):
        await foldlog.session(f"c{number % 3}").append(user(f"message {number}"))
        await asyncio.sleep(0.005)  # so that entries keep coming while services stop
