"""Run the program `foldlog` as its users do, in a process of its own."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

FOLDLOG = (sys.executable, "-c", "import sys; from foldlog.cli import main; sys.exit(main())")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


def environment(**extra: str) -> dict[str, str]:
    """This process's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOLDLOG_")}
    return kept | extra


async def foldlog(*arguments: str, stdin: bytes = b"", **extra: str) -> Outcome:
    """Run a command to its end."""
    async with started(*arguments, **extra) as process:
        out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), err.decode())


@contextlib.asynccontextmanager
async def started(*arguments: str, **extra: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that runs; killed at the end of the block if it still does."""
    process = await asyncio.create_subprocess_exec(
        *FOLDLOG,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**extra),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
