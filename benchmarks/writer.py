"""A process that appends to a conversation for a while, each time it is told to."""

import asyncio
import sys
import time

import msgspec

from benchmarks.server import hear, say
from benchmarks.workload import message
from foldlog.session import connect


class Order(msgspec.Struct):
    """What a writer is told."""

    conversation: str
    seconds: float


async def main(url: str) -> None:
    """Until its input ends."""
    async with connect(url) as foldlog:
        while True:
            order = msgspec.convert(await hear(), Order)
            session = foldlog.session(order.conversation)
            until = time.monotonic() + order.seconds
            count = 0
            while time.monotonic() < until:
                await session.append(message(count))
                count += 1
            say(count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
