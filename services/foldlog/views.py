"""Stored views: one value for each conversation, replaced only by who knows its revision."""

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from secrets import token_hex
from urllib.parse import quote, unquote

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
from foldlog.topology import VIEWS_BUCKET
from foldlog_events.subjects import view_key
from foldlog_projections.state import SHAPE_OF_STATE

INLINE_BYTES = 512 * 1024
"""A larger view is stored as an artifact: the bucket keeps whole values in memory when listed
and watched, and half a megabyte is some 150,000 tokens of text."""
VIEW_CONTENT = "view:"
"""What the names of large views begin with among the artifacts."""
_POINTER = "Foldlog-Artifact"
_MARK = "Foldlog-Given-Up"
SHAPE = "Foldlog-Shape"
"""Header that tells the shape of a stored state without reading it."""
VERSION = "Foldlog-Version"
"""Header with the version of the last entry in a view."""
LONGEST_MARK = 1_000
"""Characters that are kept of a mark."""
_KV_OPERATION = "KV-Operation"
"""On the markers that NATS's own tools leave where they delete a key."""
_TRIES = 5
_REMEMBERED = 10_000


class StoredView(msgspec.Struct, frozen=True):
    """A view as it is stored."""

    data: bytes
    revision: int
    """What the next `put` must name."""
    mark: str = ""
    """Why the projector gave up on what came after this view; the next `put` takes it away."""


class _Value(msgspec.Struct, frozen=True):
    """What a key of the bucket holds."""

    revision: int
    pointer: str | None
    data: bytes
    mark: str = ""
    shape: str = str(SHAPE_OF_STATE)
    version: str = "0"


_NOTHING = _Value(0, None, b"")


class Views:
    """The views behind a connection."""

    def __init__(self, broker: Broker, artifacts: Artifacts, bucket: str = VIEWS_BUCKET) -> None:
        self.broker = broker
        self.artifacts = artifacts
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._known: OrderedDict[str, tuple[int, str | None]] = OrderedDict()

    async def get(self, tenant: str, conversation: str) -> StoredView | None:
        """The stored view; None where there is none, or where its content is gone."""
        for _ in range(_TRIES):
            found = await self._get(view_key(tenant, conversation))
            if not found.revision:
                return None
            if found.pointer is None:
                return StoredView(found.data, found.revision, found.mark)
            try:
                data = await self.artifacts.get_named(found.pointer)
            except UnknownArtifact:
                continue  # it was replaced between the two reads
            return StoredView(data, found.revision, found.mark)
        return StoredView(b"", found.revision, found.mark)

    async def put(
        self, tenant: str, conversation: str, data: bytes, *, revision: int, version: int = 0
    ) -> int:
        """Replaces the view that has `revision` (0: there is none yet); the new revision.

        `version` is of the last entry in it, for who does not want to read it.

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
            value = _Value(revision, pointer, b"" if pointer else data, version=str(version))
            new = await self._put(key, value)
        except ViewConflict:
            await self._discard(pointer)
            raise
        self._remember(key, new, pointer)
        await self._discard(old)
        return new

    async def mark(self, tenant: str, conversation: str, reason: str) -> None:
        """Writes on the view why what came after it was given up; the view stays as it is.

        Raises ViewConflict where others keep replacing it, and then nothing needs to be said.
        """
        key = view_key(tenant, conversation)
        for tries in range(_TRIES):
            found = await self._get(key)
            marked = msgspec.structs.replace(found, mark=reason[:LONGEST_MARK])
            try:
                new = await self._put(key, marked)
            except ViewConflict:
                if tries == _TRIES - 1:
                    raise
                continue
            self._remember(key, new, found.pointer)
            return

    async def delete(self, tenant: str, conversation: str) -> None:
        """Removes a stored view and its content; the next `put` begins at revision 0."""
        await self._delete(view_key(tenant, conversation))

    async def delete_key(self, tenant: str, conversation: str) -> None:
        """`delete`, by the tokens that `keys` gives."""
        await self._delete(f"{tenant}.{conversation}")

    async def _delete(self, key: str) -> None:
        found = await self._get(key)
        await self.broker.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subject(key)})
        await self._discard(found.pointer)

    async def keys(self) -> AsyncIterator[tuple[str, str]]:
        """The tokens of tenant and conversation of every stored view."""
        offset = 0
        while True:
            info = await self.broker.api(
                f"STREAM.INFO.{self._stream}",
                {"subjects_filter": self._subject(">"), "offset": offset},
            )
            subjects = info["state"].get("subjects") or {}
            for subject in sorted(subjects):
                tenant, conversation = subject.split(".")[-2:]
                yield tenant, conversation
            offset += len(subjects)
            if not subjects or offset >= info.get("total", 0):
                return

    async def _put(self, key: str, value: "_Value") -> int:
        """Replaces the revision that the value names.

        A repetition whose first attempt arrived finds its own value there.
        """
        for tries in range(_TRIES):
            try:
                await self.broker.wait_connected(REQUEST_TIMEOUT)
                answer = meaning(
                    await self.broker.request(
                        self._subject(key), value.data, headers=_headers(value)
                    )
                )
            except RequestTimeout:
                continue
            match answer.outcome:
                case Outcome.STORED:
                    return answer.version
                case Outcome.CONFLICT:
                    found = await self._get(key) if tries else _NOTHING
                    if found.revision > value.revision and found == msgspec.structs.replace(
                        value, revision=found.revision
                    ):
                        return found.revision
                    raise ViewConflict(key, value.revision)
                case Outcome.NOT_WRITTEN if not answer.code:
                    raise JetStreamUnavailable(answer.reason)
                case _:
                    raise BrokerRefused(answer.code, answer.reason, what="a view")
        raise RequestTimeout(
            f"the broker did not say whether view {key} was stored: read it again, and put anew"
        )

    async def _get(self, key: str) -> "_Value":
        """The stored value; revision 0 where there is none."""
        answer = await self.broker.ask(f"$JS.API.DIRECT.GET.{self._stream}.{self._subject(key)}")
        headers = answer.headers or {}
        if status_of(answer) is not None or _KV_OPERATION in headers:
            self._remember(key, 0, None)
            return _NOTHING
        revision, pointer = int(headers["Nats-Sequence"]), headers.get(_POINTER)
        self._remember(key, revision, pointer)
        return _Value(
            revision,
            pointer,
            answer.data,
            unquote(headers.get(_MARK, "")),
            headers.get(SHAPE, ""),
            headers.get(VERSION, "0"),
        )

    async def _pointer_at(self, key: str, revision: int) -> str | None:
        known = self._known.get(key)
        if known and known[0] == revision:
            return known[1]
        found = await self._get(key)
        return found.pointer if found.revision == revision else None

    def _remember(self, key: str, revision: int, pointer: str | None) -> None:
        self._known[key] = (revision, pointer)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _subject(self, key: str) -> str:
        return f"{self._prefix}{key}"

    async def _discard(self, pointer: str | None) -> None:
        """Removes content that nothing points to; what stays after a failure only takes room."""
        if pointer is not None:
            with contextlib.suppress(FoldlogError):
                await self.artifacts.delete(pointer)


def _headers(value: _Value) -> dict[str, str]:
    """Of a value to be put; a mark is quoted, for it may be of several lines."""
    headers = {EXPECTED: str(value.revision), SHAPE: value.shape, VERSION: value.version}
    if value.pointer is not None:
        headers[_POINTER] = value.pointer
    if value.mark:
        headers[_MARK] = quote(value.mark)
    return headers
