"""What commands print: tables and lines for people, JSON for programs.

Results go to standard output, everything else to standard error.
"""

import os
import re
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

WIDE = 200
"""Characters of a line that goes to no terminal."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Text from a log with control and direction characters made visible.

    What a model or a tool wrote must not steer the reader's terminal.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def one_line(text: str, width: int = 0) -> str:
    """Text on one line, cut to `width` characters where that is not 0."""
    line = safe(" ".join(text.split()))
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def print_json(value: Any) -> None:
    """One JSON value on one line of standard output, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def console() -> Console:
    """For results; where they go to no terminal, lines may be long."""
    found = Console(highlight=False, markup=False, emoji=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = WIDE
    return found


def say(text: str) -> None:
    """One line about what is going on, on standard error."""
    _errors().print(Text(one_line(text)), soft_wrap=True)


def fail(kind: str, message: str, *, as_json: bool) -> None:
    """One line that says what went wrong, and the same for programs."""
    line = Text.assemble(("foldlog: ", "bold red"), one_line(message))
    _errors().print(line, soft_wrap=True)
    if as_json:
        print_json({"error": {"type": kind, "message": message}})


def progress() -> Progress:
    """A progress bar on standard error, shown on a terminal only."""
    errors = _errors()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    )


def _errors() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)
