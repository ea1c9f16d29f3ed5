"""foldlog: the conversation log for LLM agents."""

from foldlog.recall_tool import RECALL
from foldlog.session import Foldlog, Session, connect
from foldlog_events.entries import (
    EditEntry,
    Entry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
    Section,
    SystemEntry,
)
from foldlog_events.messages import (
    Message,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Usage,
    assistant,
    tool_result,
    user,
)
from foldlog_projections.views import ContextView

__all__ = [
    "RECALL",
    "ContextView",
    "EditEntry",
    "Entry",
    "Foldlog",
    "Message",
    "MessageEntry",
    "NoteEntry",
    "OtherEntry",
    "Recorded",
    "ResetEntry",
    "Section",
    "Session",
    "SystemEntry",
    "Text",
    "Tool",
    "ToolCall",
    "ToolCallResponse",
    "Usage",
    "assistant",
    "connect",
    "tool_result",
    "user",
]
