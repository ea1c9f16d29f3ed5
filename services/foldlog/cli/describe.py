"""An entry in a few words, for people."""

import msgspec

from foldlog.cli.output import one_line
from foldlog_events.entries import (
    ActionEntry,
    CompactionEntry,
    EditEntry,
    Entry,
    ErasedEntry,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    ResetEntry,
    SystemEntry,
)
from foldlog_events.messages import (
    AnyPart,
    ArtifactReference,
    Blob,
    File,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
)

SHORT_ID = 8


def describe(entry: Entry) -> str:
    """What an entry says, on one line of any length."""
    return one_line(_describe(entry))


def _describe(entry: Entry) -> str:
    match entry:
        case MessageEntry(messages=messages):
            return " | ".join(describe_message(message) for message in messages)
        case SystemEntry():
            return _patch(entry)
        case NoteEntry(name=name, data=data):
            return f"{name}: {_json(data)}" if name else _json(data)
        case ActionEntry(step=step, name=name, action=action, reason=reason):
            return f"{name or short(action)} {step}{f': {reason}' if reason else ''}"
        case ForkEntry(parent=parent, parent_version=version):
            return f"inherits {parent} up to version {version}"
        case EditEntry(edits=edits, reason=reason):
            said = ", ".join(
                f"{'omits' if edit.replace is None else 'replaces'} {short(edit.target)}"
                for edit in edits
            )
            return f"{said} ({reason})" if reason else said
        case CompactionEntry(source_range=covered, summary=summary):
            return (
                f"summary of {covered.count} entries, versions {covered.first.version} to "
                f"{covered.last.version}: {summary}"
            )
        case ResetEntry(handoff=handoff):
            said = " | ".join(describe_message(message) for message in handoff)
            return f"starts anew: {said}" if said else "starts anew"
        case ErasedEntry(target=target, reason=reason):
            return f"{short(target)} was erased{f': {reason}' if reason else ''}"
        case OtherEntry(data=data, messages=messages):
            if messages:
                return " | ".join(describe_message(message) for message in messages)
            return _json(data)


def describe_message(message: Message) -> str:
    """What a message says: its role, its texts, its calls and results."""
    parts = " ".join(filter(None, (_part(part) for part in message.parts)))
    finish = message.finish_reason
    unusual = f" [{finish}]" if finish and finish not in ("stop", "tool_call") else ""
    return f"{message.role}: {parts}{unusual}"


def short(identifier: str) -> str:
    """Enough of an id to recognise it; the end, since the beginning of a UUIDv7 is its time."""
    return identifier if len(identifier) <= SHORT_ID + 1 else f"…{identifier[-SHORT_ID:]}"


def _part(part: AnyPart) -> str:
    match part:
        case Text(content=content):
            return content
        case Reasoning():
            return "(reasoning)"
        case ToolCall(name=name, arguments=arguments):
            return f"→ {name}({arguments if isinstance(arguments, str) else _json(arguments)})"
        case ToolCallResponse(result=result, is_error=is_error):
            said = result if isinstance(result, str) else " ".join(_part(one) for one in result)
            return f"{'✗' if is_error else '←'} {said}"
        case Blob(mime_type=kind) | ArtifactReference(mime_type=kind):
            return f"({kind})"
        case File(file_id=place) | Uri(uri=place):
            return f"({place})"


def _patch(entry: SystemEntry) -> str:
    said = [
        f"{section.name} = {section.text}" if section.text is not None else f"no {section.name}"
        for section in entry.sections
    ]
    said += [f"-{name}()" for name in entry.tools_removed]
    said += [f"+{tool.name}()" for tool in entry.tools_added]
    return "; ".join(said)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
