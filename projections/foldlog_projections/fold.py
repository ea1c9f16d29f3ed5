"""The fold: from entries, in order, to what a model is shown.

All folding of entries happens here, for agents, the projector, the compactor and the audit.
`ContextFold` goes on in place, so that one more entry costs what that entry costs; `apply`,
`fold`, `inherit` and `render` are the same as functions from state to state.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    Entry,
    EntryReference,
    ForkEntry,
    HeadMarker,
    Lane,
    Recorded,
    ResetEntry,
    lane_of,
)
from foldlog_events.messages import Message
from foldlog_projections.contribution import contribution, head_contribution
from foldlog_projections.digests import message_digest
from foldlog_projections.edits import acting, edited, erased, without_repeats
from foldlog_projections.forks import ForkWithoutParent
from foldlog_projections.meter import ContextMeter
from foldlog_projections.pairing import Transcript, counts
from foldlog_projections.prompt import Prompt, leading_message, patch_message
from foldlog_projections.state import Active, FoldState, PromptPatch, empty
from foldlog_projections.tokens import estimate_message, estimate_tools
from foldlog_projections.views import ContextView, Fault, Head

_encode = msgspec.json.Encoder().encode


class ContextFold:
    """A conversation's context while its entries are folded.

    `marks` are faults that others found; its views tell of them, its state does not hold them.
    Not safe for use by several threads; a copy is `ContextFold(fold.state())`.
    """

    def __init__(self, state: FoldState, marks: tuple[Fault, ...] = ()) -> None:
        self._marks = marks
        self._load(state)

    def _load(self, state: FoldState) -> None:
        self._kept = state
        self._version = state.version
        self._lane_versions: dict[Lane, int] = {
            "log": state.log_version,
            "shape": state.shape_version,
        }
        self._active = list(state.active)
        self._stale = state.stale_compactions
        self._meter = ContextMeter(state.calibration)
        self._rebuild()

    @property
    def tenant(self) -> str:
        """Of the conversation."""
        return self._kept.tenant

    @property
    def conversation(self) -> str:
        """Whose context it is."""
        return self._kept.conversation

    @property
    def version(self) -> int:
        """Of the last entry folded."""
        return self._version

    @property
    def base_version(self) -> BaseVersion:
        """The last version folded of each lane."""
        return BaseVersion(self._lane_versions["log"], self._lane_versions["shape"])

    def lane_version(self, lane: Lane) -> int:
        """The last version folded of one lane."""
        return self._lane_versions[lane]

    def apply(self, version: int, entry: Entry) -> None:
        """Fold one entry; one at or below the version reached was folded before.

        Raises ForkWithoutParent: a child starts from its parent's context, by `inherit`.
        """
        if version <= self._version:
            return
        if isinstance(entry, ForkEntry) and self._version == 0:
            raise ForkWithoutParent(entry)
        if isinstance(entry, CompactionEntry | ResetEntry):
            self._apply_head(version, entry)
        else:
            self._append(contribution(version, entry))
        self._reached(version, lane_of(entry))

    def apply_unreadable(self, version: int, lane: Lane, reason: str) -> None:
        """Pass over an entry that cannot be decoded; the view says so."""
        if version <= self._version:
            return
        self._append(Active(version=version, id=f"{version}", kind="unreadable", fault=reason))
        self._reached(version, lane)

    def apply_erased(self, version: int, lane: Lane) -> None:
        """Pass over a place of a lane whose entry was erased: only its version still counts."""
        self._lane_versions[lane] = max(self._lane_versions[lane], version)
        self._version = max(self._version, version)

    def begin_after(self, version: int) -> None:
        """Leave out what lies up to a version: what is folded next is not the first entry."""
        self._version = max(self._version, version)

    def apply_older_head(self, version: int) -> None:
        """Pass over a head marker that a newer one is known to have superseded."""
        self._reached(version, "shape")

    def apply_known_head(self, version: int, entry: HeadMarker) -> None:
        """Fold a head marker that is known to be in force, with only its own range folded."""
        if isinstance(entry, CompactionEntry):
            self._lane_versions["shape"] = entry.base_version.shape
        self.apply(version, entry)

    def reach(self, base_version: BaseVersion) -> None:
        """Take note of where a lane ends whose last entries no longer count and were not folded."""
        ends: tuple[tuple[Lane, int], ...] = (
            ("log", base_version.log),
            ("shape", base_version.shape),
        )
        for lane, version in ends:
            if version <= self._version:
                self._lane_versions[lane] = max(self._lane_versions[lane], version)

    def inherit(self, version: int, fork: ForkEntry) -> None:
        """Become a child of this conversation at the version reached (rule 9)."""
        self._kept = msgspec.structs.replace(
            self._kept, tenant=fork.tenant, conversation=fork.conversation
        )
        self._append(contribution(version, fork))
        self._version = version
        self._lane_versions = {"log": version, "shape": 0}

    def state(self) -> FoldState:
        """The state in the form that is stored."""
        return msgspec.structs.replace(
            self._kept,
            version=self._version,
            log_version=self._lane_versions["log"],
            shape_version=self._lane_versions["shape"],
            active=tuple(self._active),
            stale_compactions=self._stale,
            calibration=self._meter.calibration,
        )

    def view(self) -> ContextView:
        """What a model is shown now."""
        head = self._kept.head
        messages = tuple(self._transcript.messages)
        origins = tuple(self._origins)
        digests = b"".join(self._digests())
        if self._leading is not None:
            messages = (self._leading, *messages)
            origins = (self._leading_origin, *origins)
            digests = self._leading_digest + digests
        return ContextView(
            tenant=self._kept.tenant,
            conversation=self._kept.conversation,
            version=self._version,
            base_version=self.base_version,
            head=Head(head.id, head.version, head.kind) if head else None,
            tokens=self.tokens(),
            estimated_tokens=self._meter.estimated,
            digest=f"sha256:{hashlib.sha256(digests).hexdigest()}",
            messages=messages,
            origins=origins,
            tools=self._prompt.tools,
            sections=self._prompt.sections,
            stale_compactions=self._stale,
            faults=(
                *(Fault(entry.version, entry.fault) for entry in self._active if entry.fault),
                *self._marks,
            ),
        )

    @property
    def active_count(self) -> int:
        """Entries in force."""
        return len(self._active)

    def ids(self) -> frozenset[str]:
        """Of the entries in force, which an edit can name."""
        return frozenset(self._ids)

    def superseded_prompts(self) -> tuple[str, ...]:
        """Ids of system entries older than a head without a baseline, left over in its range."""
        head = self._kept.head
        if head is None or self._kept.baseline is not None:
            return ()
        return tuple(
            entry.id
            for entry in self._active
            if entry.patch is not None and entry.version < head.version
        )

    def tokens(self) -> int:
        """Tokens of the context."""
        return self._meter.tokens

    def _reached(self, version: int, lane: Lane) -> None:
        self._version = version
        self._lane_versions[lane] = version

    def _apply_head(self, version: int, entry: HeadMarker) -> None:
        start = self._start_of_range(entry)
        if start is None:
            self._stale += 1
            return
        compaction = entry if isinstance(entry, CompactionEntry) else None
        self._kept = msgspec.structs.replace(
            self._kept,
            head=head_contribution(version, entry),
            baseline=entry.baseline,
            baseline_version=compaction.base_version.log if compaction else version,
            summary=compaction.summary if compaction else "",
            exact_values=compaction.exact_values if compaction else (),
            usage_void_to=version,
        )
        self._active = self._active[start:]
        self._stale = 0
        self._meter = ContextMeter(compaction.calibration if compaction else 1.0)
        self._rebuild()

    def _start_of_range(self, entry: HeadMarker) -> int | None:
        """Where in the active entries the new range begins; None where the marker is stale."""
        if isinstance(entry, ResetEntry):
            return len(self._active)
        if entry.base_version.shape != self._lane_versions["shape"]:
            return None
        for place, active in enumerate(self._active):
            if entry.kept_from is None:
                if active.version > entry.base_version.log:
                    return place
            elif (active.id, active.version) == (entry.kept_from.id, entry.kept_from.version):
                return place
        return None if entry.kept_from else len(self._active)

    def _append(self, entry: Active) -> None:
        self._active.append(entry)
        if entry.edits or entry.erases:
            self._kept = msgspec.structs.replace(self._kept, usage_void_to=entry.version)
            self._rebuild()
        elif entry.id not in self._ids:
            self._contribute(entry)

    def _rebuild(self) -> None:
        """Contribute everything in force anew, as after a change of how it is seen."""
        head = self._kept.head
        winning = acting(self._active)
        self._erased = erased(self._active)
        self._active = [edited(entry, winning) for entry in self._active]
        self._ids: set[str] = set()
        self._transcript = Transcript()
        self._estimates: list[int] = []
        self._message_digests: list[bytes | None] = []
        self._origins: list[EntryReference] = []
        self._meter = ContextMeter(self._meter.calibration)
        self._prompt = Prompt(self._kept.baseline)
        self._tools_estimate = estimate_tools(self._prompt.tools)
        self._meter.change(self._tools_estimate)
        self._has_leading = bool(self._prompt.sections)
        self._lead(leading_message(self._prompt.sections), head)
        if head is not None:
            self._kept = self._with_edited_head(edited(head, winning))
            in_force = [self._kept.head or head, *self._active]
        else:
            in_force = self._active
        for entry in without_repeats(in_force):
            self._contribute(entry)

    def _with_edited_head(self, head: Active) -> FoldState:
        if head is self._kept.head:
            return self._kept
        return msgspec.structs.replace(self._kept, head=head, summary="", exact_values=())

    def _contribute(self, entry: Active) -> None:
        self._ids.add(entry.id)
        if entry.id in self._erased:
            return
        if entry.patch is not None and (
            self._kept.baseline is None or entry.version > self._kept.baseline_version
        ):
            self._contribute_patch(entry, entry.patch)
        estimates = entry.estimates or map(estimate_message, entry.messages)
        for message, estimate in zip(entry.messages, estimates, strict=True):
            self._place(message, entry, estimate)
            if message.usage is not None and self._measures(message, entry):
                self._meter.measure(message.usage)

    def _contribute_patch(self, entry: Active, patch: PromptPatch) -> None:
        self._prompt.apply(patch, entry.id)
        self._estimate_tools()
        if self._has_leading or all(section.text is None for section in patch.sections):
            message = patch_message(patch.sections)
            if message is not None:
                self._place(message, entry, estimate_message(message))
            return
        first = Prompt(None)
        first.apply(patch, entry.id)
        self._has_leading = True
        self._lead(leading_message(first.sections), entry)

    def _lead(self, message: Message | None, origin: Active | None) -> None:
        self._leading = message
        self._leading_origin = _reference(origin) if origin else EntryReference("", 0)
        self._meter.change(estimate_message(message) if message else 0)
        self._leading_digest = message_digest(message) if message else b""

    def _place(self, message: Message, entry: Active, estimate: int) -> None:
        origin = _reference(entry)
        for changed in self._transcript.add(message):
            self._meter.change(-self._estimates[changed])
            # A message of one part, here a result, takes the same tokens wherever it is placed.
            is_whole = len(message.parts) == 1
            placed = self._transcript.messages[changed]
            self._estimates[changed] = estimate if is_whole else estimate_message(placed)
            self._meter.change(self._estimates[changed])
            self._message_digests[changed] = None
            self._origins[changed] = origin
        for added in self._transcript.messages[len(self._estimates) :]:
            self._estimates.append(estimate if added is message else estimate_message(added))
            self._meter.change(self._estimates[-1])
            self._message_digests.append(None)
            self._origins.append(origin)

    def _estimate_tools(self) -> None:
        estimate = estimate_tools(self._prompt.tools)
        self._meter.change(estimate - self._tools_estimate)
        self._tools_estimate = estimate

    def _measures(self, message: Message, entry: Active) -> bool:
        """Whether the usage reported with a message is of the context as it is seen now."""
        seen_version = message.seen.version if message.seen else entry.version
        return counts(message) and min(entry.version, seen_version) > self._kept.usage_void_to

    def _digests(self) -> list[bytes]:
        digests: list[bytes] = []
        for place, known in enumerate(self._message_digests):
            digest = known or message_digest(self._transcript.messages[place])
            self._message_digests[place] = digest
            digests.append(digest)
        return digests


def _reference(entry: Active) -> EntryReference:
    return EntryReference(entry.id, entry.version)


def apply(state: FoldState, version: int, entry: Entry) -> FoldState:
    """The state after one more entry; for a run of entries `fold` costs less."""
    return fold(state, (Recorded(version, entry),))


def fold(state: FoldState, entries: Iterable[Recorded]) -> FoldState:
    """The state after these entries, given in the order of their versions."""
    context = ContextFold(state)
    for recorded in entries:
        context.apply(recorded.version, recorded.entry)
    return context.state()


def inherit(parent: FoldState, version: int, fork: ForkEntry) -> FoldState:
    """The first state of a child, from its parent's at `fork.parent_version` (rule 9)."""
    context = ContextFold(parent)
    context.inherit(version, fork)
    return context.state()


def render(state: FoldState) -> ContextView:
    """What a model is shown."""
    return ContextFold(state).view()


__all__ = ["ContextFold", "ForkWithoutParent", "apply", "empty", "fold", "inherit", "render"]
