"""A proxy between a client and the broker that loses what a test tells it to lose."""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType

Filter = Callable[[bytes], bool]


class FaultyProxy:
    """Passes NATS traffic on, message by message, and drops what `drop_answer` chooses.

    `hold_requests` keeps what clients send from the broker until `release`; `cut` breaks the
    connections there are.
    """

    def __init__(self, port: int) -> None:
        self.broker_port = port
        self.port = 0
        self.drop_answer: Filter = lambda message: False
        self.answer_delay = 0.0
        """Seconds by which answers are late."""
        self.dropped = 0
        self.drop_event = asyncio.Event()
        self.held = asyncio.Event()
        """Set once something waits for `release`."""
        self._flow = asyncio.Event()
        self._flow.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "FaultyProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, user: str) -> str:
        """The address of the broker by way of the proxy."""
        return f"nats://{user}@127.0.0.1:{self.port}" if user else f"nats://127.0.0.1:{self.port}"

    def hold_requests(self) -> None:
        """Nothing more reaches the broker until `release`."""
        self._flow.clear()

    def release(self) -> None:
        """What was held goes on to the broker."""
        self._flow.set()

    def cut(self) -> None:
        """Breaks every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
            self._writers |= {writer, up_writer}
            up = asyncio.ensure_future(self._forward(reader, up_writer))
            down = asyncio.ensure_future(self._answers(up_reader, writer))
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (up, down):
                    pump.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
                writer.close()
                up_writer.close()
        self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._flow.is_set():
                self.held.set()
            await self._flow.wait()
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readuntil(b"\r\n"):
            message = line
            if line[:4] in (b"MSG ", b"HMSG"):
                message += await reader.readexactly(int(line.split()[-1]) + 2)
                if self.drop_answer(message):
                    self.dropped += 1
                    self.drop_event.set()
                    continue
            if self.answer_delay:
                await asyncio.sleep(self.answer_delay)
            writer.write(message)
            await writer.drain()


def acknowledgement(message: bytes) -> bool:
    """Whether an answer acknowledges a publish, or says that it was refused."""
    body = message.split(b"\r\n", 1)[1]
    return b'{"stream":"ENTRIES"' in body or b'"error":{"code":400' in body
