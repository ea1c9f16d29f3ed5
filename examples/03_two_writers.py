"""Two agents on one conversation: nothing is lost, and who must act on the newest finds out.

FOLDLOG_URL=nats://127.0.0.1:4222 python examples/03_two_writers.py
"""

import asyncio
import os

from foldlog import assistant, connect, user
from foldlog.errors import VersionConflict


async def main() -> None:
    async with connect(os.environ["FOLDLOG_URL"]) as log:
        one, other = log.session("examples/03"), log.session("examples/03")
        await asyncio.gather(
            *(session.append(user(f"note {n}")) for n in range(50) for session in (one, other))
        )
        assert len((await one.context()).messages) == 100

        seen = await one.context()
        await other.append(user("Stop: the figures were wrong."))
        try:
            await one.append(assistant("Here is my report."), expect=seen.base_version.log)
        except VersionConflict as conflict:
            print("meanwhile:", [read.version for read in conflict.entries])
        print("to be answered:", (await one.context()).messages[-1].parts[0])


asyncio.run(main())
