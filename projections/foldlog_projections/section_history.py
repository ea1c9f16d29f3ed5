"""How a prompt section came to its text: every time it was set or removed, by whom."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from foldlog_events.entries import EditEntry, ErasedEntry, Recorded, SystemEntry


class SectionSetting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry that set a section, or removed it."""

    text: str | None
    """None where it was removed."""
    exact: bool = False
    entry: str
    version: int
    actor: str = ""
    time: datetime
    """By the writer's clock."""
    replaced: str = ""
    """Id of the entry whose text it replaced; empty where the section was new."""
    withdrawn: str = ""
    """Id of the last edit of the entry: it sets nothing since."""


def section_history(name: str, entries: Iterable[Recorded]) -> tuple[SectionSetting, ...]:
    """The settings of one section, oldest first, from a conversation's entries in their order.

    An entry that says nothing new of the section is listed too; what was erased is not.
    """
    settings: dict[str, SectionSetting] = {}
    in_force = ""
    for recorded in entries:
        entry = recorded.entry
        if isinstance(entry, SystemEntry) and entry.id not in settings:
            for section in entry.sections:
                if section.name != name:
                    continue
                settings[entry.id] = SectionSetting(
                    text=section.text,
                    exact=section.exact,
                    entry=entry.id,
                    version=recorded.version,
                    actor=entry.actor,
                    time=entry.time,
                    replaced=in_force if in_force != entry.id else "",
                )
                in_force = entry.id if section.text is not None else ""
        elif isinstance(entry, EditEntry):
            for edit in entry.edits:
                if edit.target in settings:
                    known = settings[edit.target]
                    settings[edit.target] = msgspec.structs.replace(known, withdrawn=entry.id)
        elif isinstance(entry, ErasedEntry):
            settings.pop(entry.target, None)
    return tuple(settings.values())
