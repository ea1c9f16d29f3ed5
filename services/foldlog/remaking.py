"""What takes the place of entries that are removed because they hold an erased text."""

from collections.abc import Collection, Sequence

from foldlog.compaction import digest_of
from foldlog.composing import envelope
from foldlog.family import carried_over
from foldlog.reading import Read
from foldlog.tracing import says_any
from foldlog_events.entries import (
    Baseline,
    CompactionEntry,
    Edit,
    EntryReference,
    Recorded,
    ResetEntry,
    SourceRange,
)
from foldlog_events.messages import Message
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import FoldState
from foldlog_projections.views import ContextView

SUMMARY_REMOVED = (
    "The summary of what came before was removed, because a part of what it covered was erased. "
    "What remains of it can be read back with the recall tool, where it is offered."
)
ERASURE = "erasure"
"""Reason of the entries made here."""


def remade_edits(state: FoldState, removed: Collection[str], target: str) -> tuple[Edit, ...]:
    """The edits in force that stand in entries to be removed and are about other entries.

    Where the edit entry itself is the target, its replacements are the text to be erased: what
    they replaced contributes nothing from now on, rather than what it did before.
    """
    in_force = {one.id: one.edited_at for one in (*state.active, *filter(None, (state.head,)))}
    return tuple(
        Edit(target=edit.target) if entry.id == target else edit
        for entry in state.active
        if entry.id in removed
        for edit in entry.edits
        if edit.target not in removed and in_force.get(edit.target) == entry.version
    )


def remade_head(
    context: ContextFold,
    reads: Sequence[Read],
    concerned: Collection[EntryReference],
    target: str,
    texts: Sequence[str],
    actor: str,
) -> CompactionEntry | ResetEntry | None:
    """The head to take over from one that is to be removed; None where the head may stay.

    It may not stay either where the range begins with an entry to be removed, for the head names
    that one as its beginning.
    """
    state = context.state()
    if state.head is None:
        return None
    removed = {(one.id, one.version) for one in concerned}
    is_removed = (state.head.id, state.head.version) in removed
    if state.head.kind == "reset":
        if not is_removed:
            return None
        handoff = _clean_handoff(reads, state.head.version, target, texts)
        return _reset(context.view(), removed, handoff, actor)
    begins_removed = bool(state.active) and (state.active[0].id, state.active[0].version) in removed
    if not is_removed and not begins_removed:
        return None
    return _compaction(state, context.view(), removed, actor, keep_summary=not is_removed)


def _compaction(
    state: FoldState,
    view: ContextView,
    removed: set[tuple[str, int]],
    actor: str,
    *,
    keep_summary: bool,
) -> CompactionEntry | None:
    if state.head is None:
        return None
    kept = next((one for one in state.active if (one.id, one.version) not in removed), None)
    head = EntryReference(state.head.id, state.head.version)
    return CompactionEntry(
        **envelope(state.tenant, state.conversation, actor),
        base_version=view.base_version,
        source_range=SourceRange(first=head, last=head, count=1, digest=digest_of(())),
        kept_from=EntryReference(kept.id, kept.version) if kept else None,
        summary=state.summary if keep_summary and state.summary else SUMMARY_REMOVED,
        exact_values=state.exact_values if keep_summary else (),
        baseline=_clean_baseline(state, view, removed),
        calibration=state.calibration,
        policy=ERASURE,
    )


def _reset(
    view: ContextView,
    removed: set[tuple[str, int]],
    handoff: tuple[Message, ...],
    actor: str,
) -> ResetEntry:
    ids = {entry_id for entry_id, _ in removed}
    sections = tuple(section for section in view.sections if section.entry not in ids)
    return ResetEntry(
        **envelope(view.tenant, view.conversation, actor),
        handoff=(*handoff, *carried_over(view)),
        baseline=Baseline(sections=sections, tools=view.tools),
        reason=ERASURE,
    )


def _clean_baseline(
    state: FoldState, view: ContextView, removed: set[tuple[str, int]]
) -> Baseline | None:
    """The prompt in force, but for what an entry to be removed set."""
    if not (
        view.sections or view.tools or state.baseline or any(one.patch for one in state.active)
    ):
        return None
    ids = {entry_id for entry_id, _ in removed}
    sections = tuple(section for section in view.sections if section.entry not in ids)
    return Baseline(sections=sections, tools=view.tools)


def _clean_handoff(
    reads: Sequence[Read], version: int, target: str, texts: Sequence[str]
) -> tuple[Message, ...]:
    for read in reads:
        entry = read.entry if isinstance(read, Recorded) else None
        if read.version == version and isinstance(entry, ResetEntry) and entry.id != target:
            return tuple(message for message in entry.handoff if not says_any(message, texts))
    return ()
