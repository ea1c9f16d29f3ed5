"""Faults that real users reported about contexts, each with what could go wrong beside it.

A test is named after its case: U user, A assistant with its calls, T tool result. The fold and
the reference agree on every history here; what is asserted is the right outcome itself.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import permutations

import pytest

from foldlog import Foldlog, connect
from foldlog.errors import InvalidIdentifier, UnknownConversation
from foldlog_events.codec import decode, encode
from foldlog_events.entries import MessageEntry, Recorded
from foldlog_events.errors import InvalidEntry
from foldlog_events.messages import (
    FinishReason,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    tool_result,
    user,
)
from tests.entries import new_id
from tests.histories import TIME
from tests.small_histories import (
    LOST,
    U1,
    calls,
    compaction,
    edit,
    erased,
    reset,
    said,
    section,
    seen,
    system,
)
from tests.test_compactor import talk
from tests.test_erasure import compacted, reference
from tests.test_session import said as shown
from tests.workers import eventually, running_compactor, running_projector


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url, actor="tester") as opened:
        yield opened


def result(version: int, call_id: str, text: str) -> Recorded:
    return said(version, tool_result(call_id, text))


# --- 1: one id in four rounds ------------------------------------------------------------------


def test_case_1_an_id_used_in_every_round_keeps_every_result() -> None:
    history = []
    for n in range(4):
        history += [said(2 * n + 1, calls("X")), result(2 * n + 2, "X", f"r{n}")]
    expected = [line for n in range(4) for line in ("assistant: X()", f"tool: X=r{n}")]
    assert seen(history) == expected
    for version in range(1, 9):
        assert seen(history, version)[: version - version % 2] == expected[: version - version % 2]


def test_case_1_the_last_round_is_open_and_the_others_are_not_disturbed() -> None:
    history = [said(1, calls("X")), result(2, "X", "r0"), said(3, calls("X"))]
    assert seen(history)[:2] == ["assistant: X()", "tool: X=r0"]
    assert [line[:9] for line in seen(history)[2:]] == ["assistant", "tool: X=!"]


def test_case_1_a_round_that_was_never_answered_does_not_take_a_later_result() -> None:
    history = [said(1, calls("a")), said(2, calls("a")), result(3, "a", "r1")]
    assert seen(history) == ["assistant: a()", LOST, "assistant: a()", "tool: a=r1"]


# --- 2: one id twice in a message ----------------------------------------------------------------


@pytest.mark.parametrize("times", [2, 3, 4])
def test_case_2_calls_of_one_id_in_a_message_are_told_apart(times: int) -> None:
    history = [said(1, calls(*["X"] * times))]
    history += [result(2 + n, "X", f"r{n}") for n in range(times)]
    names = ["X", *(f"X-{k}" for k in range(2, times + 1))]
    assert seen(history) == [
        f"assistant: {' '.join(f'{name}()' for name in names)}",
        *(f"tool: {name}=r{n}" for n, name in enumerate(names)),
    ]


def test_case_2_a_made_up_name_that_is_taken_is_not_used() -> None:
    history = [said(1, calls("X", "X", "X-2")), result(2, "X-2", "own")]
    lines = seen(history)
    assert lines[0] == "assistant: X() X-2-2() X-2()"
    assert lines[3] == "tool: X-2=own"


# --- 3 and 4: order ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(["c1", "c2", "c3"])))
def test_case_3_results_stand_in_the_order_of_their_calls(order: Sequence[str]) -> None:
    history = [said(1, calls("c1", "c2", "c3"))]
    history += [result(2 + n, call_id, call_id) for n, call_id in enumerate(order)]
    assert seen(history)[1:] == ["tool: c1=c1", "tool: c2=c2", "tool: c3=c3"]


def test_case_3_results_in_one_message_too() -> None:
    parts = tuple(ToolCallResponse(id=name, result=name) for name in ("c2", "c1"))
    history = [said(1, calls("c1", "c2")), said(2, Message(role="tool", parts=parts))]
    assert seen(history)[1:] == ["tool: c1=c1", "tool: c2=c2"]


@pytest.mark.parametrize(
    ("between", "line"),
    [
        (system(3, section("role", "new")), 'system: Prompt section "role" is now:\nnew'),
        (said(3, user("steer")), "user: steer"),
        (said(3, assistant("meanwhile")), "assistant: meanwhile"),
    ],
)
def test_case_4_nothing_stands_between_a_call_and_its_result(between: Recorded, line: str) -> None:
    history = [
        system(1, section("role", "first")), said(2, calls("c1")), between, result(4, "c1", "r")
    ]  # fmt: skip
    assert seen(history) == ["system: first", "assistant: c1()", "tool: c1=r", line]


# --- 5 and 6: results that are missing or late ------------------------------------------------


def test_case_5_only_the_call_that_was_not_answered_gets_a_synthetic_result() -> None:
    history = [said(1, calls("c1", "a")), result(2, "c1", "r")]
    assert seen(history)[1:] == ["tool: c1=r", LOST]
    assert "cancel" not in LOST


def test_case_5_before_any_result_all_of_them_do_and_a_user_may_go_on() -> None:
    history = [said(1, calls("a", "b")), said(2, user("still there?"))]
    lines = seen(history)
    assert [line[:8] for line in lines[1:3]] == ["tool: a=", "tool: b="]
    assert lines[3] == "user: still there?"


def test_case_6_a_late_result_replaces_the_synthetic_one_from_then_on() -> None:
    history = [
        said(1, calls("a")),
        said(2, user("steer")),
        said(3, assistant("plain")),
        result(4, "a", "late"),
    ]
    before = ["assistant: a()", LOST, "user: steer", "assistant: plain"]
    assert seen(history, 3) == before
    assert seen(history) == ["assistant: a()", "tool: a=late", *before[2:]]
    assert seen(history, 3) == before, "contexts of earlier versions do not change"


def test_case_6_a_result_that_comes_after_its_call_was_summarised_is_dropped() -> None:
    history = [
        said(1, calls("a")), said(2, user("u2")), compaction(3, 2, log=2), result(4, "a", "late")
    ]  # fmt: skip
    assert seen(history) == ["K: S3", "user: u2"]


def test_case_6_and_after_a_reset_too() -> None:
    assert seen([said(1, calls("a")), reset(2, user("anew")), result(3, "a", "r")]) == [
        "user: anew"
    ]


# --- 7 to 9: replies that do not count --------------------------------


@pytest.mark.parametrize("finish_reason", ["aborted", "error", "deferred"])
def test_case_7_an_aborted_reply_goes_with_its_results(finish_reason: FinishReason) -> None:
    history = [
        U1,
        said(2, calls("call_1", text="let me", finish_reason=finish_reason)),
        result(3, "call_1", "r"),
        said(4, user("u4")),
    ]
    assert seen(history) == ["user: u1", "user: u4"]


@pytest.mark.parametrize("finish_reason", ["stop", "length", "content_filter", "tool_call", None])
def test_case_7_any_other_reply_stays(finish_reason: FinishReason | None) -> None:
    history = [said(1, calls("a", finish_reason=finish_reason)), result(2, "a", "r")]
    assert seen(history) == ["assistant: a()", "tool: a=r"]


def test_case_7_a_retry_of_the_aborted_reply_with_the_same_id_keeps_its_result() -> None:
    history = [
        said(1, calls("a", finish_reason="aborted")), said(2, calls("a")), result(3, "a", "r")
    ]  # fmt: skip
    assert seen(history) == ["assistant: a()", "tool: a=r"]


def test_case_8_the_first_result_counts_and_an_orphan_never_does() -> None:
    history = [
        result(1, "c9", "before any call"),
        said(2, calls("a")),
        result(3, "a", "first"),
        result(4, "a", "second"),
        result(5, "c8", "orphan"),
    ]
    assert seen(history) == ["assistant: a()", "tool: a=first"]


def test_case_8_user_text_beside_a_dropped_result_stays() -> None:
    beside = Message(
        role="user", parts=(ToolCallResponse(id="c9", result="orphan"), Text(content="and this"))
    )
    assert seen([said(1, beside)]) == ["user: and this"]


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Reasoning(content="hm"),),
        (Text(content=" \n"),),
        (Reasoning(content=""), Text(content="")),
    ],
)
def test_case_9_a_reply_without_content_is_no_message(parts: tuple[Text | Reasoning, ...]) -> None:
    empty_reply = Message(role="assistant", parts=parts, finish_reason="length")
    assert seen([U1, said(2, empty_reply)]) == ["user: u1"]


def test_case_9_a_call_or_a_word_beside_the_reasoning_is_content() -> None:
    thinking = Reasoning(content="hm")
    worded = Message(role="assistant", parts=(thinking, Text(content="x")), finish_reason="length")
    calling = Message(role="assistant", parts=(thinking, ToolCall(id="a", name="f")))
    assert len(seen([said(1, worded), said(2, calling)])) == 3


@pytest.mark.parametrize("text", ["denied by the user", "exit status 1", ""])
def test_case_10_a_failure_is_a_result_too(text: str) -> None:
    history = [said(1, calls("a")), said(2, tool_result("a", text, is_error=True))]
    assert seen(history) == ["assistant: a()", f"tool: a=!{text}"]
    later = [*history, result(3, "a", "as if it had worked")]
    assert seen(later) == seen(history), "it is answered: what comes later is a duplicate"


def test_cases_1_to_10_hold_for_what_an_edit_says() -> None:
    history = [
        said(1, user("will call")), result(2, "a", "r"), edit(3, "e1", calls("a"))
    ]  # fmt: skip
    assert seen(history) == ["assistant: a()", "tool: a=r"]
    assert seen([*history, erased(4, "e1")]) == []


# --- 34 to 36: ids, content, clocks -------------------------------------

NAMES = ["a.b", "a", "*", ">", "user 7", "\N{WAVING HAND SIGN}", "x" * 5_000, "x" * 4_999]


async def test_case_34_deleting_one_of_them_deletes_only_that(foldlog: Foldlog) -> None:
    for name in NAMES:
        await foldlog.session(name).append(user(name))
    for deleted in ("*", ">", "a", "x" * 4_999):
        await foldlog.delete(deleted)
        assert shown(await foldlog.session(deleted).context()) == []
    for name in set(NAMES) - {"*", ">", "a", "x" * 4_999}:
        assert shown(await foldlog.session(name).context()) == [f"user: {name}"]


async def test_case_34_an_empty_id_is_refused(foldlog: Foldlog) -> None:
    with pytest.raises((InvalidIdentifier, InvalidEntry)):
        await foldlog.session("").append(user("hi"))


async def test_case_34_a_tenant_does_not_see_anothers_conversation(foldlog: Foldlog) -> None:
    for tenant in ("*", "t.u", "t", ">"):
        await foldlog.session("c", tenant=tenant).append(user(tenant))
    for tenant in ("*", "t.u", "t", ">"):
        assert shown(await foldlog.session("c", tenant=tenant).context()) == [f"user: {tenant}"]


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (user("a \ud800 surrogate"), "messages[0].parts[0].content"),
        (assistant("", ToolCall(id="a", name="f", arguments={"x": float("nan")})), "arguments"),
        (assistant("", ToolCall(id="a", name="f", arguments={"x": float("inf")})), "arguments"),
        (assistant("", ToolCall(id="a", name="f", arguments=nested(250))), "arguments"),
        (assistant("", ToolCall(id="a", name="f", arguments={"x": 10**4_999})), "arguments"),
    ],
)
def test_case_35_what_no_reader_could_read_is_refused_by_its_place(
    message: Message, place: str
) -> None:
    entry = MessageEntry(id=new_id(), conversation="c", time=TIME, messages=(message,))
    with pytest.raises(InvalidEntry) as refused:
        encode(entry)
    assert place in refused.value.place


@pytest.mark.parametrize("text", ["NUL \x00 byte", "1e400", "\ufffe", "\U0010ffff", "a\u2028b"])
def test_case_35_what_can_be_read_comes_back(text: str) -> None:
    entry = MessageEntry(id=new_id(), conversation="c", time=TIME, messages=(user(text),))
    assert decode(encode(entry)) == entry


@pytest.mark.parametrize("year", [1970, 2100])
async def test_case_36_a_clock_that_is_wrong_changes_no_order_and_no_time_travel(
    foldlog: Foldlog, year: int
) -> None:
    session = foldlog.session("c")
    await session.append(user("before"))
    odd = MessageEntry(
        id="odd", conversation="c", time=datetime(year, 1, 2, tzinfo=UTC), messages=(user("odd"),)
    )
    await session.append(odd)
    await session.append(user("after"))
    everything = ["user: before", "user: odd", "user: after"]
    assert shown(await session.context()) == everything
    assert shown(await session.context(at=datetime.now(UTC))) == everything
    assert shown(await session.context(at="odd")) == everything[:2]


# --- 39 to 41: erasure (test_erasure.py), forks, attempts ---------------


async def test_case_40_forks_before_inside_and_after_a_compaction(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    old = (await session.append(user("old")))[0]
    between = (await session.append(user("between")))[0]
    kept = (await session.append(user("kept")))[0]
    summary = await compacted(foldlog, "c", kept, "what was old", reference(old))
    after = (await session.append(user("after")))[0]
    moments = [old, between, kept, summary, after]
    expected = [await session.context(at=one.version) for one in moments]
    children = [
        await session.fork(f"child-{one.version}", at=one.version) for one in moments
    ]  # fmt: skip
    await session.append(user("later"))
    await session.edit(kept.entry.id)
    await session.reset()
    for child, view in zip(children, expected, strict=True):
        inherited = await child.context()
        assert (inherited.messages, inherited.head) == (view.messages, view.head)
        await child.append(user("own"))
        assert shown(await child.context()) == [*shown(view), "user: own"]


async def test_case_40_a_moment_after_the_last_entry_lets_nothing_later_in(
    foldlog: Foldlog,
) -> None:
    session = foldlog.session("c")
    await session.append(user("one"))
    now = datetime.now(UTC)
    by_time = await session.fork("by-time", at=now.replace(year=2199))
    by_version = await session.fork("by-version", at=10**9)
    await session.append(user("later"))
    for child in (by_time, by_version):
        assert shown(await child.context()) == ["user: one"]


async def test_case_40_a_compaction_in_the_child_over_what_it_inherits(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    old = (await session.append(user("old")))[0]
    kept = (await session.append(user("kept")))[0]
    child = await session.fork("child")
    await compacted(foldlog, "child", kept, "what was old", reference(old))
    assert shown(await child.context())[1:] == ["user: kept"]
    assert shown(await session.context()) == ["user: old", "user: kept"]
    grandchild = await child.fork("grandchild")
    assert (await grandchild.context()).messages == (await child.context()).messages


async def test_case_41_every_start_has_an_end_and_nothing_changed_announces_nothing(
    nats_url: str, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await session.append(user("too little to compact"))
    before = await session.context()
    async with running_projector(nats_url), running_compactor(nats_url):
        record = await session.compact()
        assert record.state == "declined"
        assert (await session.context()) == before
        await talk(foldlog.session("large"), 30)

        async def has_ended() -> bool:
            records = await foldlog.attempts.read("default", "large")
            return any(one.state in ("committed", "pruned") for one in records)

        await eventually(has_ended)
    for name in ("c", "large"):
        records = await foldlog.attempts.read("default", name)
        started = [one.id for one in records if one.state == "started"]
        ended = [one.id for one in records if one.state != "started"]
        assert sorted(started) == sorted(ended), name


async def test_case_39_what_was_erased_is_not_in_a_log_listing(foldlog: Foldlog) -> None:
    session = foldlog.session("nobody")
    with pytest.raises(UnknownConversation):
        await foldlog.erase("nobody", "e")
    secret = (await session.append(user("secret words here")))[0]
    await foldlog.erase("nobody", secret.entry.id)
    reads = await foldlog.log.read_all("default", "nobody")
    assert "secret words" not in str(reads)
