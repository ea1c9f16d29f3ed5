"""Content too large for an entry goes to the artifacts before the entry is appended."""

from datetime import datetime
from typing import TypedDict, Unpack

import msgspec

from foldlog.artifacts import PREVIEW_CHARACTERS, Artifacts
from foldlog_events.entries import Entry, MessageEntry
from foldlog_events.errors import InvalidEntry
from foldlog_events.messages import (
    AnyPart,
    ArtifactReference,
    Content,
    Message,
    Text,
    ToolCallResponse,
)
from foldlog_projections.summary_source import informative

INLINE_BYTES = 256 * 1024
"""Bytes, in UTF-8, of one text that an entry holds; a longer one becomes an artifact."""
TEXT = "text/plain; charset=utf-8"


class Facts(TypedDict, total=False):
    """What is known of an artifact: `source`, `coverage`, `time` and `valid_until` are those of
    its data, the last with its offset from UTC."""

    preview: str
    source: str
    coverage: str
    time: datetime | None
    valid_until: datetime | None


async def with_large_texts_attached(
    artifacts: Artifacts, entry: Entry, limit: int = INLINE_BYTES
) -> Entry:
    """The entry with each text of users and tools over `limit` bytes kept as an artifact.

    In its place stands a reference with a preview: the beginning, the end, and lines that hold
    facts. What an assistant said stays as it is, for providers check it against what they sent.
    The same text always becomes the same reference, so that a retry says the same.
    """
    if not isinstance(entry, MessageEntry) or not any(
        _is_large(message, limit) for message in entry.messages
    ):
        return entry
    messages = [await _attached(artifacts, message, limit) for message in entry.messages]
    return msgspec.structs.replace(entry, messages=tuple(messages))


def _is_large(message: Message, limit: int) -> bool:
    return message.role in ("user", "tool") and any(
        len(text) * 4 > limit for part in message.parts for text in _texts(part)
    )


def _texts(part: AnyPart) -> tuple[str, ...]:
    match part:
        case Text(content=text) | ToolCallResponse(result=str(text)):
            return (text,)
        case ToolCallResponse(result=tuple(contents)):
            return tuple(one.content for one in contents if isinstance(one, Text))
        case _:
            return ()


async def _attached(artifacts: Artifacts, message: Message, limit: int) -> Message:
    if message.role not in ("user", "tool"):
        return message
    parts: list[AnyPart] = []
    for part in message.parts:
        if isinstance(part, ToolCallResponse):
            parts.append(await _response_attached(artifacts, part, limit))
        elif isinstance(part, Text):
            parts.append(await _text_attached(artifacts, part, limit))
        else:
            parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))


async def _response_attached(
    artifacts: Artifacts, part: ToolCallResponse, limit: int
) -> ToolCallResponse:
    if isinstance(part.result, str):
        kept = await _text_attached(artifacts, Text(content=part.result), limit)
        return part if isinstance(kept, Text) else msgspec.structs.replace(part, result=(kept,))
    contents: list[Content] = [
        await _text_attached(artifacts, one, limit) if isinstance(one, Text) else one
        for one in part.result
    ]
    return msgspec.structs.replace(part, result=tuple(contents))


async def _text_attached(artifacts: Artifacts, text: Text, limit: int) -> Text | ArtifactReference:
    try:
        content = text.content.encode()
    except UnicodeEncodeError:  # the append refuses it and names the place
        return text
    if len(content) <= limit:
        return text
    preview = informative(text.content, PREVIEW_CHARACTERS)
    return await artifacts.put(content, TEXT, preview=preview)


async def attach(
    artifacts: Artifacts, content: bytes | str, mime_type: str, **facts: Unpack[Facts]
) -> ArtifactReference:
    """Keeps content as an artifact; a text without a preview gets one. Raises InvalidEntry."""
    valid_until = facts.get("valid_until")
    if valid_until is not None and valid_until.utcoffset() is None:
        raise InvalidEntry("a validity needs its offset from UTC", place="$.valid_until")
    if isinstance(content, str):
        if not facts.get("preview"):
            facts["preview"] = informative(content, PREVIEW_CHARACTERS)
        content = content.encode()
    return await artifacts.put(content, mime_type, **facts)
