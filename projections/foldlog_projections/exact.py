"""Values that must stay exact: taken from messages by program, carried beside the summary."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldlog_events.entries import ExactValue
from foldlog_projections.grounding import Fact, facts, normalise
from foldlog_projections.summary_source import SourceMessage, informative, plain_text

COUNT = 32
"""Values carried at most."""
CHARACTERS = 2_000
"""Code points they take together at most."""
SCANNED = 40_000
"""Code points of one message that are searched, around its informative parts."""
LONGEST = 200
"""Code points of one value at most; a longer one is content."""

_KINDS = frozenset({"amount", "percent", "id", "path", "date", "url", "email"})
_LABEL = re.compile(r'(?:^|[\n,;{(•-])[ \t]*"?([A-Za-z][\w .-]{1,40}?)"?[ \t]*[:=][ \t]*"?$')
_FIELD_NAME = re.compile(r"[a-z_]+\d?")


class _Candidate(NamedTuple):
    key: tuple[str, str]
    value: ExactValue
    rank: tuple[int, int, int]


def exact_values(
    messages: Sequence[SourceMessage],
    previous: Iterable[ExactValue] = (),
    *,
    count: int = COUNT,
    characters: int = CHARACTERS,
) -> tuple[ExactValue, ...]:
    """The values most worth keeping, the most useful first; within both bounds, whatever comes.

    What people and the model spoke of comes before what only stood in a tool's result, newer
    before older. Values of the `previous` compaction keep up to half of the places.
    """
    candidates = _candidates(messages)
    known = {candidate.key for candidate in candidates}
    carried = [value for value in previous if _key_of(value) not in known]
    fresh = [candidate.value for candidate in sorted(candidates, key=lambda one: one.rank)]
    places = count - min(len(carried), count // 2)
    return _bounded([*_varied(fresh, places), *carried], count, characters)


def _candidates(messages: Sequence[SourceMessage]) -> list[_Candidate]:
    found: dict[tuple[str, str], _Candidate] = {}
    mentions: Counter[tuple[str, str]] = Counter()
    for age, (entry, _, message) in enumerate(reversed(messages)):
        spoken = message.role in ("user", "assistant")
        text = normalise(informative(plain_text(message), SCANNED))
        seen = set()
        for at, fact in enumerate(facts(text)):
            key = fact.kind, fact.text.casefold()
            if not _keepable(fact):
                continue
            seen.add(key)
            if key not in found or (spoken and found[key].rank[0]):
                value = ExactValue(text=_labelled(fact, text), kind=fact.kind, entry=entry)
                found[key] = _Candidate(key, value, (0 if spoken else 1, age, at))
        mentions.update(seen)
    return [one for key, one in found.items() if key[0] in _KINDS or mentions[key] > 1]


def _keepable(fact: Fact) -> bool:
    if len(fact.text) > LONGEST:
        return False
    if fact.kind == "id":
        return not _FIELD_NAME.fullmatch(fact.text) and any(map(str.isdigit, fact.text))
    if fact.kind == "number":
        return len(fact.text) > 3
    return fact.kind in _KINDS


def _labelled(fact: Fact, text: str) -> str:
    """The value with the name it is given in its place: `total: 1204.50`."""
    before = text[max(0, fact.start - 60) : fact.start]
    label = _LABEL.search(before)
    return f"{' '.join(label[1].split())}: {fact.text}" if label else fact.text


def _key_of(value: ExactValue) -> tuple[str, str]:
    return value.kind, value.text.rpartition(": ")[2].casefold()


def _varied(values: list[ExactValue], places: int) -> list[ExactValue]:
    """The first values, with no kind taking more than half of the places while others wait."""
    share, taken = max(1, places // 2), Counter[str]()
    first: list[ExactValue] = []
    later: list[ExactValue] = []
    for value in values:
        taken[value.kind] += 1
        (first if taken[value.kind] <= share else later).append(value)
    return [*first, *later][:places]


def _bounded(values: list[ExactValue], count: int, characters: int) -> tuple[ExactValue, ...]:
    kept = []
    for value in values[:count]:
        characters -= len(value.kind) + len(value.text) + 5
        if characters < 0:
            break
        kept.append(value)
    return tuple(kept)
