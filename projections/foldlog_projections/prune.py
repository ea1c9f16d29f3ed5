"""Shorter tool results, without a model (design section 8.1).

Large results keep their beginning and their end, or what says most of a structure; of repeated
results the last stays. Nothing is lost: the marker in a pruned result says how to read the rest.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec

from foldlog_events.entries import Edit, MessageEntry
from foldlog_events.messages import Content, Message, Text, ToolCall, ToolCallResponse
from foldlog_projections.cut import HEAD_KINDS, CutItem
from foldlog_projections.graphemes import boundary_after, boundary_before
from foldlog_projections.informative import condense
from foldlog_projections.pairing import counts
from foldlog_projections.pairs import Place, pair
from foldlog_projections.policy import Policy
from foldlog_projections.recall import entry_text
from foldlog_projections.tokens import FRAME_TOKENS, estimate_part

DUPLICATE_FROM = 128
"""Tokens from which a repeated result is worth a marker."""

RECALL_LIMIT = 4_000
"""Code points that the marker proposes to read at once."""

_ANY_TIME = datetime.min.replace(tzinfo=UTC)


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """Edits that shorten tool results, and what they save."""

    edits: tuple[Edit, ...] = ()
    tokens_saved: int = 0
    """Estimated."""


def prune(items: Sequence[CutItem], policy: Policy) -> Pruned:
    """Edits for the results that are too long or repeated.

    The newest batch of results, those after the last message that calls, is left as it is. What
    was pruned before is not pruned again: of the outcome, `prune` finds nothing to do.
    """
    shortened: dict[Place, ToolCallResponse] = {}
    places = _prunable(items)
    shortened.update(_repeats(items, places))
    for place in places.old:
        if place not in shortened:
            shorter = _shorten(items, place, policy)
            if shorter is not None:
                shortened[place] = shorter
    saved = sum(
        estimate_part(_result(items, place)) - estimate_part(shorter)
        for place, shorter in shortened.items()
    )
    return Pruned(edits=tuple(_edits(items, shortened)), tokens_saved=saved)


def recall_marker(missing: int, entry: str, offset: int) -> str:
    """What stands for `missing` code points that begin at `offset` in the entry's text."""
    return (
        f"[… {missing:,} code points left out here; read them with "
        f"{_recall(entry)}, offset={offset}, limit={RECALL_LIMIT}) …]"
    )


def shorten_text(text: str, entry: str, policy: Policy, begins_at: int = 0) -> str:
    """A text over `policy.result_limit` code points with its middle, or its details, left out.

    The text itself where it is short enough, was shortened before, or would gain nothing.
    `begins_at` is where it begins in the entry's text.
    """
    if len(text) <= policy.result_limit or _recall(entry) in text:
        return text
    condensed = condense(text, policy.head + policy.tail) if policy.informative else None
    if condensed is not None:
        marker = recall_marker(len(text) - len(condensed), entry, begins_at)
        shorter = f"{condensed}\n{marker}"
    else:
        head = boundary_before(text, policy.head)
        tail = boundary_after(text, len(text) - policy.tail)
        marker = recall_marker(tail - head, entry, begins_at + head)
        shorter = f"{text[:head]}\n{marker}\n{text[tail:]}"
    return shorter if len(shorter) < len(text) else text


def _recall(entry: str) -> str:
    return f'recall(reference="{entry}"'


class _Places(msgspec.Struct, frozen=True):
    old: tuple[Place, ...]
    newest: tuple[Place, ...]


def _prunable(items: Sequence[CutItem]) -> _Places:
    """The results that a model is shown, with those of the newest batch apart."""
    last_call = max(
        (
            (place, number)
            for place, item in enumerate(items)
            for number, message in enumerate(item.messages)
            if _calls(message)
        ),
        default=(-1, -1),
    )
    shown = [
        answered.result
        for answered in pair([item.messages for item in items]).answered
        if answered.shown and items[answered.result.item].kind not in HEAD_KINDS
    ]
    return _Places(
        old=tuple(place for place in shown if place[:2] < last_call),
        newest=tuple(place for place in shown if place[:2] > last_call),
    )


def _calls(message: Message) -> bool:
    return (
        message.role == "assistant"
        and counts(message)
        and any(isinstance(part, ToolCall) for part in message.parts)
    )


def _repeats(items: Sequence[CutItem], places: _Places) -> dict[Place, ToolCallResponse]:
    """Markers for results that come again later, word for word."""
    last: dict[bytes, str] = {}
    markers: dict[Place, ToolCallResponse] = {}
    old = set(places.old)
    for place in sorted((*places.old, *places.newest), reverse=True):
        result = _result(items, place)
        if estimate_part(result) < DUPLICATE_FROM + FRAME_TOKENS:
            continue
        key = msgspec.json.encode((result.result, result.is_error))
        if key in last and place in old:
            text = f'[… same result as in entry "{last[key]}", which comes later …]'
            marker = _replaced(result, text)
            if estimate_part(marker) < estimate_part(result):
                markers[place] = marker
        last.setdefault(key, items[place.item].id)
    return markers


def _shorten(items: Sequence[CutItem], place: Place, policy: Policy) -> ToolCallResponse | None:
    item, result = items[place.item], _result(items, place)
    begins_at = _beginning(item, place)
    shorter: str | tuple[Content, ...]
    if isinstance(result.result, str):
        shorter = shorten_text(result.result, item.id, policy, begins_at)
    else:
        shorter = _shorten_texts(result.result, item.id, policy, begins_at)
    return None if shorter == result.result else _replaced(result, shorter)


def _beginning(item: CutItem, place: Place) -> int:
    """Where a result begins in its entry's text, as `recall` counts."""
    message = item.messages[place.message]
    earlier = (
        *item.messages[: place.message],
        msgspec.structs.replace(message, parts=message.parts[: place.part]),
    )
    text = entry_text(MessageEntry(id="", conversation="", time=_ANY_TIME, messages=earlier))
    return len(text) + 1 if text else 0


def _replaced(result: ToolCallResponse, by: str | tuple[Content, ...]) -> ToolCallResponse:
    # A provider's own form of the result would bring the whole of it back.
    return msgspec.structs.replace(result, result=by, payload=None)


def _shorten_texts(
    content: tuple[Content, ...], entry: str, policy: Policy, begins_at: int
) -> tuple[Content, ...]:
    """One text in the place of the first, for all texts together; other content stays."""
    texts = [part.content for part in content if isinstance(part, Text)]
    joined = "\n".join(texts)
    shorter = shorten_text(joined, entry, policy, begins_at)
    if shorter == joined:
        return content
    first = next(place for place, part in enumerate(content) if isinstance(part, Text))
    return tuple(
        Text(content=shorter) if place == first else part
        for place, part in enumerate(content)
        if place == first or not isinstance(part, Text)
    )


def _result(items: Sequence[CutItem], place: Place) -> ToolCallResponse:
    part = items[place.item].messages[place.message].parts[place.part]
    assert isinstance(part, ToolCallResponse), f"no result at {place}"
    return part


def _edits(items: Sequence[CutItem], shortened: dict[Place, ToolCallResponse]) -> Iterable[Edit]:
    for number, places in groupby(sorted(shortened), key=lambda place: place.item):
        messages = list(items[number].messages)
        for place in places:
            parts = list(messages[place.message].parts)
            parts[place.part] = shortened[place]
            messages[place.message] = msgspec.structs.replace(
                messages[place.message], parts=tuple(parts)
            )
        yield Edit(target=items[number].id, replace=tuple(messages))
