"""An agent of the demo as a process: `python -m foldlog.demo.agents analyst|warehouse`.

Both follow the conversation and act on its context. Each appends behind the version it acted on:
where something was said meanwhile, it looks again and decides anew.
"""

import asyncio
import os
import sys
from typing import Literal, get_args

from foldlog.demo import script, story
from foldlog.errors import FoldlogError, VersionConflict
from foldlog.session import Session, connect
from foldlog_events.messages import Message
from foldlog_projections.policy import load

Role = Literal["analyst", "warehouse"]


async def run(role: Role, url: str, conversation: str) -> None:
    """Take part in a conversation until told to stop."""
    async with connect(url, actor=role) as log:
        session = log.session(conversation)
        async for _ in session.watch(after=0):
            try:
                await (_analyse(session) if role == "analyst" else _answer(session))
            except VersionConflict:
                continue  # what came in between is watched too


async def _analyse(session: Session) -> None:
    if script.analyst(await session.context()) is None:
        return
    view = await session.prepare(sections=story.SECTIONS, tools=story.TOOLS)
    message = script.analyst(view)
    if message is None:
        return
    if script.wants_room(message) and view.tokens + story.ROOM > load(story.POLICY).hard_limit:
        return  # the compaction that makes room is watched for like any other entry
    await session.append(message, expect=view.base_version.log)


async def _answer(session: Session) -> None:
    view = await session.context()
    results: tuple[Message, ...] = script.warehouse(view)
    if results:
        await session.append(*results, expect=view.base_version.log)


def main() -> None:
    """Run the agent that the command line names, on FOLDLOG_URL."""
    role, conversation = sys.argv[1:3]
    if role not in get_args(Role):
        sys.exit(f"there is no agent {role!r}: use one of {', '.join(get_args(Role))}")
    try:
        asyncio.run(run(role, os.environ["FOLDLOG_URL"], conversation))  # type: ignore[arg-type]
    except FoldlogError as error:
        sys.exit(f"{role}: {error}")


if __name__ == "__main__":
    main()
