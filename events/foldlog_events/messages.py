"""What a model reads and writes: messages and their parts.

Names and shapes follow OpenTelemetry's GenAI semantic conventions for input and output
messages; `aborted`, `error` and `deferred` are finish reasons of our own.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]

FinishReason = Literal[
    "stop", "length", "tool_call", "content_filter", "aborted", "error", "deferred"
]


class ProviderPayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's own form of a part, kept verbatim: thinking signatures, reasoning ids.

    A renderer for the same `provider` sends `data` as it was; every other renderer ignores it.
    """

    provider: str
    data: dict[str, Any]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """One piece of a message."""

    payload: ProviderPayload | None = None


class Text(Part, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Plain text."""

    content: str


class Reasoning(Part, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning"):
    """A model's reasoning, as far as the provider shows it."""

    content: str


class Blob(Part, frozen=True, kw_only=True, omit_defaults=True, tag="blob"):
    """Binary content held in the message, base64-encoded."""

    mime_type: str
    content: str


class File(Part, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    """A file that the provider holds under `file_id`."""

    mime_type: str | None = None
    file_id: str


class Uri(Part, frozen=True, kw_only=True, omit_defaults=True, tag="uri"):
    """Content to be found at `uri`."""

    mime_type: str | None = None
    uri: str


class ArtifactReference(Part, frozen=True, kw_only=True, omit_defaults=True, tag="artifact"):
    """Content stored outside the entry, addressed by its hash; the model is shown the preview."""

    digest: str
    """`sha256:` and 64 hexadecimal digits, of the content's bytes."""
    mime_type: str
    size: int
    """Bytes."""
    preview: str = ""
    source: str = ""
    """Where the content comes from."""
    coverage: str = ""
    """What part of the world, and of its source, the content covers."""
    time: datetime | None = None
    """Of the data, as its source states it."""
    valid_until: datetime | None = None
    """From this moment on the content is not to be relied on; with its offset from UTC."""


Content = Text | Blob | File | Uri | ArtifactReference
"""What a tool may return, and what people may write."""


class ToolCall(Part, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    """The assistant asks for a tool to be run.

    `arguments` is the object the model wrote, or its text where that is no JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str = {}


class ToolCallResponse(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call_response"
):
    """What a tool answered to the call of the same id; a failure is an answer too."""

    id: str
    result: str | tuple[Content, ...]
    is_error: bool = False


AnyPart = Text | Reasoning | Blob | File | Uri | ArtifactReference | ToolCall | ToolCallResponse


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model call, normalised: no token is counted in two fields.

    `total_tokens` is the size of the call's own context where the provider states it apart
    from sums over several calls.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int | None = None

    @property
    def context_tokens(self) -> int:
        """Tokens the context held once the call was over."""
        if self.total_tokens is not None:
            return self.total_tokens
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )


class Seen(msgspec.Struct, frozen=True):
    """The context that an assistant message answered."""

    version: int
    digest: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model message. The fields after `parts` belong to assistant messages."""

    role: Role
    parts: tuple[AnyPart, ...]
    name: str | None = None
    finish_reason: FinishReason | None = None
    model: str | None = None
    usage: Usage | None = None
    seen: Seen | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool offered to the model; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


def user(text: str) -> Message:
    """A user message of one text."""
    return Message(role="user", parts=(Text(content=text),))


def assistant(
    text: str = "",
    *calls: ToolCall,
    finish_reason: FinishReason | None = None,
    model: str | None = None,
    usage: Usage | None = None,
) -> Message:
    """An assistant message of a text (none where empty) and calls."""
    said = (Text(content=text),) if text else ()
    return Message(
        role="assistant",
        parts=(*said, *calls),
        finish_reason=finish_reason or ("tool_call" if calls else "stop"),
        model=model,
        usage=usage,
    )


def tool_result(call_id: str, result: str, *, is_error: bool = False) -> Message:
    """A tool message that answers one call with text."""
    return Message(
        role="tool", parts=(ToolCallResponse(id=call_id, result=result, is_error=is_error),)
    )
