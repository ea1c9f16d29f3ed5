"""Errors about entries themselves. Each says what is wrong, the limit, and what to do."""


class FoldlogError(Exception):
    """Base of every error foldlog raises on purpose."""


class InvalidEntry(FoldlogError):
    """An entry that no reader could use: `place` is the path to the fault, `$` the whole."""

    def __init__(self, reason: str, *, place: str = "$") -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason
        self.place = place


class EntryTooLarge(FoldlogError):
    """An entry over the broker's limit, headers included. Sizes are in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the entry takes {size:,} bytes with its headers and the broker allows {limit:,}: "
            "store the large part as an artifact, or split the entry"
        )
        self.size = size
        self.limit = limit


class UndecodableEntry(FoldlogError):
    """Stored bytes that are no entry of any schema this release reads."""

    def __init__(self, reason: str, *, version: int | None = None) -> None:
        where = "" if version is None else f" at version {version}"
        super().__init__(f"undecodable entry{where}: {reason}")
        self.reason = reason
        self.version = version


class InvalidIdentifier(FoldlogError):
    """A tenant or conversation id that cannot be used."""
