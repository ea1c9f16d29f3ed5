"""How much of each request repeats the one before it, and why it does not where it breaks.

Providers cache a request's prefix: what stays byte for byte at the beginning costs a fraction,
and everything after the first difference is paid for in full. A request is measured as the
provider reads it: tools, then the system prompt, then the messages, content block by content
block, so that a closing bracket is no difference.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from foldlog_events.entries import Recorded
from foldlog_projections.diff import Cause, ContextDiff, diff
from foldlog_projections.views import ContextView

RequestPart = Literal["tools", "system", "messages"]

Reason = Literal[
    "edit",
    "erased",
    "compaction",
    "reset",
    "late result",
    "leading system",
    "tools",
    "rendering",
    "unknown",
]
"""Why a prefix broke. `leading system`: the first system entry came after a message was sent.
`rendering`: the view only grew, and the renderer wrote its older part otherwise. `unknown`: the
entry between was not given."""

_SHAPE_REASONS: dict[str, Reason] = {
    "edit": "edit",
    "erased": "erased",
    "compaction": "compaction",
    "reset": "reset",
}
_PARTS: tuple[RequestPart, ...] = ("tools", "system", "messages")
"""In the order in which a provider reads them."""

_STRIDE = 65_536
"""Bytes compared at once."""

_encode = msgspec.json.Encoder().encode


class Block(msgspec.Struct, frozen=True):
    """A piece of a request, as bytes."""

    part: RequestPart
    data: bytes


class RenderedRequest(msgspec.Struct, frozen=True):
    """A request as it was or would be sent, and the view it was rendered from."""

    view: ContextView
    blocks: tuple[Block, ...]


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request ceases to repeat the one before it, with part of that still to come."""

    reason: Reason
    part: RequestPart
    cause: Cause | None
    """None where no entry is to blame."""


class PrefixStep(msgspec.Struct, frozen=True, kw_only=True):
    """One request, against the one before it."""

    version: int
    """Of the view it was rendered from."""
    size: int
    """Bytes of its blocks."""
    shared: int
    """Bytes at its beginning that the previous request began with too; 0 for the first."""
    broken: Break | None

    @property
    def share(self) -> float:
        """The part of the request that repeats the previous one, from 0 to 1."""
        return self.shared / self.size if self.size else 0.0


class PrefixReport(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a conversation, in order."""

    steps: tuple[PrefixStep, ...]

    @property
    def share(self) -> float:
        """The part of all bytes sent that repeated the request before, from 0 to 1."""
        size = sum(step.size for step in self.steps)
        return sum(step.shared for step in self.steps) / size if size else 0.0

    @property
    def reasons(self) -> dict[Reason, int]:
        """How often the prefix broke for each reason, the most frequent first."""
        counted = Counter(step.broken.reason for step in self.steps if step.broken)
        return dict(counted.most_common())


def request_blocks(request: Mapping[str, Any] | Sequence[Any]) -> tuple[Block, ...]:
    """The blocks of a rendered request: a list of messages, or `tools` with `system` and
    `messages` (Anthropic), or with `instructions` and `input` (OpenAI Responses).

    Cache breakpoints are left out: they tell the provider what to keep, and are not cached.
    """
    if not isinstance(request, Mapping):
        request = {"messages": request}
    blocks = [Block("tools", _encode(_unmarked(tool))) for tool in request.get("tools", ())]
    system = request.get("system") or request.get("instructions") or ()
    texts = (system,) if isinstance(system, str) else system
    blocks += [Block("system", _encode(_unmarked(text))) for text in texts]
    for message in request.get("messages") or request.get("input") or ():
        blocks += [Block("messages", data) for data in _message_blocks(message)]
    return tuple(blocks)


def shared_prefix(previous: bytes, request: bytes) -> int:
    """How many bytes both begin with."""
    limit = min(len(previous), len(request))
    start = 0
    while start < limit and previous[start : start + _STRIDE] == request[start : start + _STRIDE]:
        start += _STRIDE
    end = min(start + _STRIDE, limit)
    while start < end:
        middle = (start + end + 1) // 2
        if previous[start:middle] == request[start:middle]:
            start = middle
        else:
            end = middle - 1
    return min(start, limit)


def measure(requests: Iterable[RenderedRequest], entries: Sequence[Recorded]) -> PrefixReport:
    """The requests of one conversation against each other, in the order they were sent.

    `entries` are the conversation's, in order: the cause of a break is looked for among them.
    """
    steps = []
    previous: RenderedRequest | None = None
    for request in requests:
        steps.append(_step(previous, request, entries))
        previous = request
    return PrefixReport(steps=tuple(steps))


def _step(
    previous: RenderedRequest | None, request: RenderedRequest, entries: Sequence[Recorded]
) -> PrefixStep:
    now = _joined(request)
    before = _joined(previous) if previous else b""
    shared = shared_prefix(before, now)
    broken = None
    if previous is not None and shared < len(before):
        between = _between(entries, previous.view.version, request.view.version)
        changes = diff(previous.view, request.view, between)
        # A tool that was added stands where a message stood before: the earlier part broke.
        part = min(_part_at(previous, shared), _part_at(request, shared), key=_PARTS.index)
        broken = _explained(changes, len(previous.view.messages), part)
    return PrefixStep(version=request.view.version, size=len(now), shared=shared, broken=broken)


def _between(entries: Sequence[Recorded], after: int, until: int) -> Sequence[Recorded]:
    def version(recorded: Recorded) -> int:
        return recorded.version

    return entries[
        bisect_right(entries, after, key=version) : bisect_right(entries, until, key=version)
    ]


def _joined(request: RenderedRequest) -> bytes:
    return b"".join(block.data for block in request.blocks)


def _part_at(request: RenderedRequest, offset: int) -> RequestPart:
    for block in request.blocks:
        offset -= len(block.data)
        if offset < 0:
            return block.part
    return "messages"


def _explained(changes: ContextDiff, length_before: int, part: RequestPart) -> Break:
    """Why the prefix broke, from the first change that is not something said at the end."""
    if part == "tools" and changes.tools:
        return _break(changes.tools[0].cause, part, "tools")
    for change in changes.messages:
        if change.change == "entered" and (change.place_after or 0) >= length_before:
            continue
        is_result = change.after is not None and change.after.role == "tool"
        return _break(change.cause, part, "late result" if is_result else "leading system")
    return Break(reason="rendering", part=part, cause=None)


def _break(cause: Cause | None, part: RequestPart, in_log: Reason) -> Break:
    """`in_log` is the reason where the cause is an entry of the `log` lane."""
    reason = _SHAPE_REASONS.get(cause.kind, in_log) if cause else "unknown"
    return Break(reason=reason, part=part, cause=cause)


def _message_blocks(message: Mapping[str, Any]) -> Iterator[bytes]:
    content = message.get("content")
    if not isinstance(content, list):
        yield _encode(message)
        return
    yield _encode({key: value for key, value in message.items() if key != "content"})
    for block in content:
        yield _encode(_unmarked(block))


def _unmarked(block: Any) -> Any:
    if isinstance(block, Mapping) and "cache_control" in block:
        return {key: value for key, value in block.items() if key != "cache_control"}
    return block


__all__ = [
    "Block",
    "Break",
    "PrefixReport",
    "PrefixStep",
    "Reason",
    "RenderedRequest",
    "RequestPart",
    "measure",
    "request_blocks",
    "shared_prefix",
]
