"""Entries of earlier schema versions, brought to today's form while they are read.

To raise the schema: raise `SCHEMA`, add the function from the version before, and commit golden
files of the new version beside those of the old ones. What is stored is never rewritten.
"""

from collections.abc import Callable, Mapping
from typing import Any

from foldlog_events.entries import SCHEMA

Fields = dict[str, Any]
"""An entry as decoded JSON."""

UPCASTERS: Mapping[int, Callable[[Fields], Fields]] = {}
"""By schema version: an entry of it in the form of the next one."""


def upcast(fields: Fields, schema: int) -> Fields:
    """An entry of an earlier schema in today's form. Raises KeyError for one that never was."""
    while schema < SCHEMA:
        fields = UPCASTERS[schema](fields)
        schema += 1
    return {**fields, "schema": SCHEMA}
