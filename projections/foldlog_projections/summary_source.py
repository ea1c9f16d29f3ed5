"""What a summary is made of, and what it is made from.

The source is data: every piece of it is fenced, and nothing inside can end its fence.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from foldlog_events.entries import ExactValue
from foldlog_events.messages import (
    AnyPart,
    Blob,
    Content,
    File,
    FinishReason,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    Usage,
)

RESULT_LIMIT = 2_000
"""Code points of a tool result, or of a call's arguments, that a summariser reads."""
URI_LIMIT = 300
"""Code points of an address that a summariser reads; a longer one is content, not an address."""

SECTIONS = {
    "goal": "Goal",
    "constraints": "Constraints and preferences",
    "progress": "Progress",
    "decisions": "Decisions",
    "next_steps": "Next steps",
    "critical_context": "Critical context",
}
"""Field of a structured summary → its heading, in the order they are written."""
NOTHING = "(none)"

_FENCES = re.compile(
    r"<(?=/?(?:conversation|message|previous-summary|turn-beginning|exact-values|summary)\b)",
    re.IGNORECASE,
)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/=_-]{64,})")
_HEADING = re.compile(r"^#{1,3}[ \t]+(.+?)[ \t]*:?[ \t]*$", re.MULTILINE)
_HEADING_MARK = re.compile(r"^(?:#{1,3}\s+)+")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


class SourceMessage(NamedTuple):
    """A message to be summarised, and the entry that contributes it."""

    entry: str
    version: int
    message: Message


class StructuredSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary in its sections; every section is there, though a list may be empty."""

    goal: str
    constraints: tuple[str, ...]
    progress: tuple[str, ...]
    decisions: tuple[str, ...]
    next_steps: tuple[str, ...]
    critical_context: tuple[str, ...]

    def to_text(self) -> str:
        """The sections under their headings, one item to a line."""
        return "\n\n".join(
            f"## {heading}\n{_section_text(getattr(self, field))}"
            for field, heading in SECTIONS.items()
        )

    @staticmethod
    def parse(text: str) -> "StructuredSummary | None":
        """The summary behind its text or its JSON; None where a section is missing."""
        return _from_json(text) or _from_sections(text)


class SummaryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a summariser answered, before anything of it is trusted."""

    text: str
    structured: StructuredSummary | None = None
    finish_reason: FinishReason = "stop"
    tool_called: bool = False
    model: str = ""
    usage: Usage | None = None
    """Of all the model calls it took."""
    calls: int = 1
    """Model calls it took; 0 where no model was asked."""


def source_text(
    previous_summary: str | None,
    messages: Sequence[SourceMessage],
    *,
    turn_prefix: Sequence[SourceMessage] = (),
    exact_values: Sequence[ExactValue] = (),
    result_limit: int = RESULT_LIMIT,
) -> str:
    """What a summariser reads: the old summary, then what has to be merged into it.

    Roles are labelled, tool results are capped at `result_limit` code points, images and other
    binary content are placeholders, system messages and reasoning are left out.
    """
    parts = []
    if previous_summary:
        parts.append(_fenced("previous-summary", fence_safe(previous_summary)))
    if exact_values:
        lines = "\n".join(f"- {value.kind}: {value.text}" for value in exact_values)
        parts.append(_fenced("exact-values", fence_safe(lines)))
    if messages:
        blocks = message_blocks(messages, result_limit)
        parts.append(_fenced("conversation", "\n".join(blocks)))
    if turn_prefix:
        blocks = message_blocks(turn_prefix, result_limit)
        parts.append(_fenced("turn-beginning", "\n".join(blocks)))
    return "\n\n".join(parts)


def message_blocks(
    messages: Iterable[SourceMessage], result_limit: int = RESULT_LIMIT
) -> list[str]:
    """Each message as the labelled, fenced block that a summariser reads; silent ones have none."""
    names: dict[str, str] = {}
    blocks = []
    for _, _, message in messages:
        names.update({part.id: part.name for part in message.parts if isinstance(part, ToolCall)})
        lines = [
            fence_safe(text)
            for part in message.parts
            if (text := _part_text(part, names, result_limit))
        ]
        if lines and message.role != "system":
            said = "\n".join(lines)
            blocks.append(f'<message role="{message.role}">\n{said}\n</message>')
    return blocks


def grounding_text(
    previous_summary: str | None,
    messages: Iterable[SourceMessage],
    exact_values: Iterable[ExactValue] = (),
) -> str:
    """Everything a summary may take its facts from: the whole source, nothing capped."""
    texts = [previous_summary or "", *(value.text for value in exact_values)]
    for _, _, message in messages:
        texts.append(plain_text(message))
    return "\n".join(texts)


def plain_text(message: Message) -> str:
    """A message's own text, whole: no labels, no reasoning, placeholders for what is no text."""
    return "\n".join(filter(None, (_part_text(part, {}, None) for part in message.parts)))


