"""Summaries of what is larger than the summariser's window, and of a turn that a cut splits."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from foldlog.summarisers import (
    Summariser,
    SummariserError,
    SummariserOverflow,
    SummaryRequest,
    close,
)
from foldlog_events.messages import Message, Text, Usage
from foldlog_projections.summary_source import (
    SourceMessage,
    StructuredSummary,
    SummaryResult,
    message_blocks,
)
from foldlog_projections.tokens import estimate_text

MAX_SHRINKS = 4
"""Times the chunks are halved where a model says that they are still too large."""
SMALLEST_CHUNK = 200
"""Tokens of input below which summarising in chunks makes no sense."""
OVERHEAD = 1_000
"""Tokens for instructions and fences around a chunk."""
TURN_SHARE = 0.35
"""Share of the budget that a split turn's own summary may take."""


class Chunked:
    """A summariser that folds its input through another one, chunk by chunk, where it must.

    Each chunk is merged into the summary of those before it. The first part of a split turn is
    summarised apart from the history before it, and the two are merged by program.
    """

    def __init__(
        self,
        inner: Summariser,
        *,
        window: int | None = None,
        spare_output_tokens: int = 0,
        reuses_prefix_of: str | None = None,
    ) -> None:
        """`window`: tokens the inner model holds; a request's own comes first.

        `reuses_prefix_of`: the model at the end of whose own requests the inner one can ask.
        """
        self._inner = inner
        self._window = window
        self._spare = spare_output_tokens
        self._reuses_prefix_of = reuses_prefix_of

    async def close(self) -> None:
        """Close the connections of the inner summariser."""
        await close(self._inner)

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, unchecked; `usage` and `calls` are of all calls. Raises SummariserError."""
        spent = _Spent()
        try:
            result = await self._in_place(request, spent)
            if result is None:
                fenced = msgspec.structs.replace(request, prefix=None)
                result = await self._whole(fenced, spent)
        except SummariserError as error:
            error.usage, error.calls = spent.and_of(error.usage, error.calls)
            raise
        return msgspec.structs.replace(result, usage=spent.usage, calls=spent.calls)

    async def _in_place(self, request: SummaryRequest, spent: "_Spent") -> SummaryResult | None:
        """The summary asked for at the end of the conversation's own request; None where that is
        not to be done, does not fit, or led to something else than a summary."""
        if not self._reuses_prefix(request):
            return None
        try:
            result = spent.with_(await self._inner.summarise(request))
        except SummariserOverflow as error:
            spent.add(error.usage, error.calls)
            return None
        return result if result.structured is not None and _usable(result) else None

    def _reuses_prefix(self, request: SummaryRequest) -> bool:
        own = self._reuses_prefix_of
        if request.prefix is None or not own:
            return False
        if request.model != own and not request.model.startswith(f"{own}-"):
            return False
        limit = self._input_limit(request)
        return limit is None or request.prefix.tokens <= limit

    async def _whole(self, request: SummaryRequest, spent: "_Spent") -> SummaryResult:
        if not request.turn_prefix:
            return await self._folded(request, spent)
        turn = msgspec.structs.replace(request, messages=request.turn_prefix, turn_prefix=())
        history = StructuredSummary.parse(request.previous_summary or "")
        if not request.messages and history is None:
            return await self._folded(turn, spent)
        for_turn = int(request.budget * TURN_SHARE)
        if request.messages:
            before = await self._folded(
                msgspec.structs.replace(request, turn_prefix=(), budget=request.budget - for_turn),
                spent,
            )
            if before.structured is None or not _usable(before):
                return before
            history = before.structured
        newest = await self._folded(
            msgspec.structs.replace(
                turn, previous_summary=None, previous_values=(), budget=for_turn
            ),
            spent,
        )
        if history is None or newest.structured is None or not _usable(newest):
            return newest
        merged = merge(history, newest.structured)
        return msgspec.structs.replace(newest, text=merged.to_text(), structured=merged)

    async def _folded(self, request: SummaryRequest, spent: "_Spent") -> SummaryResult:
        limit = self._input_limit(request)
        previous = request.previous_summary
        waiting = list(request.messages)
        shrinks = 0
        while True:
            room = None if limit is None else limit - estimate_text(previous or "")
            chunk, rest = _first_chunk(waiting, room)
            asked = msgspec.structs.replace(
                request, messages=tuple(chunk), previous_summary=previous
            )
            try:
                result = spent.with_(await self._inner.summarise(asked))
            except SummariserOverflow as error:
                size = _tokens(chunk)
                if shrinks == MAX_SHRINKS or size <= SMALLEST_CHUNK:
                    raise
                spent.add(error.usage, error.calls)
                shrinks += 1
                limit = size // 2 + estimate_text(previous or "")
                continue
            if not rest or not _usable(result):
                return result
            previous, waiting = result.text, rest

    def _input_limit(self, request: SummaryRequest) -> int | None:
        window = request.window or self._window
        if window is None:
            return None
        limit = window - request.budget - request.budget // 4 - self._spare - OVERHEAD
        if limit < SMALLEST_CHUNK + request.budget:
            raise SummariserOverflow(
                f"a window of {window:,} tokens leaves no room to summarise within a budget of "
                f"{request.budget:,}: use a model with a larger window, or lower the budget",
                calls=0,
            )
        return limit


def merge(history: StructuredSummary, turn: StructuredSummary) -> StructuredSummary:
    """The summary of a conversation with that of its newest turn merged in."""

    def both(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*one, *other)))

    under_way = () if turn.goal == history.goal else (f"The turn under way: {turn.goal}",)
    return StructuredSummary(
        goal=history.goal,
        constraints=both(history.constraints, turn.constraints),
        progress=both(history.progress, turn.progress),
        decisions=both(history.decisions, turn.decisions),
        next_steps=turn.next_steps or history.next_steps,
        critical_context=both(history.critical_context, (*under_way, *turn.critical_context)),
    )


class _Spent:
    """What the calls of one summary took so far."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.calls = 0

    def with_(self, result: SummaryResult) -> SummaryResult:
        self.add(result.usage, result.calls)
        return result

    def add(self, usage: Usage | None, calls: int) -> None:
        self.usage, self.calls = self.and_of(usage, calls)

    def and_of(self, usage: Usage | None, calls: int) -> tuple[Usage | None, int]:
        both = [one for one in (self.usage, usage) if one is not None]
        if not both:
            return None, self.calls + calls
        summed = Usage(
            input_tokens=sum(one.input_tokens for one in both),
            output_tokens=sum(one.output_tokens for one in both),
            cache_read_tokens=sum(one.cache_read_tokens for one in both),
            cache_write_tokens=sum(one.cache_write_tokens for one in both),
        )
        return summed, self.calls + calls


