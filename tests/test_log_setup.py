"""Setting up: idempotent, and a clear refusal of what foldlog cannot work with."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foldlog.broker import Broker, connect, open_broker
from foldlog.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    FoldlogError,
    JetStreamUnavailable,
    StreamMismatch,
)
from foldlog.log import open_log
from foldlog.streams import set_up
from foldlog.topology import ENTRIES, STREAMS
from tests.conftest import Server, free_port
from tests.entries import said


async def _configs(broker: Broker) -> dict[str, Any]:
    return {
        wanted["name"]: (await broker.api(f"STREAM.INFO.{wanted['name']}"))["config"]
        for wanted in STREAMS
    }


async def test_set_up_twice_changes_nothing(nats_url: str) -> None:
    async with open_broker(nats_url) as broker:
        await set_up(broker)
        before = await _configs(broker)
        await set_up(broker)
        assert await _configs(broker) == before


async def test_set_up_at_once_by_many(nats_url: str) -> None:
    async with open_broker(nats_url) as one, open_broker(nats_url) as two:
        await asyncio.gather(*(set_up(broker) for broker in (one, two, one, two)))
        assert len(await _configs(one)) == len(STREAMS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_age", 3_600_000_000_000),
        ("max_msgs", 10),
        ("discard", "old"),
        ("storage", "memory"),
        ("allow_atomic", False),
        ("allow_direct", False),
        ("subjects", ["entry.>", "more.>"]),
        ("duplicate_window", 1_000_000_000),
        ("retention", "interest"),
    ],
)
async def test_other_configuration_is_refused_and_left_alone(
    nats_url: str, field: str, value: object
) -> None:
    entries = next(wanted for wanted in STREAMS if wanted["name"] == ENTRIES)
    async with open_broker(nats_url) as broker:
        await broker.api(f"STREAM.CREATE.{ENTRIES}", {**entries, field: value})
        before = (await broker.api(f"STREAM.INFO.{ENTRIES}"))["config"]
        with pytest.raises(StreamMismatch) as error:
            await set_up(broker)
        assert (error.value.stream, error.value.field) == (ENTRIES, field)
        assert error.value.wanted == entries[field]
        assert ENTRIES in str(error.value)
        assert field in str(error.value)
        assert "\n" not in str(error.value)
        assert (await broker.api(f"STREAM.INFO.{ENTRIES}"))["config"] == before


async def test_subjects_of_another_stream_are_refused(nats_url: str) -> None:
    async with open_broker(nats_url) as broker:
        await broker.api("STREAM.CREATE.mine", {"name": "mine", "subjects": ["entry.1.>"]})
        with pytest.raises(StreamMismatch, match="taken by another stream"):
            await set_up(broker)


async def test_fewer_replicas_than_asked_for_are_refused(nats_url: str) -> None:
    async with open_broker(nats_url) as broker:
        await set_up(broker)
        with pytest.raises(StreamMismatch, match="num_replicas"):
            await set_up(broker, replicas=3)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "no-such-host.invalid:4222"])
async def test_wrong_address(host: str, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"nats://{host.format(port=free_port())}"
    with pytest.raises(BrokerUnreachable) as error:
        await connect(url, wait=0.5)
    assert url in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("url", ["", " , ", "nats://", "nats://host:notaport", "http//x:y:z"])
async def test_malformed_address(url: str) -> None:
    with pytest.raises(BrokerUnreachable):
        await connect(url, wait=0.5)


async def test_wrong_password(session_server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokerUnreachable, match=r"(?i)authorization") as error:
        await connect(f"nats://u0:wrong@127.0.0.1:{session_server.port}", wait=20)
    assert "wrong" not in str(error.value)
    assert capfd.readouterr() == ("", "")


async def test_something_else_listens_there() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(BrokerUnreachable):
        await connect(f"nats://127.0.0.1:{port}", wait=0.5)
    server.close()


async def test_broker_without_jetstream(tmp_path: Path) -> None:
    server = Server(tmp_path, jetstream=False)
    server.start()
    try:
        with pytest.raises(JetStreamUnavailable, match="JetStream"):
            async with open_log(server.url):
                pass
    finally:
        server.stop(kill=True)


async def test_account_without_jetstream(tmp_path: Path) -> None:
    server = Server(tmp_path, "accounts { A { users: [{ user: a, password: p }] } }")
    server.start()
    try:
        with pytest.raises(JetStreamUnavailable, match="JetStream"):
            async with open_log(f"nats://a:p@127.0.0.1:{server.port}"):
                pass
    finally:
        server.stop(kill=True)


async def test_a_closed_connection_is_seen_and_said(nats_url: str) -> None:
    async with open_log(nats_url) as log:
        watched = asyncio.create_task(log.broker.wait_closed())
        await log.append([said("one")])
        await log.broker.client.close()
        await asyncio.wait_for(watched, 5)
        assert log.broker.is_closed
        for attempt in (log.append([said("two")]), log.read_all("default", "c")):
            with pytest.raises(ConnectionClosed):
                await attempt
        with pytest.raises(ConnectionClosed):
            async for _ in log.watch():
                pass


async def test_a_connection_the_broker_closes_for_good_is_seen(nats_url: str) -> None:
    async with open_log(nats_url) as log:
        await log.broker.client._send_command(b"NONSENSE\r\n")
        await log.broker.client._flush_pending()
        await asyncio.wait_for(log.broker.wait_closed(), 5)
        with pytest.raises(FoldlogError, match="closed"):
            await log.append([said("two")])
