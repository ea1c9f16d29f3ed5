"""Erasure: an entry or a conversation is removed for good, with what foldlog derived from it.

An entry is erased in this order, so that a process which dies on the way leaves nothing that
brings the text back, and the same call again completes it:

1. A tombstone on the `shape` lane: from here on no context shows the entry, and a compaction in
   flight is stale. So for every edit, summary and baseline that holds its text, and in every
   conversation that inherits it.
2. Edits of other entries that stood in an edit to be removed are written again. A summary to be
   removed is replaced by one that says so, before the same kept entries; a reset by one to what
   is in view without the text.
3. Artifacts that no other entry refers to are overwritten in the broker's files, then the entries.
   Where one of these is the last of its lane, a note is appended first.
4. Stored views are purged, all of them,
   for only then does the broker let go of replaced ones; views of the conversations concerned are
   stored anew; records of compaction attempts that state a reason are overwritten.

Messages in which people or models repeat the text are not touched: `Erasure.mentions` names them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from foldlog.compaction import EDITS_BYTES, in_groups
from foldlog.composing import envelope
from foldlog.contexts import UnknownEntry, fold_in
from foldlog.erasing import ErasureNotPermitted, erase_messages, require_permission
from foldlog.errors import FoldlogError, VersionConflict
from foldlog.family import Child, children, needs_parent
from foldlog.purging import erase_artifacts, forget_views, overwrite_records
from foldlog.reading import Read, lane_of_read
from foldlog.recalling import references
from foldlog.remaking import ERASURE, remade_edits, remade_head
from foldlog.topology import entries_stream
from foldlog.tracing import Traced, says_any, texts_to_look_for, trace
from foldlog_events.entries import (
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    Recorded,
    ResetEntry,
)
from foldlog_projections.fold import ContextFold

if TYPE_CHECKING:
    from foldlog.session import Foldlog

DELETED = "deleted"


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed."""

    conversation: str
    entries: int
    """How many, with those that held the text of what was asked for."""
    summaries_remade: int = 0
    artifacts: int = 0
    conversations: tuple[str, ...] = ()
    """Those that had inherited it."""
    mentions: tuple[EntryReference, ...] = ()
    """Entries of the conversation that repeat a text of it word for word: erase them too, if so
    wished."""


class NotErasable(FoldlogError):
    """An entry whose removal would cut a conversation off."""

    def __init__(self, entry: str, kind: str) -> None:
        super().__init__(
            f"{entry!r} is a {kind} entry, which holds no content and keeps the log whole: "
            "delete the conversation instead"
        )
        self.entry = entry


class HasChildren(FoldlogError):
    """A conversation from which others still inherit. Nothing was removed."""

    def __init__(self, conversation: str, names: tuple[str, ...]) -> None:
        super().__init__(
            f"{conversation!r} cannot be deleted while {', '.join(map(repr, names[:5]))} "
            f"inherit from it: materialise or delete {'it' if len(names) == 1 else 'them'} first"
        )
        self.conversation = conversation
        self.children = names


async def erase(
    foldlog: "Foldlog", conversation: str, entry_id: str, *, reason: str = ""
) -> Erasure:
    """See `Foldlog.erase`. Called again, it completes what an earlier call began."""
    await foldlog.contexts.require(foldlog.tenant, conversation)
    reads = await foldlog.log.read_all(foldlog.tenant, conversation)
    targets = _targets(reads, entry_id)
    if not targets:
        raise UnknownEntry(entry_id, conversation)
    await _require_permissions(foldlog)
    entries = _found(reads, targets)
    texts = [text for entry in entries for text in texts_to_look_for(entry)]
    erasing = _Erasing(foldlog, entry_id, reason, texts)
    traced = await erasing.conversation(conversation, targets)
    await erasing.descendants(conversation, traced)
    artifacts = await erasing.remove()
    mentions = tuple(
        EntryReference(read.entry.id, read.version)
        for read in reads
        if isinstance(read, Recorded)
        and isinstance(read.entry, MessageEntry)
        and EntryReference(read.entry.id, read.version) not in targets
        and any(says_any(message, texts) for message in read.entry.messages)
    )
    return Erasure(
        conversation=conversation,
        entries=len(erasing.versions),
        summaries_remade=erasing.remade,
        artifacts=artifacts,
        conversations=tuple(erasing.touched[1:]),
        mentions=mentions,
    )


