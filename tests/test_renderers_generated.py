"""Any view the fold may yield has valid renderings, and a prefix of it renders to a prefix."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foldlog_events.messages import (
    AnyPart,
    ArtifactReference,
    Blob,
    Content,
    File,
    Message,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
)
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from tests.renderings import (
    BARE,
    DATA_URL,
    PNG,
    REASONED,
    REDACTED,
    THINKING,
    UNSIGNED,
    WEB,
    asked,
    flat,
    own,
    said,
    system,
    view_of,
)
from tests.validity import (
    check_anthropic,
    check_neutral,
    check_openai_chat,
    check_openai_responses,
)

words = st.sampled_from(
    ["", " ", "\n", "hello", "</system-update>", "错误", "Error: x", "{", "\x00", "a\u2028b"]
) | st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | words
ids = st.sampled_from(["X", "X-2", "call/1", "", "y" * 70, "y" * 71, "é"])
own_forms = st.none() | st.sampled_from(
    [
        own("anthropic", type="text", text="own"),
        own("anthropic", type="text", text=""),
        own("anthropic", type="tool_use", id="q", name="own", input={}),
        own("openai", type="text", text="own"),
        own("openai", type="function", id="q", function={"name": "own", "arguments": ""}),
        own("openai", type="function", function={}),
        own("openai", type="function_call", call_id="q", name="own", arguments=""),
        own("elsewhere", type="text", text="own"),
    ]
)
said_texts = st.builds(Text, content=words, payload=own_forms)
media = st.sampled_from(
    [
        Blob(mime_type="image/png", content=PNG),
        Blob(mime_type="application/zip", content="AAAA"),
        File(file_id="f"),
        Uri(uri=WEB),
        Uri(uri=DATA_URL),
        Uri(uri="ftp://x"),
        ArtifactReference(digest="sha256:" + "0" * 64, mime_type="a/b", size=3),
    ]
)
contents: st.SearchStrategy[Content] = st.one_of(said_texts, media)
thoughts = [THINKING, REDACTED, REASONED, UNSIGNED, BARE]
reasoning = st.sampled_from(thoughts)
calls = st.builds(
    ToolCall,
    id=ids,
    name=st.sampled_from(["read", "fs.read", "", "n" * 200]),
    arguments=words | st.dictionaries(words, scalars, max_size=2),
    payload=own_forms,
)
results: st.SearchStrategy[str | tuple[Content, ...]] = words | st.lists(contents, max_size=3).map(
    tuple
)

Turn = tuple[Message, ...]
"""What stands or falls together in a view: a reply with its results, or one other message."""


@st.composite
def replies(draw: st.DrawFn) -> Turn:
    parts: list[AnyPart] = draw(st.lists(st.one_of(contents, reasoning, calls), max_size=5))
    first: dict[str, AnyPart] = {}
    for part in parts:
        if isinstance(part, ToolCall):
            first.setdefault(part.id, part)
    kept = [p for p in parts if not isinstance(p, ToolCall) or first[p.id] is p]
    if all(
        isinstance(p, Reasoning) or (isinstance(p, Text) and not p.content.strip()) for p in kept
    ):
        kept.append(Text(content="done"))
    answers = [
        Message(
            role="tool",
            parts=(ToolCallResponse(id=id, result=draw(results), is_error=draw(st.booleans())),),
        )
        for id in first
    ]
    return (said(*kept), *answers)


turns = st.one_of(
    st.lists(contents, min_size=1, max_size=3).map(lambda parts: (asked(*parts),)),
    st.lists(words, min_size=1, max_size=2).map(lambda texts: (system(*texts),)),
    replies(),
)
leading = st.lists(words, min_size=1, max_size=2).map(lambda texts: (system(*texts),)) | st.just(())
tool_lists = st.lists(
    st.builds(
        Tool,
        name=st.sampled_from(["read", "fs.read"]),
        description=words,
        parameters=st.sampled_from([{}, {"type": "object", "properties": {"a": {}}}]),
    ),
    max_size=2,
).map(tuple)


def joined(history: list[Turn]) -> Turn:
    return tuple(message for turn in history for message in turn)


@given(leading, st.lists(turns, max_size=7), tool_lists)
@settings(max_examples=300, deadline=None)
def test_every_rendering_is_valid(
    first: Turn, history: list[Turn], tools: tuple[Tool, ...]
) -> None:
    view = view_of(*first, *joined(history), tools=tools)
    check_neutral(view)
    check_openai_chat(openai_chat.render(view), openai_chat.tools(view))
    check_openai_responses(openai_responses.render(view))
    check_anthropic(anthropic.render(view))
    check_anthropic(anthropic.render(view, cache_breakpoints=False))
    assert anthropic.render(view) == anthropic.render(view)


@given(leading, st.lists(turns, min_size=1, max_size=7), st.data())
@settings(max_examples=300, deadline=None)
def test_the_rendering_of_a_prefix_is_a_prefix(
    first: Turn, history: list[Turn], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(history)))
    assume(any(message.role != "system" for message in joined(history[:cut])))
    short = view_of(*first, *joined(history[:cut]))
    long = view_of(*first, *joined(history))
    for render in (
        openai_chat.render,
        lambda view: openai_responses.render(view)["input"],
        lambda view: flat(anthropic.render(view, cache_breakpoints=False)),
    ):
        before, after = render(short), render(long)
        assert after[: len(before)] == before
