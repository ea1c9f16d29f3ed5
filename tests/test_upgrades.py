"""Releases side by side: old entries load, old views are made anew, and nobody is in the way."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from foldlog import Foldlog, connect, rebuilding, user
from foldlog.contexts import decode_state
from foldlog.rebuilding import BESIDE, rebuild_all
from foldlog.view_headers import view_headers
from foldlog_events.entries import SCHEMA, Recorded, Unreadable
from foldlog_projections.state import SHAPE_OF_STATE
from tests.command_line import foldlog as command
from tests.services import service
from tests.test_projector import check_view
from tests.workers import eventually, running_projector

ROOT = Path(__file__).parents[1]
SOURCES = ("events", "projections", "services")


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """This release with its schema and the shape of its state raised by one."""
    folder = tmp_path / "next"
    for source in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, folder / source, ignore=ignored)

    def change(file: str, old: str, new: str) -> None:
        path = folder / file
        text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
        assert count == 1, (file, old)
        path.write_text(text)

    change("events/foldlog_events/entries.py", r"^SCHEMA = \d+", f"SCHEMA = {SCHEMA + 1}")
    change(
        "events/foldlog_events/upcasters.py",
        r"^(UPCASTERS: .*) = \{\}",
        rf"\1 = {{{SCHEMA}: lambda fields: {{**fields, 'actor': 'upcast'}}}}",
    )
    change(
        "projections/foldlog_projections/state.py",
        r"^SHAPE_OF_STATE = \d+",
        f"SHAPE_OF_STATE = {SHAPE_OF_STATE + 1}",
    )
    change("services/foldlog/projector.py", r"^RENEW = [\d.]+", "RENEW = 0.5")
    return folder


def path_of(release: Path) -> str:
    return os.pathsep.join(str(release / source) for source in SOURCES)


async def run_in(release: Path, url: str, program: str) -> list[str]:
    """What a program of another release says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"url = {url!r}\n{program}"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path_of(release)},
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().splitlines()


APPEND = """
import asyncio
from foldlog import connect, user
async def main():
    async with connect(url) as log:
        await log.session("c").append(user("of the next release"))
asyncio.run(main())
"""
READ = """
import asyncio
from foldlog import connect
async def main():
    async with connect(url) as log:
        view = await log.session("c").context()
        assert not view.faults
        for message in view.messages:
            print(message.parts[0].content)
        entries = [read.entry async for read in log.log.read("default", "c")]
        print(*(f"{entry.schema}:{entry.actor}" for entry in entries))
asyncio.run(main())
"""


async def shapes(foldlog: Foldlog) -> set[int]:
    return {one.shape async for one in view_headers(foldlog.broker)}


async def test_old_and_new_workers_side_by_side(
    nats_url: str, foldlog: Foldlog, next_release: Path, tmp_path: Path
) -> None:
    await foldlog.session("c").append(user("before"))
    async with (
        service("projector", nats_url, tmp_path) as old,
        service("projector", nats_url, next_release, pythonpath=path_of(next_release)) as new,
    ):
        for number in range(10):
            await foldlog.session(f"c{number}").append(user("of this release"))
        await run_in(next_release, nats_url, APPEND)
        await foldlog.session("c").append(user("after"))
        view = await foldlog.session("c").context()
        assert [message.parts[0].content for message in view.messages] == [  # type: ignore[union-attr]
            "before",
            "after",
        ]
        assert "upgrade foldlog" in view.faults[0].reason
        kinds = [type(read) async for read in foldlog.log.read("default", "c")]
        assert kinds == [Recorded, Unreadable, Recorded]
        assert await run_in(next_release, nats_url, READ) == [
            *("before", "of the next release", "after"),
            f"{SCHEMA + 1}:upcast {SCHEMA + 1}: {SCHEMA + 1}:upcast",
        ]
        assert await old.stop() == 0

        async def are_all_new() -> bool:
            return await shapes(foldlog) == {SHAPE_OF_STATE + 1}

        await eventually(are_all_new)
        count = len([one async for one in view_headers(foldlog.broker)])
        assert count == 11
        assert new.process.returncode is None
        assert "Traceback" not in old.said() + new.said()
    # And back again: this release makes the later views into its own.
    async with running_projector(nats_url):
        for name in ("c", "c3"):
            await foldlog.session(name).append(user("back"))
            await check_view(foldlog, name)


