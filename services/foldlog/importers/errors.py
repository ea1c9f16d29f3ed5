"""What can go wrong with an import: each error says what to do."""

from foldlog_events.errors import FoldlogError

FIRST_LINE_SHOWN = 160
"""Characters of a file's first line that an error repeats."""


class UnknownFormat(FoldlogError):
    """A file that none of the importers reads; nothing of it was imported."""

    def __init__(self, name: str, first_line: str, known: tuple[str, ...]) -> None:
        shown = first_line.strip()
        if len(shown) > FIRST_LINE_SHOWN:
            shown = f"{shown[:FIRST_LINE_SHOWN]}…"
        begins = f"it begins with {shown!r}" if shown else "it holds no line"
        super().__init__(
            f"{name}: unknown format, {begins}: the known formats are {', '.join(known)}"
        )
        self.name = name
        self.first_line = shown
        self.known = known


class MalformedRecord(FoldlogError):
    """One line, or one record of it, that cannot be imported; the other lines are."""


class UnresolvedReference(FoldlogError):
    """An imported item refers to an entry whose version is not known."""

    def __init__(self, item: str, target: str) -> None:
        super().__init__(
            f"the version of entry {target} is not known, and {item} refers to it: append the "
            "items of an import in their order, the conversation that a fork comes from first"
        )
        self.item = item
        self.target = target


class ConversationDiverged(FoldlogError):
    """A conversation of that name exists, and an import would not continue it."""

    def __init__(self, conversation: str, entry: str) -> None:
        super().__init__(
            f"conversation {conversation!r} already holds entry {entry}, which is not next in the "
            "import: import under another tenant or into a fresh log"
        )
        self.conversation = conversation
        self.entry = entry
