"""Real conversations: what changes from one version to the next is the doing of its entry."""

import pytest

from foldlog.importers import record_offline
from foldlog_events.entries import ForkEntry, Recorded
from foldlog_projections.diff import diff
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import empty
from tests.importing import corpus_file, imported
from tests.test_corpus_renderings import fold_up_to
from tests.test_diff import causes_of, check


@pytest.mark.parametrize(
    ("name", "changes_at_least"),
    [
        ("pi-before-compaction.jsonl", 500),
        ("tau-airline-openai-chat.jsonl", 500),
        ("claude-code-small.jsonl", 5),
        ("codex-rollout-small.jsonl", 5),
    ],
)
def test_neighbouring_versions_differ_by_what_the_entry_between_did(
    name: str, changes_at_least: int
) -> None:
    conversations, _ = imported(corpus_file(name))
    recorded: dict[str, list[Recorded]] = {}
    version_of: dict[str, int] = {}
    changed = 0
    for conversation in conversations:
        entries = record_offline(conversation, len(version_of) + 1, version_of)
        version_of |= {one.entry.id: one.version for one in entries}
        recorded[conversation.conversation] = entries
        context = ContextFold(empty(conversation.tenant, conversation.conversation))
        before = context.view()
        for one in entries:
            if isinstance(one.entry, ForkEntry):
                context = fold_up_to(one.entry, recorded)
                before = context.view()
                context.inherit(one.version, one.entry)
            else:
                context.apply(one.version, one.entry)
            after = context.view()
            changes = diff(before, after, (one,))
            check(before, after, changes)
            assert {cause.id for cause in causes_of(changes) if cause} <= {one.entry.id}
            if isinstance(one.entry, ForkEntry):
                assert changes.empty, "a child begins with what its parent shows"
            changed += not changes.empty
            before = after
    assert changed >= changes_at_least