async def delete(foldlog: "Foldlog", conversation: str, *, reason: str = "") -> Erasure:
    """See `Foldlog.delete`. Called again, it completes what an earlier call began.

    A reset makes every process drop the context; a tombstone and a note stay, so that the lanes
    go on where they were. The name stays readable in the log's subjects.
    """
    tenant = foldlog.tenant
    await foldlog.contexts.require(tenant, conversation)
    await _require_permissions(foldlog)
    inheriting = [
        child.conversation
        async for child in children(foldlog, conversation)
        if await needs_parent(foldlog.contexts, tenant, child)
    ]
    if inheriting:
        raise HasChildren(conversation, tuple(sorted(inheriting)))
    last = await foldlog.log.last_versions(tenant, conversation)
    up_to = max(last.log, last.shape)
    note, reset, tombstone = await foldlog.log.append(
        (
            NoteEntry(**envelope(tenant, conversation, foldlog.actor), name=DELETED),
            ResetEntry(**envelope(tenant, conversation, foldlog.actor), reason=DELETED),
            ErasedEntry(
                **envelope(tenant, conversation, foldlog.actor),
                target="",
                target_version=up_to,
                reason=reason,
            ),
        )
    )
    kept = {note.version, reset.version, tombstone.version}
    reads = await foldlog.log.read_all(tenant, conversation, up_to=tombstone.version)
    gone = [read for read in reads if read.version not in kept]
    digests = {
        reference.digest
        for read in gone
        if isinstance(read, Recorded)
        for reference in references(read.entry)
    }
    stream = entries_stream(tenant, conversation)
    versions = frozenset(read.version for read in gone)
    artifacts = await erase_artifacts(foldlog, digests, going=versions)
    await erase_messages(foldlog.broker, stream, versions)
    await forget_views(foldlog, {conversation: tombstone.version})
    await overwrite_records(foldlog, [conversation], all_of_them=True)
    return Erasure(conversation=conversation, entries=len(gone), artifacts=artifacts)


async def _require_permissions(foldlog: "Foldlog") -> None:
    await require_permission(foldlog.broker, entries_stream(foldlog.tenant, ""))


def _targets(reads: Sequence[Read], entry_id: str) -> list[EntryReference]:
    """Every place of the entry, and those that an earlier call left a tombstone of."""
    found: dict[int, EntryReference] = {}
    for read in reads:
        if not isinstance(read, Recorded):
            continue
        entry = read.entry
        if isinstance(entry, ErasedEntry) and entry.target == entry_id:
            version = entry.target_version
            found[version] = EntryReference(entry_id, version)
        elif entry.id == entry_id:
            if isinstance(entry, ErasedEntry | ForkEntry):
                raise NotErasable(entry_id, "fork" if isinstance(entry, ForkEntry) else "erased")
            found[read.version] = EntryReference(entry_id, read.version)
    return [found[version] for version in sorted(found)]


def _found(reads: Sequence[Read], references: Sequence[EntryReference]) -> list[Entry]:
    wanted = {one.version for one in references}
    return [read.entry for read in reads if isinstance(read, Recorded) and read.version in wanted]


