"""The tree that a Pi session file holds: its records, and the conversations they make.

Files of version 1 have no ids and are one chain. Since version 2 each record names its parent;
every leaf ends a branch. The conversation of the session's own name is the path to the last
record, which is where Pi itself goes on; every other branch is a fork of the conversation that
it leaves.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from foldlog.importers.lines import Line
from foldlog.importers.report import LineReport


@dataclass(slots=True, eq=False)
class Node:
    """One record of the file and its place in the tree."""

    line: int
    index: int
    """Place among the file's records, counted from 0 with the header: what version 1 refers to."""
    record: dict[str, Any]
    parent: "Node | None" = None
    depth: int = 0
    has_children: bool = False
    entries: list[str] = field(default_factory=list)
    """Ids of the entries that it became."""

    @property
    def kind(self) -> str:
        """The record's type."""
        return str(self.record.get("type"))

    def path(self) -> list["Node"]:
        """From the root to this node."""
        nodes = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass(slots=True)
class Branch:
    """A conversation: its own nodes in order, and the node that it goes on from."""

    nodes: list[Node]
    parent: Node | None


@dataclass(slots=True)
class Session:
    """What a file holds."""

    header: dict[str, Any]
    nodes: list[Node]

    def branches(self) -> list[Branch]:
        """The main branch, then the others; each after the one that it leaves."""
        taken: set[int] = set()
        found = []
        for leaf in reversed([node for node in self.nodes if not node.has_children]):
            own: list[Node] = []
            node: Node | None = leaf
            while node is not None and id(node) not in taken:
                taken.add(id(node))
                own.append(node)
                node = node.parent
            found.append(Branch(own[::-1], node))
        return found


def read_session(lines: Iterable[Line], report: LineReport) -> Session:
    """The tree of a file; what is no record is reported. Keeps all records in memory."""
    nodes: list[Node] = []
    index = 0
    for line in lines:
        if line.blank:
            report.skipped(line.number, "blank")
        elif line.fault:
            report.malformed(line.number, line.fault)
        else:
            if isinstance(line.value, dict) and isinstance(line.value.get("type"), str):
                nodes.append(Node(line.number, index, line.value))
            else:
                report.malformed(line.number, "a record is an object with a type")
            # Pi counts whatever it could parse, so its references by index do too.
            index += 1
    header = next((node.record for node in nodes if node.kind == "session"), {})
    if _is_tree(header, nodes):
        nodes = _link_tree(nodes, report)
    else:
        _link_chain(nodes)
    return Session(header, nodes)


def _is_tree(header: dict[str, Any], nodes: list[Node]) -> bool:
    version = header.get("version")
    if isinstance(version, int):
        return version >= 2
    return any("parentId" in node.record for node in nodes)


def _link_chain(nodes: list[Node]) -> None:
    for parent, node in pairwise(nodes):
        _adopt(parent, node)


def _link_tree(nodes: list[Node], report: LineReport) -> list[Node]:
    """Link what names its parent; returns the nodes that belong to the tree."""
    by_id: dict[str, Node] = {}
    linked: list[Node] = []
    header: Node | None = None
    rooted = False
    for node in nodes:
        if node.kind == "session":
            if header is None:
                header = node
                linked.append(node)
            else:
                report.skipped(node.line, "a further session header")
            continue
        parent_id = node.record.get("parentId")
        parent = by_id.get(parent_id) if isinstance(parent_id, str) else None
        if parent is None and "parentId" in node.record and parent_id is None:
            parent = None if rooted else header
        elif parent is None:
            # Its parent's line may be the malformed one: the rest must not be lost with it.
            parent = linked[-1] if linked else None
            where = f"line {parent.line}" if parent else "nothing"
            report.remark(
                node.line, f"its parent {parent_id!r} is on no line before it: it follows {where}"
            )
        if parent is not None:
            _adopt(parent, node)
        rooted = True
        linked.append(node)
        if isinstance(node.record.get("id"), str):
            by_id[node.record["id"]] = node
    return linked


def _adopt(parent: Node, node: Node) -> None:
    node.parent = parent
    node.depth = parent.depth + 1
    parent.has_children = True
