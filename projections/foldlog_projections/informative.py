"""The parts of a structured text that say most: keys, first rows and totals.

Numbers stay as they were written, digit for digit. What was left out is said in its place.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from foldlog_projections.graphemes import boundary_after, boundary_before

_TOTAL = re.compile(
    r"\b(grand[ _]?|sub[ _-]?)?(totals?|sums?|summary|summe|gesamt\w*|somme|total\w*|suma|totale|"
    r"balance|saldo)\b|итого|всего|合计|总计|總計|合計|小计|小計|합계|총계|الإجمالي|कुल",
    re.IGNORECASE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r'"[^"\n]*"')
_RULE = re.compile(r"^[\s|+:=-]+$")

_DELIMITERS = {"\t": 1, "|": 1, ";": 1, ",": 2}
"""Each with the least of them in a row: one comma is in many a log's time stamp."""
_LEAST_ROWS = 6
_LAST_ROWS = 2
_MOST_TOTALS = 8
_DEEPEST = 200


class _Detail(NamedTuple):
    """How much of each part is kept: elements of a list, fields of an object, code points of a
    text.
    """

    items: int
    fields: int
    text: int


_DETAILS = (
    _Detail(200, 200, 4_000),
    _Detail(200, 200, 2_000),
    _Detail(100, 200, 1_000),
    _Detail(50, 200, 500),
    _Detail(20, 100, 300),
    _Detail(10, 100, 200),
    _Detail(5, 50, 120),
    _Detail(3, 50, 80),
    _Detail(2, 30, 40),
    _Detail(1, 30, 40),
)


def condense(text: str, room: int) -> str | None:
    """At most `room` code points that say most about a JSON text or a table.

    None where the text is neither, or where not even its outline fits.
    """
    return _condense_json(text, room) or _condense_table(text, room)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Fields(list[tuple[str, Any]]):
    """An object's fields in order, repeated names included."""


def _condense_json(text: str, room: int) -> str | None:
    if not text.lstrip()[:1] or text.lstrip()[0] not in "{[":
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_Fields,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Number,
        )
        for detail in _DETAILS:
            written = _write(_shrink(value, detail))
            if len(written) <= room:
                return written
    except (ValueError, RecursionError):
        return None
    return None


def _shrink(value: Any, detail: _Detail, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return "… nested deeper"
    if isinstance(value, _Fields):
        kept, left_out = _first_and_totals(value, detail.fields, lambda field: field[0])
        fields = _Fields((name, _shrink(part, detail, depth + 1)) for name, part in kept)
        if left_out:
            fields.append(("…", f"{left_out:,} more fields"))
        return fields
    if isinstance(value, list):
        kept, left_out = _first_and_totals(value, detail.items, _label)
        items = [_shrink(part, detail, depth + 1) for part in kept]
        if left_out:
            items.insert(min(detail.items, len(items)), f"… {left_out:,} more items")
        return items
    if isinstance(value, str) and not isinstance(value, _Number) and len(value) > detail.text:
        return _shrink_text(value, detail.text)
    return value


def _shrink_text(text: str, size: int) -> str:
    head = boundary_before(text, size * 3 // 4)
    tail = boundary_after(text, len(text) - size // 4)
    return f"{text[:head]}… {tail - head:,} code points left out …{text[tail:]}"


def _first_and_totals(
    values: list[Any], count: int, label: Callable[[Any], str]
) -> tuple[list[Any], int]:
    if len(values) <= count + 1:
        return values, 0
    totals = [value for value in values[count:] if _TOTAL.search(label(value))]
    kept = values[:count] + totals[-_MOST_TOTALS:]
    return kept, len(values) - len(kept)


def _label(value: Any) -> str:
    """What names a row: its first short text."""
    parts: Iterable[Any] = (part for _, part in value) if isinstance(value, _Fields) else [value]
    texts = (part for part in parts if isinstance(part, str) and not isinstance(part, _Number))
    return next((part for part in texts if len(part) <= 80), "")


def _write(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Fields):
        return "{" + ", ".join(f"{_quote(k)}: {_write(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    if isinstance(value, str):
        return _quote(value)
    return {True: "true", False: "false"}.get(value, "null")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=bool(_SURROGATE.search(text)))


def _condense_table(text: str, room: int) -> str | None:
    rows = text.rstrip("\n").split("\n")
    if not _is_table(rows):
        return None
    head = _rows_of_head(rows)
    totals = [n for n in range(head, len(rows)) if _TOTAL.search(_first_cells(rows[n]))]
    kept = set(range(head)) | set(totals[-_MOST_TOTALS:])
    kept |= set(range(max(head, len(rows) - _LAST_ROWS), len(rows)))
    written = _with_gaps(rows, kept)
    if len(written) > room:
        return None
    size = len(written)
    for number in range(head, len(rows)):
        if number not in kept:
            size += len(rows[number]) + 1
            if size > room:
                break
            kept.add(number)
    return _with_gaps(rows, kept)


def _is_table(rows: list[str]) -> bool:
    filled = [row for row in rows if row.strip()]
    if len(filled) < _LEAST_ROWS:
        return False
    bare = [_QUOTED.sub("", row) for row in filled]
    for delimiter, least in _DELIMITERS.items():
        count = bare[0].count(delimiter)
        alike = sum(row.count(delimiter) == count or bool(_RULE.match(row)) for row in bare)
        if count >= least and alike >= 0.9 * len(bare):
            return True
    return False


def _rows_of_head(rows: list[str]) -> int:
    """The header, and the rule below it where there is one."""
    first = next(n for n, row in enumerate(rows) if row.strip() and not _RULE.match(row))
    second = first + 1 < len(rows) and _RULE.match(rows[first + 1])
    return first + (2 if second else 1)


def _first_cells(row: str) -> str:
    return row.strip(" |")[:40]


def _with_gaps(rows: list[str], kept: set[int]) -> str:
    written: list[str] = []
    expected = 0
    for number in sorted(kept):
        if number > expected:
            written.append(f"[… {number - expected:,} rows left out …]")
        written.append(rows[number])
        expected = number + 1
    return "\n".join(written)
