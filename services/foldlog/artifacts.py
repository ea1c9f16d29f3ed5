"""Artifacts: content too large for an entry, stored once under its hash.

The layout is that of NATS's object store, so that its own tools read it; what is not visible
until it is whole is the metadata, which is written last.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from secrets import token_hex

import msgspec

from foldlog.broker import REQUEST_TIMEOUT, Broker, status_of
from foldlog.erasing import erase_messages
from foldlog.errors import (
    BrokerRefused,
    CorruptArtifact,
    JetStreamUnavailable,
    RequestTimeout,
    UnknownArtifact,
)
from foldlog.publishing import Answer, Outcome, meaning
from foldlog.reading import EXPECTED, messages
from foldlog.topology import ARTIFACTS, ARTIFACTS_BUCKET
from foldlog_events.messages import ArtifactReference

CHUNK_BYTES = 256 * 1024
"""Bytes of content in one message; fewer where the broker's limit is lower."""
PREVIEW_CHARACTERS = 2_000
"""The most that is kept of a preview."""
_IN_FLIGHT = 16
_HEADERS = 4096

_encode = msgspec.json.Encoder().encode


class _Metadata(msgspec.Struct):
    name: str
    nuid: str
    size: int
    chunks: int
    digest: str
    bucket: str = ARTIFACTS_BUCKET
    mtime: str = "0001-01-01T00:00:00Z"
    metadata: dict[str, str] = {}
    deleted: bool = False


_decode = msgspec.json.Decoder(_Metadata)


