"""What a service was given and did not handle goes back to the consumer at once when it stops.

FastStream drops what it has fetched when it is told to stop, and the broker would give that to
another worker only after the acknowledgement wait.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import nats.errors
import structlog
from nats.aio.msg import Msg

STOP_PATIENCE = 10.0
"""Seconds for what is in hand to be finished."""

_ACKNOWLEDGEMENT = "$JS.ACK."

_logger = structlog.get_logger("foldlog.service")


class Deliveries:
    """What was fetched from a consumer and is not handled yet."""

    def __init__(self) -> None:
        self._open: dict[str, Msg] = {}
        self._subscriber: Any = None
        self._is_stopping = False

    def follow(self, subscriber: Any) -> None:
        """Note everything that a subscriber of FastStream fetches, from its first fetch on."""
        self._subscriber = subscriber
        subscribe = subscriber._create_subscription

        async def subscribed() -> None:
            await subscribe()
            # Nothing was fetched yet: the task that does was made just now.
            subscription = subscriber.subscription
            subscription.fetch = self._noting(subscription.fetch)

        subscriber._create_subscription = subscribed

    def _noting(self, fetch: Callable[..., Awaitable[list[Msg]]]) -> Any:
        async def noted(*args: Any, **kwargs: Any) -> list[Msg]:
            if self._is_stopping:
                raise nats.errors.TimeoutError
            try:
                fetched = await fetch(*args, **kwargs)
            except TimeoutError as error:
                # nats-py also raises Python's own, on which FastStream drops what it has gathered.
                raise nats.errors.TimeoutError from error
            self._note(fetched)
            return fetched

        return noted

    async def stop(self) -> None:
        """Fetch no more, and let the handler finish what it has in hand."""
        subscriber = self._subscriber
        if subscriber is None or subscriber.subscription is None:
            return
        self._is_stopping = True
        subscriber.running = False
        tasks = [task for task in subscriber.tasks if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_PATIENCE)
        # What arrived after the last fetch gave up waiting lies in the subscription's own queue.
        with contextlib.suppress(Exception):
            queue = subscriber.subscription._sub._pending_queue
            while not queue.empty():
                self._note([queue.get_nowait()])

    async def give_back(self) -> None:
        """Give back whatever was fetched and not acknowledged."""
        left = [message for message in self._open.values() if not message.is_acked]
        for message in left:
            with contextlib.suppress(Exception):
                await message.nak()
        if left:
            _logger.info("gave back", messages=len(left))
        self._open.clear()

    def _note(self, fetched: Iterable[Msg]) -> None:
        self._open = {
            reply: message for reply, message in self._open.items() if not message.is_acked
        }
        self._open.update(
            (message.reply, message)
            for message in fetched
            if message.reply.startswith(_ACKNOWLEDGEMENT)
        )
