"""Generated histories, friendly and nasty, for tests of the fold and of what stands on it.

An example is a list of short byte strings, one for each operation; everything else is built from
them deterministically. That draws fast, and shrinks to few operations with simple choices.
Identifiers come from small alphabets, so that collisions are frequent; texts are unique, so that
no two things that are said can be mistaken for each other.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import strategies as st

from foldlog_events.entries import (
    ActionEntry,
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ExactValue,
    ForkEntry,
    HeadMarker,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
    Section,
    SectionInForce,
    SourceRange,
    SystemEntry,
    lane_of,
)
from foldlog_events.messages import Tool
from tests.generated_messages import TOOLS, Dice, answering, calling, messages

TENANT = "default"
TIME = datetime(2026, 1, 1, tzinfo=UTC)

SECTIONS = ("cwd", "rules", "style")


@dataclass(frozen=True)
class Conversation:
    """One conversation of a family, and where it was forked from."""

    name: str
    history: tuple[Recorded, ...]
    parent: str | None = None
    parent_version: int = 0


@dataclass(frozen=True)
class Family:
    """Conversations that share a stream; parents stand before their children."""

    conversations: tuple[Conversation, ...]

    @property
    def histories(self) -> dict[str, tuple[Recorded, ...]]:
        """The history of each conversation by its name."""
        return {each.name: each.history for each in self.conversations}


@dataclass
class Writer:
    """A conversation while it is being written."""

    name: str
    parent: str | None = None
    parent_version: int = 0
    history: list[Recorded] = field(default_factory=list)
    line: list[Recorded] = field(default_factory=list)
    """With what it inherited."""
    active: list[Recorded] = field(default_factory=list)
    """About the range, to steer by; the rules decide what it really is."""
    last: dict[str, int] = field(default_factory=lambda: {"log": 0, "shape": 0})

    def reaches(self, version: int) -> tuple[list[Recorded], list[Recorded]]:
        """The line and about the range up to a version."""
        return (
            [each for each in self.line if each.version <= version],
            [each for each in self.active if each.version <= version],
        )


class World:
    """The stream while it is being written."""

    def __init__(self) -> None:
        self.version = 0
        self.written = 0
        self.writers = [Writer("root")]

    def fresh(self, ahead: int = 0) -> str:
        """The id of the next new entry, or of one that comes later."""
        return f"e{self.written + 1 + ahead}"

    def append(self, writer: Writer, entry: Entry, *, gap: int = 0) -> None:
        """Stores an entry as the successor of the last in its lane."""
        self.written += 1
        self.version += 1 + gap
        lane = lane_of(entry)
        recorded = Recorded(self.version, entry, writer.last[lane])
        writer.last[lane] = self.version
        writer.history.append(recorded)
        writer.line.append(recorded)
        if not isinstance(entry, HeadMarker):
            writer.active.append(recorded)


def _build(operations: list[bytes], *, forks: bool) -> Family:
    world = World()
    for data in operations:
        dice = Dice(data)
        operation = dice.pick(OPERATIONS)
        writer = dice.pick(world.writers)
        if operation is not _fork:
            operation(world, writer, dice)
        elif forks:
            _fork(world, writer, dice)
    return Family(
        tuple(
            Conversation(each.name, tuple(each.history), each.parent, each.parent_version)
            for each in world.writers
        )
    )


def families(*, forks: bool = True) -> st.SearchStrategy[Family]:
    """Conversations in one stream, forked from each other."""
    operation = st.binary(min_size=32, max_size=32)
    few, many = st.lists(operation, max_size=8), st.lists(operation, min_size=10, max_size=36)
    return st.one_of(few, many, many).map(lambda data: _build(data, forks=forks))


def histories() -> st.SearchStrategy[tuple[Recorded, ...]]:
    """The history of one conversation that was forked from no other."""
    return families(forks=False).map(lambda family: family.conversations[0].history)


# --- entries -------------------------------------------------------------------------------


def _id(world: World, writer: Writer, dice: Dice) -> str:
    """Mostly a new id, sometimes one that was used."""
    if dice.one_in(12) and writer.line:
        return dice.pick(writer.line[-6:]).entry.id
    return world.fresh()


def _target(world: World, writer: Writer, dice: Dice) -> str:
    """An entry's id: of the last few, of any, of one to come, or of none."""
    where = dice.below(12)
    if where == 11:
        return "nowhere"
    if where == 10 or not writer.line:
        return world.fresh(dice.below(3))
    if where >= 8:
        return dice.pick(writer.line).entry.id
    return dice.pick(writer.line[:-7:-1]).entry.id


