"""The benchmark of the estimate, on the real corpus: nearer to the truth than chars/4."""

from benchmarks.estimate import errors, language_of
from tests.importing import corpus_file


def test_the_estimate_is_nearer_than_a_quarter_of_the_characters() -> None:
    found = errors(corpus_file("pi-before-compaction.jsonl").parent)
    measured = [one for one in found if one.truth == "measured by the provider"]
    assert measured
    for one in found:
        assert one.n > 100
        assert one.median <= one.quarter_median
        assert one.p95 <= one.quarter_p95


def test_a_language_is_told_by_its_script() -> None:
    assert language_of("昨晚的直播销售额下降了 12%") == "Chinese, Japanese"
    assert language_of("The show of last night") == "Latin letters"
    assert language_of("Вчерашний показ") == "other scripts"
    assert language_of("12.50 | 3") == "figures"
