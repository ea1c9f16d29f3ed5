"""A view as a request to OpenAI's Chat Completions API and those that speak it.

Reasoning has no place in this API and is left out. A failed result says so in its text
("Error: …"), for the API has no flag. A tool's answer is text only: what else it returned
follows in a user message after all the results of that turn.
"""

import re
from typing import Any

from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    Content,
    File,
    Message,
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
)
from foldlog_projections.views import ContextView

LONGEST_CALL_ID = 40
LONGEST_NAME = 64

_TEXT: Forms = {"text": {"text": str}}
_SAID: Forms = {**_TEXT, "refusal": {"refusal": str}}
_MEDIA: Forms = {
    "image_url": {"image_url": dict},
    "input_audio": {"input_audio": dict},
    "file": {"file": dict},
}
_CALL: Forms = {"function": {"function": dict}}
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_PARTICIPANT = re.compile(r"[^\s<|\\/>]{1,64}")


def render(view: ContextView) -> list[dict[str, Any]]:
    """The `messages` of a request: what the view holds, in its order."""
    leading, rest = split_system(view)
    body: list[dict[str, Any]] = []
    returned: list[dict[str, Any]] = []
    for message in with_distinct_calls(rest, longest=LONGEST_CALL_ID, any_character=True):
        if message.role != "tool" and returned:
            body.append({"role": "user", "content": returned})
            returned = []
        match message.role:
            case "system":
                if update := system_update(message):
                    body.append({"role": "user", "content": update})
            case "user":
                body.append(_user(message))
            case "assistant":
                body += _assistant(message)
            case _:
                results = [part for part in message.parts if isinstance(part, ToolCallResponse)]
                body += [_result(part) for part in results]
                returned += [piece for part in results for piece in _returned(part)]
    if returned:
        body.append({"role": "user", "content": returned})
    system = [{"role": "system", "content": "\n\n".join(leading)}] if leading else []
    return [*system, *opened(body, {"role": "user", "content": OPENING})]


def tools(view: ContextView) -> list[dict[str, Any]]:
    """The `tools` of a request; leave the field out where there are none."""
    return [
        {
            "type": "function",
            "function": {
                "name": function_name(tool.name, longest=LONGEST_NAME),
                "description": tool.description,
                "parameters": json_schema(tool),
            },
        }
        for tool in view.tools
    ]


def _user(message: Message) -> dict[str, Any]:
    content = [_shown(part) for part in message.parts if isinstance(part, Content)]
    return {"role": "user", "content": _plain(content), **_participant(message)}


def _assistant(message: Message) -> list[dict[str, Any]]:
    parts = calls_last(message.parts)
    content = [
        verbatim(part, "openai", _SAID) or _text(described(part))
        for part in parts
        if isinstance(part, Content) and not is_blank(part)
    ]
    calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
    if not content and not calls:
        return []
    said: dict[str, Any] = {"role": "assistant", "content": _plain(content) if content else None}
    if calls:
        said["tool_calls"] = calls
    return [said | _participant(message)]


def _call(call: ToolCall) -> dict[str, Any]:
    own = verbatim(call, "openai", _CALL)
    if own and all(isinstance(own["function"].get(key), str) for key in ("name", "arguments")):
        return own | {"id": call.id}
    name = function_name(call.name, longest=LONGEST_NAME)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": name, "arguments": arguments_text(call)},
    }


def _result(part: ToolCallResponse) -> dict[str, Any]:
    if isinstance(part.result, str):
        text = part.result
    else:
        text = "\n".join(
            f"[{media_type(piece) or 'file'}, shown in the user message after the results]"
            if not isinstance(piece, Text | ArtifactReference) and _media(piece)
            else described(piece)
            for piece in part.result
        )
    content = failed(text) if part.is_error else text
    return {"role": "tool", "tool_call_id": part.id, "content": content}


def _returned(part: ToolCallResponse) -> list[dict[str, Any]]:
    if isinstance(part.result, str):
        return []
    shown = [
        form
        for piece in part.result
        if not isinstance(piece, Text | ArtifactReference) and (form := _media(piece))
    ]
    return [_text(f"Returned by tool call {unmarked(part.id)}:"), *shown] if shown else []


def _shown(part: Content) -> dict[str, Any]:
    if isinstance(part, Text):
        return verbatim(part, "openai", _TEXT) or _text(unmarked(part.content))
    if isinstance(part, ArtifactReference):
        return _text(unmarked(described(part)))
    return _media(part) or _text(unmarked(described(part)))


def _media(part: Blob | File | Uri) -> dict[str, Any] | None:
    if own := verbatim(part, "openai", _MEDIA):
        return own
    if isinstance(part, File):
        return {"type": "file", "file": {"file_id": part.file_id}}
    held = inlined(part)
    match held:
        case Blob() if is_image(held):
            return {"type": "image_url", "image_url": {"url": data_url(held)}}
        case Blob() if media_type(held) == PDF:
            file = {"filename": "document.pdf", "file_data": data_url(held)}
            return {"type": "file", "file": file}
        case Blob() if media_type(held) in _AUDIO:
            audio = {"data": held.content, "format": _AUDIO[media_type(held)]}
            return {"type": "input_audio", "input_audio": audio}
        case Uri() if is_image(held) and on_the_web(held):
            return {"type": "image_url", "image_url": {"url": held.uri}}
        case _:
            return None


def _plain(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One text as a string: the form that every server speaking this API reads."""
    if not content:
        return ""
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return str(content[0]["text"])
    return content


def _participant(message: Message) -> dict[str, str]:
    named = message.name is not None and _PARTICIPANT.fullmatch(message.name)
    return {"name": message.name} if named and message.name else {}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
