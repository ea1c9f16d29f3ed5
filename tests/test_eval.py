"""`make eval`: ours is right wherever another way is, and ahead in tokens or in the cache."""

import pytest

from benchmarks.eval.__main__ import scores
from benchmarks.eval.story import GAP_PAGES


@pytest.mark.timeout(400)
async def test_ours_is_no_worse_in_any_correctness_row_and_ahead_in_tokens_or_cache() -> None:
    *others, ours = await scores()
    assert (ours.way, len(others)) == ("foldlog", 3)
    assert ours.compactions >= 3
    assert ours.cancelled == 1
    assert ours.over_window == ours.unpaired_calls == 0
    assert ours.references > 0
    assert ours.references_resolved == ours.references
    for other in others:
        assert ours.scope_right * other.scope_asked >= other.scope_right * ours.scope_asked
        assert ours.figures_right * other.figures_asked >= other.figures_right * ours.figures_asked
        assert ours.gaps_named >= other.gaps_named
        assert ours.repeated_queries <= other.repeated_queries
        assert ours.tokens_sent < other.tokens_sent or ours.cached_share > other.cached_share
    assert ours.scope_right == ours.scope_asked
    assert ours.figures_right == ours.figures_asked
    assert ours.gaps_named == len(GAP_PAGES)