async def test_views_of_an_older_shape_are_made_anew_unasked(
    nats_url: str, foldlog: Foldlog
) -> None:
    for name in ("a", "b", "*"):
        await foldlog.session(name).append(user(f"of {name}"))
    async with running_projector(nats_url):
        for name in ("a", "b", "*"):
            await check_view(foldlog, name)
    for name in ("a", "*"):
        stored = await foldlog.views.get("default", name)
        assert stored is not None
        state = decode_state(stored.data)
        assert state is not None
        older = msgspec.json.encode(msgspec.structs.replace(state, shape=SHAPE_OF_STATE - 1))
        subject = f"$KV.VIEWS.default.{'=2A' if name == '*' else name}"
        await foldlog.broker.request(subject, older)
    assert await shapes(foldlog) == {0, SHAPE_OF_STATE}
    async with running_projector(nats_url):

        async def are_current() -> bool:
            return await shapes(foldlog) == {SHAPE_OF_STATE}

        await eventually(are_current)
        for name in ("a", "b", "*"):
            await check_view(foldlog, name)


async def falsify(foldlog: Foldlog, name: str) -> None:
    """A stored view that says what no entry says."""
    stored = await foldlog.views.get("default", name)
    assert stored is not None
    state = decode_state(stored.data)
    assert state is not None
    false = msgspec.structs.replace(
        state,
        active=tuple(
            msgspec.structs.replace(one, messages=(user("never said"),)) for one in state.active
        ),
    )
    data = msgspec.json.encode(false)
    await foldlog.views.put("default", name, data, revision=stored.revision, version=state.version)


async def test_a_rebuild_replaces_every_view_beside_busy_writers_and_projectors(
    nats_url: str, foldlog: Foldlog
) -> None:
    names = [f"c{number}" for number in range(6)]
    for name in names:
        await foldlog.session(name).append(user("first"))
    async with running_projector(nats_url), running_projector(nats_url):
        for name in names:
            await check_view(foldlog, name)
        for name in names[:5]:
            await falsify(foldlog, name)
        await foldlog.views.put("default", "no such conversation", b"{}", revision=0)

        async def write() -> None:
            for number in range(30):
                await foldlog.session("c5").append(user(f"more {number}"))

        writing = asyncio.create_task(write())
        rebuilt = await command("rebuild", "--json", FOLDLOG_URL=nats_url)
        assert rebuilt.json == {"views": 6, "failed": {}, "removed": 1}
        await writing
        for name in names:
            await check_view(foldlog, name)
    streams = (await foldlog.broker.api("STREAM.NAMES"))["streams"]
    assert f"KV_{BESIDE}" not in streams


async def test_a_rebuild_that_breaks_off_has_touched_no_live_view(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await foldlog.session(name).append(user(name))
    async with running_projector(nats_url):
        for name in ("a", "b", "c"):
            await check_view(foldlog, name)

    async def revisions() -> list[int]:
        views = [await foldlog.views.get("default", name) for name in ("a", "b", "c")]
        return [view.revision for view in views if view]

    before = await revisions()
    make = rebuilding.make_view_anew

    async def killed(tenant: str, conversation: str, *others: object) -> object:
        if conversation == "b":
            raise KeyboardInterrupt
        return await make(tenant, conversation, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "make_view_anew", killed)
    with pytest.raises(KeyboardInterrupt):
        await rebuild_all(foldlog.broker, foldlog.contexts, foldlog.views)
    assert await revisions() == before

    async def failing(tenant: str, conversation: str, *others: object) -> object:
        if conversation == "b":
            raise ValueError("cannot be folded")
        return await make(tenant, conversation, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "make_view_anew", failing)
    rebuilt = await rebuild_all(foldlog.broker, foldlog.contexts, foldlog.views)
    assert rebuilt.failed == {"b": "ValueError: cannot be folded"}
    now = await revisions()
    assert (now[0] > before[0], now[1] == before[1], now[2] > before[2]) == (True, True, True)
