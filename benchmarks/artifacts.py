"""Large results: foldlog's artifacts beside nats-py's object store, ten MiB at a time."""

import os

from benchmarks import bare
from benchmarks.measure import Row, milliseconds, row_of
from benchmarks.server import running_server
from foldlog.session import connect

SIZE = 10 * 1024 * 1024


async def artifacts(*, short: bool) -> list[Row]:
    """Put and get, in MiB a second."""
    size, pairs = (SIZE // 10, 2) if short else (SIZE, 15)
    puts: list[tuple[float, float]] = []
    gets: list[tuple[float, float]] = []
    with running_server() as url:
        async with connect(url) as foldlog, bare.connected(url) as client:
            store = await client.jetstream().create_object_store("theirs")
            for number in range(pairs + 1):
                content = os.urandom(size)
                name = f"object-{number}"
                ours = await milliseconds(foldlog.artifacts.put(content, "text/plain"))
                theirs = await milliseconds(store.put(name, content))
                puts.append((_rate(size, ours), _rate(size, theirs)))
                reference = await foldlog.artifacts.put(content, "text/plain")
                ours = await milliseconds(foldlog.artifacts.get(reference.digest))
                theirs = await milliseconds(store.get(name))
                gets.append((_rate(size, ours), _rate(size, theirs)))
                await foldlog.artifacts.delete(reference.digest)
                await store.delete(name)
    return [
        _row("artifact-put-10MiB", puts[1:]),
        _row("artifact-get-10MiB", gets[1:]),
    ]


def _rate(size: int, milliseconds_taken: float) -> float:
    return size / 2**20 / (milliseconds_taken / 1000)


def _row(name: str, pairs: list[tuple[float, float]]) -> Row:
    ours, theirs = zip(*pairs, strict=True)
    return row_of(name, "MiB/s", ours, theirs)
