"""One compaction, from pressure to a committed entry, or to a named reason why there is none.

The view changes by the commit alone, and the commit is guarded by the shape version at which the
range was selected. Whatever goes wrong before it leaves the view as it was.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from uuid_utils import uuid7

from foldlog.announcing import model_of
from foldlog.contexts import Contexts
from foldlog.errors import VersionConflict
from foldlog.log import Log
from foldlog.summarisers import Summariser, SummaryRequest
from foldlog.summarising import Asked, Spent, ask
from foldlog_events.entries import (
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    EntryReference,
    Recorded,
    SourceRange,
    Unreadable,
)
from foldlog_projections.attempts import AttemptState
from foldlog_projections.cut import (
    CutItem,
    Declined,
    choose_cut,
    items_of,
    newest_indivisible_unit,
)
from foldlog_projections.digests import message_digest
from foldlog_projections.exact import exact_values
from foldlog_projections.fold import ContextFold
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Pressure, fixed_tokens, level_of, tokens_of
from foldlog_projections.prune import prune
from foldlog_projections.state import FoldState
from foldlog_projections.summary_source import SourceMessage, SummaryResult
from foldlog_projections.tokens import estimate_message
from foldlog_projections.views import ContextView

EDITS_BYTES = 256 * 1024
"""Bytes of edits in one entry at the most."""

_encode = msgspec.json.Encoder().encode


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    state: AttemptState
    reason: str = ""
    entry: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    spent: Spent = Spent()
    retry_after: float = 0.0
    """Seconds for which the summariser's provider asked to be left alone."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be summarised, as of a base version."""

    state: FoldState
    view: ContextView
    kept_from: EntryReference
    replaced: tuple[CutItem, ...]
    """Every entry before the cut, whatever it contributed."""
    messages: tuple[SourceMessage, ...]
    turn_prefix: tuple[SourceMessage, ...]

    @property
    def source(self) -> tuple[SourceMessage, ...]:
        """All messages that the summary will stand for."""
        return (*self.messages, *self.turn_prefix)

    @property
    def sees(self) -> frozenset[str]:
        """Ids whose change makes the summary stale: what it read, the previous summary too."""
        head = {self.state.head.id} if self.state.head else set()
        return frozenset({item.id for item in self.replaced} | head)


