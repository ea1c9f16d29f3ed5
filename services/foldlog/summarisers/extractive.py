"""A summary without a model: verbatim pieces of the range in the sections of a summary.

It knows little, but what it says was said: the first goal, the wishes of the people, decisions,
what tools returned, what is next. Its size is bounded by the budget, whatever the input.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from foldlog.summarisers import SummariserDeclined, SummaryRequest
from foldlog_events.messages import Message, Text, ToolCall, ToolCallResponse
from foldlog_projections.checks import check, replaced_tokens
from foldlog_projections.grounding import Grounds
from foldlog_projections.summary import INTRODUCTION, escape, frame
from foldlog_projections.summary_source import (
    SourceMessage,
    StructuredSummary,
    SummaryResult,
    grounding_text,
    informative,
    plain_text,
    without_data_urls,
)
from foldlog_projections.tokens import estimate_message, estimate_text

PIECE = 240
"""Code points of one verbatim piece at most."""
PIECES_OF_A_MESSAGE = 8
SHORT = 12
"""Code points up to which a sentence without a sign of a wish is a greeting or a nod."""
SCANNED = 20_000
"""Code points of one message that are read, around its informative parts."""
SHARE_OF_SOURCE = 0.6
"""The summary takes at most this share of what it replaces, so that exact values find room."""

_SHARES = {
    "goal": 0.12,
    "next_steps": 0.12,
    "constraints": 0.3,
    "decisions": 0.12,
    "critical_context": 0.17,
    "progress": 0.17,
}
"""Share of the budget; what a section leaves over goes to those after it."""
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!^\d\.)(?<!^\d\d\.)\s+(?=[\w\"“(*#-])|(?<=[。！？])|\n+", re.MULTILINE
)
_WISH = re.compile(
    r"\b(?:only|never|always|must|please|use|don't|do not|instead|no longer|should|want|need"
    r"|exclude|include|without|against|compare|prefer|make sure|also|one more|nur|nie|immer|bitte"
    r"|kein\w*|nicht|statt|ohne)\b|只|不要|必须|请|仅|务必",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decide|we will|i'll use|i will use|agreed|chose|choose|instead of|switch\w*"
    r"|because|therefore|confirmed|approved|beschlossen|entschieden|deshalb)\b|决定|因此|确认",
    re.IGNORECASE,
)
_NEXT = re.compile(
    r"\b(?:next|i will|i'll|let me|todo|to do|then|remaining|still|pending|als nächstes)\b"
    r"|接下来|下一步|待",
    re.IGNORECASE,
)
_FACT = re.compile(r"\d")
_FAILURE = re.compile(r"\b(?:error|fail\w*|exception|missing|denied|refused|not found)\b", re.I)


class Extractive:
    """A summariser that needs no model: deterministic, and bounded by the request's budget."""

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The digest of the range. Raises SummariserDeclined where it would not pass the checks."""
        return await asyncio.to_thread(summarise, request)


class _Piece(NamedTuple):
    text: str
    at: int
    """Place in the conversation; pieces of the previous summary come before all others."""
    weight: int


def summarise(request: SummaryRequest) -> SummaryResult:
    """The digest of a request; see `Extractive.summarise`."""
    messages = (*request.messages, *request.turn_prefix)
    before = replaced_tokens(messages, request.previous_summary, request.previous_values)
    frame_tokens = estimate_message(frame(_EMPTY.to_text()))
    room = min(request.budget, int(before * SHARE_OF_SOURCE)) - frame_tokens
    if room <= 0 or not messages:
        raise SummariserDeclined(
            f"the range takes {before} tokens, which leaves no room for a smaller digest: "
            "let more be said first, or raise the budget"
        )
    source = grounding_text(request.previous_summary, messages, request.previous_values)
    digest = _digest(messages, request.previous_summary, Grounds(source), room)
    result = SummaryResult(text=digest.to_text(), structured=digest, model="extractive", calls=0)
    reasons = check(
        result,
        messages,
        previous_summary=request.previous_summary,
        previous_values=request.previous_values,
    )
    if reasons:
        raise SummariserDeclined(
            f"the digest does not pass the checks: {'; '.join(map(str, reasons))}",
            reasons=reasons,
        )
    return result


def _digest(
    messages: tuple[SourceMessage, ...], previous: str | None, grounds: Grounds, room: int
) -> StructuredSummary:
    said = list(_said(messages))
    old = _previous(previous)
    goal = old.goal or _first_goal(said)
    wishes = list(_wishes(said))
    candidates: dict[str, list[_Piece]] = {
        "goal": [_Piece(goal, 0, 1)],
        "next_steps": list(_next_steps(said, old.next_steps)),
        # What was next when it was asked is a wish in force once something else is next.
        "constraints": [
            *_old((*old.constraints, *filter(_WISH.search, old.next_steps)), 2),
            *wishes,
        ],
        "decisions": [*_old(old.decisions, 1), *_matching(said, _DECISION, "assistant")],
        "critical_context": [
            *_old(old.critical_context, 1),
            *_matching(said, _FACT, "assistant"),
            *_matching(said, _FAILURE, "tool"),
        ],
        "progress": [*_old(old.progress, 1), *_progress(messages)],
    }
    chosen: dict[str, list[str]] = {}
    used: set[str] = set()
    left = 0.0
    for section, share in _SHARES.items():
        left += room * share
        chosen[section], spent = _choose(candidates[section], left, used, grounds)
        left -= spent
    sections = {section: tuple(texts) for section, texts in chosen.items()}
    goal = " ".join(sections.pop("goal")) or "Go on."
    return msgspec.convert({"goal": goal, **sections}, StructuredSummary)


def _choose(
    pieces: Iterable[_Piece], room: float, used: set[str], grounds: Grounds
) -> tuple[list[str], int]:
    """The weightiest pieces that fit, newest first among equals; in the order they were said."""
    chosen: list[_Piece] = []
    spent = 0
    for piece in sorted(pieces, key=lambda one: (one.weight, one.at), reverse=True):
        for limit in (PIECE,) if chosen else (PIECE, PIECE // 2, PIECE // 4):
            text = _safe(piece.text, limit)
            cost = estimate_text(text) + 2
            if not text or text.casefold() in used or grounds.ungrounded(text):
                break
            if spent + cost <= room:
                used.add(text.casefold())
                spent += cost
                chosen.append(piece._replace(text=text))
                break
    return [piece.text for piece in sorted(chosen, key=lambda one: one.at)], spent


def _safe(text: str, limit: int) -> str:
    """One line that neither opens a section or a fence nor is taken for a summary's frame."""
    text = " ".join(text.replace(INTRODUCTION, " ").split()).lstrip("#-*• ")
    return escape(_cut(text, limit))