class _Erasing:
    """One erasure on its way."""

    def __init__(self, foldlog: "Foldlog", target: str, reason: str, texts: Sequence[str]) -> None:
        self._foldlog = foldlog
        self._target = target
        self._reason = reason
        self._texts = texts
        self.touched: list[str] = []
        self._tombstoned: dict[str, int] = {}
        self.versions: list[int] = []
        """What is to be overwritten; the targets themselves last."""
        self._digests: set[str] = set()
        self.remade = 0

    async def conversation(
        self,
        name: str,
        targets: Sequence[EntryReference] = (),
        inherited: Sequence[EntryReference] = (),
        *,
        head_is_tainted: bool = False,
    ) -> Traced:
        """Steps 1 to 3 for one conversation, but for the overwriting itself."""
        foldlog, tenant = self._foldlog, self._foldlog.tenant
        while True:
            context = await foldlog.contexts.rebuilt(tenant, name)
            reads = await foldlog.log.read_all(tenant, name)
            for read in reads:
                fold_in(context, read)
            traced = trace(
                reads,
                targets,
                self._texts,
                inherited=inherited,
                head_is_tainted=head_is_tainted,
            )
            # A head's range may begin after what an ancestor held: nothing of it is in force.
            concerned = (*inherited, *traced.removed)
            try:
                await self._bury(name, context, reads, concerned)
                await self._replace_head(name, reads, concerned)
            except VersionConflict:
                continue
            break
        self.touched.append(name)
        await self._take_note(name, reads, traced, targets)
        return traced

    async def descendants(self, name: str, traced: Traced) -> None:
        """The same for every conversation that inherits what was removed."""
        async for child in children(self._foldlog, name):
            await self._child(child, traced)

    async def _child(self, child: Child, traced: Traced) -> None:
        up_to = child.fork.parent_version
        inherited = [one for one in traced.removed if one.version <= up_to]
        if not inherited:
            return
        own = await self.conversation(
            child.conversation,
            inherited=inherited,
            head_is_tainted=traced.head_is_tainted(up_to),
        )
        whole = Traced((*inherited, *own.removed), own.tainted_heads)
        await self.descendants(child.conversation, whole)

    async def remove(self) -> int:
        """Steps 3 and 4; how many artifacts were removed."""
        foldlog = self._foldlog
        stream = entries_stream(foldlog.tenant, self.touched[0])
        # First, for once the entries are gone nothing tells any more which artifacts they named.
        artifacts = await erase_artifacts(foldlog, self._digests, going=frozenset(self.versions))
        for version in self.versions:
            await erase_messages(foldlog.broker, stream, (version,))
        await forget_views(foldlog, self._tombstoned)
        await overwrite_records(foldlog, self.touched)
        return artifacts

    async def _bury(
        self,
        name: str,
        context: ContextFold,
        reads: Sequence[Read],
        concerned: Sequence[EntryReference],
    ) -> None:
        """Tombstones that are missing, and the edits to be kept, behind what was read."""
        tenant = self._foldlog.tenant
        buried = {
            (read.entry.target, read.entry.target_version): read.version
            for read in reads
            if isinstance(read, Recorded) and isinstance(read.entry, ErasedEntry)
        }
        self._tombstoned[name] = max(buried.values(), default=0)
        missing = [one for one in concerned if (one.id, one.version) not in buried]
        if not missing:
            return
        tombstones = [
            ErasedEntry(
                **envelope(tenant, name, self._foldlog.actor),
                target=one.id,
                target_version=one.version,
                reason=self._reason,
            )
            for one in missing
        ]
        kept = remade_edits(context.state(), {one.id for one in concerned}, self._target)
        edits = [
            EditEntry(**envelope(tenant, name, self._foldlog.actor), edits=group, reason=ERASURE)
            for group in in_groups(kept, EDITS_BYTES)
        ]
        expected = context.base_version.shape
        recorded = await self._foldlog.log.append((*edits, *tombstones), expect=expected)
        self._tombstoned[name] = recorded[-1].version

    async def _replace_head(
        self, name: str, reads: Sequence[Read], concerned: Sequence[EntryReference]
    ) -> None:
        """A new head in the place of one that is to be removed, or that starts where one is."""
        foldlog = self._foldlog
        context = await foldlog.contexts.rebuilt(
            foldlog.tenant, name, at_least=self._tombstoned[name]
        )
        entry = remade_head(context, reads, concerned, self._target, self._texts, foldlog.actor)
        if entry is None:
            return
        expect = context.base_version
        if isinstance(entry, ResetEntry):
            note = NoteEntry(**envelope(foldlog.tenant, name, foldlog.actor), name=ERASURE)
            await foldlog.log.append((note, entry), expect=expect)
        else:
            await foldlog.log.append((entry,), expect=expect.shape)
        self.remade += 1

    async def _take_note(
        self,
        name: str,
        reads: Sequence[Read],
        traced: Traced,
        targets: Sequence[EntryReference],
    ) -> None:
        """Remember what to overwrite, and see to it that nothing of it is last in its lane."""
        versions = {one.version for one in traced.removed}
        own = [read for read in reads if read.version in versions]
        self._digests |= {
            reference.digest
            for read in own
            if isinstance(read, Recorded)
            for reference in references(read.entry)
        }
        ends = await self._foldlog.log.last_versions(self._foldlog.tenant, name)
        if any(lane_of_read(read) == "log" and read.version == ends.log for read in own):
            note = NoteEntry(
                **envelope(self._foldlog.tenant, name, self._foldlog.actor), name=ERASURE
            )
            await self._foldlog.log.append((note,))
        last = {one.version for one in targets}
        self.versions[:0] = [read.version for read in own if read.version not in last]
        self.versions += [read.version for read in own if read.version in last]


__all__ = [
    "Erasure",
    "ErasureNotPermitted",
    "HasChildren",
    "NotErasable",
    "delete",
    "erase",
]
