"""Views from entries: what a projector does with a batch it was given.

Deliveries are spread over workers and come again after faults, so a batch is a sign of what to
fold, not what to fold in that order. Where a worker has been given every entry of the stream
since a conversation's view, the batch holds what is missing; otherwise the log is read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from foldlog.contexts import Contexts, decode_state, fold_in
from foldlog.errors import ViewConflict
from foldlog.reading import Read
from foldlog.views import Views
from foldlog_events.entries import ForkEntry, Recorded, lane_of
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.views import ContextView

_logger = structlog.get_logger("foldlog.projection")
_encode = msgspec.json.Encoder().encode


class ConversationKey(NamedTuple):
    """Whose view it is."""

    tenant: str
    conversation: str


class _Kept(msgspec.Struct):
    """A view in a worker's memory: its fold, and where it was stored last."""

    fold: ContextFold
    complete_to: int
    """Sequence of the stream up to which the fold holds all there is of its conversation."""
    revision: int
    stored_version: int
    stored_bytes: int = 0
    unstored_entries: int = 0
    is_told: bool = True
    """Whether `changed` knows of it as it stands."""


class ProjectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a projector."""

    views_in_memory: int = 2_000
    concurrency: int = 32
    """Conversations of one batch that are worked on at a time."""
    store_always_bytes: int = 256 * 1024
    """A view up to this size is stored after every batch."""
    store_after_share: float = 0.02
    """A larger one is stored once this share of its entries is new, or when it rests."""
    behind_from_entries: int = 200
    """A batch of so many says that more are waiting: views are then stored less often."""
    behind_entries: int = 5_000
    """Entries that are folded while more are waiting before their views are stored."""


class DeliveredRun:
    """The run of stream sequences, without a gap, that this worker has been given last."""

    def __init__(self) -> None:
        self.start = 0
        self.end = -1

    def extend(self, versions: Iterable[int], *, is_whole: bool = True) -> int:
        """Take in one batch; returns where the part of the run that this batch gave starts.

        A batch that is not whole ends the run, and none of it counts.
        """
        batch_start = 0
        for version in sorted(versions):
            if version <= self.end:
                continue
            if version > self.end + 1:
                self.start = version
            if version > self.end + 1 or not batch_start:
                batch_start = version
            self.end = version
        if not is_whole:
            self.start = self.end + 1
            return self.start
        return batch_start or self.end + 1


class Projection:
    """Folds batches into stored views, and tells `changed` of each view that moved on."""

    def __init__(
        self,
        contexts: Contexts,
        views: Views,
        changed: Callable[[ContextView], Awaitable[None]],
        limits: ProjectionLimits | None = None,
    ) -> None:
        self._contexts = contexts
        self._views = views
        self._changed = changed
        self._limits = limits or ProjectionLimits()
        self._kept: OrderedDict[ConversationKey, _Kept] = OrderedDict()
        self._delivered = DeliveredRun()
        self._batch_start = 0
        self._slots = asyncio.Semaphore(self._limits.concurrency)
        self._at_work = asyncio.Lock()
        self._is_behind = False
        self._unstored_entries = 0

    async def project(
        self, batch: Mapping[ConversationKey, Sequence[Read]], *, is_whole: bool = True
    ) -> dict[ConversationKey, Exception]:
        """Fold a batch; what failed is returned, and the other conversations are not touched.

        `is_whole` is false where the worker was given more than it can pass on.
        """
        async with self._at_work:
            return await self._project(batch, is_whole=is_whole)

    async def _project(
        self, batch: Mapping[ConversationKey, Sequence[Read]], *, is_whole: bool
    ) -> dict[ConversationKey, Exception]:
        versions = [read.version for reads in batch.values() for read in reads]
        self._batch_start = self._delivered.extend(versions, is_whole=is_whole)
        self._is_behind = len(versions) >= self._limits.behind_from_entries
        outcomes = await asyncio.gather(
            *(self._project_one(key, reads) for key, reads in batch.items()),
            return_exceptions=True,
        )
        failed: dict[ConversationKey, Exception] = {}
        for key, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._kept.pop(key, None)
                failed[key] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        self._unstored_entries += len(versions)
        if self._unstored_entries >= self._limits.behind_entries:
            failed |= await self._store_all(tuple(self._kept))
        return failed | await self._forget_oldest()

    async def flush(self) -> dict[ConversationKey, Exception]:
        """Store every view that is ahead of its stored form; what failed is returned."""
        async with self._at_work:
            return await self._store_all(tuple(self._kept))

    async def rest(self) -> dict[ConversationKey, Exception]:
        """`flush`, unless more was waiting at the last batch: called once in a while."""
        if self._is_behind:
            self._is_behind = False
            return {}
        return await self.flush()

    def is_stored(self, key: ConversationKey) -> bool:
        """Whether the stored view holds all that was folded of a conversation."""
        kept = self._kept.get(key)
        return kept is None or kept.fold.version <= kept.stored_version

    async def _project_one(self, key: ConversationKey, reads: Sequence[Read]) -> None:
        async with self._slots:
            is_loaded = key not in self._kept
            kept = await self._load(key, reads)
            before = kept.fold.version
            await self._fold(kept, reads, is_loaded=is_loaded)
            has_moved = kept.fold.version > before or not kept.stored_version
            if has_moved:
                kept.unstored_entries += len(reads)
                if self._is_due(kept):
                    await self._store(key, kept)
            # Who stored the view that was loaded may have ended before telling of it.
            if has_moved or is_loaded:
                kept.is_told = False
            if not self._is_behind:
                await self._tell(kept)

    async def _tell(self, kept: _Kept) -> None:
        if not kept.is_told:
            await self._changed(kept.fold.view())
            kept.is_told = True

    async def _load(self, key: ConversationKey, reads: Sequence[Read]) -> _Kept:
        kept = self._kept.get(key)
        if kept is None:
            kept = await self._read_stored(key, reads)
            self._kept[key] = kept
        self._kept.move_to_end(key)
        return kept

    async def _read_stored(self, key: ConversationKey, reads: Sequence[Read]) -> _Kept:
        """The view as it is stored; without one, what the log holds of the conversation."""
        stored = await self._views.get(*key)
        state = decode_state(stored.data) if stored else None
        if stored is None and _begin_a_conversation(reads):
            start = min(read.version for read in reads) - 1
            return _Kept(ContextFold(empty(*key)), complete_to=start, revision=0, stored_version=0)
        if state is None:
            newest = max((read.version for read in reads), default=0)
            fold = await self._contexts.rebuilt(*key, at_least=newest)
            return _Kept(
                fold=fold,
                complete_to=fold.version,
                revision=stored.revision if stored else 0,
                stored_version=0,
            )
        return _Kept(
            fold=ContextFold(state),
            complete_to=state.version,
            revision=stored.revision if stored else 0,
            stored_version=state.version,
            stored_bytes=len(stored.data) if stored else 0,
        )

    async def _fold(self, kept: _Kept, reads: Sequence[Read], *, is_loaded: bool) -> None:
        newest = max(read.version for read in reads)
        if newest <= kept.fold.version:
            return
        given_from = self._batch_start if is_loaded else self._delivered.start
        if kept.complete_to + 1 >= given_from:
            for read in sorted(reads, key=lambda read: read.version):
                fold_in(kept.fold, read)
            kept.complete_to = self._delivered.end
        else:
            await self._contexts.advance(kept.fold, at_least=newest)
            kept.complete_to = max(kept.fold.version, newest)

    def _is_due(self, kept: _Kept) -> bool:
        if self._is_behind:
            return False
        if kept.stored_bytes <= self._limits.store_always_bytes:
            return True
        return kept.unstored_entries >= self._limits.store_after_share * kept.fold.active_count

    async def _store(self, key: ConversationKey, kept: _Kept) -> None:
        while True:
            state = kept.fold.state()
            data = _encode(state)
            try:
                kept.revision = await self._views.put(
                    *key, data, revision=kept.revision, version=state.version
                )
            except ViewConflict:
                stored = await self._read_stored(key, ())
                if stored.fold.version >= state.version:
                    kept.fold = stored.fold
                    kept.complete_to = stored.complete_to
                    kept.revision = stored.revision
                    kept.stored_version = stored.stored_version
                    kept.stored_bytes = stored.stored_bytes
                    kept.unstored_entries = 0
                    return
                kept.revision = stored.revision
            else:
                kept.stored_version = state.version
                kept.stored_bytes = len(data)
                kept.unstored_entries = 0
                return

    async def _store_all(self, keys: Iterable[ConversationKey]) -> dict[ConversationKey, Exception]:
        """Store what is not stored yet, and tell of what was not told yet; what failed."""
        failed: dict[ConversationKey, Exception] = {}

        async def store(key: ConversationKey) -> None:
            async with self._slots:
                try:
                    if not self.is_stored(key):
                        await self._store(key, self._kept[key])
                    await self._tell(self._kept[key])
                except Exception as error:
                    del self._kept[key]
                    failed[key] = error

        await asyncio.gather(*map(store, keys))
        self._unstored_entries = 0
        return failed

    async def _forget_oldest(self) -> dict[ConversationKey, Exception]:
        oldest = tuple(self._kept)[: max(0, len(self._kept) - self._limits.views_in_memory)]
        failed = await self._store_all(oldest)
        for key in oldest:
            self._kept.pop(key, None)
        return failed


def _begin_a_conversation(reads: Sequence[Read]) -> bool:
    """Whether nothing of the conversation can have come before these, from it or a parent."""
    first = min(reads, key=lambda read: read.version, default=None)
    return (
        isinstance(first, Recorded)
        and first.predecessor == 0
        and lane_of(first.entry) == "log"
        and not isinstance(first.entry, ForkEntry)
    )
