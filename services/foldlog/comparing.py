"""What changed for a model between two moments of a conversation, and which entries caused it."""

from foldlog.contexts import At, Contexts
from foldlog.history import history
from foldlog.log import Log
from foldlog.seeking import LATEST
from foldlog_events.entries import Recorded
from foldlog_events.errors import InvalidEntry
from foldlog_projections.diff import ContextDiff, diff


async def between(
    contexts: Contexts,
    log: Log,
    tenant: str,
    conversation: str,
    first: At,
    second: At | None,
) -> ContextDiff:
    """The difference from the first moment to the second, which is now where it is None.

    Raises UnknownEntry, and InvalidEntry where the second moment is before the first.
    """
    start = await contexts.version_at(tenant, conversation, first)
    end = LATEST if second is None else await contexts.version_at(tenant, conversation, second)
    if start > end:
        raise InvalidEntry(f"version {start} is not before version {end}: swap the two moments")
    before = await contexts.at(tenant, conversation, start)
    after = await contexts.at(tenant, conversation, end)
    entries = [
        read
        async for read in history(log, tenant, conversation, after=before.version, up_to=end)
        if isinstance(read, Recorded) and read.version <= after.version
    ]
    return diff(before.view(), after.view(), entries)
