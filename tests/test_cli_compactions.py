"""`foldlog compactions`: attempts as a table, sizes as a plot, the source of a summary."""

import json

from foldlog import connect, user
from foldlog_projections.attempts import ENDS
from tests.command_line import foldlog
from tests.test_compactor import talk
from tests.workers import running_compactor

POLICY = json.dumps({"preset": "default", "window": 4_000})


async def test_attempts_sizes_and_sources_are_told(nats_url: str) -> None:
    async with connect(nats_url) as opened:
        session = opened.session("c")
        await session.append(user("The first question of all."))
        await talk(session, 12)
        async with running_compactor(nats_url):
            first = await session.compact(within=30)
            await talk(session, 12, start=12)
            second = await session.compact(within=30)
        records = await opened.attempts.read("default", "c")
    told = await foldlog("compactions", "c", "--json", "--url", nats_url)
    assert told.code == 0, told.err
    assert told.json["conversation"] == "c"
    assert [one["state"] for one in told.json["attempts"]] == [one.state for one in records]
    assert told.json["attempts"][1]["tokens_after"] == first.tokens_after
    sizes = [tokens for _, tokens in told.json["sizes"]]
    assert sizes[-1] == second.tokens_after
    assert max(sizes) >= first.tokens_before

    table = await foldlog("compactions", "c", "--url", nats_url, FOLDLOG_POLICY=POLICY)
    assert table.code == 0, table.err
    for record in records:
        if record.state in ENDS:
            assert record.entry in table.out
            assert f"{record.tokens_before:,}" in table.out
    assert "the hard limit is 3,250" in table.out
    assert "⠒" in table.out or "⣀" in table.out

    listed = await foldlog("compactions", "c", "--json", "--source", first.entry, "--url", nats_url)
    source = [line["entry"] for line in listed.json_lines]
    assert source[0]["messages"][0]["parts"][0]["content"] == "The first question of all."
    assert {one["kind"] for one in source} == {"message"}
    again = await foldlog("compactions", "c", "--json", "--source", second.id, "--url", nats_url)
    versions = [line["version"] for line in again.json_lines]
    assert again.json_lines[0]["entry"]["id"] != first.entry or versions == sorted(versions)
    assert first.entry in [line["entry"]["id"] for line in again.json_lines]
    as_text = await foldlog(
        "compactions", "c", "--source", second.entry, "--url", nats_url, COLUMNS="200"
    )
    assert "compaction" in as_text.out

    nothing = await foldlog("compactions", "c", "--source", "nope", "--url", nats_url)
    assert (nothing.code, nothing.out) == (1, "")
    assert "no entry 'nope'" in nothing.err


async def test_a_conversation_without_attempts_has_a_size_all_the_same(nats_url: str) -> None:
    async with connect(nats_url) as opened:
        await opened.session("c").append(user("Hello."))
    told = await foldlog("compactions", "c", "--url", nats_url)
    assert told.code == 0, told.err
    assert "No attempt is on record" in told.out
    unknown = await foldlog("compactions", "d", "--url", nats_url)
    assert unknown.code == 1


async def test_the_source_of_a_childs_summary_reaches_into_its_parent(nats_url: str) -> None:
    async with connect(nats_url) as opened:
        parent = opened.session("c")
        await talk(parent, 12)
        child = await parent.fork("d")
        await talk(child, 4, start=12)
        async with running_compactor(nats_url):
            ended = await child.compact(within=30)
        assert ended.state == "committed"
    told = await foldlog("compactions", "d", "--json", "--source", ended.entry, "--url", nats_url)
    lines = told.json_lines
    assert len(lines) > 5
    assert {line["entry"]["conversation"] for line in lines} == {"c"}
    sizes = (await foldlog("compactions", "d", "--json", "--url", nats_url)).json["sizes"]
    assert sizes[0][1] > 500
