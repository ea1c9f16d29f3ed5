"""Pi sessions since version 2: a tree, its main conversation and its forks."""

from pathlib import Path

import pytest

from foldlog.importers import (
    ForkPoint,
    ImportedConversation,
    LineReport,
    UnresolvedReference,
    record_offline,
    resolve,
)
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    ForkEntry,
    NoteEntry,
    ResetEntry,
)
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import empty
from tests.importing import (
    SAMPLES,
    imported,
    line_entries,
    pi_header,
    pi_record,
    pi_user,
    shown,
    versions_of,
    view_of,
    written,
)


def tree() -> tuple[ImportedConversation, ImportedConversation, LineReport]:
    (main, fork), report = imported(SAMPLES / "pi-tree.jsonl")
    return main, fork, report


def test_the_path_to_the_last_record_is_the_main_conversation() -> None:
    main, _, report = tree()
    assert (main.conversation, main.fork_of) == ("stand-8", None)
    messages = shown(view_of(record_offline(main)))
    assert "Right so far." in messages[0][1]
    assert messages[1:] == [
        ("user", "second question"),
        (
            "user",
            "The following is a summary of a branch that this conversation came back from:\n\n"
            "<summary>\nThe left way was tried.\n</summary>",
        ),
        ("user", "mind the weekday"),
        ("assistant", "right answer"),
        ("user", "right on"),
    ]
    (label,) = line_entries(main, 12)
    (labelled,) = line_entries(main, 3)
    assert label.data == {"targetId": "n2", "label": "start", "entry": labelled.id}
    assert report.count("imported") == 15


def test_another_branch_is_a_fork_that_goes_on_from_its_parent() -> None:
    main, fork, _ = tree()
    (point,) = line_entries(main, 4)
    assert fork.conversation == "stand-8/n4"
    assert fork.fork_of == ForkPoint("stand-8", point.id)
    parent = record_offline(main)
    versions = versions_of(parent)
    child = record_offline(fork, start_version=100, versions=versions)
    first = child[0].entry
    assert isinstance(first, ForkEntry)
    assert (first.parent, first.parent_version) == ("stand-8", versions[point.id])

    context = ContextFold(empty("default", "stand-8"))
    for one in parent:
        if one.version <= first.parent_version:
            context.apply(one.version, one.entry)
    context.inherit(child[0].version, first)
    messages = shown(view_of(child[1:], context))
    assert "Left so far." in messages[0][1]
    assert messages[1:] == [
        ("user", "second question"),
        ("assistant", "left answer"),
        ("user", "left on"),
        ("assistant", "left goes on"),
    ]


def test_a_fork_needs_its_parents_versions() -> None:
    _, fork, _ = tree()
    with pytest.raises(UnresolvedReference, match="the conversation that a fork comes from first"):
        resolve(fork.items[0].entry, {}, BaseVersion(0, 0))


def test_branches_of_branches_follow_the_branch_they_leave(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(version=3),
        pi_user("root", id="a", parentId=None),
        pi_user("left", id="b", parentId="a"),
        pi_user("left of left", id="c", parentId="b"),
        pi_user("right of left", id="d", parentId="b"),
        pi_user("afresh", id="e", parentId=None),
        pi_user("right", id="f", parentId="a"),
    )
    conversations, _ = imported(path)
    assert [(c.conversation, c.fork_of and c.fork_of.conversation) for c in conversations] == [
        ("s", None),
        ("s/e", None),
        ("s/b", "s"),
        ("s/c", "s/b"),
    ]
    entries: dict[str, int] = {}
    for conversation in conversations:
        entries |= versions_of(record_offline(conversation, len(entries) + 1, entries))
    assert len(entries) == 7 + 2


def test_a_malformed_line_of_a_tree_does_not_lose_the_rest(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(version=3),
        pi_user("one", id="a", parentId=None),
        b'{"type": "message", "id": "b", ',
        pi_user("three", id="c", parentId="b"),
        pi_record("message", id="d", parentId="c", message={"content": "no role"}),
        pi_user("five", id="e", parentId="d"),
    )
    (conversation,), report = imported(path)
    assert [text for _, text in shown(view_of(record_offline(conversation)))] == [
        "one", "three", "five",
    ]  # fmt: skip
    assert [fate.line for fate in report.lines if fate.status == "malformed"] == [3, 5]
    assert [remark.line for remark in report.remarks] == [4]


def test_a_compaction_that_holds_what_it_keeps(tmp_path: Path) -> None:
    two = {"role": "user", "content": "two"}
    other = {"role": "user", "content": "shortened"}
    for tail, kind in ([two], CompactionEntry), ([other], ResetEntry):
        path = written(
            tmp_path,
            pi_header(version=3),
            pi_user("one", id="a", parentId=None),
            pi_user("two", id="b", parentId="a"),
            pi_record("compaction", id="c", parentId="b", summary="One.", retainedTail=tail),
            pi_user("three", id="d", parentId="c"),
        )
        (conversation,), _ = imported(path)
        recorded = record_offline(conversation)
        assert isinstance(recorded[3].entry, kind)
        messages = shown(view_of(recorded))
        assert "One." in messages[0][1]
        assert [text for _, text in messages[1:]] == [tail[0]["content"], "three"]


def test_a_shell_command_kept_from_the_model_stays_a_note(tmp_path: Path) -> None:
    hidden = {"role": "bashExecution", "command": "env", "output": "", "excludeFromContext": True}
    path = written(tmp_path, pi_header(), pi_record("message", message=hidden), pi_user("hi"))
    (conversation,), _ = imported(path)
    assert isinstance(conversation.items[1].entry, NoteEntry)
    assert shown(view_of(record_offline(conversation))) == [("user", "hi")]
