"""What a user would write on nats-py alone: the baseline of most rows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from secrets import token_hex

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from benchmarks.workload import Stored
from foldlog.reading import PREDECESSOR
from foldlog.topology import ENTRIES

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"
BATCH = 1_000
_encode = msgspec.json.Encoder().encode


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A connection of nats-py."""
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


async def publish(js: JetStreamContext, entry: Stored, last: int) -> int:
    """Publish one entry behind a version; its own version."""
    headers = {EXPECTED: str(last), MESSAGE_ID: entry.message_id}
    return (await js.publish(entry.subject, entry.data, headers=headers)).seq


async def publish_batch(client: Client, entries: Sequence[Stored], last: int | None) -> int:
    """One atomic batch; the last version. With `last`, only behind that version."""
    batch = token_hex(8)
    headers: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        headers = {
            "Nats-Batch-Id": batch,
            "Nats-Batch-Sequence": str(number),
            MESSAGE_ID: entry.message_id,
        }
        if number == 1 and last is not None:
            headers[EXPECTED] = str(last)
        if entry.offset:
            headers[PREDECESSOR] = str(entry.offset)
        if number < len(entries):
            await client.publish(entry.subject, entry.data, headers=headers)
    headers["Nats-Batch-Commit"] = "1"
    answer = await client.request(
        entries[-1].subject, entries[-1].data, timeout=30, headers=headers
    )
    stored = msgspec.json.decode(answer.data)
    if "error" in stored:
        raise RuntimeError(f"the batch was refused: {stored['error']}")
    return int(stored["seq"])


async def fill(url: str, entries: Iterable[Stored]) -> None:
    """Append entries to an empty log as fast as the broker takes them.

    Each says which version is before it in its lane, as entries do that foldlog appends.
    """
    last: dict[str, int] = {}
    async with connected(url) as client:
        batch: list[Stored] = []
        for version, entry in enumerate(entries, 1):
            offset = last.get(entry.subject, 0) - version
            batch.append(entry._replace(offset=offset))
            last[entry.subject] = version
            if len(batch) == BATCH:
                await publish_batch(client, batch, None)
                batch = []
        if batch:
            await publish_batch(client, batch, None)


async def batched_get(client: Client, query: dict[str, object]) -> list[Msg]:
    """One batched direct get from the log."""
    inbox = client.new_inbox()
    found: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=found.put)
    try:
        await client.publish(f"$JS.API.DIRECT.GET.{ENTRIES}", _encode(query), reply=inbox)
        messages: list[Msg] = []
        while True:
            message = await asyncio.wait_for(found.get(), 10)
            if message.headers and message.headers.get("Status"):
                return messages
            messages.append(message)
    finally:
        await subscription.unsubscribe()


async def read_range(client: Client, subject: str, first: int, count: int) -> list[Msg]:
    """The next `count` messages of a subject from a version on."""
    messages: list[Msg] = []
    while len(messages) < count:
        query: dict[str, object] = {
            "seq": first,
            "batch": min(512, count - len(messages)),
            "max_bytes": 8 * 1024 * 1024,
            "next_by_subj": subject,
        }
        page = await batched_get(client, query)
        if not page:
            break
        messages += page
        first = int((page[-1].headers or {})["Nats-Sequence"]) + 1
    return messages