class Compaction:
    """Makes one conversation's context smaller."""

    def __init__(
        self,
        log: Log,
        contexts: Contexts,
        summariser: Summariser,
        actor: str,
        *,
        deadline: float,
    ) -> None:
        """`deadline`: seconds after which a summary is given up."""
        self._log = log
        self._contexts = contexts
        self._summariser = summariser
        self._actor = actor
        self._deadline = deadline

    async def run(self, pressure: Pressure, policy: Policy, attempt: str) -> Ended:
        """One attempt. Raises only what makes it impossible to know how the attempt ended."""
        context = await self._contexts.current(
            pressure.tenant, pressure.conversation, at_least=pressure.version
        )
        view = context.view()
        before = tokens_of(view, policy)
        if pressure.reason == "limit" and not is_over(view, policy):
            return _declined("the context is below its limit again", before)
        if pressure.reason != "manual":
            pruned = await self._prune(context, policy)
            view = context.view()
            if pruned and pressure.reason == "limit" and not is_over(view, policy):
                return Ended(
                    state="pruned",
                    entry=pruned[-1],
                    tokens_before=before,
                    tokens_after=tokens_of(view, policy),
                )
        return await self._compact(context.state(), view, pressure, policy, attempt, before)

    async def _compact(
        self,
        state: FoldState,
        view: ContextView,
        pressure: Pressure,
        policy: Policy,
        attempt: str,
        before: int,
    ) -> Ended:
        selection = select(state, view, policy, pressure)
        if isinstance(selection, Declined):
            return _declined(selection.reason, before)
        asked = await self._summary(selection, policy, pressure.instructions)
        if asked.result is None:
            return Ended(
                state="failed",
                reason=asked.reason,
                tokens_before=before,
                spent=asked.spent,
                retry_after=asked.retry_after,
            )
        entry = self._entry(selection, asked.result, asked.spent, policy, attempt)
        now, after = tokens_of(view, policy), tokens_after(state, entry)
        if after >= now:
            return Ended(
                state="failed",
                reason=f"not_smaller: {now} tokens before, {after} after",
                tokens_before=before,
                tokens_after=after,
                spent=asked.spent,
            )
        entry = msgspec.structs.replace(entry, tokens_before=before, tokens_after=after)
        return await self._commit(entry, selection, asked.spent)

    async def _prune(self, context: ContextFold, policy: Policy) -> tuple[str, ...]:
        """Shorten long and repeated results, without a model; ids of the edits made (§8.1).

        Where the shape lane moved on meanwhile, nothing is pruned: an edit made on an older view
        could undo a newer one.
        """
        edits = prune(items_of(context.state().active), policy).edits
        if not edits:
            return ()
        base = context.base_version
        entries = tuple(
            EditEntry(
                id=str(uuid7()),
                tenant=context.tenant,
                conversation=context.conversation,
                time=datetime.now(UTC),
                actor=self._actor,
                edits=group,
                reason="pruned",
            )
            for group in in_groups(edits, EDITS_BYTES)
        )
        try:
            recorded = await self._log.append(entries, expect=base.shape)
        except VersionConflict:
            return ()
        await self._contexts.advance(context, at_least=recorded[-1].version)
        return tuple(entry.id for entry in entries)

    async def _summary(self, selection: Selection, policy: Policy, instructions: str) -> Asked:
        state = selection.state
        prefix = prefix_of(selection)
        request = SummaryRequest(
            messages=selection.messages,
            turn_prefix=selection.turn_prefix,
            previous_summary=state.summary or None,
            previous_values=state.exact_values,
            instructions=instructions,
            budget=summary_budget(policy),
            prefix=prefix,
            model=model_of(prefix) or "",
        )
        values = exact_values(selection.source, state.exact_values)
        return await ask(self._summariser, request, values, self._deadline)

    def _entry(
        self,
        selection: Selection,
        result: SummaryResult,
        spent: Spent,
        policy: Policy,
        attempt: str,
    ) -> CompactionEntry:
        state, view = selection.state, selection.view
        has_prompt = view.sections or view.tools or any(one.patch for one in state.active)
        return CompactionEntry(
            id=str(uuid7()),
            tenant=view.tenant,
            conversation=view.conversation,
            time=datetime.now(UTC),
            actor=self._actor,
            base_version=view.base_version,
            source_range=_source_range(selection),
            kept_from=selection.kept_from,
            summary=result.text,
            exact_values=exact_values(selection.source, state.exact_values),
            baseline=Baseline(sections=view.sections, tools=view.tools) if has_prompt else None,
            calibration=state.calibration,
            model=result.model,
            usage=spent.usage,
            policy=policy.name,
            attempt=attempt,
        )

    async def _commit(self, entry: CompactionEntry, selection: Selection, spent: Spent) -> Ended:
        """Publish behind the guard; a change that does not touch the source moves the base."""
        while True:
            try:
                await self._log.append((entry,), expect=entry.base_version.shape)
            except VersionConflict as conflict:
                touching = next(
                    (read for read in conflict.entries if touches(read, selection)), None
                )
                if touching is not None:
                    return Ended(
                        state="stale",
                        reason=f"version {touching.version} changed what was summarised",
                        tokens_before=entry.tokens_before,
                        spent=spent,
                    )
                entry = msgspec.structs.replace(
                    entry,
                    id=str(uuid7()),
                    base_version=BaseVersion(entry.base_version.log, conflict.actual),
                )
                continue
            return Ended(
                state="committed",
                entry=entry.id,
                tokens_before=entry.tokens_before,
                tokens_after=entry.tokens_after,
                spent=spent,
            )


