"""Grounding: a summary's figures, dates, ids, paths, addresses and quotations occur in its source.

Design §8.4; cases 19 to 21 need it to be free of false alarms, and strict.
"""

import pytest

from foldlog_events.entries import ExactValue
from foldlog_events.messages import Message, assistant, tool_result, user
from foldlog_projections.exact import exact_values
from foldlog_projections.grounding import facts, ungrounded
from foldlog_projections.summary_source import SourceMessage

SOURCE = """Total sales: CHF 1,204.50 on 2024-05-15T15:00:00, order ORD-77,
{"amount": 1234, "rate": 0.125, "weight": "5 kg"} see /home/u/src/app.py:12
and https://shop.example/a?b=1, mail anna.b@shop.example
2024-06-01,105,230,33.5
[101,205,333]
the user said "only new products, please", within three days; 订单ORD-99共2301件
1'500 francs, 2.500,75 EUR, 12 %, 1.2 million visitors, 30min, issue #4711, run 0190c2ab-77aa"""

HELD = [
    "CHF 1204.5", "1'204.50 CHF", "CHF 1,204.50", "1204.50", "1 204.50", "1,204.500",
    "1,234", "1234.0", "1'234", "CHF 1234", "12.5%", "12.50 percent", "0.125", "12 %", "0.12",
    "5 kg", "5kg", "May 15, 2024", "15 May", "15.05.2024", "05/15/2024", "2024年5月15日",
    "3 PM", "15:00", "ORD-77", "app.py", "src/app.py", "/home/u/src/app.py:12",
    "https://shop.example/a?b=1", "anna.b@shop.example", "105 and 230", "33.5", "205, then 333",
    '"only new products"', "“Only new … please”", "3 days", "退款订单ORD-99 2301件", "CHF 1,500",
    "€2,500.75", "1,200,000", "1.2M visitors", "30 minutes", "#4711", "4711", "-12%",
    "1. first\n2. second\n17) last", "yes/no/maybe and/or", "## 2099 plans", "5 of 7 done",
]  # fmt: skip

INVENTED = [
    ("CHF 1,204.51", "CHF 1,204.51"),
    ("EUR 1,204.50", "EUR 1,204.50"),
    ("13 %", "13 %"),
    ("5 g", "5 g"),
    ("16 May 2024", "16 May 2024"),
    ("2023-05-15", "2023-05-15"),
    ("15:01", "15:01"),
    ("3:01 PM", "3:01 PM"),
    ("order ORD-771", "ORD-771"),
    ("order ORD-7", "ORD-7"),
    ("run 0190c2ab", "0190c2ab"),
    ("/home/x/app.py", "/home/x/app.py"),
    ("https://shop.example/c", "https://shop.example/c"),
    ("b@shop.example", "b@shop.example"),
    ("106 pieces", "106"),
    ('"only old products"', "only old products"),
    ("4 days", "4 days"),
    ("1.3M", "1.3M"),
    ("订单ORD-98", "ORD-98"),
    ("called refund_everything", "refund_everything"),
]


@pytest.mark.parametrize("text", HELD)
def test_what_the_source_holds_in_another_form_gives_no_alarm(text: str) -> None:
    assert [fact.text for fact in ungrounded(text, SOURCE)] == []


@pytest.mark.parametrize(("text", "invented"), INVENTED)
def test_what_is_invented_or_altered_is_named(text: str, invented: str) -> None:
    assert [fact.text for fact in ungrounded(text, SOURCE)] == [invented]


def test_an_invented_value_is_named_once() -> None:
    assert len(ungrounded("CHF 99,999 and again CHF 99,999", SOURCE)) == 1


def test_the_kinds_of_facts() -> None:
    text = (
        'On 2024-05-15 at 15:00 "cheap shoes" cost $12.50, up 4 %, '
        "in 120 shops, see /etc/shops.csv, https://a.example/b, x@a.example, ORD-1234."
    )
    assert {(fact.kind, fact.text) for fact in facts(text)} == {
        ("date", "2024-05-15"),
        ("time", "15:00"),
        ("quote", "cheap shoes"),
        ("amount", "$12.50"),
        ("percent", "4 %"),
        ("number", "120"),
        ("path", "/etc/shops.csv"),
        ("url", "https://a.example/b"),
        ("email", "x@a.example"),
        ("id", "ORD-1234"),
    }


def test_a_source_is_grounded_in_itself() -> None:
    assert ungrounded(SOURCE, SOURCE) == ()


def messages(*said: Message) -> list[SourceMessage]:
    return [SourceMessage(f"e{at}", at, message) for at, message in enumerate(said, start=1)]


def test_exact_values_name_their_entry_and_what_they_are() -> None:
    values = exact_values(
        messages(
            user("Refund order ORD-1234."),
            tool_result("c1", '{"total": "CHF 1,204.50", "reservation_id": "ZFA04Y"}'),
        )
    )
    assert {(value.kind, value.text, value.entry) for value in values} == {
        ("id", "ORD-1234", "e1"),
        ("amount", "total: CHF 1,204.50", "e2"),
        ("id", "reservation_id: ZFA04Y", "e2"),
    }


def test_exact_values_prefer_what_was_spoken_of_and_what_is_new() -> None:
    values = exact_values(
        messages(
            user("Old order ORD-1111."),
            tool_result("c1", "unspoken ORD-2222"),
            assistant("Newest order ORD-3333."),
        )
    )
    assert [value.text for value in values] == ["ORD-3333", "ORD-1111", "ORD-2222"]


def test_exact_values_stay_within_their_bounds_and_leave_room_for_every_kind() -> None:
    table = "\n".join(f"row {at}: CHF {at},000.50" for at in range(1, 900))
    values = exact_values(messages(user("about ORD-1234"), tool_result("c1", table)), count=10)
    assert len(values) == 10
    assert values[0].text == "ORD-1234"
    few = exact_values(messages(tool_result("c1", table)), characters=100)
    assert 0 < sum(len(value.kind) + len(value.text) + 5 for value in few) <= 100


def test_exact_values_of_earlier_compactions_stay_without_growth() -> None:
    carried: tuple[ExactValue, ...] = ()
    for round_ in range(30):
        said = " ".join(f"ORD-{round_ * 100 + at:04}" for at in range(40))
        carried = exact_values(messages(user(said)), carried)
        assert len(carried) <= 32
    rounds = {int(value.text[4:]) // 100 for value in carried}
    assert 29 in rounds
    assert len(rounds) > 1


def test_a_value_said_again_is_carried_once() -> None:
    first = exact_values(messages(user("Total: CHF 1,204.50")))
    again = exact_values(messages(assistant("It is CHF 1,204.50")), first)
    assert [value.text for value in first] == ["Total: CHF 1,204.50"]
    assert [value.text for value in again] == ["CHF 1,204.50"]


def test_a_very_long_message_is_searched_in_part_and_ends() -> None:
    huge = "x" * 3_000_000 + " ORD-9999"
    assert [value.text for value in exact_values(messages(user(huge)))] == ["ORD-9999"]