def _usable(result: SummaryResult) -> bool:
    """Whether a partial summary may be built on; the checks will name what is wrong with it."""
    finished = result.finish_reason == "stop" and not result.tool_called
    return finished and bool(result.text.strip())


def _first_chunk(
    messages: Sequence[SourceMessage], room: int | None
) -> tuple[list[SourceMessage], list[SourceMessage]]:
    """As many messages from the front as fit, at least one piece of one; and the rest."""
    if room is None:
        return list(messages), []
    room = max(room, SMALLEST_CHUNK)
    chunk: list[SourceMessage] = []
    for at, message in enumerate(messages):
        cost = _tokens([message])
        if cost <= room:
            chunk.append(message)
            room -= cost
        elif chunk:
            return chunk, list(messages[at:])
        else:
            first, *others = _split(message, room)
            return [first], [*others, *messages[at + 1 :]]
    return chunk, []


def _split(source: SourceMessage, room: int) -> Iterator[SourceMessage]:
    """A message too large for any chunk, as several of its entry and role.

    Only text can be that large: results and arguments are capped where the source is written.
    """
    for part in source.message.parts:
        if not isinstance(part, Text) or estimate_text(part.content) <= room:
            yield _with_parts(source, part)
            continue
        length = max(1, len(part.content) * room // (estimate_text(part.content) + 1))
        for piece in _pieces(part.content, length):
            yield _with_parts(source, Text(content=piece))


def _pieces(text: str, length: int) -> Iterator[str]:
    """A text in pieces that end at white space where there is any, so that no value is cut."""
    start = 0
    while start < len(text):
        end = start + length
        if end < len(text):
            blank = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = blank + 1 if blank > start else end
        yield text[start:end]
        start = end


def _with_parts(source: SourceMessage, part: object) -> SourceMessage:
    message = Message(role=source.message.role, parts=(part,))  # type: ignore[arg-type]
    return source._replace(message=message)


def _tokens(messages: Iterable[SourceMessage]) -> int:
    return sum(estimate_text(block) for block in message_blocks(messages))
