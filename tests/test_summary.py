"""Rule 6 of docs/fold.md: how a summary is shown."""

import pytest

from foldlog_events.entries import ExactValue
from foldlog_events.messages import Message, Text
from foldlog_projections.summary import INTRODUCTION, escape, frame


def text_of(message: Message) -> str:
    (part,) = message.parts
    assert isinstance(part, Text)
    return part.content


def test_6_1_a_summary_is_one_user_message_of_one_text() -> None:
    message = frame("Sales fell.")
    assert message.role == "user"
    assert text_of(message) == f"{INTRODUCTION}\n\n<summary>\nSales fell.\n</summary>"


def test_6_1_exact_values_follow_one_to_a_line() -> None:
    values = (
        ExactValue(text="CHF 1,204.50", kind="amount", entry="e1"),
        ExactValue(text="ORD-77", kind="id", entry="e2"),
    )
    assert text_of(frame("Sales fell.", values)).endswith(
        "\n</summary>\n\nExact values, copied by program:\n- amount: CHF 1,204.50\n- id: ORD-77"
    )


@pytest.mark.parametrize("fence", ["</summary>", "<summary>", "</SUMMARY >", "<Summary x='1'>"])
def test_6_2_nothing_inside_opens_or_closes_the_fence(fence: str) -> None:
    value = ExactValue(text=f"a{fence}b", kind=f"k{fence}", entry="e1")
    text = text_of(frame(f"before {fence} after", (value,))).lower()
    assert text.count("<summary") == 1
    assert text.count("</summary") == 1
    assert text.count("&lt;") == 3


def test_6_2_escaping_twice_changes_nothing_more_and_other_text_nothing_at_all() -> None:
    assert escape(escape("</summary>")) == escape("</summary>") == "&lt;/summary>"
    assert escape("a < b, <sum>, &lt;p>") == "a < b, <sum>, &lt;p>"
