"""The lines of a JSON lines file, each parsed or with the reason why not."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

_BOM = b"\xef\xbb\xbf"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file. Exactly one of: blank, parsed to `value`, or with a `fault`."""

    number: int
    """Counted from 1."""
    text: bytes
    value: Any = None
    fault: str = ""

    @property
    def blank(self) -> bool:
        """Nothing but white space."""
        return not self.text.strip()


def parse_lines(lines: Iterable[bytes], *, repair: bool = False) -> Iterator[Line]:
    """Each line with its number. With `repair`, NaN and infinities become null."""
    for number, raw in enumerate(lines, start=1):
        text = raw.removeprefix(_BOM) if number == 1 else raw
        yield parse_line(number, text.rstrip(b"\r\n"), repair=repair)


def parse_line(number: int, text: bytes, *, repair: bool = False) -> Line:
    """One line, parsed as JSON."""
    if not text.strip():
        return Line(number=number, text=text)
    try:
        value = json.loads(text.decode(), parse_constant=_null if repair else _refuse_constant)
    except UnicodeDecodeError as error:
        return Line(number=number, text=text, fault=f"not UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return Line(
            number=number, text=text, fault=f"not JSON: {error.msg} at character {error.colno}"
        )
    except RecursionError:
        return Line(number=number, text=text, fault="not readable: nested too deep")
    except ValueError as error:
        return Line(number=number, text=text, fault=f"not JSON: {error}")
    return Line(number=number, text=text, value=value)


def _null(_: str) -> None:
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
