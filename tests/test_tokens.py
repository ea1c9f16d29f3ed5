"""The estimate of tokens, against counts taken from real vocabularies (see tokens.py)."""

import base64

import pytest

from foldlog_events.entries import Section
from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    File,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
    assistant,
    tool_result,
    user,
)
from foldlog_projections.tokens import (
    FILE_TOKENS,
    FRAME_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimate_message,
    estimate_messages,
    estimate_sections,
    estimate_text,
    estimate_tools,
)


def test_nothing_takes_nothing_and_anything_takes_a_token() -> None:
    assert estimate_text("") == 0
    assert estimate_text(" ") == 1
    assert estimate_text("a") == 1


def test_twenty_thousand_characters_of_chinese_are_about_twenty_thousand_tokens() -> None:
    """Case 26: a quarter of a token a character let 65,000 tokens pass for 20,000."""
    text = "请确认本月应收账款余额并说明差异原因" * 1_112
    assert 18_000 <= estimate_text(text[:20_000]) <= 22_000


@pytest.mark.parametrize("text", ["a" * 300_000, "x y" * 100_000, "é" * 100_000, "\n" * 100_000])
def test_twice_the_text_is_twice_the_tokens(text: str) -> None:
    assert estimate_text(text * 2) == pytest.approx(2 * estimate_text(text), rel=0.01)


def test_encoded_data_is_denser_than_prose() -> None:
    data = base64.b64encode(bytes(i * 37 % 251 for i in range(30_000))).decode()
    assert estimate_text(data) == pytest.approx(0.70 * len(data), rel=0.05)


def test_a_path_of_words_is_not_encoded_data() -> None:
    path = "/srv/reports/quarterly/finance/receivables/customers/overdue/summary/final"
    assert len(path) > 64
    assert estimate_text(path) < 0.35 * len(path)


def test_a_lone_surrogate_is_priced_like_any_character() -> None:
    assert estimate_text("\ud800") == 2


def test_an_image_costs_the_same_whatever_its_data_weighs() -> None:
    """Case 25."""
    small = Blob(mime_type="image/png", content="AAAA")
    large = Blob(mime_type="image/png", content="A" * 2_007_602)
    linked = Uri(mime_type="image/png", uri="data:image/png;base64," + "A" * 2_007_580)
    costs = {estimate_message(Message(role="user", parts=(p,))) for p in (small, large, linked)}
    assert costs == {IMAGE_TOKENS + MESSAGE_TOKENS}


def test_a_file_is_flat() -> None:
    parts = (
        Blob(mime_type="application/pdf", content="A" * 9_999),
        File(file_id="file-1"),
        Uri(uri="https://example.com/a"),
    )
    assert estimate_message(Message(role="user", parts=parts)) == 3 * FILE_TOKENS + MESSAGE_TOKENS


def test_an_image_inside_a_result_is_flat() -> None:
    image = Blob(mime_type="image/jpeg", content="A" * 500_000)
    result = ToolCallResponse(id="c1", result=(Text(content="Screenshot"), image))
    tokens = estimate_message(Message(role="tool", parts=(result,)))
    assert tokens == MESSAGE_TOKENS + FRAME_TOKENS + estimate_text("Screenshot") + IMAGE_TOKENS


def test_an_artifact_costs_its_preview() -> None:
    reference = ArtifactReference(
        digest="sha256:" + "0" * 64, mime_type="text/csv", size=9_000_000, preview="a,b,c\n" * 10
    )
    assert estimate_message(Message(role="user", parts=(reference,))) < 100


def test_a_call_is_priced_with_its_name_and_arguments() -> None:
    bare = estimate_message(assistant("", ToolCall(id="c", name="f")))
    named = estimate_message(assistant("", ToolCall(id="c", name="look_up_the_customer")))
    full = estimate_message(assistant("", ToolCall(id="c", name="f", arguments={"q": "x" * 400})))
    assert bare < named < full
    assert full > bare + 80


def test_arguments_as_text_and_as_an_object_cost_the_same() -> None:
    as_object = ToolCall(id="c", name="f", arguments={"city": "Köln"})
    as_text = ToolCall(id="c", name="f", arguments='{"city":"Köln"}')
    assert estimate_message(assistant("", as_object)) == estimate_message(assistant("", as_text))


def test_a_payload_is_not_counted_beside_the_reasoning_it_carries() -> None:
    payload = ProviderPayload(provider="anthropic", data={"signature": "A" * 10_000})
    with_payload = Reasoning(content="Let me think.", payload=payload)
    without = Reasoning(content="Let me think.")
    assert estimate_message(Message(role="assistant", parts=(with_payload,))) == estimate_message(
        Message(role="assistant", parts=(without,))
    )


def test_messages_add_up() -> None:
    messages = (user("hello there"), tool_result("c1", "done"))
    assert estimate_messages(messages) == sum(map(estimate_message, messages))


def test_tools_and_sections_are_priced() -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = Tool(name="search", description="Search the orders of a customer.", parameters=schema)
    assert 25 <= estimate_tools((tool,)) <= 45
    assert estimate_tools(()) == 0
    sections = (Section(name="role", text="You keep the books."), Section(name="old", text=None))
    assert estimate_sections(sections) == MESSAGE_TOKENS + estimate_text("You keep the books.")
