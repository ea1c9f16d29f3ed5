"""What must hold after a run, whatever happened in it."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from foldlog.audit import verify_conversation
from foldlog.contexts import decode_state
from foldlog.reading import Read, lane_of_read
from foldlog.session import Foldlog
from foldlog_events.entries import CompactionEntry, HeadMarker, Lane, Recorded
from foldlog_projections.attempts import ENDS, unended
from foldlog_projections.fold import ContextFold
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Attempt, Pressure, assess
from foldlog_projections.views import ContextView
from tests.faults.journal import Line

Histories = Mapping[str, Sequence[Read]]
"""The log of each conversation."""


class Findings(msgspec.Struct):
    """What a run broke; each list is empty where the promise held."""

    lost: list[str] = []
    """Acknowledged, and not in the log."""
    duplicated: list[str] = []
    """In the log more than once, acknowledged or not."""
    reordered: list[str] = []
    """Not behind its predecessor, or not in the order in which its writer was told."""
    written_although_refused: list[str] = []
    stale_applied: list[str] = []
    not_kept: list[str] = []
    """Visible before a compaction, and neither in its source nor kept."""
    views: list[str] = []
    attempts: list[str] = []
    pressure: list[str] = []
    dead: list[str] = []
    processes: list[str] = []

    def all(self) -> list[str]:
        """Every finding, with the promise that it breaks."""
        return [
            f"{field}: {finding}"
            for field in self.__struct_fields__
            for finding in getattr(self, field)
        ]


def check_entries(histories: Histories, journals: Mapping[str, Sequence[Line]]) -> Findings:
    """Hold the log against what writers were told."""
    findings = Findings()
    places: dict[str, list[int]] = {}
    for reads in histories.values():
        for read in reads:
            if isinstance(read, Recorded):
                places.setdefault(read.entry.id, []).append(read.version)
    findings.duplicated += [
        f"{entry_id} at versions {versions}"
        for entry_id, versions in places.items()
        if len(versions) > 1
    ]
    for conversation, reads in histories.items():
        findings.reordered += _broken_chain(conversation, reads)
    lanes = {read.version: lane_of_read(read) for reads in histories.values() for read in reads}
    for writer, lines in journals.items():
        _check_told(findings, writer, lines, places, lanes)
    return findings


def _check_told(
    findings: Findings,
    writer: str,
    lines: Sequence[Line],
    places: Mapping[str, Sequence[int]],
    lanes: Mapping[int, Lane],
) -> None:
    newest: dict[tuple[str, Lane], int] = {}
    for line in lines:
        if line.what == "refused":
            findings.written_although_refused += [
                f"{entry_id} of {writer} at {places[entry_id]}, after {line.reason}"
                for entry_id in line.ids
                if entry_id in places
            ]
        if line.what != "acknowledged":
            continue
        for entry_id, version in zip(line.ids, line.versions, strict=True):
            found = places.get(entry_id)
            if found is None or (version and version not in found):
                findings.lost.append(
                    f"{entry_id} of {writer}, acknowledged at {version}: {found or 'nowhere'}"
                )
                continue
            lane = (line.conversation, lanes[found[0]])
            if found[0] <= newest.get(lane, 0):
                findings.reordered.append(
                    f"{entry_id} of {writer} at {found[0]}, told after {newest[lane]}"
                )
            newest[lane] = found[0]


def _broken_chain(conversation: str, reads: Iterable[Read]) -> list[str]:
    last: dict[Lane, int] = {"log": 0, "shape": 0}
    broken = []
    for read in reads:
        lane = lane_of_read(read)
        if read.predecessor != last[lane]:
            broken.append(
                f"version {read.version} of {conversation}: it names {read.predecessor} as its "
                f"predecessor, and that is {last[lane]}"
            )
        last[lane] = read.version
    return broken


def check_compactions(
    findings: Findings, reads: Sequence[Read], view: ContextView | None
) -> tuple[int, int]:
    """Hold one conversation's compactions against its log: how many are in force, and stale."""
    shape, stale, in_force = 0, 0, 0
    head = None
    logged = [read.version for read in reads if lane_of_read(read) == "log"]
    for read in reads:
        if lane_of_read(read) != "shape":
            continue
        entry = read.entry if isinstance(read, Recorded) else None
        if isinstance(entry, CompactionEntry):
            if entry.base_version.shape != shape:
                stale += 1
            else:
                in_force += 1
                findings.not_kept += _not_kept(entry, read.version, logged)
        if isinstance(entry, HeadMarker) and (
            not isinstance(entry, CompactionEntry) or entry.base_version.shape == shape
        ):
            head = entry.id
        shape = read.version
    found = view.head.id if view and view.head else None
    if view is not None and found != head:
        findings.stale_applied.append(f"{view.conversation} shows {found} and not {head}")
    return in_force, stale


def _not_kept(entry: CompactionEntry, version: int, logged: Sequence[int]) -> list[str]:
    last = entry.source_range.last.version
    kept = entry.kept_from.version if entry.kept_from else entry.base_version.log + 1
    return [
        f"version {between}, before the compaction at {version}"
        for between in logged
        if last < between < kept and between < version
    ]


async def check_view(
    findings: Findings, foldlog: Foldlog, conversation: str, last: int
) -> ContextView | None:
    """Hold a stored view against a fold from scratch, and the log's end."""
    stored = await foldlog.views.get(foldlog.tenant, conversation)
    state = decode_state(stored.data) if stored else None
    if state is None:
        findings.views.append(f"{conversation} has none that can be read")
        return None
    view = ContextFold(state).view()
    if view.version != last:
        findings.views.append(f"{conversation} is at {view.version} and its log at {last}")
    _, differences = await verify_conversation(foldlog, conversation)
    findings.views += [
        f"{conversation} at {one.version}, {one.kind}: {one.expected[:300]} is {one.found[:300]}"
        for one in differences
    ]
    return view


async def check_attempts(
    findings: Findings, foldlog: Foldlog, view: ContextView, policy: Policy, now: float
) -> Counter[str]:
    """Every attempt ended, and what is over its limit has been seen to; how attempts ended."""
    records = await foldlog.attempts.read(foldlog.tenant, view.conversation)
    findings.attempts += [
        f"{attempt.id} of {view.conversation} by {attempt.worker} has no end"
        for attempt in unended(records)
    ]
    last: Attempt | None = next((one.attempt for one in reversed(records) if one.attempt), None)
    if isinstance(assess(view, policy, last, now), Pressure) and not (last and last.failures):
        findings.pressure.append(
            f"{view.conversation} is at {view.tokens} tokens, over {policy.soft_limit}, and "
            f"nothing is queued; its last attempt was {last}"
        )
    return Counter(one.state for one in records if one.state in ENDS)


def longest_pause(
    journals: Mapping[str, Sequence[Line]], frozen: Mapping[str, Sequence[tuple[float, float]]]
) -> float:
    """Seconds that an acknowledgement took at the most, time in which its writer slept left out."""
    pauses = [
        line.ended
        - line.started
        - sum(
            max(0.0, min(line.ended, until) - max(line.started, since))
            for since, until in frozen.get(writer, ())
        )
        for writer, line in itertools.chain.from_iterable(
            ((writer, line) for line in lines) for writer, lines in journals.items()
        )
        if line.what == "acknowledged"
    ]
    return max(pauses, default=0.0)
