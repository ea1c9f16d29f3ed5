"""A writer's way to the broker, which loses, delays, holds and cuts what it is told to."""

import asyncio
import random
from collections.abc import Sequence

from tests.faulty_proxy import FaultyProxy, acknowledgement


class ClusterProxy(FaultyProxy):
    """Passes each connection on to one of the servers."""

    def __init__(self, ports: Sequence[int], random_: random.Random) -> None:
        super().__init__(ports[0])
        self._ports = tuple(ports)
        self._random = random_
        self._to_lose = 0

    def lose(self, acknowledgements: int) -> None:
        """The next so many acknowledgements do not arrive."""
        self._to_lose = acknowledgements
        self.drop_answer = self._is_lost

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The port is read before anything is awaited, so connections do not mix.
        self.broker_port = self._random.choice(self._ports)
        await super()._accept(reader, writer)

    def _is_lost(self, message: bytes) -> bool:
        if not self._to_lose or not acknowledgement(message):
            return False
        self._to_lose -= 1
        return True
