"""Doing the task once, under one policy, and counting."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.eval import agent, story
from benchmarks.eval.summarising import Counted
from foldlog.compactor import Compactor
from foldlog.room import ContextTooLarge
from foldlog.session import Foldlog
from foldlog.settings import Price, Settings
from foldlog.work import CANCELLED
from foldlog_events.messages import Message, ToolCall, assistant, tool_result, user
from foldlog_projections.attempts import ENDS
from foldlog_projections.policy import Policy, load
from foldlog_projections.pressure import Pressure, assess
from foldlog_projections.recall import Passage
from foldlog_projections.renderers import openai_chat
from foldlog_projections.tokens import estimate_text
from foldlog_projections.views import ContextView

WINDOW = 48_000
PRICES = {"counted": Price(input=1.0, output=5.0, cache_read=0.1)}
"""As providers' prices relate to each other: a cached token is a tenth, an output one five."""
LATEST = {1: 50, 2: 55, 3: 73}
"""Page from which on a scope is followed by the next one, whether a compaction ran or not."""
_REFERENCE = re.compile(r'recall\(reference="([^"]+)", offset=(\d+)')


class Way(msgspec.Struct, frozen=True):
    """One way to keep contexts."""

    name: str
    policy: dict[str, Any] | None
    """None: contexts are never compacted."""
    reuses_prefix: bool = False


WAYS = (
    Way("no compaction", None),
    Way("preset pi", {"preset": "pi", "window": WINDOW}),
    Way("preset deepseek-harness", {"preset": "deepseek-harness", "window": WINDOW}),
    Way("foldlog", {"preset": "default", "window": WINDOW}, reuses_prefix=True),
)


class Score(msgspec.Struct, kw_only=True):
    """What is counted; every pair is (right, of so many)."""

    way: str
    requests: int = 0
    over_window: int = 0
    scope_right: int = 0
    scope_asked: int = 0
    figures_right: int = 0
    figures_asked: int = 0
    gaps_named: int = 0
    references_resolved: int = 0
    references: int = 0
    unpaired_calls: int = 0
    repeated_queries: int = 0
    tokens_sent: int = 0
    tokens_cached: int = 0
    compactions: int = 0
    cancelled: int = 0
    compaction_seconds: float = 0.0
    summary_tokens: int = 0
    summary_cost: float = 0.0

    @property
    def cached_share(self) -> float:
        """Of all tokens sent, those that stood in the previous request too, from its start."""
        return self.tokens_cached / max(1, self.tokens_sent)


async def play(foldlog: Foldlog, way: Way) -> Score:
    """Do the whole task; what it took and what went wrong."""
    return await _Play(foldlog, way).whole()


