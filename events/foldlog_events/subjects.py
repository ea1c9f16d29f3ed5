"""Subjects: where an entry lives, `entry.<partition>.<tenant>.<conversation>.<lane>`.

Any string is a valid id. Tokens are reversible up to `MAX_PLAIN_TOKEN` characters; a longer
id becomes a token of its beginning and its hash, and the whole id stands in every entry.
"""

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple, cast

from foldlog_events.entries import Lane
from foldlog_events.errors import InvalidIdentifier

PARTITIONS = 16
MAX_IDENTIFIER_BYTES = 32_768
MAX_PLAIN_TOKEN = 200
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_ESCAPE = "="
_HASHED = "=="


class SubjectParts(NamedTuple):
    """A subject's tokens, still encoded where they are ids."""

    partition: int
    tenant: str
    conversation: str
    lane: Lane


@lru_cache(maxsize=4096)
def encode_token(identifier: str) -> str:
    """One subject token for any id: letters, digits, `-`, `_` as they are, other bytes `=XX`.

    Raises InvalidIdentifier for an empty id, one that UTF-8 cannot hold, or one over the limit.
    """
    if not identifier:
        raise InvalidIdentifier("an id must not be empty: give the conversation a name")
    try:
        raw = identifier.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdentifier(
            f"the id holds a lone surrogate at character {error.start}: remove it"
        ) from None
    if len(raw) > MAX_IDENTIFIER_BYTES:
        raise InvalidIdentifier(
            f"the id takes {len(raw):,} bytes and the limit is {MAX_IDENTIFIER_BYTES:,}: shorten it"
        )
    plain = "".join(
        chr(byte) if _PLAIN.match(chr(byte)) else f"{_ESCAPE}{byte:02X}" for byte in raw
    )
    if len(plain) <= MAX_PLAIN_TOKEN:
        return plain
    return f"{_HASHED}{hashlib.sha256(raw).hexdigest()}"


def decode_token(token: str) -> str | None:
    """The id behind a token; None where the token is a hash of a long id.

    Raises InvalidIdentifier where no id has this token.
    """
    if re.fullmatch(rf"{_HASHED}[0-9a-f]{{64}}", token):
        return None
    if not re.fullmatch(rf"(?:[A-Za-z0-9_-]|{_ESCAPE}[0-9A-F]{{2}})+", token):
        raise InvalidIdentifier(f"no id has the token {token!r}")
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), token.encode())
    try:
        identifier = raw.decode()
    except UnicodeDecodeError:
        raise InvalidIdentifier(f"no id has the token {token!r}") from None
    if encode_token(identifier) != token:
        raise InvalidIdentifier(f"no id has the token {token!r}")
    return identifier


@lru_cache(maxsize=4096)
def partition_of(tenant: str, conversation: str) -> int:
    """FNV-1a-32 of the two tokens, modulo the number of partitions."""
    value = 0x811C9DC5
    for byte in f"{encode_token(tenant)}.{encode_token(conversation)}".encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value % PARTITIONS


def conversation_prefix(tenant: str, conversation: str) -> str:
    """The subject of a conversation without its lane."""
    return (
        f"entry.{partition_of(tenant, conversation)}"
        f".{encode_token(tenant)}.{encode_token(conversation)}"
    )


def subject_of(tenant: str, conversation: str, lane: Lane) -> str:
    """The subject of one lane of a conversation."""
    return f"{conversation_prefix(tenant, conversation)}.{lane}"


def both_lanes(tenant: str, conversation: str) -> str:
    """The wildcard subject of all entries of a conversation."""
    return f"{conversation_prefix(tenant, conversation)}.*"


def view_key(tenant: str, conversation: str) -> str:
    """The key under which a conversation's view is stored."""
    return f"{encode_token(tenant)}.{encode_token(conversation)}"


def parse_subject(subject: str) -> SubjectParts:
    """The tokens of an entry's subject. Raises InvalidIdentifier where it is none."""
    tokens = subject.split(".")
    if len(tokens) != 5 or tokens[0] != "entry" or not tokens[1].isdigit():
        raise InvalidIdentifier(f"{subject!r} is no subject of an entry")
    _, partition, tenant, conversation, lane = tokens
    if lane not in ("log", "shape"):
        raise InvalidIdentifier(f"{subject!r} names no lane")
    return SubjectParts(int(partition), tenant, conversation, cast(Lane, lane))


def message_id(tenant: str, conversation: str, entry_id: str) -> str:
    """The broker's deduplication id: it spans the stream, so it names the conversation too."""
    return f"{view_key(tenant, conversation)}.{entry_id}"
