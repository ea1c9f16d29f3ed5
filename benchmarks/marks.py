"""What each row is measured against, and what it is to reach."""

import msgspec

from benchmarks.measure import Row


class Mark(msgspec.Struct, frozen=True):
    """A row's baseline in words, and its mark."""

    baseline: str
    at_least: float | None = None
    at_most: float | None = None
    of_value: bool = False
    """The mark is on the value, not on the ratio."""


MARKS = {
    "append": Mark("nats-py, expected sequence, same bytes", at_least=0.85),
    "append-64": Mark("the same, 64 tasks", at_least=0.8),
    "append-8-processes": Mark("one actor on nats-py", at_least=0.3),
    "append-8-processes-slowest": Mark("the mean writer", at_least=0.5, of_value=True),
    "append-turn-of-5": Mark("nats-py, atomic batch, same bytes", at_least=0.85),
    "fold": Mark("msgspec decode of the same bytes", at_most=2.5),
    "context-warm": Mark("batched direct get of the entry", at_most=1.5),
    "context-cold": Mark("KV get of the same size, decoded", at_most=2.0),
    "context-cold-100k": Mark("the same at 1,000 entries", at_most=1.2),
    "context-cold-100k-no-view": Mark("the same at 1,000 entries", at_most=1.2),
    "context-at": Mark("batched direct get of the range", at_most=2.0),
    "projector": Mark("FastStream batch, decoding only", at_least=0.6),
    "projector-2-workers": Mark("one worker", at_least=1.0),
    "view-lag-p99": Mark("", at_most=250, of_value=True),
    "rebuild-1M": Mark("FastStream batch, decoding only", at_most=2.5),
    "compaction": Mark("three broker round trips", at_most=20),
    "artifact-put-10MiB": Mark("nats-py object store", at_least=0.9),
    "artifact-get-10MiB": Mark("nats-py object store", at_least=5.0),
    "projector-memory-100k": Mark("at 10,000 conversations", at_most=1.1),
    "peer-append-100/foldlog": Mark("Agents SQLiteSession", at_least=0.6),
    "peer-append-to-SQLAlchemy": Mark("Agents SQLAlchemy session", at_least=5.0),
    "peer-load-10000/foldlog": Mark("Agents SQLiteSession", at_most=1.0),
    "peer-append-cost-10000-to-100/foldlog": Mark("its rate at 100 items", at_least=0.91),
    "peer-bytes/foldlog": Mark("Agents SQLiteSession", at_most=1_400, of_value=True),
    "peer-two-processes/foldlog": Mark("what was appended", at_least=1.0),
    "peer-two-processes-torn/foldlog": Mark("", at_most=0, of_value=True),
}


def verdict(row: Row) -> str:
    """How a row stands to its mark; empty where it has none."""
    mark = MARKS.get(row.name)
    if mark is None:
        return ""
    found = row.value if mark.of_value or row.ratio is None else row.ratio
    if mark.at_least is not None:
        limit, missed = mark.at_least, found < mark.at_least
        sign = "≥"
    else:
        limit = mark.at_most or 0.0
        missed = found > limit
        sign = "≤"
    if not missed:
        return f"{sign} {limit:g}"
    by = f" by {abs(found / limit - 1):.0%}" if limit else ""
    return f"{sign} {limit:g}: misses{by}"