def _gap(dice: Dice) -> int:
    return (0, 0, 1, 4)[dice.below(4)]


def _append(world: World, writer: Writer, dice: Dice, entry: Entry) -> None:
    world.append(writer, entry, gap=_gap(dice))


def _say(world: World, writer: Writer, dice: Dice) -> None:
    count = (1, 1, 1, 2, 3)[dice.below(5)]
    entry = MessageEntry(
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        messages=messages(world.written, dice, count),
    )
    _append(world, writer, dice, entry)


def _turn(world: World, writer: Writer, dice: Dice) -> None:
    """An atomic batch: a call and results, one version after the other."""
    gap = _gap(dice)
    answers = [answering(world.written, dice) for _ in range(2)]
    for message in (calling(world.written, dice), *answers):
        entry = MessageEntry(
            id=world.fresh(), conversation=writer.name, time=TIME, messages=(message,)
        )
        world.append(writer, entry, gap=gap)
        gap = 0


def _system(world: World, writer: Writer, dice: Dice) -> None:
    sections = tuple(
        Section(
            name=dice.pick(SECTIONS),
            text=None if dice.one_in(4) else f"section {world.written}.{dice.below(2)}",
            exact=dice.one_in(4),
        )
        for _ in range((1, 2, 3, 0)[dice.below(4)])
    )
    entry = SystemEntry(
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        actor=dice.pick(("", "planner")),
        sections=sections,
        tools_removed=tuple(dice.pick(TOOLS) for _ in range(dice.below(2))),
        tools_added=tuple(_tool(world, dice) for _ in range(dice.below(3))),
    )
    _append(world, writer, dice, entry)


def _tool(world: World, dice: Dice) -> Tool:
    return Tool(name=dice.pick(TOOLS), description=f"tool {world.written}.{dice.below(2)}")


def _edit(world: World, writer: Writer, dice: Dice) -> None:
    # An entry edits a target once: the codec refuses more, and the rules do not speak of it.
    targets = {_target(world, writer, dice) for _ in range((1, 1, 2)[dice.below(3)])}
    edits = tuple(
        Edit(
            target=target,
            replace=messages(world.written, dice, dice.below(3)) if dice.below(3) else None,
        )
        for target in sorted(targets)
    )
    entry = EditEntry(id=_id(world, writer, dice), conversation=writer.name, time=TIME, edits=edits)
    _append(world, writer, dice, entry)


def _erase(world: World, writer: Writer, dice: Dice) -> None:
    target = _target(world, writer, dice)
    versions = [each.version for each in writer.line if each.entry.id == target]
    entry = ErasedEntry(
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        target=target,
        target_version=versions[0] if versions else 0,
    )
    _append(world, writer, dice, entry)


def _baseline(world: World, writer: Writer, dice: Dice) -> Baseline | None:
    if not dice.below(2):
        return None
    sections = tuple(
        SectionInForce(
            name=name,
            text=f"baseline {world.written} {name}",
            exact=dice.one_in(4),
            entry=dice.pick(writer.line).entry.id if writer.line else "",
            time=TIME,
        )
        for name in SECTIONS
        if dice.below(2)
    )
    return Baseline(
        sections=sections, tools=tuple(_tool(world, dice) for _ in range(dice.below(2)))
    )


def _reset(world: World, writer: Writer, dice: Dice) -> None:
    entry = ResetEntry(
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        handoff=messages(world.written, dice, dice.below(3)),
        baseline=_baseline(world, writer, dice),
    )
    _append(world, writer, dice, entry)
    writer.active = []


