"""Real conversations, at every version: a valid view, and a valid request for each provider."""

from collections.abc import Iterator

import pytest

from foldlog.importers import ImportedConversation, record_offline
from foldlog_events.entries import ForkEntry, Recorded
from foldlog_projections.fold import ContextFold
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from foldlog_projections.state import empty
from foldlog_projections.views import ContextView
from tests import validity
from tests.importing import corpus_file, imported


def check_requests(view: ContextView) -> None:
    validity.check_neutral(view)
    validity.check_openai_chat(openai_chat.render(view), openai_chat.tools(view))
    validity.check_openai_responses(openai_responses.render(view))
    validity.check_anthropic(anthropic.render(view))


def views_of(conversations: list[ImportedConversation]) -> Iterator[tuple[str, ContextView]]:
    """Each view of each conversation, and where it stands."""
    recorded: dict[str, list[Recorded]] = {}
    version_of: dict[str, int] = {}
    for conversation in conversations:
        entries = record_offline(conversation, len(version_of) + 1, version_of)
        version_of |= {one.entry.id: one.version for one in entries}
        recorded[conversation.conversation] = entries
        fold = ContextFold(empty(conversation.tenant, conversation.conversation))
        for one in entries:
            if isinstance(one.entry, ForkEntry):
                fold = fold_up_to(one.entry, recorded)
                fold.inherit(one.version, one.entry)
            else:
                fold.apply(one.version, one.entry)
            place = f"{conversation.conversation} at version {one.version}"
            yield place, fold.view()


def fold_up_to(fork: ForkEntry, recorded: dict[str, list[Recorded]]) -> ContextFold:
    fold = ContextFold(empty(fork.tenant, fork.parent))
    for one in recorded[fork.parent]:
        if one.version > fork.parent_version:
            break
        if isinstance(one.entry, ForkEntry):
            fold = fold_up_to(one.entry, recorded)
            fold.inherit(one.version, one.entry)
        else:
            fold.apply(one.version, one.entry)
    return fold


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "pi-before-compaction.jsonl",
        "tau-airline-openai-chat.jsonl",
        "claude-code-small.jsonl",
        "codex-rollout-small.jsonl",
    ],
)
def test_every_version_makes_valid_requests(name: str) -> None:
    conversations, _ = imported(corpus_file(name))
    checked = 0
    for place, view in views_of(conversations):
        assert not view.faults, place
        assert view.stale_compactions == 0, place
        try:
            check_requests(view)
        except AssertionError as error:
            raise AssertionError(f"{place}: {error}") from None
        checked += 1
    assert checked == sum(len(conversation.items) for conversation in conversations)
