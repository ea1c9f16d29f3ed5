"""What the renderers share: the marks in texts, call ids, and content that may have no form."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from foldlog_events.messages import (
    AnyPart,
    ArtifactReference,
    Blob,
    Content,
    File,
    Message,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
)
from foldlog_projections.views import ContextView

OPENING = "(The conversation begins.)"
"""Stands where a request would not begin with a message of the user."""

Forms = Mapping[str, Mapping[str, type]]
"""The provider's own forms that fit a place: `type` → the keys it needs, with their types."""

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF = "application/pdf"
_ANY_IMAGE = "image/*"
_SUFFIXES = {
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "pdf": PDF,
    "png": "image/png",
    "webp": "image/webp",
}
_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL | re.IGNORECASE)
_DELIMITER = re.compile(r"<(?=/?system-update)", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_SAYS_IT_FAILED = ("error", "tool result unavailable")
_MAX_SHOWN_URI = 500


def split_system(view: ContextView) -> tuple[tuple[str, ...], tuple[Message, ...]]:
    """The texts of the leading system message (none where there is none), and the rest."""
    if view.messages and view.messages[0].role == "system":
        return texts(view.messages[0]), view.messages[1:]
    return (), view.messages


def texts(message: Message) -> tuple[str, ...]:
    """The message's texts that hold more than white space."""
    return tuple(
        part.content for part in message.parts if isinstance(part, Text) and part.content.strip()
    )


def is_blank(part: AnyPart) -> bool:
    """Whether the part is a text without more than white space."""
    return isinstance(part, Text) and not part.content.strip()


def system_update(message: Message) -> str | None:
    """A later system message as a marked text of the user's role; none where it says nothing."""
    said = texts(message)
    if not said:
        return None
    return f"<system-update>\n{unmarked(chr(10).join(said))}\n</system-update>"


def unmarked(text: str) -> str:
    """The text with its system-update delimiters escaped: it can neither open nor end a block."""
    return _DELIMITER.sub("&lt;", text)


def opened(messages: list[dict[str, Any]], opening: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages, with the opening before them unless they begin with the user's role.

    The first message decides, not whether one follows: a later message must not change what
    came before it.
    """
    if messages and messages[0].get("role") == "user":
        return messages
    return [opening, *messages]


def verbatim(part: Part, provider: str, forms: Forms) -> dict[str, Any] | None:
    """The provider's own form of the part, where it carries one that fits its place."""
    if part.payload is None or part.payload.provider != provider:
        return None
    data = part.payload.data
    needed = forms.get(str(data.get("type")))
    if needed is None or not all(isinstance(data.get(key), of) for key, of in needed.items()):
        return None
    return dict(data)


def calls_last(parts: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """An assistant's parts with what it said after its first call put before that call.

    Results have to follow their calls directly, so nothing may stand between.
    """
    whole = tuple(parts)
    first = next((at for at, part in enumerate(whole) if isinstance(part, ToolCall)), len(whole))
    said = tuple(p for p in whole[first:] if not isinstance(p, ToolCall | Reasoning))
    asked = tuple(p for p in whole[first:] if isinstance(p, ToolCall | Reasoning))
    return (*whole[:first], *said, *asked)


def with_whole_reasoning(
    parts: tuple[AnyPart, ...], sendable: Callable[[Reasoning], bool]
) -> tuple[AnyPart, ...]:
    """The parts, with all of their reasoning or none of it.

    It stays where every piece is sendable and something follows the last one: the APIs refuse
    reasoning that is changed, partial, or leads to nothing.
    """
    told = [part for part in parts if isinstance(part, Reasoning)]
    shown = [part for part in parts if not is_blank(part)]
    if told and not isinstance(shown[-1], Reasoning) and all(sendable(part) for part in told):
        return parts
    return tuple(part for part in parts if not isinstance(part, Reasoning))


def with_distinct_calls(
    messages: Iterable[Message], *, longest: int, any_character: bool
) -> tuple[Message, ...]:
    """The messages with every call's id used once, of at most `longest` characters.

    Ids repeat within real conversations; the k-th use of `X` becomes `X-k`. Results follow
    their calls. Unless `any_character`, what is no ASCII letter, digit, `_` or `-` becomes `_`.
    A name depends on the calls before it only.
    """
    used: set[str] = set()
    uses: dict[str, int] = {}
    current: dict[str, str] = {}

    def distinct(id: str) -> str:
        base = (id if any_character else _NOT_IN_NAMES.sub("_", id))[:longest] or "call"
        name = base
        while name in used:
            uses[base] = uses.get(base, 1) + 1
            suffix = f"-{uses[base]}"
            name = base[: longest - len(suffix)] + suffix
        used.add(name)
        return name

    def renamed(part: AnyPart) -> AnyPart:
        match part:
            case ToolCall():
                current[part.id] = distinct(part.id)
                return msgspec.structs.replace(part, id=current[part.id])
            case ToolCallResponse():
                return msgspec.structs.replace(part, id=current.get(part.id, part.id))
            case _:
                return part

    return tuple(
        msgspec.structs.replace(message, parts=tuple(renamed(part) for part in message.parts))
        for message in messages
    )


def function_name(name: str, *, longest: int) -> str:
    """A tool's name in the characters that the APIs accept, offered and called alike.

    ASCII letters, digits, `_` and `-` stay; any other character becomes `_`.
    """
    return _NOT_IN_NAMES.sub("_", name)[:longest] or "unnamed"


def json_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments; they are always an object."""
    return {"properties": {}, **tool.parameters, "type": "object"}


def arguments_text(call: ToolCall) -> str:
    """A call's arguments as JSON text; text that the model wrote stays as it was."""
    if isinstance(call.arguments, str):
        return call.arguments
    return msgspec.json.encode(call.arguments).decode()


def failed(text: str) -> str:
    """A failure's text for an API that has no flag for it: it says so itself."""
    if text.lstrip().lower().startswith(_SAYS_IT_FAILED):
        return text
    return f"Error: {text}" if text.strip() else "Error"


def media_type(part: Blob | File | Uri) -> str:
    """The part's media type without parameters, by its address where not stated, else empty."""
    stated = (part.mime_type or "").split(";")[0].strip().lower()
    if stated:
        return "image/jpeg" if stated == "image/jpg" else stated
    if isinstance(part, Uri):
        path = re.split(r"[?#]", part.uri, maxsplit=1)[0]
        return _SUFFIXES.get(path.rpartition(".")[2].lower(), "")
    return ""


def is_image(part: Blob | File | Uri) -> bool:
    """Whether the part is an image of a kind that every provider reads."""
    kind = media_type(part)
    return kind in IMAGE_TYPES or (kind == _ANY_IMAGE and not isinstance(part, Blob))


def inlined(part: Blob | Uri) -> Blob | Uri:
    """A data URL as the content that it holds; anything else as it is."""
    if isinstance(part, Uri) and (held := _DATA_URL.fullmatch(part.uri)):
        return Blob(mime_type=held[1], content=held[2])
    return part


def on_the_web(part: Uri) -> bool:
    """Whether a provider can fetch the content itself."""
    return part.uri.lower().startswith(("https://", "http://"))


def data_url(part: Blob) -> str:
    """The content as a data URL."""
    return f"data:{media_type(part)};base64,{part.content}"


def described(part: Content) -> str:
    """A text that stands for content which the API has no form for."""
    match part:
        case Text():
            return part.content
        case ArtifactReference():
            head = f"[{part.mime_type}, {part.size} bytes, stored as {part.digest}]"
            return f"{head}\n{part.preview}" if part.preview else head
        case Blob():
            return f"[{part.mime_type}, {_size(part.content)} bytes, not shown]"
        case File():
            return f"[{part.mime_type or 'file'}, held by the provider as {part.file_id}]"
        case _:
            where = part.uri if len(part.uri) <= _MAX_SHOWN_URI else "an address too long to show"
            return f"[{part.mime_type or 'content'} at {where}]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