def _compact(world: World, writer: Writer, dice: Dice) -> None:
    """A compaction as a worker commits it: read at a base, kept from some entry on."""
    logged = [0] + [r.version for r in writer.history if lane_of(r.entry) == "log"]
    since = (0, 0, 1, 2)[dice.below(4)]  # entries that were appended while it was being made
    base = logged[max(0, len(logged) - 1 - since)]
    shape = writer.last["shape"]
    read = [each for each in writer.active if each.version <= base] or writer.active
    kept: EntryReference | None = None
    if read and dice.below(4):
        chosen = dice.pick(read)
        kept = EntryReference(chosen.entry.id, chosen.version)
    trouble = dice.below(16)
    if trouble == 15:
        shape = dice.pick((0, shape + 1, shape - 1))
    elif trouble == 14:
        kept = EntryReference(_target(world, writer, dice), dice.below(world.version + 2))
    elif trouble == 13:
        base = dice.below(world.version + 2)
    entry = CompactionEntry(
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        base_version=BaseVersion(log=base, shape=shape),
        source_range=_source(writer, base),
        kept_from=kept,
        summary=dice.pick(("summary", "a </summary> and <SUMMARY>", "of")) + f" {world.written}",
        exact_values=tuple(
            ExactValue(text=f"/{world.written}<summary>", kind="path", entry="e1")
            for _ in range(dice.below(3))
        ),
        baseline=_baseline(world, writer, dice),
    )
    _append(world, writer, dice, entry)
    if trouble < 14:
        start = kept.version if kept is not None else base + 1
        writer.active = [each for each in writer.active if each.version >= start]


def _source(writer: Writer, base: int) -> SourceRange:
    read = [each for each in writer.active if each.version <= base]
    ends = (read[0], read[-1]) if read else ()
    first, last = (EntryReference(r.entry.id, r.version) for r in ends) if ends else (NONE, NONE)
    return SourceRange(first=first, last=last, count=len(read), digest="sha256:" + "0" * 64)


NONE = EntryReference("e0", 0)


def _silent(world: World, writer: Writer, dice: Dice) -> None:
    entry_id = _id(world, writer, dice)
    entry: Entry = NoteEntry(id=entry_id, conversation=writer.name, time=TIME, name="note")
    if dice.one_in(3):
        entry = ActionEntry(
            id=entry_id, conversation=writer.name, time=TIME, action="x", step="requested"
        )
    elif writer.history and dice.one_in(4):  # a fork that is not the first of its conversation
        entry = ForkEntry(
            id=entry_id, conversation=writer.name, time=TIME, parent="root", parent_version=1
        )
    _append(world, writer, dice, entry)


def _other(world: World, writer: Writer, dice: Dice) -> None:
    entry = OtherEntry(
        kind=dice.pick(("acme.widget", "memo")),
        id=_id(world, writer, dice),
        conversation=writer.name,
        time=TIME,
        messages=messages(world.written, dice, dice.below(3)),
        required=dice.one_in(6),
    )
    _append(world, writer, dice, entry)


def _fork(world: World, writer: Writer, dice: Dice) -> None:
    """A child of a conversation as it was at some version, often between two entries."""
    if len(world.writers) >= 4 or not writer.history:
        return
    back = dice.pick(writer.history[:-9:-1]).version
    at = min(back + dice.below(2), world.version)
    line, active = writer.reaches(at)
    child = Writer(f"child{len(world.writers)}", writer.name, at, line=line, active=active)
    world.writers.append(child)
    entry = ForkEntry(
        id=_id(world, child, dice),
        conversation=child.name,
        time=TIME,
        parent=writer.name,
        parent_version=at,
    )
    _append(world, child, dice, entry)


OPERATIONS = (
    *(_say,) * 17,
    *(_turn,) * 2,
    *(_system,) * 6,
    *(_edit,) * 7,
    *(_compact,) * 7,
    *(_fork,) * 3,
    *(_silent,) * 2,
    *(_reset,) * 2,
    _erase,
    _erase,
    _other,
    _other,
)
