"""How much of each request of a real conversation repeated the one before it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foldlog.contexts import fold_in
from foldlog.history import lineage
from foldlog_events.entries import MessageEntry, Recorded
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.prefix import PrefixReport, RenderedRequest, measure, request_blocks
from foldlog_projections.views import ContextView

if TYPE_CHECKING:
    from foldlog.session import Foldlog


async def prefix_report(
    foldlog: "Foldlog", conversation: str, render: Callable[[ContextView], Any]
) -> PrefixReport:
    """The requests that assistants answered, and the next one, each against the one before.

    An entry that an assistant wrote answered the context at the version it recorded; without
    such a record, the one just before it. A child's requests begin after its fork.
    """
    tenant = foldlog.tenant
    *_, own = await lineage(foldlog.log, tenant, conversation)
    if own.fork is None:
        context = ContextFold(empty(tenant, conversation))
    else:
        context = await foldlog.contexts.at(tenant, conversation, own.fork.version)
    views = [context.view()]
    answered: list[ContextView] = []
    entries: list[Recorded] = []
    async for read in foldlog.log.read(tenant, conversation, after=context.version):
        if isinstance(read, Recorded):
            entries.append(read)
            seen = _answered(read)
            if seen is not None:
                answered.append(_view_at(views, seen))
                views = views[-1:]
        fold_in(context, read)
        views.append(context.view())
    answered.append(views[-1])
    requests = [RenderedRequest(view, request_blocks(render(view))) for view in answered]
    return measure(requests, entries)


def _answered(read: Recorded) -> int | None:
    """The version of the context that an entry's first assistant message answered."""
    if isinstance(read.entry, MessageEntry):
        for message in read.entry.messages:
            if message.role == "assistant":
                return message.seen.version if message.seen else read.version - 1
    return None


def _view_at(views: list[ContextView], version: int) -> ContextView:
    """The newest of these views at or before a version; the oldest where none is."""
    return next((view for view in reversed(views) if view.version <= version), views[0])