def _cut(text: str, limit: int = PIECE) -> str:
    if len(text) <= limit:
        return text
    whole_words = text[:limit].rpartition(" ")[0] or text[:limit]
    return f"{whole_words} …"


def _said(messages: Iterable[SourceMessage]) -> Iterator[tuple[str, str, int]]:
    """Role, sentence and place of what was said, a few of each message."""
    for at, (_, _, message) in enumerate(messages, start=1):
        for text in _sentences(message):
            yield message.role, text, at


def _sentences(message: Message) -> list[str]:
    if message.role == "tool":
        text = informative(plain_text(message), SCANNED)
    else:
        texts = (part.content for part in message.parts if isinstance(part, Text))
        text = without_data_urls("\n".join(texts))
    found = [piece.strip() for piece in _SENTENCE_END.split(text) if piece.strip(" `#*-|\n")]
    if len(found) <= PIECES_OF_A_MESSAGE:
        return found
    ranked = sorted(range(len(found)), key=lambda at: (-_interest(found[at], at), at))
    best = {*ranked[: PIECES_OF_A_MESSAGE - 1], len(found) - 1}
    return [found[at] for at in sorted(best)]


def _interest(text: str, at: int) -> int:
    patterns = (_WISH, _DECISION, _NEXT, _FACT, _FAILURE)
    return sum(bool(pattern.search(text)) for pattern in patterns) + 3 * (at == 0)


def _first_goal(said: list[tuple[str, str, int]]) -> str:
    """The first sentence of a person that is more than a greeting, or whatever came first."""
    of_people = [text for role, text, _ in said if role == "user"]
    meant = (text for text in of_people if len(text) > SHORT or _WISH.search(text))
    return next(meant, next(iter([*of_people, *(text for _, text, _ in said)]), "Go on."))


def _wishes(said: Iterable[tuple[str, str, int]]) -> Iterator[_Piece]:
    for role, text, at in said:
        if role == "user" and (_WISH.search(text) or len(text) > SHORT):
            yield _Piece(text, at, 2 if _WISH.search(text) else 1)


def _next_steps(said: list[tuple[str, str, int]], old: tuple[str, ...]) -> Iterator[_Piece]:
    """What the last message of a person asks, and what the model last said it would do."""
    last_wish = max((at for role, _, at in said if role == "user"), default=0)
    last_reply = max((at for role, _, at in said if role == "assistant"), default=0)
    found = [_Piece(text, at, 3) for role, text, at in said if at == last_wish and role == "user"]
    found += [
        _Piece(text, at, 2)
        for role, text, at in said
        if at == last_reply and role == "assistant" and _NEXT.search(text)
    ]
    return iter(found or _old(old, 1))


def _matching(
    said: Iterable[tuple[str, str, int]], pattern: re.Pattern[str], role: str
) -> Iterator[_Piece]:
    return (_Piece(text, at, 1) for who, text, at in said if who == role and pattern.search(text))


def _progress(messages: Iterable[SourceMessage]) -> Iterator[_Piece]:
    """What was called, and the line of the answer that says most."""
    calls: dict[str, ToolCall] = {}
    for at, (_, _, message) in enumerate(messages, start=1):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolCallResponse):
                answer = _best_line(plain_text(Message(role="tool", parts=(part,))))
                yield _Piece(f"{_called(calls.get(part.id))}{answer}", at, 1)


def _called(call: ToolCall | None) -> str:
    if call is None:
        return ""
    said = call.arguments
    written = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return f"{call.name} {_cut(without_data_urls(written), 100)} → "


def _best_line(text: str) -> str:
    text = text.removeprefix("The tool returned: ").removeprefix("The tool failed: ")
    lines = [line.strip() for line in informative(text, 2_000).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("[…")]
    if not lines:
        return "(nothing)"
    return _cut(max(lines, key=lambda line: (_interest(line, 1), -len(line))), 130)


def _old(items: Iterable[str], weight: int) -> list[_Piece]:
    items = list(items)
    return [_Piece(text, at - len(items), weight) for at, text in enumerate(items)]


_EMPTY = StructuredSummary(
    goal="", constraints=(), progress=(), decisions=(), next_steps=(), critical_context=()
)


def _previous(text: str | None) -> StructuredSummary:
    """The previous summary in its sections; the lines of one without sections are context."""
    if not text:
        return _EMPTY
    if parsed := StructuredSummary.parse(text):
        return parsed
    lines = [line.strip() for line in informative(text, SCANNED).splitlines() if line.strip()]
    return msgspec.structs.replace(_EMPTY, goal=lines[0], critical_context=tuple(lines[1:]))