class Artifacts:
    """The store of artifacts behind a connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def put(
        self,
        content: bytes,
        mime_type: str,
        *,
        preview: str = "",
        source: str = "",
        coverage: str = "",
        time: datetime | None = None,
        valid_until: datetime | None = None,
    ) -> ArtifactReference:
        """Stores content and returns the part that refers to it.

        The same content is stored once, whoever stores it; then the first type and preview
        stay with it, while the reference says what was given here. Raises BrokerRefused,
        BrokerUnreachable, RequestTimeout; then nothing is visible, and it may be tried again.
        """
        sha256 = hashlib.sha256(content).digest()
        digest = f"sha256:{sha256.hex()}"
        preview = preview[:PREVIEW_CHARACTERS]
        metadata = {"mime_type": mime_type, "preview": preview}
        await self._put(digest, content, sha256, metadata)
        return ArtifactReference(
            digest=digest,
            mime_type=mime_type,
            size=len(content),
            preview=preview,
            source=source,
            coverage=coverage,
            time=time,
            valid_until=valid_until,
        )

    async def get(self, digest: str) -> bytes:
        """The content with this digest, verified. Raises UnknownArtifact, CorruptArtifact."""
        content, sha256 = await self._get(digest)
        if f"sha256:{sha256.hex()}" != digest:
            raise CorruptArtifact(digest, "its content has another hash")
        return content

    async def reference(self, digest: str) -> ArtifactReference:
        """The part that refers to stored content. Raises UnknownArtifact."""
        metadata = await self._metadata(digest)
        if metadata is None:
            raise UnknownArtifact(digest)
        return ArtifactReference(
            digest=digest,
            mime_type=metadata.metadata.get("mime_type", "application/octet-stream"),
            size=metadata.size,
            preview=metadata.metadata.get("preview", ""),
        )

    async def delete(self, digest: str) -> None:
        """Removes content for good, its metadata first. Does nothing where there is none.

        Its bytes are overwritten in the broker's files. Raises BrokerRefused, RequestTimeout.
        """
        metadata = await self._metadata(digest)
        if metadata is not None:
            await self._erase(_metadata_subject(digest))
            await self._erase(_chunk_subject(metadata.nuid))

    async def put_named(self, name: str, content: bytes) -> None:
        """Stores content under a name that stands for this content alone."""
        await self._put(name, content, hashlib.sha256(content).digest(), {})

    async def _put(
        self, name: str, content: bytes, sha256: bytes, metadata: dict[str, str]
    ) -> None:
        if await self._metadata(name) is not None:
            return
        nuid = token_hex(11)
        try:
            chunks = await self._put_chunks(nuid, content)
            written = await self._put_metadata(
                _Metadata(
                    name=name,
                    nuid=nuid,
                    size=len(content),
                    chunks=chunks,
                    digest=_object_digest(sha256),
                    metadata=metadata,
                )
            )
        except BaseException:
            await self._abandon(nuid)
            raise
        if not written:
            await self._purge(_chunk_subject(nuid))

    async def get_named(self, name: str) -> bytes:
        """The content under a name, verified. Raises UnknownArtifact, CorruptArtifact."""
        return (await self._get(name))[0]

    async def _get(self, name: str) -> tuple[bytes, bytes]:
        """The content and its SHA-256."""
        metadata = await self._metadata(name)
        if metadata is None:
            raise UnknownArtifact(name)
        chunks: list[bytes] = []
        pages = messages(
            self.broker, ARTIFACTS, _chunk_subject(metadata.nuid), within=REQUEST_TIMEOUT
        )
        async for page in pages:
            chunks += [stored.data for stored in page]
        content = b"".join(chunks)
        if len(content) != metadata.size:
            if await self._metadata(name) is None:
                raise UnknownArtifact(name)
            raise CorruptArtifact(name, f"{len(content):,} of {metadata.size:,} bytes are there")
        sha256 = hashlib.sha256(content).digest()
        if _object_digest(sha256) != metadata.digest:
            raise CorruptArtifact(name, "its content has another hash")
        return content, sha256

    async def names(self) -> AsyncIterator[str]:
        """The names of everything that is stored."""
        subject = f"$O.{ARTIFACTS_BUCKET}.M.>"
        async for page in messages(self.broker, ARTIFACTS, subject):
            for stored in page:
                yield _decode.decode(stored.data).name

    async def _metadata(self, name: str) -> _Metadata | None:
        answer = await self.broker.ask(
            f"$JS.API.DIRECT.GET.{ARTIFACTS}.{_metadata_subject(name)}", b""
        )
        if status_of(answer) is not None:
            return None
        metadata = _decode.decode(answer.data)
        return None if metadata.deleted else metadata

    async def _put_chunks(self, nuid: str, content: bytes) -> int:
        subject = _chunk_subject(nuid)
        size = min(CHUNK_BYTES, self.broker.max_payload - _HEADERS)
        chunks = [content[at : at + size] for at in range(0, len(content), size)]
        for at in range(0, len(chunks), _IN_FLIGHT):
            futures = [
                await self.broker.send(subject, chunk) for chunk in chunks[at : at + _IN_FLIGHT]
            ]
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT):
                    answers = await asyncio.gather(*futures)
            except TimeoutError:
                raise RequestTimeout(
                    f"the broker took no content for {REQUEST_TIMEOUT:g} s: put it again"
                ) from None
            for answer in answers:
                _check(meaning(answer))
        return len(chunks)

    async def _put_metadata(self, metadata: _Metadata, *, expected: int = 0) -> bool:
        """False where another process wrote the same name first."""
        answer = meaning(
            await self.broker.request(
                _metadata_subject(metadata.name),
                _encode(metadata),
                headers={EXPECTED: str(expected)},
            )
        )
        if answer.outcome is Outcome.CONFLICT:
            if answer.version and await self._metadata(metadata.name) is None:
                # What stands there is the marker that NATS's own tools leave on deletion.
                return await self._put_metadata(metadata, expected=answer.version)
            return False
        _check(answer)
        return True

    async def _abandon(self, nuid: str) -> None:
        """Removes the chunks of a put that failed, where the broker can still be asked."""
        if self.broker.is_connected:
            body = _encode({"filter": _chunk_subject(nuid)})
            await self.broker.publish(f"$JS.API.STREAM.PURGE.{ARTIFACTS}", body)

    async def _erase(self, subject: str) -> None:
        """Overwrites what is stored: a purge would leave the bytes in the broker's files."""
        async for page in messages(self.broker, ARTIFACTS, subject):
            await erase_messages(self.broker, ARTIFACTS, [stored.version for stored in page])

    async def _purge(self, subject: str) -> None:
        await self.broker.api(f"STREAM.PURGE.{ARTIFACTS}", {"filter": subject})


def digest_of(content: bytes) -> str:
    """`sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _object_digest(sha256: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(sha256).decode()}"


def _metadata_subject(name: str) -> str:
    return f"$O.{ARTIFACTS_BUCKET}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _chunk_subject(nuid: str) -> str:
    return f"$O.{ARTIFACTS_BUCKET}.C.{nuid}"


def _check(answer: Answer) -> None:
    if answer.outcome is Outcome.NOT_WRITTEN and not answer.code:
        raise JetStreamUnavailable(answer.reason)
    if answer.outcome is not Outcome.STORED:
        raise BrokerRefused(answer.code, answer.reason, what="an artifact")
