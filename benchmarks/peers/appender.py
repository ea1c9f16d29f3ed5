"""A process that appends calls with their results to a conversation that others write to too."""

import asyncio
import sys

from benchmarks.peers.brokers import STORES
from benchmarks.server import hear, say


async def main(store_name: str, address: str, process: int, pairs: int) -> None:
    """`pairs` appends of a call and its result, numbered apart from other processes'."""
    store = STORES[store_name]()
    await store.open(address)
    say("ready")
    await hear()
    failed = 0
    for number in range(pairs):
        call = 4 * (process * pairs + number) + 1
        try:
            await store.append("shared", [call, call + 1])
        except Exception:
            failed += 1
    say({"failed": failed, "refused": getattr(store, "refused", 0)})
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