def is_over(view: ContextView, policy: Policy) -> bool:
    """Whether a view is over a limit that a compaction could bring it under."""
    return level_of(tokens_of(view, policy), policy, fixed_tokens(view)) is not None


def in_groups(edits: Sequence[Edit], limit: int) -> Iterator[tuple[Edit, ...]]:
    """Edits in groups of up to `limit` bytes, so that an entry holds each group."""
    group: list[Edit] = []
    size = 0
    for edit in edits:
        edit_size = len(_encode(edit))
        if group and size + edit_size > limit:
            yield tuple(group)
            group, size = [], 0
        group.append(edit)
        size += edit_size
    if group:
        yield tuple(group)


def select(
    state: FoldState, view: ContextView, policy: Policy, pressure: Pressure
) -> Selection | Declined:
    """The range to summarise: what lies before a legal cut.

    After an overflow only the newest unit that cannot be parted is kept (§8.6).
    """
    items = items_of(state.active)
    if pressure.reason == "overflow":
        cut = newest_indivisible_unit(items)
    else:
        cut = choose_cut(items, policy.keep(fixed_tokens(view)))
    if isinstance(cut, Declined):
        return cut
    shown = [
        SourceMessage(origin.id, origin.version, message)
        for origin, message in zip(view.origins, view.messages, strict=True)
        if message.role != "system"
    ]
    summarised, prefix = frozenset(cut.summarised), frozenset(cut.turn_prefix)
    return Selection(
        state=state,
        view=view,
        kept_from=cut.kept_from,
        replaced=items[: cut.index],
        messages=tuple(source for source in shown if source.entry in summarised),
        turn_prefix=tuple(source for source in shown if source.entry in prefix),
    )


def prefix_of(selection: Selection) -> ContextView:
    """The context up to the cut: what the conversation's own requests begin with."""
    view = selection.view
    replaced = {item.id for item in selection.replaced}
    length = next(
        (
            at
            for at, (origin, message) in enumerate(zip(view.origins, view.messages, strict=True))
            if origin.version >= selection.kept_from.version
            and origin.id not in replaced
            and not (at == 0 and message.role == "system")
            and not (selection.state.head and origin.id == selection.state.head.id)
        ),
        len(view.messages),
    )
    messages = view.messages[:length]
    tokens = fixed_tokens(view) + sum(map(estimate_message, messages))
    return msgspec.structs.replace(
        view, messages=messages, origins=view.origins[:length], tokens=tokens
    )


def touches(read: Recorded | Unreadable, selection: Selection) -> bool:
    """Whether a shape entry changes what was summarised: it is stale then (§8.5)."""
    if isinstance(read, Recorded) and isinstance(read.entry, EditEntry):
        return any(edit.target in selection.sees for edit in read.entry.edits)
    return True


def tokens_after(state: FoldState, entry: CompactionEntry) -> int:
    """Tokens of the context once this compaction is in force."""
    trial = ContextFold(state)
    trial.apply(state.version + 1, entry)
    return trial.tokens()


def summary_budget(policy: Policy) -> int:
    """Tokens a summary may take: enough for a working day, never more than it makes room for."""
    return max(256, min(4_000, policy.hard_limit // 8))


def digest_of(source: Iterable[SourceMessage]) -> str:
    """Of the messages that a summary stands for, as they were read."""
    whole = hashlib.sha256()
    for _, _, message in source:
        whole.update(message_digest(message))
    return f"sha256:{whole.hexdigest()}"


def _source_range(selection: Selection) -> SourceRange:
    first, last = selection.replaced[0], selection.replaced[-1]
    return SourceRange(
        first=EntryReference(first.id, first.version),
        last=EntryReference(last.id, last.version),
        count=len(selection.replaced),
        digest=digest_of(selection.source),
    )


def _declined(reason: str, before: int) -> Ended:
    return Ended(state="declined", reason=reason, tokens_before=before)
