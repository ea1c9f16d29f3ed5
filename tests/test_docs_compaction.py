"""`docs/compaction.md` names every reason, every field and every setting there is."""

import re
import tomllib
from pathlib import Path

import msgspec

from benchmarks.eval.__main__ import ROWS
from foldlog import summarisers
from foldlog.policies import policies_of
from foldlog.settings import Settings
from foldlog.summarisers.choosing import summariser_from
from foldlog.summarisers.openai import OpenAISettings
from foldlog.work import CANCELLED, STOPPED
from foldlog_projections.attempts import ENDS
from foldlog_projections.checks import SENTENCES
from foldlog_projections.policy import PRESETS, Policy

PAGE = (Path(__file__).parents[1] / "docs" / "compaction.md").read_text(encoding="utf-8")


def test_every_end_and_every_reason_has_its_sentence() -> None:
    for name, sentence in SENTENCES.items():
        assert f"| `{name}` | {sentence.removesuffix('.')}" in PAGE
    errors = [name for name in summarisers.__all__ if name.startswith("Summariser")]
    for error in errors:
        if error not in ("Summariser", "SummariserError"):
            assert f"| `{error}` |" in PAGE
    for end in (*ENDS, CANCELLED, STOPPED, "its worker died", "timed out", "the summariser broke"):
        assert f"| `{end}` |" in PAGE


def test_every_field_of_a_policy_and_every_preset_is_told() -> None:
    for field in Policy.__struct_fields__:
        assert field == "name" or f"`{field}`" in PAGE
    for preset in PRESETS:
        assert f"| `{preset}`" in PAGE


def test_the_settings_shown_are_settings_and_all_of_a_summariser() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    settings = msgspec.convert(tomllib.loads(shown), Settings)
    assert policies_of(settings).of("small-model").hard_limit == 26_000
    summariser_from(settings.summariser)
    of_models = set(OpenAISettings.__struct_fields__) - {"limit_parameter"}
    assert of_models <= settings.summariser.keys()
    assert settings.prices["served-model"].cache_read == 0.3
    defaults = {"timeout": 120.0, "deadline": 300.0, "retries": 2, "spare_output_tokens": 2_000}
    assert {name: settings.summariser[name] for name in defaults} == defaults


def test_every_row_of_the_evaluation_is_explained() -> None:
    for name, _ in ROWS:
        assert f"**{name}**" in PAGE
        assert f"| {name} |" in PAGE
