"""Facts in a text, found by program: does a summary's every figure occur in its source?

What counts as a fact: numbers (bare ones of one digit do not: people count with those), amounts
with their currency, percentages, dates, times, ids, paths, addresses and quoted strings.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Literal

import msgspec

FactKind = Literal[
    "url", "email", "path", "date", "time", "amount", "percent", "number", "id", "quote"
]


class Fact(msgspec.Struct, frozen=True):
    """One checkable value of a text; `start` and `end` place it in the normalised text."""

    kind: FactKind
    text: str
    start: int
    end: int


_MONTHS = {
    name: month
    for month, names in enumerate(
        (
            "jan january januar", "feb february februar", "mar march märz", "apr april",
            "may mai", "jun june juni", "jul july juli", "aug august", "sep sept september",
            "oct october oktober", "nov november", "dec december dezember",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_UNITS = {
    "percent": "%", "per cent": "%", "prozent": "%", "％": "%",
    "$": "usd", "us$": "usd", "dollar": "usd", "dollars": "usd", "€": "eur", "euro": "eur",
    "euros": "eur", "£": "gbp", "pounds": "gbp", "francs": "chf", "元": "cny", "rmb": "cny",
    "yuan": "cny", "yen": "jpy", "d": "day", "days": "day", "hour": "h", "hours": "h", "hr": "h",
    "hrs": "h", "minute": "min", "minutes": "min", "mins": "min", "second": "s", "seconds": "s",
    "sec": "s", "secs": "s", "weeks": "week", "months": "month", "years": "year",
}  # fmt: skip
_MONEY = frozenset({"usd", "eur", "gbp", "chf", "cny", "jpy", "¥"})
_WORDS_FOR = (
    "one two three four five six seven eight nine ten eleven twelve",
    "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
)
_CODE = "USD|EUR|GBP|CHF|CNY|JPY|RMB|INR|AUD|CAD|SEK|NOK|DKK|PLN|BRL|KRW|SGD|HKD|MXN|TRY|ZAR"
_WORDS = "dollars?|euros?|pounds|francs|yuan|yen"
_MEASURES = (
    "kg|mg|km|cm|mm|ml|kb|mb|gb|tb|kB|KB|MB|GB|TB|ms|days?|hours?|hrs?|minutes?|mins?|seconds?"
    "|secs?|weeks?|months?|years?|g|m|l|h|s|d"
)
_SCALES = {
    "k": 3, "thousand": 3, "tsd": 3, "千": 3, "万": 4, "m": 6, "mn": 6, "million": 6, "mio": 6,
    "亿": 8, "b": 9, "bn": 9, "billion": 9, "mrd": 9,
}  # fmt: skip
_DIGITS = r"\d{1,3}(?:[,.'\u2009 ]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)?"
_SCALE = (
    r"(?:(?:[kKMB]|bn|mn)(?![A-Za-z0-9])| ?(?:thousand|million|billion|[Mm]io|[Mm]rd|[Tt]sd)\b"
    r"|[千万亿])"
)
_DATE = re.compile(
    rf"(?<![\w.])(?:(?P<y1>\d{{4}})[-/.](?P<m1>\d{{1,2}})[-/.](?P<d1>\d{{1,2}})(?!\d)"
    rf"|(?P<a>\d{{1,2}})(?P<sep>[-/.])(?P<b>\d{{1,2}})(?P=sep)(?P<y2>\d{{4}})(?!\d)"
    rf"|(?P<y3>\d{{4}})年(?:(?P<m3>\d{{1,2}})月(?P<d3>\d{{1,2}})[日号])"
    rf"|(?P<m6>\d{{1,2}})月(?P<d6>\d{{1,2}})[日号]"
    rf"|(?P<d4>\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?(?P<n4>{_MONTH})\b\.?"
    r"(?:,? (?P<y4>\d{4})(?!\d))?"
    rf"|\b(?P<n5>{_MONTH})\.? (?P<d5>\d{{1,2}})(?:st|nd|rd|th)?(?![\w:])"
    r"(?:,? (?P<y5>\d{4})(?!\d))?)",
    re.IGNORECASE | re.ASCII,
)
_TIME = re.compile(
    r"(?<![A-SU-Z0-9_:.])(?P<h>[01]?\d|2[0-4]):(?P<m>[0-5]\d)(?::\d{2}(?:\.\d+)?)?(?![\d:])"
    r"(?: ?(?P<p>[ap])\.?m\b\.?)?"
    r"|(?<![\w:.])(?P<h2>\d{1,2}) ?(?P<p2>[ap])\.?m\b",
    re.IGNORECASE | re.ASCII,
)
_URL = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]{1,20}://|www\.)[^\s<>\"'`|{}\\^()\[\]\u3000-\u9fff]+",
    re.IGNORECASE | re.ASCII,
)
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_PATH = re.compile(
    r"(?<![\w/\\.~-])(?:"
    r"(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?|(?:~|\.{1,2})/[\w.@+-]+/?|/[\w@+-]+\.[A-Za-z]\w{0,5}\b"
    r"|[A-Za-z]:\\[\w.@+\\-]+"
    r"|(?:[\w@+-]+[\w.@+-]*/)+[\w@+-]+\.[A-Za-z]\w{0,5}\b"
    r"|(?=[\w@+/-]*[.\d_-])(?:[\w@+.-]+/){2,}[\w@+.-]+"
    r"|[A-Za-z_][\w-]*\.(?:py|js|ts|tsx|jsx|json|jsonl|md|txt|csv|yaml|yml|toml|html|css|sql|sh"
    r"|rs|go|java|c|h|cpp|rb|php|log|xml|pdf|png|jpe?g|xlsx?|docx?|parquet|lock|cfg|ini)\b)",
    re.ASCII,
)
_NUMBER = re.compile(
    rf"(?:(?<![A-Za-z0-9_])(?P<before>{_CODE}|US\$|[$€£¥]) ?|(?<![\w.,])(?<!\d'))[+-]?"
    rf"(?P<digits>{_DIGITS})(?P<scale>{_SCALE})?"
    rf"(?P<after> ?(?:%|[$€£¥元]|(?:percent|per cent|Prozent|{_CODE}|{_WORDS}|{_MEASURES})\b))?",
    re.ASCII,
)
_ID = re.compile(
    r"(?<![\w-])#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z_])[A-Za-z0-9_]+(?:[-_.][A-Za-z0-9_]+)*(?![\w-])"
    r"|(?<![\w-])#\d{2,}(?!\w)|(?<![\w-])[A-Za-z]+(?:_[A-Za-z]+)+(?!\w)",
    re.ASCII,
)
_QUOTE = re.compile(r"\"([^\"\n]{3,}?)\"|`([^`\n]{3,}?)`|「([^」\n]{3,})」|«([^»\n]{3,})»")
_NO_ID = re.compile(rf"\d+(?:st|nd|rd|th|x|{_MEASURES})|\d+-[a-z]+|[a-z]{{2,}}-\d{{1,2}}")
_PART_OF_WORD = "(?<![a-z0-9])TEXT(?![a-z0-9])"
_PART_OF_ID = "(?<![a-z0-9_])(?<![a-z0-9]-)TEXT(?![a-z0-9_])(?!-[a-z0-9])"
_PART_OF_EMAIL = r"(?<![\w.+-])TEXT(?![\w-])(?!\.\w)"
_CELL_BEFORE = re.compile(r"[\[;\t|-]$")
_CELL_AFTER = re.compile(r"[,;](?=\S)|\]|\t")
_LIST_MARK = re.compile(r"^[ \t]*(?:[-*•][ \t]+)?\d{1,3}[.)][ \t]", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t].*$", re.MULTILINE)
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_QUOTES = re.compile("[“”„‟]")


def normalise(text: str) -> str:
    """Text with one form of width, dashes, quotes, blanks and escapes; case is kept."""
    text = unicodedata.normalize("NFKC", text).replace("&lt;", "<").replace('\\"', '"')
    text = _QUOTES.sub('"', _DASHES.sub("-", text)).replace("’", "'").replace("\\n", "\n")
    return re.sub(r"[^\S\n]+", " ", text)


def facts(text: str) -> tuple[Fact, ...]:
    """The facts a text states, in order; headings and list numbers are none."""
    text = _LIST_MARK.sub(_blank, _HEADING.sub(_blank, normalise(text)))
    return tuple(sorted(_facts(text), key=lambda fact: (fact.start, -fact.end)))


class Grounds:
    """A source, prepared so that many texts can be held against it."""

    def __init__(self, source: str) -> None:
        text = normalise(source)
        self._text = _flat(text)
        self._numbers = _numbers(_TIME.sub(" ", _DATE.sub(_year, text)))
        self._dates = {date for match in _DATE.finditer(text) for date in _dates(match)}
        self._days = {(month, day) for _, month, day in self._dates}
        self._times = {_time(match) for match in _TIME.finditer(text)}

    def ungrounded(self, text: str) -> tuple[Fact, ...]:
        """The facts of a text that the source does not hold, each once."""
        missing = {fact.text: fact for fact in facts(text) if not self._holds(fact)}
        return tuple(missing.values())

    def _holds(self, fact: Fact) -> bool:
        match fact.kind:
            case "amount" | "percent" | "number":
                found = _NUMBER.search(fact.text)
                return self._occurs(fact.text) or (found is not None and self._has_number(found))
            case "date":
                found = _DATE.search(fact.text)
                return found is None or any(map(self._has_date, _dates(found)))
            case "time":
                found = _TIME.search(fact.text)
                return found is None or _time(found) in self._times
            case "quote":
                pieces = re.split(r"\.\.\.|…", fact.text)
                return all(_flat(piece).strip(" .,;:!?") in self._text for piece in pieces)
            case "id":
                return self._occurs(fact.text.lstrip("#"), _PART_OF_ID)
            case "email":
                return self._occurs(fact.text, _PART_OF_EMAIL)
            case _:
                return self._occurs(fact.text)

    def _occurs(self, text: str, longer: str = _PART_OF_WORD) -> bool:
        """Whether a text stands in the source, and not within a longer value of its kind."""
        pattern = longer.replace("TEXT", re.escape(_flat(text)))
        return re.search(pattern, self._text, re.ASCII) is not None

    def _has_number(self, match: re.Match[str]) -> bool:
        unit = _unit(match)
        if any(_agrees(unit, self._numbers.get(value, ())) for value in _values(match)):
            return True
        # A blank may group digits or part two numbers.
        pieces = match["digits"].split(" ")
        return len(pieces) > 1 and all(
            any(reading in self._numbers for reading in _readings(piece)) for piece in pieces
        )

    def _has_date(self, date: tuple[int, int, int]) -> bool:
        year, month, day = date
        if year == 0:
            return (month, day) in self._days
        # A source may say the year apart from its days.
        apart = (0, month, day) in self._dates and Decimal(year) in self._numbers
        return date in self._dates or apart


def ungrounded(summary: str, source: str) -> tuple[Fact, ...]:
    """The facts of a summary that its source does not hold: invented, or altered."""
    return Grounds(source).ungrounded(summary)


def _facts(text: str) -> Iterator[Fact]:
    for match in _QUOTE.finditer(text):
        said = next(group for group in match.groups() if group is not None)
        yield Fact("quote", said, match.start(), match.end())
    patterns: tuple[tuple[FactKind, re.Pattern[str]], ...] = (
        ("url", _URL), ("email", _EMAIL), ("date", _DATE), ("path", _PATH), ("time", _TIME),
        ("id", _ID), ("number", _NUMBER),
    )  # fmt: skip
    for kind, pattern in patterns:
        found: list[Fact] = []

        def take(match: re.Match[str], kind: FactKind = kind, found: list[Fact] = found) -> str:
            fact = _fact(kind, match)
            if fact is None:
                return match[0]
            found.append(fact)
            return "\0" * len(fact.text) + match[0][len(fact.text) :]

        text = pattern.sub(take, text)
        yield from (fact for fact in found if _counts(fact))


def _fact(kind: FactKind, match: re.Match[str]) -> Fact | None:
    said = match[0]
    if kind in ("url", "path", "email"):
        said = said.rstrip(".,;:!?")
    if kind == "id" and (_NO_ID.fullmatch(said) or _NUMBER.fullmatch(said) or len(said) < 3):
        return None
    if kind == "number":
        if match.string[match.end() : match.end() + 2] in ("st", "nd", "rd", "th"):
            return None
        kind = _number_kind(match)
    return Fact(kind, said, match.start(), match.start() + len(said))


def _number_kind(match: re.Match[str]) -> FactKind:
    unit = _unit(match)
    if unit == "%":
        return "percent"
    return "amount" if unit in _MONEY or match["before"] else "number"


def _counts(fact: Fact) -> bool:
    return fact.kind != "number" or len(fact.text.lstrip("+-")) > 1


def _numbers(text: str) -> dict[Decimal, set[str]]:
    """Every number of a source, in each of its readings → the units it is stated with."""
    numbers: dict[Decimal, set[str]] = {}

    def take(match: re.Match[str]) -> str:
        for value in _values(match):
            numbers.setdefault(value, set()).add(_unit(match))
        if _may_be_cells(match):
            for digits in re.findall(r"\d+", match["digits"]):
                numbers.setdefault(Decimal(digits), set()).add("")
        return " "

    rest = _NUMBER.sub(take, text)
    for digits in re.findall(r"\d+(?:\.\d+)?", rest, re.ASCII):
        numbers.setdefault(Decimal(digits).normalize() + 0, set()).add("")
    spoken = set(re.findall(r"[a-zäöüß]{3,6}", text.lower()))
    for words in _WORDS_FOR:
        for value, word in enumerate(words.split(), start=1):
            if word in spoken:
                numbers.setdefault(Decimal(value), set()).add("")
    return numbers


def _may_be_cells(match: re.Match[str]) -> bool:
    """Whether commas in a number may part the cells of a row instead of grouping digits."""
    digits = match["digits"]
    if "," not in digits:
        return False
    grouped = re.fullmatch(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", digits)
    start, end = match.span()
    before, after = match.string[max(0, start - 1) : start], match.string[end : end + 2]
    return not grouped or bool(_CELL_BEFORE.match(before) or _CELL_AFTER.match(after))


def _agrees(unit: str, stated: Collection[str]) -> bool:
    """Whether a number with a unit (or none) may be the one that is stated with these."""
    if "¥" in (unit, *stated):
        return True
    return bool(stated) and (not unit or unit in stated or "" in stated)


def _unit(match: re.Match[str]) -> str:
    written = (match["before"] or match["after"] or "").strip().lower()
    return _UNITS.get(written, written)


def _values(match: re.Match[str]) -> set[Decimal]:
    """What a written number may stand for: 1,234 is 1234, or 1.234 where a comma is a point."""
    digits, scale = match["digits"], (match["scale"] or "").strip().lower()
    values = set(_readings(digits))
    if scale:
        values |= {value.scaleb(_SCALES[scale]) for value in values}
    if _unit(match) == "%":
        values |= {value / 100 for value in values}
    return {value.normalize() + 0 for value in values}


def _readings(digits: str) -> Iterator[Decimal]:
    plain = digits.replace("'", "").replace(" ", "")
    points = re.findall(r"[.,]", plain)
    if not points:
        yield Decimal(plain)
        return
    last = points[-1]
    if len(points) == 1 or points.count(last) == 1:
        other = "," if last == "." else "."
        yield Decimal(plain.replace(other, "").replace(last, "."))
    if len(set(points)) == 1 and re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", plain):
        yield Decimal(plain.replace(last, ""))


def _dates(match: re.Match[str]) -> Iterator[tuple[int, int, int]]:
    """Year (0: not stated), month and day: both orders where the month could be either."""
    groups = match.groupdict()
    for year, month, day in (("y1", "m1", "d1"), ("y3", "m3", "d3"), ("", "m6", "d6")):
        if groups[month]:
            yield int(groups[year]) if year else 0, int(groups[month]), int(groups[day])
    for year, name, day in (("y4", "n4", "d4"), ("y5", "n5", "d5")):
        if groups[name]:
            yield int(groups[year] or 0), _MONTHS[groups[name].lower()], int(groups[day])
    if groups["y2"]:
        first, second = int(groups["a"]), int(groups["b"])
        yield int(groups["y2"]), first, second
        yield int(groups["y2"]), second, first


def _year(match: re.Match[str]) -> str:
    return f" {next(_dates(match))[0] or ''} "


def _time(match: re.Match[str]) -> tuple[int, int]:
    hour, minute = int(match["h"] or match["h2"]), int(match["m"] or 0)
    half = (match["p"] or match["p2"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour, minute


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
