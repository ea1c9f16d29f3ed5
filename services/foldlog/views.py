"""Stored views: one value for each conversation, replaced only by who knows its revision."""

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from secrets import token_hex

import msgspec

from foldlog.artifacts import Artifacts
from foldlog.broker import REQUEST_TIMEOUT, Broker, status_of
from foldlog.errors import (
    BrokerRefused,
    FoldlogError,
    JetStreamUnavailable,
    RequestTimeout,
    UnknownArtifact,
    ViewConflict,
)
from foldlog.publishing import Outcome, meaning
from foldlog.reading import EXPECTED
from foldlog.topology import VIEWS, VIEWS_BUCKET
from foldlog_events.subjects import view_key

INLINE_BYTES = 512 * 1024
"""A larger view is stored as an artifact: the bucket keeps whole values in memory when listed
and watched, and half a megabyte is some 150,000 tokens of text."""
VIEW_CONTENT = "view:"
"""What the names of large views begin with among the artifacts."""
_POINTER = "Foldlog-Artifact"
_KV_OPERATION = "KV-Operation"
"""On the markers that NATS's own tools leave where they delete a key."""
_TRIES = 5
_REMEMBERED = 10_000


class StoredView(msgspec.Struct, frozen=True):
    """A view as it is stored."""

    data: bytes
    revision: int
    """What the next `put` must name."""


class Views:
    """The views behind a connection."""

    def __init__(self, broker: Broker, artifacts: Artifacts) -> None:
        self.broker = broker
        self.artifacts = artifacts
        self._known: OrderedDict[str, tuple[int, str | None]] = OrderedDict()

    async def get(self, tenant: str, conversation: str) -> StoredView | None:
        """The stored view; None where there is none, or where its content is gone."""
        for _ in range(_TRIES):
            revision, pointer, data = await self._get(view_key(tenant, conversation))
            if not revision:
                return None
            if pointer is None:
                return StoredView(data, revision)
            try:
                return StoredView(await self.artifacts.get_named(pointer), revision)
            except UnknownArtifact:
                continue  # it was replaced between the two reads
        return StoredView(b"", revision)

    async def put(self, tenant: str, conversation: str, data: bytes, *, revision: int) -> int:
        """Replaces the view that has `revision` (0: there is none yet); the new revision.

        Raises ViewConflict where another process replaced it first.
        """
        key = view_key(tenant, conversation)
        old = await self._pointer_at(key, revision)
        pointer = None
        if len(data) > min(INLINE_BYTES, self.broker.max_payload // 2):
            # A name of its own for each put, so that removing it can hurt no other.
            pointer = f"{VIEW_CONTENT}{key}:{token_hex(8)}"
            await self.artifacts.put_named(pointer, data)
        try:
            new = await self._put(key, b"" if pointer else data, pointer, revision)
        except ViewConflict:
            await self._discard(pointer)
            raise
        self._remember(key, new, pointer)
        await self._discard(old)
        return new

    async def delete(self, tenant: str, conversation: str) -> None:
        """Removes a stored view and its content; the next `put` begins at revision 0."""
        key = view_key(tenant, conversation)
        _, pointer, _ = await self._get(key)
        await self.broker.api(f"STREAM.PURGE.{VIEWS}", {"filter": _subject(key)})
        await self._discard(pointer)

    async def keys(self) -> AsyncIterator[tuple[str, str]]:
        """The tokens of tenant and conversation of every stored view."""
        info = await self.broker.api(
            f"STREAM.INFO.{VIEWS}", {"subjects_filter": _subject(">"), "offset": 0}
        )
        while subjects := info["state"].get("subjects"):
            for subject in sorted(subjects):
                tenant, conversation = subject.split(".")[-2:]
                yield tenant, conversation
            offset = info["offset"] + len(subjects)
            if offset >= info["total"]:
                return
            info = await self.broker.api(
                f"STREAM.INFO.{VIEWS}", {"subjects_filter": _subject(">"), "offset": offset}
            )

    async def _put(self, key: str, data: bytes, pointer: str | None, revision: int) -> int:
        """A repetition whose first attempt arrived finds its own value there."""
        headers = {EXPECTED: str(revision)} | ({_POINTER: pointer} if pointer else {})
        for tries in range(_TRIES):
            try:
                await self.broker.wait_connected(REQUEST_TIMEOUT)
                answer = meaning(await self.broker.request(_subject(key), data, headers=headers))
            except RequestTimeout:
                continue
            match answer.outcome:
                case Outcome.STORED:
                    return answer.version
                case Outcome.CONFLICT:
                    found = await self._get(key) if tries else (0, None, b"")
                    if found[0] > revision and found[1:] == (pointer, data):
                        return found[0]
                    raise ViewConflict(key, revision)
                case Outcome.NOT_WRITTEN if not answer.code:
                    raise JetStreamUnavailable(answer.reason)
                case _:
                    raise BrokerRefused(answer.code, answer.reason, what="a view")
        raise RequestTimeout(
            f"the broker did not say whether view {key} was stored: read it again, and put anew"
        )

    async def _get(self, key: str) -> tuple[int, str | None, bytes]:
        """Revision (0: none), pointer and bytes of the stored value."""
        answer = await self.broker.ask(f"$JS.API.DIRECT.GET.{VIEWS}.{_subject(key)}")
        headers = answer.headers or {}
        if status_of(answer) is not None or _KV_OPERATION in headers:
            self._remember(key, 0, None)
            return 0, None, b""
        revision, pointer = int(headers["Nats-Sequence"]), headers.get(_POINTER)
        self._remember(key, revision, pointer)
        return revision, pointer, answer.data

    async def _pointer_at(self, key: str, revision: int) -> str | None:
        known = self._known.get(key)
        if known and known[0] == revision:
            return known[1]
        found, pointer, _ = await self._get(key)
        return pointer if found == revision else None

    def _remember(self, key: str, revision: int, pointer: str | None) -> None:
        self._known[key] = (revision, pointer)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    async def _discard(self, pointer: str | None) -> None:
        """Removes content that nothing points to; what stays after a failure only takes room."""
        if pointer is not None:
            with contextlib.suppress(FoldlogError):
                await self.artifacts.delete(pointer)


def _subject(key: str) -> str:
    return f"$KV.{VIEWS_BUCKET}.{key}"
