"""A model's provider on loopback: OpenAI's chat completions and Anthropic's messages over HTTP.

It answers what a test tells it to, also what providers do on bad days: refuse, stop short, call
tools, limit rates, answer slowly, break the connection, or never answer.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The user's message."""
        return str(self.body["messages"][-1]["content"])


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the server does with a request."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}
    send: int | None = None
    """Bytes of the body that are sent before the connection breaks or stands still."""
    stand_still: bool = False
    """Keep the connection open, and send no more."""
    break_off: bool = False
    """Close the connection without the rest; before any byte where `send` is 0."""
    trickle: bool = False
    """Send the body byte by byte, on and on, and never come to its end."""


Answer = Callable[[Request], Reply]


class ModelServer:
    """The server; `requests` is what came in so far."""

    def __init__(self, answer: Answer | Iterable[Reply]) -> None:
        """`answer`: a function of the request, or the replies in turn, the last one repeated."""
        self.requests: list[Request] = []
        self._answer = answer if callable(answer) else _in_turn(answer)
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ModelServer":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def openai_url(self) -> str:
        """The base address for OpenAI's client."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base address for Anthropic's client."""
        return f"http://127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(head[0].split(" ")[1], headers, json.loads(body) if body else {})
        self.requests.append(request)
        return await _reply(self._answer(request), writer)


async def _reply(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    if reply.break_off and reply.send == 0:
        return False
    headers = {
        "content-type": "application/json",
        "content-length": str(len(reply.body)),
        **reply.headers,
    }
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{k}: {v}" for k, v in headers.items())]
    if not (reply.stand_still and reply.send == 0):
        writer.write("\r\n".join([*lines, "", ""]).encode())
    if reply.trickle:
        for byte in reply.body[:-1]:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)
        await asyncio.Event().wait()
    writer.write(reply.body[: reply.send] if reply.send is not None else reply.body)
    await writer.drain()
    if reply.stand_still:
        await asyncio.Event().wait()
    return not reply.break_off


def _in_turn(replies: Iterable[Reply]) -> Answer:
    waiting = list(replies)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def json_reply(body: object, status: int = 200, **headers: str) -> Reply:
    """A reply of JSON; underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(body=json.dumps(body).encode(), status=status, headers=named)


def openai_answer(
    text: str | None,
    *,
    finish_reason: str = "stop",
    refusal: str | None = None,
    tool_calls: list[dict[str, Any]] | None = None,
    model: str = "served-model",
) -> Reply:
    """A chat completion, of 100 input tokens (40 of them cached) and 20 output tokens."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    if tool_calls:
        message["tool_calls"] = tool_calls  # type: ignore[assignment]
    return json_reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 40},
            },
        }
    )


def anthropic_answer(
    text: str | None,
    *,
    stop_reason: str = "end_turn",
    blocks: list[dict[str, Any]] | None = None,
    model: str = "served-model",
) -> Reply:
    """A message, of 60 input tokens, 40 more from the cache, and 20 output tokens."""
    content = [] if text is None else [{"type": "text", "text": text}]
    return json_reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [*content, *(blocks or [])],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 60,
                "cache_read_input_tokens": 40,
                "cache_creation_input_tokens": 0,
                "output_tokens": 20,
            },
        }
    )


def openai_error(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return json_reply({"error": error}, status, **headers)


def anthropic_error(
    status: int, message: str, kind: str = "invalid_request_error", **headers: str
) -> Reply:
    """An error as Anthropic words it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return json_reply(body, status, **headers)
