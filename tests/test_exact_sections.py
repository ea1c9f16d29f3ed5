"""Sections marked exact stay word for word through any number of compactions."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog import Foldlog, Section, connect, user
from foldlog_events.entries import (
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    MessageEntry,
    Recorded,
    SourceRange,
    SystemEntry,
)
from foldlog_projections.fold import ContextFold
from foldlog_projections.section_history import section_history
from foldlog_projections.state import empty
from tests.test_compactor import talk
from tests.workers import running_compactor

METRIC = Section(
    name="metric",
    text="Net sales = gross − returns;\n  VAT excluded (“NET”), §3.1 <summary> & co.",
    exact=True,
)
ROLE = Section(name="role", text="You are an analyst.")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url, actor="tester") as opened:
        yield opened


async def test_an_exact_section_outlives_thirty_compactions(
    nats_url: str, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await session.append(user("begin"))
    await session.prepare([ROLE, METRIC])
    setting = (await session.context()).sections[1]
    async with running_compactor(nats_url):
        for n in range(30):
            await talk(session, 30, start=30 * n)
            record = await session.compact()
            assert record.state == "committed", record
            view = await session.prepare([ROLE, METRIC])
            assert view.sections[1] == setting
            leading = view.messages[0]
            assert (leading.role, leading.parts[1].content) == ("system", METRIC.text)  # type: ignore[union-attr]
    (only,) = await session.section_history("metric")
    assert (only.text, only.exact, only.entry, only.actor) == (
        METRIC.text,
        True,
        setting.entry,
        "tester",
    )


async def test_a_sections_history_says_what_each_text_replaced(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("q"))
    await session.prepare([METRIC])
    changed = Section(name="metric", text="Net sales, VAT included.", exact=True)
    child = await session.fork("child")
    await child.prepare([changed])
    await child.reset()
    await child.prepare([])
    first, second, third = await child.section_history("metric")
    assert [one.text for one in (first, second, third)] == [METRIC.text, changed.text, None]
    assert [one.replaced for one in (first, second, third)] == ["", first.entry, second.entry]
    assert first.version < second.version < third.version
    assert await session.section_history("metric") == (first,)
    assert await session.section_history("no such section") == ()


def system(entry_id: str, *sections: Section) -> SystemEntry:
    return SystemEntry(id=entry_id, conversation="c", time=NOW, sections=sections)


def test_edits_retries_and_tombstones_in_a_history() -> None:
    entries: list[Entry] = [
        system("s1", Section(name="a", text="1"), Section(name="b", text="x")),
        system("s1", Section(name="a", text="a retry, stored twice")),
        system("s2", Section(name="a", text=None)),
        system("s3", Section(name="a", text="3"), Section(name="a", text="3!")),
        EditEntry(id="e", conversation="c", time=NOW, edits=(Edit(target="s1"), Edit(target="u"))),
        system("s4", Section(name="a", text="gone")),
        ErasedEntry(id="t", conversation="c", time=NOW, target="s4", target_version=6),
    ]
    told = section_history("a", [Recorded(n, entry) for n, entry in enumerate(entries, 1)])
    assert [(one.entry, one.text, one.replaced, one.withdrawn) for one in told] == [
        ("s1", "1", "", "e"),
        ("s2", None, "s1", ""),
        ("s3", "3!", "", ""),
    ]


@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=4), rounds=st.integers(1, 30))
def test_any_text_survives_any_number_of_compactions(texts: list[str], rounds: int) -> None:
    sections = tuple(Section(name=f"s{n}", text=text, exact=True) for n, text in enumerate(texts))
    context = ContextFold(empty("default", "c"))
    context.apply(1, system("s", *sections))
    version, shape = 1, 0
    for _ in range(rounds):
        version += 1
        said = MessageEntry(
            id=f"m{version}", conversation="c", time=NOW, messages=(user("something"),)
        )
        context.apply(version, said)
        view = context.view()
        reference = EntryReference(said.id, version)
        version += 1
        summary = CompactionEntry(
            id=f"k{version}",
            conversation="c",
            time=NOW,
            base_version=BaseVersion(log=version - 1, shape=shape),
            source_range=SourceRange(first=reference, last=reference, count=1, digest=""),
            summary="summary",
            baseline=Baseline(sections=view.sections, tools=view.tools),
        )
        context.apply(version, summary)
        shape = version
    found = context.view()
    assert found.stale_compactions == 0
    assert [section.text for section in found.sections] == texts
    assert all(section.exact and section.entry == "s" for section in found.sections)
