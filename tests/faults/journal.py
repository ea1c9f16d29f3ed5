"""What a writer did, on disk before it goes on: the model that the log is held against."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

What = Literal["intent", "acknowledged", "refused", "abandoned"]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a journal, about one append."""

    what: What
    """`intent`: it is about to be tried. `acknowledged`: it is in the log. `refused`: the client
    said that nothing was written. `abandoned`: nobody will ask again."""
    conversation: str
    ids: tuple[str, ...]
    versions: tuple[int, ...] = ()
    entries: tuple[msgspec.Raw, ...] = ()
    """Of an intent: to be tried again by who comes after."""
    reason: str = ""
    started: float = 0.0
    """When it was first tried, on the machine's monotonic clock."""
    ended: float = 0.0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


class Journal:
    """A journal being written. A line is on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # who wrote here before was killed in the middle of a line

    def write(self, line: Line) -> None:
        os.write(self._file, _encode(line) + b"\n")
        os.fsync(self._file)


def read(path: Path) -> Iterator[Line]:
    """The lines of a journal; one that its writer could not finish does not count."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            yield _decode(line)
        except msgspec.DecodeError:
            continue


def open_intents(lines: list[Line]) -> list[Line]:
    """Intents of which it is not known how they ended."""
    closed = {line.ids for line in lines if line.what != "intent"}
    return [line for line in lines if line.what == "intent" and line.ids not in closed]