def informative(text: str, limit: int) -> str:
    """At most `limit` code points of a text: its head, its tail, and lines that hold facts."""
    if len(text) <= limit:
        return text
    if limit < 200:
        return text[:limit]
    pieces = _pieces(text, max(40, limit // 8))
    head, tail = limit * 3 // 10, limit * 2 // 10
    chosen = _fill(pieces, range(len(pieces)), head)
    chosen |= _fill(pieces, range(len(pieces) - 1, -1, -1), tail)
    ranked = sorted(range(len(pieces)), key=lambda at: (-_interest(pieces[at]), at))
    facts = [at for at in ranked if _interest(pieces[at]) and at not in chosen]
    room = limit - sum(len(pieces[at]) for at in chosen)
    while facts and room > 0:
        trial = chosen | _fill(pieces, facts, room * 3 // 4)
        if len(_joined(pieces, trial)) <= limit:
            return _joined(pieces, trial)
        room //= 2
    return _joined(pieces, chosen)[:limit]


def fence_safe(text: str) -> str:
    """Text in which nothing opens or closes one of the source's fences."""
    return _FENCES.sub("&lt;", text)


def _fenced(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def _part_text(part: AnyPart, names: dict[str, str], limit: int | None) -> str:
    match part:
        case ToolCall(name=name, arguments=arguments):
            said = arguments if isinstance(arguments, str) else _json(arguments)
            return f"Called {name} with {_capped(said, limit)}"
        case ToolCallResponse(id=call, result=result, is_error=failed):
            texts = (result,) if isinstance(result, str) else map(_content_text, result)
            what = "failed" if failed else "returned"
            return f"{names.get(call, 'The tool')} {what}: {_capped(_lines(texts), limit)}"
        case Reasoning():
            return ""
        case _:
            return without_data_urls(_content_text(part))


def _content_text(part: Content) -> str:
    match part:
        case Text(content=content):
            return content
        case Blob(mime_type=mime_type, content=content):
            return _placeholder(mime_type, len(content) * 3 // 4)
        case Uri(uri=uri, mime_type=mime_type) if uri.startswith("data:"):
            declared = uri[5:80].split(";")[0].split(",")[0]
            return _placeholder(mime_type or declared, len(uri) * 3 // 4)
        case Uri(uri=uri, mime_type=mime_type):
            return f"[{mime_type or 'content'} at {uri[:URI_LIMIT]}]"
        case File(file_id=file_id, mime_type=mime_type):
            return f"[{mime_type or 'file'} {file_id}]"
        case _:
            head = f"[{part.mime_type} of {part.size} bytes, stored as {part.digest}]"
            return f"{head}\n{part.preview}".rstrip()


def _placeholder(mime_type: str, size: int) -> str:
    return f"[{mime_type}, about {size} bytes, not shown]"


def without_data_urls(text: str) -> str:
    """Text with embedded base64 content replaced by a placeholder of its type and size."""
    if "base64," not in text:
        return text
    return _DATA_URL.sub(lambda match: _placeholder(match[1], len(match[2]) * 3 // 4), text)


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _capped(text: str, limit: int | None) -> str:
    text = without_data_urls(text)
    return text if limit is None else informative(text, limit)


_FACTS = re.compile(
    r"\b(?:total|sum|error|fail\w*|warn\w*|exception|result|status|id|missing|count)\b|[$€£¥%]|合计|总",
    re.IGNORECASE,
)


def _interest(piece: str) -> int:
    """How likely a line is to hold what a later step needs: figures, totals, failures."""
    return min(3, sum(map(str.isdigit, piece))) + 4 * len(_FACTS.findall(piece[:400]))


def _pieces(text: str, longest: int) -> list[str]:
    """Lines, and long lines in pieces that end at a separator where one is near."""
    pattern = rf".{{1,{longest}}}(?:[,;\s]|$)|.{{1,{longest}}}|\n"
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        pieces += [line] if len(line) <= longest else re.findall(pattern, line, re.DOTALL)
    return pieces


def _fill(pieces: list[str], order: Iterable[int], room: int) -> set[int]:
    chosen: set[int] = set()
    for at in order:
        room -= len(pieces[at])
        if room < 0:
            break
        chosen.add(at)
    return chosen


def _joined(pieces: list[str], chosen: set[int]) -> str:
    return "".join(_with_gaps(pieces, sorted(chosen)))


def _with_gaps(pieces: list[str], chosen: list[int]) -> Iterator[str]:
    expected = 0
    for at in [*chosen, len(pieces)]:
        if at > expected:
            left_out = sum(map(len, pieces[expected:at]))
            yield f"\n[… {left_out} characters left out …]\n"
        if at < len(pieces):
            yield pieces[at]
        expected = at + 1


def _section_text(value: str | tuple[str, ...]) -> str:
    if isinstance(value, str):
        return _HEADING_MARK.sub("", " ".join(value.split())) or NOTHING
    return "\n".join(f"- {' '.join(item.split())}" for item in value if item.strip()) or NOTHING


def _from_json(text: str) -> StructuredSummary | None:
    stripped = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip())
    try:
        return msgspec.json.decode(stripped, type=StructuredSummary)
    except (msgspec.DecodeError, RecursionError):
        return None


def sections_of(text: str) -> dict[str, str]:
    """Field of each known section that a summary's text has → what stands under its heading."""
    fields = {heading.lower(): field for field, heading in SECTIONS.items()}
    found: dict[str, str] = {}
    headings = list(_HEADING.finditer(text))
    for heading, following in zip_longest(headings, headings[1:]):
        end = following.start() if following else len(text)
        if field := fields.get(heading[1].lower()):
            found.setdefault(field, text[heading.end() : end].strip())
    return found


def _from_sections(text: str) -> StructuredSummary | None:
    found = sections_of(text)
    if found.keys() < SECTIONS.keys():
        return None
    lists = {field: _items(said) for field, said in found.items() if field != "goal"}
    goal = "" if found["goal"] == NOTHING else found["goal"]
    return msgspec.convert({"goal": goal, **lists}, StructuredSummary)


def _items(text: str) -> tuple[str, ...]:
    items: list[str] = []
    for line in text.splitlines():
        said = _BULLET.sub("", line).strip()
        if not said or said == NOTHING:
            continue
        if items and not _BULLET.match(line):
            items[-1] += f" {said}"
        else:
            items.append(said)
    return tuple(items)
