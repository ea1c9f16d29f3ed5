"""A view as a request to OpenAI's Responses API, with the whole context as its input.

Reasoning items go back verbatim, in front of what they led to, or are left out; then the
message's other items go without the ids that would ask for them. A failed result says so in its
text ("Error: …"), for the API has no flag.
"""

from typing import Any

from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    Content,
    File,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
)
from foldlog_projections.renderers.common import (
    OPENING,
    PDF,
    Forms,
    arguments_text,
    calls_last,
    data_url,
    described,
    failed,
    function_name,
    inlined,
    is_blank,
    is_image,
    json_schema,
    media_type,
    on_the_web,
    opened,
    split_system,
    system_update,
    unmarked,
    verbatim,
    with_distinct_calls,
    with_whole_reasoning,
)
from foldlog_projections.views import ContextView

LONGEST_CALL_ID = 64
LONGEST_NAME = 64

_TEXT: Forms = {"input_text": {"text": str}}
_SAID: Forms = {"message": {"content": list, "id": str, "status": str}}
_MEDIA: Forms = {"input_image": {}, "input_file": {}}
_CALL: Forms = {"function_call": {"name": str, "arguments": str}}
_REASONING: Forms = {"reasoning": {"id": str, "summary": list}}


def render(view: ContextView) -> dict[str, Any]:
    """The request's `instructions` (left out where there are none), `input` and `tools`."""
    leading, rest = split_system(view)
    body: list[dict[str, Any]] = []
    for message in with_distinct_calls(rest, longest=LONGEST_CALL_ID, any_character=True):
        match message.role:
            case "system":
                if update := system_update(message):
                    body.append({"role": "user", "content": update})
            case "user":
                body.append({"role": "user", "content": _plain(_shown(message.parts))})
            case "assistant":
                body += _assistant(message)
            case _:
                body += [_result(p) for p in message.parts if isinstance(p, ToolCallResponse)]
    instructions = {"instructions": "\n\n".join(leading)} if leading else {}
    opening = {"role": "user", "content": OPENING}
    return {**instructions, "input": opened(body, opening), "tools": tools(view)}


def tools(view: ContextView) -> list[dict[str, Any]]:
    """The `tools` of a request; their schemas are not held to the API's strict subset."""
    return [
        {
            "type": "function",
            "name": function_name(tool.name, longest=LONGEST_NAME),
            "description": tool.description,
            "parameters": json_schema(tool),
            "strict": False,
        }
        for tool in view.tools
    ]


def _assistant(message: Message) -> list[dict[str, Any]]:
    arranged = calls_last(message.parts)
    parts = with_whole_reasoning(arranged, lambda part: _reasoning(part) is not None)
    # An item's own id binds it to the reasoning it came from; without that the API refuses it.
    own = len(parts) == len(arranged)
    items: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Reasoning():
                items += [form for form in (_reasoning(part),) if form]
            case ToolCall():
                items.append(_call(part, own=own))
            case _ if isinstance(part, Content) and not is_blank(part):
                form = verbatim(part, "openai", _SAID) if own else None
                items.append(form or {"role": "assistant", "content": described(part)})
    return items


def _reasoning(part: Reasoning) -> dict[str, Any] | None:
    return verbatim(part, "openai", _REASONING)


def _call(call: ToolCall, *, own: bool) -> dict[str, Any]:
    if own and (form := verbatim(call, "openai", _CALL)):
        return form | {"call_id": call.id}
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": function_name(call.name, longest=LONGEST_NAME),
        "arguments": arguments_text(call),
    }


def _result(part: ToolCallResponse) -> dict[str, Any]:
    output: str | list[dict[str, Any]]
    if isinstance(part.result, str):
        output = failed(part.result) if part.is_error else part.result
    else:
        shown = _shown(part.result, escape=False)
        if part.is_error:
            shown = [{"type": "input_text", "text": "Error:"}, *shown]
        output = _plain(shown)
    return {"type": "function_call_output", "call_id": part.id, "output": output}


def _shown(parts: tuple[Any, ...], *, escape: bool = True) -> list[dict[str, Any]]:
    return [_content(part, escape) for part in parts if isinstance(part, Content)]


def _content(part: Content, escape: bool) -> dict[str, Any]:
    if isinstance(part, Text):
        own = verbatim(part, "openai", _TEXT)
    else:
        own = None if isinstance(part, ArtifactReference) else _media(part)
    text = described(part)
    return own or {"type": "input_text", "text": unmarked(text) if escape else text}


def _media(part: Blob | File | Uri) -> dict[str, Any] | None:
    if own := verbatim(part, "openai", _MEDIA):
        return own
    if isinstance(part, File):
        if media_type(part).startswith("image/"):
            return {"type": "input_image", "detail": "auto", "file_id": part.file_id}
        return {"type": "input_file", "file_id": part.file_id}
    held = inlined(part)
    match held:
        case Blob() if is_image(held):
            return {"type": "input_image", "detail": "auto", "image_url": data_url(held)}
        case Blob() if media_type(held) == PDF:
            return {
                "type": "input_file",
                "filename": "document.pdf",
                "file_data": data_url(held),
            }
        case Uri() if is_image(held) and on_the_web(held):
            return {"type": "input_image", "detail": "auto", "image_url": held.uri}
        case Uri() if media_type(held) == PDF and on_the_web(held):
            return {"type": "input_file", "file_url": held.uri}
        case _:
            return None


def _plain(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if not content:
        return ""
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return str(content[0]["text"])
    return content
