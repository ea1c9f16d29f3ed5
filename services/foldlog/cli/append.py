"""`foldlog append`: entries and messages from JSON lines."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from uuid_utils import uuid7

from foldlog.cli.app import UsageError
from foldlog.cli.common import Common
from foldlog.cli.output import print_json, say
from foldlog.entry_lines import Filling, parse_entries
from foldlog.log import Log
from foldlog.publishing import prepare
from foldlog_events.entries import Entry

TOGETHER = 500
"""Entries that are appended as one atomic batch; longer input goes in several."""


async def append(
    conversation: str,
    file: Annotated[str, Parameter(help="JSON lines; - is standard input.")] = "-",
    /,
    *,
    expect: Annotated[
        int | None, Parameter(help="Append only behind this version of the log lane.")
    ] = None,
    actor: Annotated[str, Parameter(help="Who writes, where a line does not say.")] = "",
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Append JSON lines to a conversation.

    A line is an entry ({"kind": ...} and the kind's fields; id, time and conversation are filled
    in) or a message ({"role": ..., "content": "text"} or {"role": ..., "parts": [...]}). All
    lines are checked before the first is appended.
    """
    lines = _read(file)
    async with common.opened() as foldlog:
        log = foldlog.log
        filling = Filling(
            conversation=conversation,
            tenant=foldlog.tenant,
            actor=actor,
            new_id=lambda: str(uuid7()),
            now=lambda: datetime.now(UTC),
        )
        entries = parse_entries(
            lines,
            filling,
            source="standard input" if file == "-" else file,
            check=lambda entry: prepare((entry,), log.broker.max_payload),
        )
        versions = await _append(log, entries, expect)
    if common.json:
        print_json({"conversation": conversation, "appended": len(versions), "versions": versions})
    else:
        print(f"appended {len(versions)} entries to {conversation}")


async def _append(log: Log, entries: Sequence[Entry], expect: int | None) -> list[int]:
    versions: list[int] = []
    try:
        for start in range(0, len(entries), TOGETHER):
            recorded = await log.append(
                entries[start : start + TOGETHER], expect=expect if start == 0 else None
            )
            versions += [one.version for one in recorded]
    except BaseException:
        say(f"{len(versions)} of {len(entries)} entries are known to be appended")
        raise
    return versions


def _read(file: str) -> list[bytes]:
    if file == "-":
        return sys.stdin.buffer.read().split(b"\n")
    try:
        return Path(file).read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
