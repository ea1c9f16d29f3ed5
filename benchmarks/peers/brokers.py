"""The same methods on a broker: foldlog, and nats-py alone."""

import json
from collections.abc import Sequence
from typing import Any

import nats

from benchmarks import bare
from benchmarks.context import store_view
from benchmarks.peers.stores import FILES, Store, item, kind_of, told
from benchmarks.workload import TENANT, Stored, entries, message
from foldlog.session import Foldlog, Session, connect
from foldlog.topology import ENTRIES
from foldlog_events.messages import Text, ToolCall, ToolCallResponse
from foldlog_events.subjects import both_lanes, subject_of


class Ours:
    """foldlog."""

    async def open(self, address: str) -> None:
        self._connection = connect(address)
        self._foldlog: Foldlog = await self._connection.__aenter__()
        self._sessions: dict[str, Session] = {}

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        """Messages given together are one entry."""
        session = self._sessions.setdefault(name, self._foldlog.session(name))
        await session.append(*map(message, numbers))

    async def fill(self, name: str, count: int) -> None:
        """One message an entry, and the view that a projector has stored by then."""
        session = self._foldlog.session(name)
        for start in range(0, count, 1_000):
            await session.append(*entries(min(1_000, count - start), name, start=start))
        await store_view(self._foldlog, name)

    async def load(self, name: str) -> int:
        """By a session that has read nothing before."""
        return len((await self._foldlog.session(name).context()).messages)

    async def order(self, name: str) -> list[tuple[str, int]]:
        view = (await self._foldlog.contexts.rebuilt(TENANT, name)).view()
        found = []
        for one in view.messages:
            match one.parts[0]:
                case ToolCall(arguments={"sql": said}) | Text(content=said):
                    number = int(said.split(":")[0])
                case ToolCallResponse(result=str(said)):
                    number = int(said.split(":")[0])
                case part:
                    raise ValueError(f"an unexpected part: {part}")
            found.append((kind_of(number), number))
        return found

    async def close(self) -> None:
        await self._connection.__aexit__(None, None, None)


class BareNats:
    """nats-py: one message an item, published behind the last one known."""

    async def open(self, address: str) -> None:
        self._client = await nats.connect(address)
        self._js = self._client.jetstream()
        self._last: dict[str, int] = {}
        self.refused = 0

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        subject = subject_of(TENANT, name, "log")
        for number in numbers:
            data = json.dumps(item(number)).encode()
            while True:
                headers = {bare.EXPECTED: str(self._last.get(name, 0))}
                try:
                    answer = await self._js.publish(subject, data, headers=headers)
                except nats.js.errors.APIError as error:
                    self.refused += 1
                    self._last[name] = int((error.description or "0").split()[-1])
                    continue
                self._last[name] = answer.seq
                break

    async def fill(self, name: str, count: int) -> None:
        subject = subject_of(TENANT, name, "log")
        for start in range(0, count, 1_000):
            batch = [
                Stored(subject, json.dumps(item(number)).encode(), f"{name}.{number}")
                for number in range(start, min(count, start + 1_000))
            ]
            self._last[name] = await bare.publish_batch(self._client, batch, None)

    async def load(self, name: str) -> int:
        """By the calls that nats-py has: a consumer, and fetch."""
        return len(await self._read(name))

    async def order(self, name: str) -> list[tuple[str, int]]:
        return list(map(told, await self._read(name)))

    async def close(self) -> None:
        await self._client.close()

    async def _read(self, name: str) -> list[dict[str, Any]]:
        subscription = await self._js.subscribe(
            both_lanes(TENANT, name), stream=ENTRIES, ordered_consumer=True
        )
        found: list[dict[str, Any]] = []
        info = await subscription.consumer_info()
        delivered = info.delivered.consumer_seq if info.delivered else 0
        while len(found) < (info.num_pending or 0) + delivered:
            found.append(json.loads((await subscription.next_msg(timeout=10)).data))
        await subscription.unsubscribe()
        return found


BROKERS: dict[str, type[Store]] = {"foldlog": Ours, "bare nats-py": BareNats}
STORES: dict[str, type[Store]] = BROKERS | FILES
