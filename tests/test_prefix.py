"""How much of a request repeats the one before it, and why not where it does not."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.importers import read_file, record_offline
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    MessageEntry,
    Recorded,
    ResetEntry,
    Section,
    SourceRange,
    SystemEntry,
)
from foldlog_events.messages import Tool, ToolCall, assistant, tool_result, user
from foldlog_projections import prefix
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.prefix import (
    Block,
    PrefixReport,
    RenderedRequest,
    measure,
    request_blocks,
    shared_prefix,
)
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from foldlog_projections.views import ContextView
from tests.histories import histories
from tests.small_histories import at, common, said

thoroughly = settings(
    max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

Render = Callable[[ContextView], Any]


def neutral(view: ContextView) -> dict[str, Any]:
    """One block for each tool and message, nothing added."""
    return {"tools": list(view.tools), "messages": [{"is": each} for each in view.messages]}


def report(history: Sequence[Recorded], *versions: int, render: Render = neutral) -> PrefixReport:
    """Of requests made at these versions."""
    context = ContextFold(empty("default", "c"))
    requests = []
    for recorded in history:
        context.apply(recorded.version, recorded.entry)
        if recorded.version in versions:
            view = context.view()
            requests.append(RenderedRequest(view, request_blocks(render(view))))
    return measure(requests, history)


def entry(version: int, kind: Callable[..., Entry], **fields: Any) -> Recorded:
    return at(version, kind(**common(f"e{version}"), **fields))


HELLO = (said(1, user("hi")), said(2, assistant("ok")), said(3, user("go on")))
REFERENCE = EntryReference("e3", 3)
COMPACTION = entry(
    4,
    CompactionEntry,
    base_version=BaseVersion(3, 0),
    source_range=SourceRange(first=REFERENCE, last=REFERENCE, count=1, digest=""),
    kept_from=REFERENCE,
    summary="What was said.",
)


@given(st.binary(max_size=200), st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 3))
def test_the_shared_prefix_is_counted_in_bytes(
    common: bytes, one: bytes, other: bytes, strides: int
) -> None:
    common = common + b"x" * (prefix._STRIDE * strides - 25)
    expected = len(common) + next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    assert shared_prefix(common + one, common + other) == expected
    assert shared_prefix(common + other, common + one) == expected


def test_what_only_grows_repeats_all_that_was_sent() -> None:
    first, second = report(HELLO, 1, 3).steps
    assert (first.version, first.shared, first.share, first.broken) == (1, 0, 0.0, None)
    assert (second.version, second.shared, second.broken) == (3, first.size, None)
    assert second.share == first.size / second.size


def test_nothing_sent_repeats_nothing() -> None:
    assert measure([], []).share == 0.0
    view = ContextFold(empty("default", "c")).view()
    (step,) = measure([RenderedRequest(view, ())], []).steps
    assert (step.size, step.share) == (0, 0.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (entry(4, EditEntry, edits=(Edit(target="e1"),)), "edit"),
        (entry(4, ErasedEntry, target="e1", target_version=1), "erased"),
        (COMPACTION, "compaction"),
        (entry(4, ResetEntry), "reset"),
        (entry(4, SystemEntry, sections=(Section(name="rules", text="r"),)), "leading system"),
        (entry(4, SystemEntry, tools_added=(Tool(name="f"),)), "tools"),
        (entry(4, SystemEntry, tools_removed=("g",)), "tools"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_break_says_why_and_which_entry(change: Recorded, reason: str) -> None:
    start = entry(0, SystemEntry, tools_added=(Tool(name="g"),))
    history = (
        Recorded(1, start.entry),
        *(Recorded(each.version + 1, each.entry) for each in HELLO),
        Recorded(5, _moved(change.entry)),
        said(6, user("and then?")),
    )
    _, broken = report(history, 4, 6).steps
    assert broken.broken is not None
    assert broken.broken.reason == reason
    assert broken.broken.cause is not None
    assert broken.broken.cause.version == 5
    of_tools = ("tools", "reset", "compaction")  # a head without a baseline offers none
    assert broken.broken.part == ("tools" if reason in of_tools else "messages")
    assert report(history, 4, 6).reasons == {reason: 1}


def _moved(changed: Entry) -> Entry:
    """The compaction of HELLO when one entry stands before it."""
    if not isinstance(changed, CompactionEntry):
        return changed
    fields = {name: getattr(changed, name) for name in changed.__struct_fields__}
    kept = EntryReference("e3", 4)
    return CompactionEntry(**fields | {"base_version": BaseVersion(4, 0), "kept_from": kept})


def test_a_leading_system_message_that_comes_late_breaks_the_system_part() -> None:
    rules = entry(4, SystemEntry, sections=(Section(name="rules", text="r"),))
    (step,) = report((*HELLO, rules), 3, 4, render=anthropic.render).steps[1:]
    assert step.broken is not None
    assert (step.broken.reason, step.broken.part) == ("leading system", "system")


def test_a_request_cut_short_breaks_where_it_ends() -> None:
    view = ContextFold(empty("default", "c")).view()
    whole = (Block("system", b"s"), Block("messages", b"m"))
    requests = [RenderedRequest(view, whole), RenderedRequest(view, whole[:1])]
    broken = measure(requests, []).steps[-1].broken
    assert broken is not None
    assert (broken.reason, broken.part) == ("rendering", "messages")


def test_a_late_result_breaks_at_its_place() -> None:
    history = (
        said(1, user("hi")),
        said(2, assistant("", ToolCall(id="a", name="f"))),
        said(3, user("meanwhile")),
        said(4, assistant("fine"), tool_result("a", "42")),
    )
    (step,) = report(history, 3, 4).steps[1:]
    assert step.broken is not None
    assert (step.broken.reason, step.broken.part) == ("late result", "messages")
    assert step.broken.cause is not None
    assert step.broken.cause.id == "e4"
    assert 0 < step.shared < step.size


def test_a_renderer_that_rewrites_what_it_sent_is_named() -> None:
    def counting(view: ContextView) -> Any:
        return [{"count": len(view.messages)}, *[{"is": each} for each in view.messages]]

    (step,) = report(HELLO, 1, 3, render=counting).steps[1:]
    assert step.broken is not None
    assert (step.broken.reason, step.broken.cause) == ("rendering", None)


def test_without_the_entry_between_the_reason_is_unknown() -> None:
    context = ContextFold(empty("default", "c"))
    requests = []
    for recorded in (*HELLO, entry(4, ResetEntry)):
        context.apply(recorded.version, recorded.entry)
        requests.append(RenderedRequest(context.view(), request_blocks(neutral(context.view()))))
    broken = measure(requests, HELLO).steps[-1].broken
    assert broken is not None
    assert broken.reason == "unknown"


def test_blocks_follow_the_order_in_which_a_provider_reads() -> None:
    request = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
            {"role": "assistant", "content": "c"},
        ],
        "system": [{"text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "f", "cache_control": {"type": "ephemeral"}}],
    }
    assert request_blocks(request) == (
        Block("tools", b'{"name":"f"}'),
        Block("system", b'{"text":"s"}'),
        Block("messages", b'{"role":"user"}'),
        Block("messages", b'{"type":"text","text":"a"}'),
        Block("messages", b'{"text":"b"}'),
        Block("messages", b'{"role":"assistant","content":"c"}'),
    )
    responses = {"instructions": "s", "input": [{"type": "reasoning"}]}
    assert request_blocks(responses) == (
        Block("system", b'"s"'),
        Block("messages", b'{"type":"reasoning"}'),
    )


def test_an_argument_named_like_a_breakpoint_is_kept() -> None:
    call = {"type": "tool_use", "input": {"cache_control": 1}}
    (_, block) = request_blocks([{"role": "assistant", "content": [call]}])
    assert b"cache_control" in block.data


def test_cache_breakpoints_that_move_on_break_nothing() -> None:
    history = (*HELLO, said(4, assistant("fine")), said(5, user("more")))
    steps = report(history, 1, 3, 5, render=anthropic.render).steps
    assert [step.broken for step in steps] == [None, None, None]


@thoroughly
@given(histories())
def test_8_a_break_is_always_explained_by_an_entry_between(history: tuple[Recorded, ...]) -> None:
    versions = [each.version for each in history]
    kind_at = {each.version: each.entry for each in history}
    for step, after in zip(report(history, *versions).steps[1:], versions, strict=False):
        assert 0 <= step.shared <= step.size
        if step.broken is not None:
            assert step.broken.cause is not None
            assert after < step.broken.cause.version <= step.version
            cause = kind_at[step.broken.cause.version]
            if step.broken.reason in ("leading system", "tools"):
                assert isinstance(cause, SystemEntry)
            elif step.broken.reason != "late result":
                assert step.broken.reason == step.broken.cause.kind


CORPUS = Path(
    os.environ.get("FOLDLOG_CORPUS")
    or Path(__file__).resolve().parents[1].parent / "shared" / "corpus"
)


def responses(view: ContextView) -> Any:
    return openai_responses.render(view)


@pytest.mark.parametrize("render", [openai_chat.render, responses, anthropic.render])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("pi-before-compaction.jsonl", {"compaction": 2}), ("tau-airline-openai-chat.jsonl", {})],
)
def test_in_real_transcripts_the_prefix_breaks_for_known_reasons_only(
    name: str, expected: dict[str, int], render: Render
) -> None:
    path = CORPUS / name
    if not path.exists():
        pytest.skip(f"the corpus of real transcripts is not here: no {path.name}")
    reasons: Counter[str] = Counter()
    for conversation in read_file(path):
        history = record_offline(conversation)
        asked = [
            before.version
            for before, answer in pairwise(history)
            if isinstance(answer.entry, MessageEntry)
            and answer.entry.messages[0].role == "assistant"
        ]
        measured = report(history, *asked, render=render)
        assert measured.share > 0.5
        reasons.update(measured.reasons)
    assert reasons == expected
