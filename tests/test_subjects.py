"""Subjects: any string is a conversation of its own, and its place never changes."""

import itertools
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog_events.entries import Lane
from foldlog_events.errors import InvalidIdentifier
from foldlog_events.subjects import (
    MAX_IDENTIFIER_BYTES,
    MAX_PLAIN_TOKEN,
    PARTITIONS,
    both_lanes,
    conversation_prefix,
    decode_token,
    encode_token,
    message_id,
    parse_subject,
    partition_of,
    subject_of,
    view_key,
)

EXAMPLES = settings(max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "300")), deadline=None)
TOKEN = re.compile(r"[A-Za-z0-9_=-]{1,200}")
"""Allowed in a subject and in a key of NATS's key-value store, and no wildcard in either."""

AWKWARD = [
    *("a.b", "*", ">", "user 7", "\U0001f600", "=", "==", "=41", ".", "..", "-", "_", "a", "A"),
    *("\x00", "\n", "\r\n", "\t", "a/b", "\\", "ä", "a\u0308", "\u200b", "$KV.VIEWS.>", "$JS.API"),
    *("entry", "log", "shape", "==" + "0" * 64, "a" * 200, "a" * 201, "é" * 33, "x" * 5_000),
]
identifiers = st.one_of(
    st.sampled_from(AWKWARD),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300),
)


@EXAMPLES
@given(identifiers)
def test_34_a_token_is_safe_bounded_and_leads_back_to_its_id(identifier: str) -> None:
    token = encode_token(identifier)
    assert TOKEN.fullmatch(token)
    assert len(token) <= MAX_PLAIN_TOKEN
    assert decode_token(token) in (identifier, None)
    is_hashed = token.startswith("==")
    assert (decode_token(token) is None) == is_hashed
    if len(identifier.encode()) <= MAX_PLAIN_TOKEN // 3:
        assert not is_hashed


def test_34_different_ids_have_different_tokens() -> None:
    assert len({encode_token(one) for one in AWKWARD}) == len(AWKWARD)


@EXAMPLES
@given(identifiers, identifiers)
def test_34_generated_ids_share_a_token_only_where_they_are_one(a: str, b: str) -> None:
    assert (encode_token(a) == encode_token(b)) == (a == b)


@EXAMPLES
@given(st.text(max_size=80))
def test_a_token_that_no_id_has_is_refused_and_any_other_is_the_token_of_its_id(
    token: str,
) -> None:
    try:
        identifier = decode_token(token)
    except InvalidIdentifier:
        return
    assert identifier is None or encode_token(identifier) == token


@pytest.mark.parametrize(
    "token",
    [
        "",
        "=",
        "=4",
        "=4g",
        "=41",
        "=2a",
        "=FF",
        "=C3=28",
        "a b",
        "*",
        ">",
        "a.b",
        "==abc",
        "ä",
        "=ED=A0=80",
        f"=={'A' * 64}",
        "a\n",
    ],
)
def test_tokens_that_no_id_has(token: str) -> None:
    with pytest.raises(InvalidIdentifier, match="no id has the token"):
        decode_token(token)


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        ("", "must not be empty"),
        ("a\ud800", "lone surrogate at character 1"),
        ("x" * (MAX_IDENTIFIER_BYTES + 1), "the limit is 32,768"),
        ("é" * (MAX_IDENTIFIER_BYTES // 2 + 1), "the limit is 32,768"),
    ],
)
def test_34_ids_that_cannot_be_used_are_refused_by_name(identifier: str, reason: str) -> None:
    for make in (
        encode_token,
        lambda one: subject_of("t", one, "log"),
        lambda one: view_key(one, "c"),
    ):
        with pytest.raises(InvalidIdentifier, match=reason):
            make(identifier)


@EXAMPLES
@given(identifiers, identifiers, st.sampled_from(["log", "shape"]))
def test_a_subject_has_five_tokens_and_leads_back_to_its_parts(
    tenant: str, conversation: str, lane: Lane
) -> None:
    subject = subject_of(tenant, conversation, lane)
    parts = parse_subject(subject)
    assert parts == (
        partition_of(tenant, conversation),
        encode_token(tenant),
        encode_token(conversation),
        lane,
    )
    assert subject.rpartition(".")[0] == conversation_prefix(tenant, conversation)
    assert both_lanes(tenant, conversation) == f"{conversation_prefix(tenant, conversation)}.*"
    assert view_key(tenant, conversation) in subject
    assert 0 <= parts.partition < PARTITIONS


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "entry",
        "entry.1.t.c",
        "entry.x.t.c.log",
        "entry.1.t.c.other",
        "other.1.t.c.log",
        "entry.1.t.c.log.more",
        "entry..t.c.log",
        "entry.-1.t.c.log",
    ],
)
def test_what_is_no_subject_of_an_entry_is_refused(subject: str) -> None:
    with pytest.raises(InvalidIdentifier):
        parse_subject(subject)


GOLDEN_PARTITIONS = {
    ("default", "c"): 9,
    ("default", "support-42"): 4,
    ("acme", "a.b"): 2,
    ("*", ">"): 8,
    ("t", "\U0001f600"): 13,
    ("t", "x" * 5_000): 14,
    ("tenant 1", "user 7"): 8,
    ("a", "b"): 12,
    ("b", "a"): 0,
}
GOLDEN_TOKENS = {
    "c": "c",
    "a.b": "a=2Eb",
    "*": "=2A",
    ">": "=3E",
    "user 7": "user=207",
    "\U0001f600": "=F0=9F=98=80",
    "=": "=3D",
    "x" * 5_000: "==c59d3c0480cc2d71d8f646e735e92da65450311eec46e81a5db8c7e6e8a92054",
}


@pytest.mark.parametrize(("identifier", "token"), GOLDEN_TOKENS.items())
def test_tokens_never_change(identifier: str, token: str) -> None:
    assert encode_token(identifier) == token


@pytest.mark.parametrize(("pair", "partition"), GOLDEN_PARTITIONS.items())
def test_partitions_never_change(pair: tuple[str, str], partition: int) -> None:
    """An entry in another partition would be in another stream: nobody would find it."""
    assert partition_of(*pair) == partition


def test_partitions_are_spread() -> None:
    counts = [0] * PARTITIONS
    for tenant, conversation in itertools.product(range(4), range(1_000)):
        counts[partition_of(f"tenant-{tenant}", f"conversation-{conversation}")] += 1
    assert min(counts) > 4_000 / PARTITIONS / 2
    assert max(counts) < 4_000 / PARTITIONS * 2


def test_a_message_id_names_its_conversation() -> None:
    """The broker's deduplication spans the stream."""
    ids = {message_id(t, c, "e") for t, c in itertools.product(("a", "b", "a.b"), repeat=2)}
    assert len(ids) == 9
