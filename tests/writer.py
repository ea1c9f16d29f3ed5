"""A process that appends numbered entries to one conversation: `writer.py URL NAME COUNT`."""

import asyncio
import sys

from foldlog.log import open_log
from tests.entries import said


async def main(url: str, name: str, count: int) -> None:
    async with open_log(url) as log:
        for number in range(count):
            (recorded,) = await log.append([said(f"{name} {number}", "shared")])
            print(recorded.version, recorded.entry.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
