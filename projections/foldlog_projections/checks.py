"""What a summary must be before it is committed; each reason to refuse one has its name."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from foldlog_events.entries import ExactValue
from foldlog_projections.grounding import Grounds
from foldlog_projections.summary import CLOSE, INTRODUCTION, OPEN, frame
from foldlog_projections.summary_source import (
    SECTIONS,
    SourceMessage,
    StructuredSummary,
    SummaryResult,
    grounding_text,
    plain_text,
    sections_of,
)
from foldlog_projections.tokens import estimate_message

ReasonName = Literal[
    "tool_call",
    "unfinished",
    "empty",
    "section_missing",
    "nested",
    "echo",
    "not_smaller",
    "ungrounded",
]

SENTENCES: dict[ReasonName, str] = {
    "tool_call": "The model called a tool instead of writing a summary.",
    "unfinished": "The model did not finish its summary.",
    "empty": "The model returned no text.",
    "section_missing": "The summary lacks a section, or its goal says nothing.",
    "nested": "The summary holds another summary, or the marks of one.",
    "echo": "The summary repeats a message instead of summarising.",
    "not_smaller": "The framed summary takes no fewer tokens than what it would replace.",
    "ungrounded": "The summary states values that its source does not hold.",
}
"""Each reason's sentence. In all of them the view is unchanged; the attempt is recorded."""
assert SENTENCES.keys() == set(get_args(ReasonName))

ECHO_SHARE = 0.9
"""A summary is an echo where one message holds all of it, or is at least this share of it."""


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a summary was refused; `values` are what is missing, invented or exceeded."""

    name: ReasonName
    sentence: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The sentence, with its values."""
        return f"{self.sentence} ({', '.join(self.values)})" if self.values else self.sentence


def check(
    result: SummaryResult,
    messages: Sequence[SourceMessage],
    *,
    previous_summary: str | None = None,
    previous_values: tuple[ExactValue, ...] = (),
    exact_values: tuple[ExactValue, ...] = (),
    instructions: str = "",
) -> tuple[Reason, ...]:
    """Every reason to refuse a summary of these messages; none where it may be committed.

    `messages` is all that the summary replaces, a split turn's first part included;
    `exact_values` is what will be carried beside it, `previous_values` what stood beside the
    previous summary.
    """
    if reasons := tuple(_unusable(result)):
        return reasons
    reasons = (
        *_missing_sections(result),
        *_nesting(result.text, messages),
        *_echo(result.text, messages),
        *_size(result.text, exact_values, messages, previous_summary, previous_values),
    )
    source = grounding_text(previous_summary, messages, previous_values)
    return (*reasons, *_grounding(result.text, f"{source}\n{instructions}"))


def replaced_tokens(
    messages: Iterable[SourceMessage],
    previous_summary: str | None,
    previous_values: tuple[ExactValue, ...] = (),
) -> int:
    """Estimated tokens of what a summary replaces: the messages, and the previous summary."""
    tokens = sum(estimate_message(message) for _, _, message in messages)
    if previous_summary is not None:
        tokens += estimate_message(frame(previous_summary, previous_values))
    return tokens


def _reason(name: ReasonName, *values: str) -> Reason:
    return Reason(name=name, sentence=SENTENCES[name], values=values)


def _unusable(result: SummaryResult) -> Iterable[Reason]:
    if result.tool_called or result.finish_reason == "tool_call":
        yield _reason("tool_call")
    elif result.finish_reason != "stop":
        yield _reason("unfinished", result.finish_reason)
    if not result.text.strip():
        yield _reason("empty")


def _missing_sections(result: SummaryResult) -> Iterable[Reason]:
    structured = result.structured or StructuredSummary.parse(result.text)
    if structured is None:
        present = sections_of(result.text)
        missing = [heading for field, heading in SECTIONS.items() if field not in present]
        yield _reason("section_missing", *missing)
    elif not structured.goal.strip():
        yield _reason("section_missing", SECTIONS["goal"])


def _nesting(text: str, messages: Sequence[SourceMessage]) -> Iterable[Reason]:
    lowered = text.lower()
    lines = lowered.splitlines()
    if INTRODUCTION.lower() in lowered:
        yield _reason("nested", INTRODUCTION)
    elif any(lines.count(f"## {heading.lower()}") > 1 for heading in SECTIONS.values()):
        yield _reason("nested", "a section twice")
    elif marks := [mark for mark in (OPEN, CLOSE) if mark in lowered]:
        # A conversation about these very marks may be summarised with them; framing escapes them.
        spoken = "\n".join(plain_text(message) for _, _, message in messages).lower()
        if foreign := [mark for mark in marks if mark not in spoken]:
            yield _reason("nested", *foreign)


def _echo(text: str, messages: Sequence[SourceMessage]) -> Iterable[Reason]:
    said = _bare(text)
    for source in messages:
        whole = _bare(plain_text(source.message))
        copied = said in whole or (whole in said and len(whole) >= ECHO_SHARE * len(said))
        if said and copied:
            yield _reason("echo", source.entry)
            return


def _size(
    text: str,
    exact_values: tuple[ExactValue, ...],
    messages: Sequence[SourceMessage],
    previous_summary: str | None,
    previous_values: tuple[ExactValue, ...],
) -> Iterable[Reason]:
    before = replaced_tokens(messages, previous_summary, previous_values)
    after = estimate_message(frame(text, exact_values))
    if after >= before:
        yield _reason("not_smaller", f"{before} tokens before", f"{after} after")


def _grounding(text: str, source: str) -> Iterable[Reason]:
    if invented := Grounds(source).ungrounded(text):
        yield _reason("ungrounded", *(fact.text for fact in invented))


def _bare(text: str) -> str:
    """The words of a text alone: no headings, no bullets, no case."""
    lines = (line.lstrip(" -*•") for line in text.splitlines() if not line.startswith("#"))
    return " ".join(" ".join(lines).replace("(none)", " ").split()).casefold()
