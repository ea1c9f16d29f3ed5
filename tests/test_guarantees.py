"""Every promise in the documentation names tests, and those exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROMISE = re.compile(r"^\*\*(.+?)\*\*\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(\w+\.py)::(\w+)`")


def test_every_promise_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    promises = PROMISE.findall(text.partition("## What is not promised")[0])
    assert len(promises) > 20
    for promise, tests in promises:
        named = NAMED.findall(tests)
        assert named, promise
        for file, name in named:
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), (file, name)