class _Play:
    def __init__(self, foldlog: Foldlog, way: Way) -> None:
        self.score = Score(way=way.name)
        self.way = way
        self.foldlog = foldlog
        self.session = foldlog.session(way.name)
        self.policy: Policy | None = load(way.policy) if way.policy else None
        settings = Settings(policy=way.policy or {"preset": "default", "window": WINDOW})
        settings = msgspec.structs.replace(settings, prices=PRICES)
        summariser = Counted(reuses_prefix=way.reuses_prefix, during=self._during)
        self.compactor = Compactor(foldlog.broker, settings, summariser)
        self.scope = 0
        self.clock = time.time()
        self.attempt: asyncio.Task[Any] | None = None
        self.before: list[bytes] = []
        self.calls = 0
        self.page = 0

    async def whole(self) -> Score:
        needed = ", ".join(map(str, story.KEY_PAGES))
        await self._say(user(f"{story.QUESTION} The report needs the figures of pages {needed}."))
        await self._say(user(story.scope_message(0)))
        for self.page in range(1, story.PAGES + 1):
            await self._scopes_due()
            if self.page % 10 == 1:
                await self._say(user(f"Go on with the ten pages from {self.page}."))
            await self._read(self.page)
            if self.page % 10 == 0:
                asked = [page for page in story.KEY_PAGES if page <= self.page - 10][-2:]
                await self._state(asked, f"What do we know of pages {asked}?")
        await self._report()
        await self._records()
        return self.score

    async def _scopes_due(self) -> None:
        """Corrections before and after a compaction, and those during one that never came."""
        is_after = self.scope == 2 and self.score.compactions >= 1
        if self.page == 6 or is_after or self.page >= LATEST.get(self.scope, story.PAGES + 1):
            await self._set_scope()

    async def _set_scope(self) -> None:
        self.scope += 1
        message = user(story.scope_message(self.scope))
        # Not by way of `_say`: it may be said while a summary is made.
        await self.foldlog.session(self.way.name).append(message)

    async def _during(self, call: int) -> None:
        """While a summary is made: a correction, a cancellation, another task."""
        if call == 1 and self.scope == 1:
            await self._set_scope()
        elif call == 2 and self.attempt is not None:
            self.score.cancelled += 1
            self.attempt.cancel(CANCELLED)
            await asyncio.sleep(0)
        elif call >= 3 and self.scope == 3:
            await self._set_scope()

    async def _read(self, page: int) -> None:
        """Call the tool and note what it says: two requests."""
        scope = await self._asked_scope()
        self.calls += 1
        call = ToolCall(id=f"call-{self.calls}", name="page", arguments={"page": page})
        await self._say(assistant(f"I read page {page} for {scope}.", call))
        await self._say(tool_result(call.id, story.result(page, scope)))
        view = await self._request()
        known = agent.figures(view).get(page)
        note = known.said() if known else story.gap(page)
        if known is None and page not in agent.gaps(view):
            note = f"Page {page} says nothing."
        await self._say(assistant(f"Noted. {note}"))

    async def _asked_scope(self) -> str:
        view = await self._request()
        found = agent.scope(view)
        self.score.scope_asked += 1
        self.score.scope_right += found == story.SCOPES[self.scope]
        return found or "no scope"

    async def _state(self, pages: Sequence[int], question: str) -> None:
        """Answer from the context; what does not stand there is asked of the tool again."""
        if not pages:
            return
        await self._say(user(question))
        view = await self._request()
        for page in pages:
            if page not in agent.figures(view):
                self.score.repeated_queries += 1
                await self._read(page)
                view = await self._request()
            self.score.figures_asked += 1
            self.score.figures_right += agent.figures(view).get(page) == story.figure(page)
        said = [agent.figures(view)[page].said() for page in pages if page in agent.figures(view)]
        await self._say(assistant(" ".join(said)))

    async def _report(self) -> None:
        await self._asked_scope()
        view = await self._request()
        self.score.gaps_named = len(agent.gaps(view) & set(story.GAP_PAGES))
        await self._state(story.KEY_PAGES, "Please write the report, with what is missing.")

    async def _say(self, message: Message) -> None:
        await self.session.append(message)
        await self._make_room()

    async def _make_room(self) -> None:
        """What the projector and a compactor do, one after the other: the run is reproducible."""
        if self.policy is None:
            return
        self.clock += 60
        last = await self.foldlog.attempts.last(self.foldlog.tenant, self.way.name)
        pressure = assess(await self.session.context(), self.policy, last, self.clock)
        if not isinstance(pressure, Pressure):
            return
        self.attempt = asyncio.ensure_future(self.compactor.handle(pressure))
        await asyncio.gather(self.attempt, return_exceptions=True)
        if not self.attempt.cancelled() and self.attempt.result().state == "committed":
            self.score.compactions += 1

    async def _request(self) -> ContextView:
        """The context of the next request, counted as if it were sent."""
        try:
            view = await self.session.prepare(story.SECTIONS, story.TOOLS)
        except ContextTooLarge:
            view = await self.session.context()
        score = self.score
        score.requests += 1
        score.over_window += view.tokens > WINDOW
        score.unpaired_calls += agent.unpaired_calls(view)
        score.tokens_sent += view.tokens
        pieces = [msgspec.json.encode(piece) for piece in openai_chat.render(view)]
        sizes = [estimate_text(piece.decode()) for piece in pieces]
        same = next(
            (at for at, (a, b) in enumerate(zip(pieces, self.before, strict=False)) if a != b),
            min(len(pieces), len(self.before)),
        )
        score.tokens_cached += round(view.tokens * sum(sizes[:same]) / max(1, sum(sizes)))
        self.before = pieces
        await self._references(view)
        return view

    async def _references(self, view: ContextView) -> None:
        for _, text in agent.texts(view):
            for reference, offset in _REFERENCE.findall(text):
                self.score.references += 1
                found = await self.session.recall(reference=reference, offset=int(offset))
                self.score.references_resolved += isinstance(found, Passage)

    async def _records(self) -> None:
        for record in await self.foldlog.attempts.read(self.foldlog.tenant, self.way.name):
            if record.state in ENDS:
                self.score.compaction_seconds += record.seconds
                self.score.summary_tokens += record.usage.context_tokens if record.usage else 0
                self.score.summary_cost += record.cost or 0.0
