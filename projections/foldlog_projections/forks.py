"""Rule 9: a child begins with what its parent was."""

from foldlog_events.entries import ForkEntry
from foldlog_events.errors import FoldlogError


class ForkWithoutParent(FoldlogError):
    """A fork was folded as if it began with nothing."""

    def __init__(self, fork: ForkEntry) -> None:
        super().__init__(
            f"{fork.conversation!r} inherits from {fork.parent!r}: "
            f"fold that up to version {fork.parent_version}, then `inherit`"
        )
