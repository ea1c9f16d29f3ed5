"""Malformed entries, frames and files, generated from whole ones and from nothing."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.golden_entries import ENTRIES, GOLDEN

WHOLE = [path.read_bytes() for path in sorted(GOLDEN.glob("*/*.json")) if path.stem in ENTRIES]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1.5, -0.0, 1e308),
    *("", "x", "\x00", "\ud800", "a\nb", ">", "*", "..", "x" * 5_000, "2026-01-01T00:00:00Z"),
    *([], {}, [[]], {"": ""}, [None], {"kind": "message"}, {"type": "text"}, [{}], {"a": [1]}),
]
TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u", b"\\ud800", b"\x00", b"\xff"),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"NaN", b"Infinity", b"1e400"),
    *(b"9" * 400, b"[" * 3_000, b'{"a":' * 3_000, b"\r\n", b"null", b"-", b'"kind":"edit"'),
]


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Bytes cut out, doubled, swapped or put in."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + chance.choice((1, 1, 3, 20))]
            case 2:
                data[at:at] = chance.choice(TOKENS)
            case 3:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 4:
                data[at:at] = data[at : at + chance.randrange(200)]
            case _:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
        if not data:
            break
    return bytes(data)


def misshapen(whole: bytes, chance: random.Random) -> bytes:
    """JSON whose fields hold what they should not, are gone, or are others' fields."""
    value = json.loads(whole)
    for _ in range(chance.choice((1, 1, 2, 4))):
        holder, key = chance.choice(_places(value))
        match chance.randrange(5):
            case 0:
                del holder[key]
            case 1:
                other = json.loads(chance.choice(WHOLE))
                donor, there = chance.choice(_places(other))
                holder[key] = donor[there]
            case 2 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case 2:
                holder[f"{key}x"] = holder.pop(key)
            case _:
                holder[key] = copy.deepcopy(chance.choice(VALUES))
        if not value:
            break
    return json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def noise(chance: random.Random) -> bytes:
    return chance.choice(
        (
            lambda: chance.randbytes(chance.randrange(200)),
            lambda: b"".join(chance.choices(TOKENS, k=chance.randrange(8))),
            lambda: json.dumps(chance.choice(VALUES)).encode("utf-8", "surrogatepass"),
        )
    )()


def hostile(chance: random.Random, whole: Sequence[bytes] = tuple(WHOLE)) -> bytes:
    """One malformed entry (now and then a whole one, for what comes after it)."""
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: damaged(chance.choice(whole), chance),
        lambda: misshapen(chance.choice(whole), chance),
        lambda: misshapen(chance.choice(whole), chance),
        lambda: noise(chance),
        lambda: chance.choice(whole),
    )
    return chance.choice(makers)()


def hostile_file(chance: random.Random, lines: Sequence[bytes]) -> bytes:
    """A file of JSON lines of which some are malformed."""
    kept = list(lines)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(kept))
        try:
            kept[at] = hostile(chance, (kept[at],))
        except (ValueError, IndexError, RecursionError):
            kept[at] = noise(chance)
        if chance.random() < 0.2:
            kept.insert(at, chance.choice(kept))
        if chance.random() < 0.1:
            chance.shuffle(kept)
    return b"\n".join(kept) + (b"\n" if chance.random() < 0.8 else b"")


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = (
            list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        )
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return found or [({"": 0}, "")]
