"""What lies outside the log and may hold an erased text: artifacts, stored views, records."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from foldlog.erasing import erase_messages
from foldlog.errors import ViewConflict
from foldlog.reading import messages
from foldlog.topology import (
    COMPACTIONS,
    DEAD,
    PRESSURE,
    VIEWS,
    entries_streams,
    pressure_subject,
)
from foldlog.views import VIEW_CONTENT
from foldlog_projections.attempts import CompactionRecord

if TYPE_CHECKING:
    from foldlog.session import Foldlog

_decode_record = msgspec.json.Decoder(CompactionRecord).decode
_encode = msgspec.json.Encoder().encode


async def erase_artifacts(
    foldlog: "Foldlog", digests: Collection[str], *, going: Collection[int]
) -> int:
    """Overwrites the artifacts that no entry names but those at the versions going; how many.

    Content is stored once for all who refer to it, so the whole log is looked through.
    """
    left = {digest: digest.encode() for digest in digests}
    for stream in entries_streams():
        if not left:
            break
        async for page in messages(foldlog.broker, stream, "entry.>"):
            for stored in page:
                if stored.version in going:
                    continue
                left = {one: raw for one, raw in left.items() if raw not in stored.data}
    for digest in left:
        await foldlog.artifacts.delete(digest)
    return len(left)


async def forget_views(foldlog: "Foldlog", tombstones: Mapping[str, int]) -> None:
    """Purges all stored views and stores those of the conversations given anew.

    A view that was replaced stays in the broker's file until the whole stream is purged. The
    views made anew hold the tombstones, at the versions given: a projector that still has an
    older state cannot store it over them.
    """
    while True:
        await foldlog.broker.api(f"STREAM.PURGE.{VIEWS}", {})
        large = [name async for name in foldlog.artifacts.names() if name.startswith(VIEW_CONTENT)]
        for name in large:
            await foldlog.artifacts.delete(name)
        try:
            for conversation in tombstones:
                context = await foldlog.contexts.rebuilt(
                    foldlog.tenant, conversation, at_least=tombstones[conversation]
                )
                data = _encode(context.state())
                await foldlog.views.put(foldlog.tenant, conversation, data, revision=0)
        except ViewConflict:
            continue  # a projector was faster: with what it knew, that may be the text
        return


async def overwrite_records(
    foldlog: "Foldlog", conversations: Iterable[str], *, all_of_them: bool = False
) -> None:
    """Overwrites records of compaction attempts that give a reason, and what could not be read.

    A reason may quote what a summary said.
    """
    broker, tenant = foldlog.broker, foldlog.tenant
    for conversation in conversations:
        for record in await foldlog.records.compactions(tenant, conversation):
            if all_of_them or _decode_record(record.data).reason:
                await erase_messages(broker, COMPACTIONS, (record.version,))
        for record in await foldlog.records.dead(None, tenant, conversation):
            await erase_messages(broker, DEAD, (record.version,))
        if all_of_them:
            subject = pressure_subject(tenant, conversation)
            await broker.api(f"STREAM.PURGE.{PRESSURE}", {"filter": subject})
