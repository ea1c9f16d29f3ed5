"""Room in the window: refusing a request that does not fit, asking for a compaction, waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from nats.aio.msg import Msg

from foldlog.announcing import Announcer, model_of, publish
from foldlog.attempt_log import AttemptLog
from foldlog.broker import Broker
from foldlog.contexts import Contexts
from foldlog.errors import FoldlogError, JetStreamUnavailable, RequestTimeout
from foldlog.records import Records
from foldlog.topology import cancel_subject, compaction_subject
from foldlog_projections.attempts import ENDS, CompactionRecord
from foldlog_projections.policy import Policies, Policy
from foldlog_projections.pressure import Pressure, manual, overflow, tokens_of
from foldlog_projections.tokens import estimate_message, estimate_sections, estimate_tools
from foldlog_projections.views import ContextView

_decode = msgspec.json.Decoder(CompactionRecord).decode

LOOK_AGAIN = 0.25
"""Seconds after which a waiter looks again without having been told of an end."""
LARGEST = 3
"""Messages that are named where a context takes too much room."""


class ContextTooLarge(FoldlogError):
    """A request that does not fit the model's window; it was not handed out. Sizes in tokens."""

    def __init__(self, view: ContextView, policy: Policy) -> None:
        self.tokens = tokens_of(view, policy)
        self.limit = policy.hard_limit
        self.takes = room_taken(view)
        listed = ", ".join(f"{what} {tokens:,}" for what, tokens in self.takes.items())
        super().__init__(
            f"the context of {view.conversation!r} takes {self.tokens:,} tokens and the limit is "
            f"{self.limit:,} ({listed}): wait for room, compact, shorten what is largest, or "
            "choose a model with a larger window"
        )


class CompactionTimedOut(FoldlogError):
    """No compactor ended an attempt in the time given; one may still do so."""

    def __init__(self, conversation: str, seconds: float) -> None:
        super().__init__(
            f"no compaction of {conversation!r} ended within {seconds:g} s: "
            "see that a compactor runs (`foldlog up` starts one)"
        )


def room_taken(view: ContextView) -> dict[str, int]:
    """What takes the room: the prompt, the largest messages, and all others. Estimated tokens."""
    taken = {"sections": estimate_sections(view.sections), "tools": estimate_tools(view.tools)}
    sizes = sorted(
        (
            (estimate_message(message), f"{message.role} message of entry {origin.id}")
            for message, origin in zip(view.messages, view.origins, strict=True)
            if message.role != "system"
        ),
        reverse=True,
    )
    taken |= {what: size for size, what in sizes[:LARGEST]}
    taken["other messages"] = sum(size for size, _ in sizes[LARGEST:])
    return {what: size for what, size in taken.items() if size}


def is_full(view: ContextView, policy: Policy) -> bool:
    """Whether a request of this view would be over the hard limit."""
    return tokens_of(view, policy) > policy.hard_limit


def check_room(view: ContextView, policies: Policies, model: str | None = None) -> None:
    """Raises ContextTooLarge where a view is over the hard limit of its model's policy.

    Its model is `model`, or the one that answered last.
    """
    policy = policies.of(model or model_of(view))
    if is_full(view, policy):
        raise ContextTooLarge(view, policy)


class Room:
    """Asks for compactions of one conversation and waits for how they end."""

    def __init__(
        self,
        broker: Broker,
        records: Records,
        contexts: Contexts,
        policies: Policies,
        tenant: str,
        conversation: str,
    ) -> None:
        self._broker = broker
        self._records = records
        self._contexts = contexts
        self._policies = policies
        self._announcer = Announcer(records, policies)
        self._tenant = tenant
        self._conversation = conversation

    async def compact(self, instructions: str, within: float) -> CompactionRecord:
        """A compaction that a person or a program asked for, and how it ended.

        While another is queued or under way, this one waits for its end. Raises
        CompactionTimedOut after `within` seconds.
        """
        view = await self._view()
        return await self._ask(manual(view, self._policy(view), instructions), within)

    async def cancel(self, within: float) -> bool:
        """End the attempt that is under way; False where no compactor says that it had one."""
        subject = cancel_subject(self._tenant, self._conversation)
        try:
            await self._broker.request(subject, within=within)
        except (RequestTimeout, JetStreamUnavailable):
            return False
        return True

    async def after_overflow(self, within: float) -> CompactionRecord | None:
        """A compaction after a provider refused the request as too large, and how it ended."""
        view = await self._view()
        last = await AttemptLog(self._records).last(self._tenant, self._conversation)
        pressure = overflow(view, self._policy(view), last)
        return await self._ask(pressure, within) if pressure else None

    async def wait(self, within: float, model: str | None = None) -> ContextView:
        """The context once it is under the hard limit. Raises CompactionTimedOut."""
        async with self._timed(within), self._ends() as ends:
            while True:
                view = await self._view()
                if not is_full(view, self._policies.of(model or model_of(view))):
                    return view
                await self._announcer.announce(view, model)
                await _next(ends)
        raise AssertionError("unreachable")

    async def _ask(self, pressure: Pressure, within: float) -> CompactionRecord:
        async with self._timed(within), self._ends() as ends:
            while not (request := await publish(self._records, pressure)):
                await _next(ends)
            while True:
                ended = await ends.get()
                if ended.request == request:
                    return ended
        raise AssertionError("unreachable")

    @contextlib.asynccontextmanager
    async def _timed(self, within: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(within):
                yield
        except TimeoutError:
            raise CompactionTimedOut(self._conversation, within) from None

    @contextlib.asynccontextmanager
    async def _ends(self) -> AsyncIterator["asyncio.Queue[CompactionRecord]"]:
        """The ends of attempts at this conversation, from now on."""
        ends: asyncio.Queue[CompactionRecord] = asyncio.Queue()

        async def take(message: Msg) -> None:
            record = _decode(message.data)
            if record.state in ENDS:
                ends.put_nowait(record)

        subscription = await self._broker.client.subscribe(
            compaction_subject(self._tenant, self._conversation), cb=take
        )
        try:
            yield ends
        finally:
            await subscription.unsubscribe()

    async def _view(self) -> ContextView:
        return (await self._contexts.current(self._tenant, self._conversation)).view()

    def _policy(self, view: ContextView) -> Policy:
        return self._policies.of(model_of(view))


async def _next(ends: "asyncio.Queue[CompactionRecord]") -> None:
    """Wait for an end, or for a moment: a queue's place is free only after the end is on record."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ends.get(), LOOK_AGAIN)
