"""What is rendered for a provider and imported again says the same: it renders to the same.

A request does not say everything that a view knows (usage, reasoning that the provider does not
take back, other providers' payloads); what it says must come back word for word.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings

from foldlog.importers import FileImport, Source, record_offline
from foldlog_events.entries import Recorded
from foldlog_projections.fold import ContextFold
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from foldlog_projections.state import empty
from foldlog_projections.views import ContextView
from tests.histories import TENANT, histories
from tests.importing import corpus_file, imported
from tests.test_corpus_renderings import views_of

TIME = "2026-01-01T00:00:00Z"


class Form(NamedTuple):
    """A provider's requests, as lines of a file that an importer reads."""

    importer: str
    lines: Callable[[ContextView], list[Any]]
    request: Callable[[ContextView], Any]


def chat_request(view: ContextView) -> Any:
    return {"messages": openai_chat.render(view), "tools": openai_chat.tools(view)}


def responses_request(view: ContextView) -> Any:
    """The input, with messages in the long form that rollouts have."""
    return [_long(item) for item in openai_responses.render(view)["input"]]


def _long(item: dict[str, Any]) -> dict[str, Any]:
    if "role" not in item:
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    content = item["content"]
    if isinstance(content, str):
        content = [{"type": kind, "text": content}]
    return {**item, "type": "message", "content": content}


def anthropic_request(view: ContextView) -> Any:
    return anthropic.render(view, cache_breakpoints=False)["messages"]


def chat_lines(view: ContextView) -> list[Any]:
    return [chat_request(view)]


def rollout_lines(view: ContextView) -> list[Any]:
    items = responses_request(view)
    meta = {"timestamp": TIME, "type": "session_meta", "payload": {"id": "s", "timestamp": TIME}}
    return [meta, *({"timestamp": TIME, "type": "response_item", "payload": i} for i in items)]


def session_lines(view: ContextView) -> list[Any]:
    lines: list[Any] = []
    for place, message in enumerate(anthropic_request(view)):
        said = dict(message)
        if said["role"] == "assistant":
            said |= {"id": f"m{place}", "type": "message", "model": "m", "stop_reason": "end_turn"}
        lines.append(
            {
                "type": said["role"],
                "uuid": f"u{place}",
                "parentUuid": f"u{place - 1}" if place else None,
                "sessionId": "s",
                "timestamp": TIME,
                "message": said,
            }
        )
    return lines


CHAT = Form("openai-chat", chat_lines, chat_request)
RESPONSES = Form("codex", rollout_lines, responses_request)
ANTHROPIC = Form("claude-code", session_lines, anthropic_request)


def imported_back(form: Form, view: ContextView) -> ContextView:
    lines = [json.dumps(line).encode() + b"\n" for line in form.lines(view)]
    file = FileImport(lines, Source(name="round-trip.jsonl"), form.importer)
    (conversation,) = file
    context = ContextFold(empty(conversation.tenant, conversation.conversation))
    for recorded in record_offline(conversation):
        context.apply(recorded.version, recorded.entry)
    return context.view()


def words_of(request: Any) -> Any:
    """A system update comes back as a user's words, which may not pose as one: it is escaped."""
    text = json.dumps(request, ensure_ascii=False)
    for mark in ("system-update>", "/system-update>"):
        text = text.replace(f"&lt;{mark}", f"<{mark}")
    return json.loads(text)


@pytest.mark.parametrize("form", [CHAT, RESPONSES, ANTHROPIC], ids=lambda form: form.importer)
@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("pi-before-compaction.jsonl", 101),
        ("tau-airline-openai-chat.jsonl", 47),
        ("claude-code-small.jsonl", 1),
        ("codex-rollout-small.jsonl", 9),
    ],
)
def test_real_conversations_come_back_as_they_were_sent(form: Form, name: str, every: int) -> None:
    conversations, _ = imported(corpus_file(name))
    compared = 0
    for number, (place, view) in enumerate(views_of(conversations), 1):
        if number % every or not form.request(view):
            continue
        again = imported_back(form, view)
        assert words_of(form.request(again)) == words_of(form.request(view)), place
        compared += 1
    assert compared


@settings(
    max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(history=histories())
def test_any_conversation_comes_back_from_openais_form(history: Sequence[Recorded]) -> None:
    context = ContextFold(empty(TENANT, "any"))
    for recorded in history:
        context.apply(recorded.version, recorded.entry)
    view = context.view()
    assume(openai_chat.render(view))
    again = imported_back(CHAT, view)
    assert words_of(CHAT.request(again)) == words_of(CHAT.request(view))
