"""Telling the story: what people do in it, each step once what it builds on has happened."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Literal

from nats.aio.msg import Msg

from foldlog.announcing import publish
from foldlog.demo import story
from foldlog.demo.facts import Shown, answers, gather, messages_of, text_of
from foldlog.demo.figures import PAGES, traffic
from foldlog.demo.model import SUBJECT
from foldlog.demo.stage import Part, Stage
from foldlog.errors import ConversationExists
from foldlog.reading import Read
from foldlog.session import Foldlog, Session, connect
from foldlog_events.entries import Recorded
from foldlog_events.errors import FoldlogError
from foldlog_events.messages import ToolCallResponse, tool_result, user
from foldlog_projections.policy import load
from foldlog_projections.pressure import manual

Speaker = Literal["person", "analyst", "system"]
Tell = Callable[[Speaker, str], None]
Disturb = Callable[[Stage, Callable[[], int]], Coroutine[None, None, None]]
"""Is given the processes, and a function that tells how many entries there are."""

PATIENCE = 60.0
"""Seconds that one step may take before the story is given up."""
POLL = 0.03
KILLED: Part = "compactor"


class StoryStuck(FoldlogError):
    """A step of the story did not come."""

    def __init__(self, waited_for: str, log: Path) -> None:
        super().__init__(
            f"the demo waited {PATIENCE:.0f} seconds for {waited_for}: run it again; what its "
            f"processes said is in {log}"
        )


async def tell(
    address: str,
    log: Path,
    *,
    say: Tell = lambda speaker, text: None,
    disturb: Disturb | None = None,
) -> Shown:
    """The whole story on a broker, and what it shows.

    `log` is the file that the processes write to, `say` is told of each step, and `disturb` may
    do to the processes what it likes meanwhile. Raises StoryStuck, and ConversationExists where
    the story was told on this broker before.
    """
    async with connect(address, actor="person") as foldlog:
        session = foldlog.session(story.CONVERSATION)
        if (await session.context()).version > 0:
            raise ConversationExists(story.CONVERSATION)
        telling = _Telling(foldlog, session, log, say)
        async with telling.following(), Stage(address, story.CONVERSATION, log) as stage:
            disturbing: asyncio.Task[None] | None = None
            if disturb is not None:
                disturbing = asyncio.create_task(disturb(stage, telling.entries))
            try:
                await telling.tell(stage)
            finally:
                if disturbing is not None:
                    disturbing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await disturbing
            return await gather(foldlog, story.CONVERSATION, KILLED)


class _Telling:
    """The story while it is told."""

    def __init__(self, foldlog: Foldlog, session: Session, log: Path, say: Tell) -> None:
        self._foldlog = foldlog
        self._session = session
        self._log = log
        self._say = say
        self._reads: list[Read] = []
        self._summarising = asyncio.Event()
        self._during_summary: Callable[[], Awaitable[None]] = self._wait_for_wish
        self._wish_given = asyncio.Event()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the conversation, and answer the compactor's model, for the time of the block."""
        answering: set[asyncio.Task[None]] = set()

        async def asked(message: Msg) -> None:
            task = asyncio.create_task(self._answer(message))
            answering.add(task)
            task.add_done_callback(answering.discard)

        subscription = await self._foldlog.broker.client.subscribe(SUBJECT, cb=asked)
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            await subscription.unsubscribe()
            for task in (watching, *answering):
                task.cancel()
            await asyncio.gather(watching, *answering, return_exceptions=True)

    def entries(self) -> int:
        """How many entries the conversation has so far."""
        return len(self._reads)

    async def tell(self, stage: Stage) -> None:
        """Step by step, to the report."""
        await self._person(story.QUESTION)
        await self._analyst(1, "the first answer")
        await self._person(story.NARROWED)
        self._say("system", "The analyst reads the traffic of the show, minute by minute.")
        await self._analyst(2, "the traffic to be read")
        await self._until(self._summarising.is_set, "the context to be under pressure")
        self._say("system", "The context is under pressure: the compactor begins a summary.")
        await self._person(story.WISH)
        pid = await stage.kill(KILLED)
        self._say("system", f"The {KILLED} (process {pid}) is killed; another takes over.")
        self._wish_given.set()
        await self._analyst(3, "the comments to be read")
        await self._stale_compaction()
        await self._person(story.WRITE)
        await self._analyst(4, "the report")
        await self._until_async(self._is_view_stored, "the projector's view")

    async def _stale_compaction(self) -> None:
        """Someone asks for a summary, and a table is corrected while it is made."""
        self._during_summary = self._correct
        view = await self._session.context()
        pressure = manual(view, load(story.POLICY))

        async def is_queued() -> bool:
            return await publish(self._foldlog.records, pressure) is not None

        async def is_stale() -> bool:
            records = await self._foldlog.attempts.read(view.tenant, view.conversation)
            return any(record.state == "stale" for record in records)

        self._say(
            "system", "A person asks for one more summary. While it is made, a table is corrected."
        )
        await self._until_async(is_queued, "the compactor to be free")
        await self._until_async(is_stale, "the stale compaction to be refused")
        self._say("system", "That summary was made of the wrong table: it is refused.")

    async def _analyst(self, count: int, waited_for: str) -> None:
        """Wait for the analyst to have ended so many turns, and say what it said last."""
        await self._until(lambda: len(answers(self._reads)) >= count, waited_for)
        self._say("analyst", text_of(answers(self._reads)[count - 1][1]))

    async def _person(self, text: str) -> None:
        self._say("person", text)
        await self._session.append(user(text))

    async def _answer(self, message: Msg) -> None:
        self._summarising.set()
        await self._during_summary()
        await message.respond(b"")

    async def _wait_for_wish(self) -> None:
        await self._wish_given.wait()

    async def _correct(self) -> None:
        """The last page of traffic is seen with a minute's orders as they were."""
        last = PAGES[-1]
        entry, call = next(
            (read.entry.id, part.id)
            for read in reversed(self._reads)
            if isinstance(read, Recorded)
            for message in messages_of(read)
            for part in message.parts
            if isinstance(part, ToolCallResponse) and part.result == traffic(last)
        )
        corrected = tool_result(call, traffic(last, corrected=True))
        await self._session.edit(entry, [corrected], reason=story.CORRECTION)

    async def _is_view_stored(self) -> bool:
        session = self._session
        stored = await self._foldlog.contexts.stored(session.tenant, session.conversation)
        return stored is not None and stored.version == (await session.context()).version

    async def _watch(self) -> None:
        async for read in self._session.watch(after=0):
            self._reads.append(read)

    async def _until(self, condition: Callable[[], bool], waited_for: str) -> None:
        async def holds() -> bool:
            return condition()

        await self._until_async(holds, waited_for)

    async def _until_async(
        self, condition: Callable[[], Awaitable[object]], waited_for: str
    ) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            if time.monotonic() > deadline:
                raise StoryStuck(waited_for, self._log)
            await asyncio.sleep(POLL)
