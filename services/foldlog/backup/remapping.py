"""Versions of a backup in the log it is restored to: entries name each other by version too.

The order of versions is kept, so whatever was before or after an entry still is. A version that
is in the backup becomes the one that its entry got. One that is not (its entry was erased, or it
names a moment) becomes that of the last entry before it: in its lane where it tells where a lane
ended, else in the whole backup.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from foldlog_events.entries import Lane

Key = tuple[str, str]
Fields = dict[str, Any]
_VERSIONED = (b'"seen"', b'version"', b'"kept_from"', b'"source_range"')

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Versions:
    """Old and new versions, in the order in which entries are restored."""

    def __init__(self) -> None:
        self._new: dict[int, int] = {}
        self._old: list[int] = []
        self._lanes: defaultdict[tuple[Key, Lane], list[int]] = defaultdict(list)

    def add(self, key: Key, lane: Lane, old: int, new: int) -> None:
        """An entry that was at `old` is at `new`; entries come in the order of `old`."""
        self._new[old] = new
        self._old.append(old)
        self._lanes[key, lane].append(old)

    def of(self, old: int) -> int:
        """The new version; of the last entry before it where it is not in the backup."""
        return self._new.get(old) or self._floor(self._old, old)

    def of_lane(self, key: Key, lane: Lane, old: int) -> int:
        """The same, for the end of a lane."""
        return self._new.get(old) or self._floor(self._lanes[key, lane], old)

    def _floor(self, versions: list[int], old: int) -> int:
        place = bisect_right(versions, old)
        return self._new[versions[place - 1]] if place else 0


def may_name_versions(entry: bytes) -> bool:
    """Whether an entry's JSON could name a version, so that it must wait for those before it."""
    return any(name in entry for name in _VERSIONED)


def remapped(entry: bytes, key: Key, versions: Versions) -> bytes:
    """An entry's JSON with the versions it names as they are now; the same where none changes."""
    if not may_name_versions(entry):
        return entry
    fields = _decode(entry)
    changed = _Changed()
    _remap_messages(fields.get("messages"), versions, changed)
    match fields["kind"]:
        case "fork":
            changed.set(fields, "parent_version", versions.of)
        case "erased":
            changed.set(fields, "target_version", versions.of)
        case "reset":
            _remap_messages(fields.get("handoff"), versions, changed)
        case "edit":
            for edit in fields["edits"]:
                _remap_messages(edit.get("replace"), versions, changed)
        case "compaction":
            base = fields["base_version"]
            changed.set(base, "log", lambda old: versions.of_lane(key, "log", old))
            changed.set(base, "shape", lambda old: versions.of_lane(key, "shape", old))
            for reference in (
                fields["source_range"]["first"],
                fields["source_range"]["last"],
                fields.get("kept_from"),
            ):
                if reference:
                    changed.set(reference, "version", versions.of)
        case _:
            pass
    return _encode(fields) if changed.any else entry


def _remap_messages(messages: Any, versions: Versions, changed: "_Changed") -> None:
    for message in messages or ():
        if seen := message.get("seen"):
            changed.set(seen, "version", versions.of)


class _Changed:
    """Sets fields and remembers whether any became another."""

    def __init__(self) -> None:
        self.any = False

    def set(self, fields: Fields, name: str, new: Callable[[int], int]) -> None:
        value = new(fields[name])
        self.any = self.any or value != fields[name]
        fields[name] = value
