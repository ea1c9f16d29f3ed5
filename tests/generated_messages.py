"""Generated messages, friendly and nasty, and the choices they are made by."""

from collections.abc import Sequence
from typing import TypeVar

from foldlog_events.messages import (
    AnyPart,
    Blob,
    FinishReason,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolCallResponse,
    Usage,
    user,
)

CALL_IDS = ("a", "b", "a-2", "a-2-2")
TOOLS = ("read", "write")
UNCOUNTED: tuple[FinishReason, ...] = ("aborted", "error", "deferred")
COUNTED: tuple[FinishReason | None, ...] = (None, "stop", "length", "content_filter")

Item = TypeVar("Item")


class Dice:
    """Choices read from bytes; zero, the simplest choice, once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        value = self._data[self._next] if self._next < len(self._data) else 0
        self._next += 1
        return value % limit

    def pick(self, items: Sequence[Item]) -> Item:
        """One of these, the first where the bytes are used up."""
        return items[self.below(len(items))]

    def one_in(self, chances: int) -> bool:
        """True once in so many times, never where the bytes are used up."""
        return self.below(chances) == chances - 1


def _text(number: int, dice: Dice, label: str) -> Text:
    return Text(content=f"{label}{number}.{dice.below(3)}")


def _call(dice: Dice) -> ToolCall:
    return ToolCall(id=_call_id(dice), name=dice.pick(TOOLS), arguments={"n": dice.below(3)})


def _call_id(dice: Dice) -> str:
    return CALL_IDS[min(dice.below(8) // 2, dice.below(4))]  # mostly "a" and "b"


def _result(number: int, dice: Dice) -> ToolCallResponse:
    call_id = _call_id(dice)
    text = f"result {number}.{dice.below(100)}"
    return ToolCallResponse(
        id=call_id,
        result=(Text(content=text),) if dice.one_in(8) else text,
        is_error=dice.one_in(5),
    )


def _user(number: int, dice: Dice) -> Message:
    return user(_text(number, dice, "user ").content)


def _plain(number: int, dice: Dice) -> Message:
    return Message(
        role="assistant",
        parts=(_text(number, dice, "reply "),),
        finish_reason=dice.pick(COUNTED),
        usage=Usage(input_tokens=100, output_tokens=5) if dice.one_in(3) else None,
    )


def calling(number: int, dice: Dice) -> Message:
    calls: list[AnyPart] = [_call(dice) for _ in range(1 + dice.below(3))]
    if dice.one_in(3):
        calls.insert(dice.below(2), _text(number, dice, "calling "))
    return Message(role="assistant", parts=tuple(calls), finish_reason="tool_call")


def answering(number: int, dice: Dice) -> Message:
    results = tuple(_result(number, dice) for _ in range(1 + dice.below(2)))
    return Message(role="tool", parts=results, name="named" if dice.one_in(8) else None)


def _mixed(number: int, dice: Dice) -> Message:
    parts: list[AnyPart] = [_result(number, dice), _text(number, dice, "beside ")]
    if dice.one_in(2):
        parts.append(_result(number, dice))
    if dice.one_in(2):
        parts.reverse()
    return Message(role=dice.pick(("user", "tool")), parts=tuple(parts))


def _uncounted(number: int, dice: Dice) -> Message:
    parts: list[AnyPart] = [_call(dice) for _ in range(dice.below(3))]
    if dice.one_in(2):
        parts.insert(0, _text(number, dice, "cut "))
    return Message(role="assistant", parts=tuple(parts), finish_reason=dice.pick(UNCOUNTED))


def _hollow(number: int, dice: Dice) -> Message:
    choices: tuple[tuple[AnyPart, ...], ...] = (
        (),
        (Reasoning(content="hm"),),
        (Text(content=" \n\t"),),
        (Reasoning(content="hm"), Text(content="")),
        (Text(content=" "), Blob(mime_type="image/png", content="AA==")),
        (Reasoning(content="hm"), _call(dice)),
    )
    return Message(role="assistant", parts=dice.pick(choices), finish_reason="stop")


def _odd(number: int, dice: Dice) -> Message:
    """What no writer of ours stores, and another one may have."""
    choices: tuple[tuple[Role, tuple[AnyPart, ...]], ...] = (
        ("user", ()),
        ("tool", ()),
        ("tool", (_text(number, dice, "tool text "),)),
        ("user", (Blob(mime_type="image/png", content="AA=="), _call(dice))),
        ("user", (_call(dice),)),
        ("assistant", (_text(number, dice, "odd "), _result(number, dice))),
        ("assistant", (_result(number, dice),)),
        ("assistant", (Reasoning(content="hm"), _result(number, dice))),
        ("system", (_text(number, dice, "odd system "), _result(number, dice))),
        ("system", ()),
        ("user", (Text(content=" "),)),
    )
    role, parts = dice.pick(choices)
    return Message(role=role, parts=parts)


MESSAGES = (
    *(_user,) * 3,
    *(_plain,) * 3,
    *(calling,) * 7,
    *(answering,) * 10,
    *(_mixed,) * 2,
    *(_uncounted,) * 3,
    _hollow,
    _odd,
)


def messages(number: int, dice: Dice, count: int) -> tuple[Message, ...]:
    return tuple(dice.pick(MESSAGES)(number, dice) for _ in range(count))
