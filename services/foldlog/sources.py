"""What a summary was made from, read back from the log entry by entry."""

from foldlog.contexts import UnknownEntry
from foldlog.reading import Read
from foldlog.seeking import first_entry
from foldlog.session import Foldlog
from foldlog_events.entries import CompactionEntry, ForkEntry, Recorded


async def source_of(foldlog: Foldlog, conversation: str, compaction: str) -> list[Read]:
    """The entries that a compaction stands for, the older summary among them first, in order.

    `compaction` is the id of its entry, or of the attempt that committed it. Raises UnknownEntry.
    """
    async for read in foldlog.log.read(foldlog.tenant, conversation):
        entry = read.entry if isinstance(read, Recorded) else None
        if isinstance(entry, CompactionEntry) and compaction in (entry.id, entry.attempt):
            break
    else:
        raise UnknownEntry(compaction, conversation)
    state = (await foldlog.contexts.at(foldlog.tenant, conversation, read.version - 1)).state()
    first, last = entry.source_range.first.version, entry.source_range.last.version
    versions = {one.version for one in state.active if first <= one.version <= last}
    if state.head is not None:
        versions.add(state.head.version)
    return await _entries(foldlog, conversation, versions)


async def _entries(foldlog: Foldlog, conversation: str, versions: set[int]) -> list[Read]:
    """Entries of a conversation, and those that it inherits."""
    if not versions:
        return []
    found = [
        read
        async for read in foldlog.log.read(
            foldlog.tenant, conversation, after=min(versions) - 1, up_to=max(versions)
        )
        if read.version in versions
    ]
    missing = versions - {read.version for read in found}
    begin = await first_entry(foldlog.broker, foldlog.tenant, conversation)
    fork = begin.entry if isinstance(begin, Recorded) else None
    if missing and isinstance(fork, ForkEntry):
        return [*await _entries(foldlog, fork.parent, missing), *found]
    return found
