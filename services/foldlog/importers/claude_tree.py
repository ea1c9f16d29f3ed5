"""The tree that a Claude Code session file holds, and the conversations it makes.

Records name their parent. Not every leaf ends a branch: results of parallel calls, further
blocks of a reply, and records that no model sees hang beside the path that goes on. They belong
to it, in the order of the file. The conversation of the session's own name is the path to the
last record that is no sidechain; every other branch is a fork.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from foldlog.importers.lines import Line
from foldlog.importers.report import LineReport


@dataclass(slots=True, eq=False)
class Node:
    """One record of the file and its place in the tree."""

    line: int
    record: dict[str, Any]
    parent: "Node | None" = None
    children: list["Node"] = field(default_factory=list)
    beside: list["Node"] = field(default_factory=list)
    """Records that belong to the path through this one without being on it."""
    has_turn: bool = False
    """Whether it, or what comes after it, takes the conversation further."""

    @property
    def kind(self) -> str:
        """The record's type."""
        return str(self.record.get("type"))

    @property
    def is_sidechain(self) -> bool:
        """Whether an agent that the session started wrote it."""
        return self.record.get("isSidechain") is True


@dataclass(slots=True)
class Branch:
    """A conversation: its own records in the order of the file, and the one it goes on from."""

    nodes: list[Node]
    parent: Node | None


@dataclass(slots=True)
class Tree:
    """What a file holds."""

    nodes: list[Node]
    by_uuid: dict[str, Node | None]
    """None where several records have the id."""

    def branches(self) -> list[Branch]:
        """The main branch, then the others; each after the one that it leaves."""
        leaves = [n for n in self.nodes if n.has_turn and not any(c.has_turn for c in n.children)]
        leaves.sort(key=lambda node: (node.is_sidechain, -node.line))
        taken: set[int] = set()
        found = []
        for leaf in leaves:
            own: list[Node] = []
            node: Node | None = leaf
            while node is not None and id(node) not in taken:
                taken.add(id(node))
                own += [node, *node.beside]
                node = node.parent
            found.append(Branch(sorted(own, key=lambda n: n.line), node))
        return found or ([Branch(self.nodes, None)] if self.nodes else [])


def read_tree(lines: Iterable[Line], report: LineReport) -> Tree:
    """The tree of a file; what is no record is reported. Keeps all records in memory."""
    nodes: list[Node] = []
    for line in lines:
        if line.blank:
            report.skipped(line.number, "blank")
        elif line.fault:
            report.malformed(line.number, line.fault)
        elif isinstance(line.value, dict) and isinstance(line.value.get("type"), str):
            nodes.append(Node(line.number, line.value))
        else:
            report.malformed(line.number, "a record is an object with a type")
    tree = _linked(nodes, report)
    for node in reversed(tree.nodes):
        node.has_turn = _is_turn(node) or any(child.has_turn for child in node.children)
    _place_beside(tree.nodes)
    return tree


def is_boundary(record: dict[str, Any]) -> bool:
    """Whether the context was compacted here."""
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def blocks_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a record's message, as far as it has any."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict)]


def reply_key(record: dict[str, Any]) -> tuple[str, ...] | None:
    """What the records of one reply have in common: each block is a record of its own."""
    message = record.get("message")
    if record.get("type") != "assistant" or not isinstance(message, dict):
        return None
    if not isinstance(message.get("id"), str):
        return None
    return (message["id"], str(message.get("model")), str(record.get("requestId")))


def _linked(nodes: list[Node], report: LineReport) -> Tree:
    linked: list[Node] = []
    latest: dict[str, Node] = {}
    by_uuid: dict[str, Node | None] = {}
    last: Node | None = None
    for node in nodes:
        uuid = node.record.get("uuid")
        if not isinstance(uuid, str):
            linked.append(node)
            continue
        before = latest.get(uuid)
        if before is not None and before.record == node.record:
            report.skipped(node.line, f"repeats line {before.line}")
            continue
        node.parent = _parent(node, latest, last, report)
        if node.parent is not None:
            node.parent.children.append(node)
        by_uuid[uuid] = None if uuid in by_uuid else node
        latest[uuid] = last = node
        linked.append(node)
    return Tree(linked, by_uuid)


def _parent(
    node: Node, latest: dict[str, Node], last: Node | None, report: LineReport
) -> Node | None:
    record = node.record
    stated = record.get("parentUuid")
    if stated is None and is_boundary(record):
        stated = record.get("logicalParentUuid")
        if stated is None:
            return last
    elif stated is None and "parentUuid" in record:
        return None
    parent = latest.get(stated) if isinstance(stated, str) else None
    if parent is None and last is not None:
        # Its parent's line may be the malformed one: the rest must not be lost with it.
        report.remark(
            node.line, f"its parent {stated!r} is on no line before it: it follows line {last.line}"
        )
        return last
    return parent


def _is_turn(node: Node) -> bool:
    record = node.record
    if not isinstance(record.get("uuid"), str):
        return False
    match node.kind:
        case "user":
            kinds = {str(block.get("type")) for block in blocks_of(record)}
            return kinds != {"tool_result"} or node.parent is None
        case "assistant":
            key = reply_key(record)
            return key is None or key != _key_before(node)
        case "attachment":
            attachment = record.get("attachment")
            return isinstance(attachment, dict) and attachment.get("type") == "queued_command"
        case _:
            return False


def _key_before(node: Node) -> tuple[str, ...] | None:
    """Of the reply that the node's ancestors end with, leaving out its results."""
    before = node.parent
    while before is not None and before.kind != "assistant":
        if _is_turn(before):
            return None
        before = before.parent
    return None if before is None else reply_key(before.record)


def _place_beside(nodes: list[Node]) -> None:
    hosts: dict[int, Node] = {}
    host = next((node for node in nodes if node.has_turn), None)
    for node in nodes:
        if node.has_turn:
            hosts[id(node)] = host = node
            continue
        # A record without a place of its own stays where it stands in the file.
        own = host if node.parent is None else hosts.get(id(node.parent), host)
        if own is not None:
            own.beside.append(node)
            hosts[id(node)] = own
