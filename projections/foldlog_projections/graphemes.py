"""Where a text may be parted without tearing what people see as one character.

Follows Unicode's rules for extended grapheme clusters (UAX 29) with the properties that the
standard library knows; where it knows too little, a place is rather taken for no boundary.
"""

import unicodedata

_ZERO_WIDTH_JOINER = "\u200d"
_EXTENDING = frozenset({"Mn", "Me", "Mc"})
_PREPENDED = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
)
_SPACING_VOWELS = "\u0e33\u0eb3"
_VIRAMA = 9
"""Canonical combining class of the sign that joins two Indic consonants."""


def boundary_before(text: str, place: int) -> int:
    """The last boundary at or before `place`."""
    place = min(place, len(text))
    while place > 0 and not is_boundary(text, place):
        place -= 1
    return max(0, place)


def boundary_after(text: str, place: int) -> int:
    """The first boundary at or after `place`."""
    place = max(0, place)
    while place < len(text) and not is_boundary(text, place):
        place += 1
    return min(place, len(text))


def is_boundary(text: str, place: int) -> bool:
    """Whether the text may be parted before the code point at `place`."""
    if place <= 0 or place >= len(text):
        return True
    left, right = text[place - 1], text[place]
    if left < "\u0300" and right < "\u0300":
        return (left, right) != ("\r", "\n")
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return False
    if left in "\r\n" or unicodedata.category(left) == "Cc":
        return True
    if _extends(right) or left == _ZERO_WIDTH_JOINER or left in _PREPENDED:
        return False
    if unicodedata.category(right) == "Lo" and _is_after_virama(text, place):
        return False
    if _is_regional(left) and _is_regional(right):
        return _regionals_before(text, place) % 2 == 0
    return not _joins_syllable(left, right)


def _extends(character: str) -> bool:
    return (
        unicodedata.category(character) in _EXTENDING
        or character in "\u200c\u200d"
        or character in _SPACING_VOWELS
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or "\uff9e" <= character <= "\uff9f"
    )


def _is_after_virama(text: str, place: int) -> bool:
    while place > 0 and _extends(text[place - 1]):
        place -= 1
        if unicodedata.combining(text[place]) == _VIRAMA:
            return True
    return False


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regionals_before(text: str, place: int) -> int:
    start = place
    while start > 0 and _is_regional(text[start - 1]):
        start -= 1
    return place - start


def _joins_syllable(left: str, right: str) -> bool:
    """Whether two pieces of Korean are of one syllable."""
    before, after = _hangul(left), _hangul(right)
    return (
        (before == "L" and after in ("L", "V", "LV", "LVT"))
        or (before in ("V", "LV") and after in ("V", "T"))
        or (before in ("T", "LVT") and after == "T")
    )


def _hangul(character: str) -> str:
    code = ord(character)
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return "L"
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return "V"
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "LV" if (code - 0xAC00) % 28 == 0 else "LVT"
    return ""
