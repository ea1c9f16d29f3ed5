"""A naive client, to show that the checks of a run find what they are there to find.

It does what is often done: it publishes without an expected version and without a message id,
and publishes again after a timeout. Every second such client is in a hurry, and takes a flushed
connection for an acknowledgement. `python -m tests.faults.naive SPEC`, as the writer.
"""

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from foldlog_events.codec import encode
from foldlog_events.entries import Entry, lane_of
from foldlog_events.subjects import subject_of
from tests.faults.journal import Journal, Line, read
from tests.faults.writing import Author, Spec

TIMEOUT = 0.3
_TRY_AGAIN = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)


async def publish(client: Client, entries: Sequence[Entry], *, is_hurried: bool) -> list[int]:
    """The versions of the entries; 0 where nobody said."""
    versions = []
    for entry in entries:
        subject = subject_of(entry.tenant, entry.conversation, lane_of(entry))
        while True:
            try:
                if is_hurried:
                    await client.publish(subject, encode(entry))
                    versions.append(0)
                else:
                    stored = await client.jetstream().publish(
                        subject, encode(entry), timeout=TIMEOUT
                    )
                    versions.append(stored.seq)
            except _TRY_AGAIN:
                await asyncio.sleep(0.02)
                continue
            break
    while is_hurried:
        try:
            await client.flush(timeout=1)
        except _TRY_AGAIN:
            await asyncio.sleep(0.02)
            continue
        break
    return versions


async def main(spec: Spec) -> None:
    path = Path(spec.journal)
    lines = list(read(path))
    journal = Journal(path)
    random_ = random.Random(f"{spec.seed} {spec.name} {len(lines)}")
    author = Author(spec.name, random_, spec.clock_hours)
    client = await nats.connect(
        spec.url,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.2,
    )
    is_hurried = int(spec.name.rpartition("-")[2]) % 2 == 0
    for _ in range(len(lines), spec.appends):
        conversation = random_.choice(spec.conversations)
        entries = author.batch(conversation)
        started = time.monotonic()
        versions = await publish(client, entries, is_hurried=is_hurried)
        journal.write(
            Line(
                what="acknowledged",
                conversation=conversation,
                ids=tuple(entry.id for entry in entries),
                versions=tuple(versions),
                started=started,
                ended=time.monotonic(),
            )
        )
        await asyncio.sleep(random_.uniform(0, 2 * spec.pause))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Spec)))
