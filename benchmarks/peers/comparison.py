"""Appends and loads of every store against the length of its history, and two processes at once."""

import contextlib
import importlib.util
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

from nats.js.api import StreamInfo

from benchmarks import bare
from benchmarks.measure import Row, alone, row_of
from benchmarks.peers.brokers import BROKERS, STORES
from benchmarks.peers.stores import Store, size_of
from benchmarks.server import child, running_server
from foldlog.session import connect
from foldlog.topology import ENTRIES

OURS = "foldlog"
PACKAGES = {"Agents": "agents", "ADK": "google.adk", "LangGraph": "langgraph"}
LENGTHS = (100, 1_000, 10_000)
SLICE = 0.4
"""Seconds of appending in one measurement, and at least three appends."""


async def peers(*, short: bool) -> list[Row]:
    """All stores that are installed, in turn, round after round."""
    lengths = (100, 400) if short else LENGTHS
    rounds = 1 if short else 7
    names = [name for name in STORES if _is_installed(name)]
    async with contextlib.AsyncExitStack() as stack:
        addresses = {name: await stack.enter_async_context(_address(name)) for name in names}
        stores = {name: await _opened(name, addresses[name]) for name in names}
        bytes_per_item = {}
        for name, store in stores.items():
            await store.fill("warm", 100)
            bytes_per_item[name] = await _bytes_per_item(store, name, addresses[name], short=short)
            for length in lengths:
                await store.fill(f"n{length}", length)
        appends, loads = await _rounds(stores, lengths, rounds)
        for store in stores.values():
            await store.close()
    rows = _rows(names, lengths, appends, loads, bytes_per_item)
    for name in names:
        rows += await _two_processes(name, pairs=10 if short else 250)
    return rows


def _is_installed(name: str) -> bool:
    package = PACKAGES.get(name.split()[0])
    with contextlib.suppress(ModuleNotFoundError):
        return package is None or importlib.util.find_spec(package) is not None
    return False


@contextlib.asynccontextmanager
async def _address(name: str) -> AsyncIterator[str]:
    if name in BROKERS:
        with running_server() as url:
            async with connect(url):
                pass
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as folder:
            yield str(Path(folder) / "store.db")


async def _opened(name: str, address: str) -> Store:
    store = STORES[name]()
    await store.open(address)
    return store


Samples = dict[str, dict[int, list[float]]]


async def _rounds(
    stores: dict[str, Store], lengths: tuple[int, ...], rounds: int
) -> tuple[Samples, Samples]:
    """Appends a second and milliseconds of a load, by store and length."""
    appends: Samples = {name: {length: [] for length in lengths} for name in stores}
    loads: Samples = {name: {length: [] for length in lengths} for name in stores}
    fresh = count()
    for _ in range(rounds):
        for length in lengths:
            for name, store in stores.items():
                started = time.perf_counter()
                assert await store.load(f"n{length}") == length
                loads[name][length].append(1000 * (time.perf_counter() - started))
            for name, store in stores.items():
                # A copy, so that what is loaded stays as long as it is.
                copy = f"copy-{next(fresh)}"
                await store.fill(copy, length)
                appends[name][length].append(await _appends(store, copy, length))
    return appends, loads


async def _appends(store: Store, name: str, length: int) -> float:
    started = time.perf_counter()
    done = 0
    while done < 3 or time.perf_counter() - started < SLICE:
        await store.append(name, [length + done])
        done += 1
        if done >= length and done >= 100:
            break  # else a short history would not be a short one any more
    return done / (time.perf_counter() - started)


async def _bytes_per_item(store: Store, name: str, address: str, *, short: bool) -> float:
    """By a thousand items appended one by one (LangGraph's grow: by two hundred)."""
    items = 50 if short else (200 if "LangGraph" in name else 1_000)
    before = await _size(name, address)
    for number in range(items):
        await store.append("sized", [number])
    return (await _size(name, address) - before) / items


async def _size(name: str, address: str) -> int:
    if name not in BROKERS:
        return size_of(address)
    async with bare.connected(address) as client:
        info: StreamInfo = await client.jetstream().stream_info(ENTRIES)
        return int(info.state.bytes)


def _rows(
    names: list[str],
    lengths: tuple[int, ...],
    appends: Samples,
    loads: Samples,
    bytes_per_item: dict[str, float],
) -> list[Row]:
    """foldlog's own line of each kind, then the others' beside it."""
    rows: list[Row] = []
    shortest, longest = lengths[0], lengths[-1]
    for name in names:
        baseline = OURS if name != OURS else "Agents SQLiteSession"
        baseline = baseline if baseline in names else OURS
        rows += [
            row_of(
                f"peer-append-{length}/{name}",
                "entries/s",
                appends[name][length],
                appends[baseline][length],
            )
            for length in lengths
        ]
        rows += [
            row_of(f"peer-load-{length}/{name}", "ms", loads[name][length], loads[baseline][length])
            for length in lengths
        ]
        flat = row_of(
            f"peer-append-cost-{longest}-to-{shortest}/{name}",
            "entries/s",
            appends[name][longest],
            appends[name][shortest],
        )
        rows.append(flat)
        size = bytes_per_item[name]
        rows.append(row_of(f"peer-bytes/{name}", "bytes/item", [size], [bytes_per_item[baseline]]))
    if "Agents SQLAlchemy" in names:
        rows.append(
            row_of(
                "peer-append-to-SQLAlchemy",
                "entries/s",
                appends[OURS][shortest],
                appends["Agents SQLAlchemy"][shortest],
            )
        )
    return rows


async def _two_processes(name: str, *, pairs: int) -> list[Row]:
    """Two processes append calls with their results; what is there, and what is torn apart."""
    async with _address(name) as address:
        async with (
            child("benchmarks.peers.appender", name, address, 0, pairs) as one,
            child("benchmarks.peers.appender", name, address, 1, pairs) as other,
        ):
            for process in (one, other):
                await process.read()
            for process in (one, other):
                await process.write("go")
            for process in (one, other):
                await process.read(600)
        store = await _opened(name, address)
        found = await store.order("shared")
        await store.close()
    kept = len(set(found))
    places = {number: place for place, (_, number) in enumerate(found)}
    calls = [number for kind, number in found if kind == "call"]
    torn = sum(places.get(number + 1) != places[number] + 1 for number in calls)
    return [
        row_of(f"peer-two-processes/{name}", "items", [kept], [4 * pairs]),
        alone(f"peer-two-processes-torn/{name}", "pairs", [torn]),
    ]
