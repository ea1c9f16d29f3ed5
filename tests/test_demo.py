"""The demo's story: what it shows, and that no kill changes it."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from foldlog.data_folder import DataFolder
from foldlog.demo import story
from foldlog.demo.facts import Facts, Shown, messages_of, text_of
from foldlog.demo.show import checks
from foldlog.demo.stage import Part, Stage
from foldlog.demo.telling import Disturb, tell
from foldlog.embedded import EmbeddedServer
from tests.command_line import Outcome, foldlog

RUNS = 20
AT_ONCE = 5
WORKERS: tuple[Part, ...] = ("projector", "compactor")
LAST_ENTRY = 26
"""Entries of the story, but the last."""


async def told(folder: Path, disturb: Disturb | None = None) -> Shown:
    async with EmbeddedServer(DataFolder(folder)) as server:
        return await tell(server.address, folder / "demo.log", disturb=disturb)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return asyncio.run(told(tmp_path_factory.mktemp("plain")))


def test_the_story_shows_what_it_claims(undisturbed: Shown) -> None:
    assert [said for holds, said in checks(undisturbed) if not holds] == []
    facts = undisturbed.facts
    assert facts.compactions == 1
    assert facts.differences_found_by_verify == 0
    first, pressed, compacted, report = facts.moments
    assert first.model_tokens == first.log_tokens, "nothing is compacted yet"
    assert pressed.model_tokens == pressed.log_tokens
    assert compacted.model_tokens < compacted.log_tokens / 2
    assert report.model_tokens < report.log_tokens / 2
    assert [one.log_entries for one in facts.moments] == [4, 16, 20, 24]


def test_the_report_is_written_from_what_the_compaction_left(undisturbed: Shown) -> None:
    view = undisturbed.views[3]
    said = [text_of(message) for message in view.messages]
    assert story.QUESTION not in said, "the question is in the summary only"
    assert story.WISH in said
    assert any("<summary>" in text and "viewers fell from" in text for text in said)
    report = text_of(messages_of(undisturbed.reads[-1])[0])
    assert len(report.splitlines()) == 5
    assert "viewers fell from 9,601 at 20:40" in report, "known from the summary"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, RUNS, AT_ONCE))
async def test_killing_workers_at_random_changes_no_fact(
    first: int, undisturbed: Shown, tmp_path: Path
) -> None:
    seeds = range(first, first + AT_ONCE)
    runs = await asyncio.gather(
        *(told(tmp_path / f"{seed}", killing(Random(seed))) for seed in seeds),
        return_exceptions=True,
    )
    for seed, run in zip(seeds, runs, strict=True):
        assert isinstance(run, Shown), f"seed {seed}: {run!r}"
        assert run.facts == undisturbed.facts, f"seed {seed}"


def killing(random: Random) -> Disturb:
    """Kill projector and compactor two to five times, each at some point of the story."""

    async def disturb(stage: Stage, entries: Callable[[], int]) -> None:
        moments = sorted(random.randint(0, LAST_ENTRY) for _ in range(random.randint(2, 5)))
        for moment in moments:
            while entries() < moment:
                await asyncio.sleep(0.005)
            await asyncio.sleep(random.choice((0.0, random.random() * 0.1, random.random())))
            await stage.kill(random.choice(WORKERS))

    return disturb


async def test_the_last_line_of_json_are_the_facts(undisturbed: Shown) -> None:
    done = await foldlog("demo", "--json")
    assert done.code == 0, done.err
    assert done.err == ""
    lines = done.out.splitlines()
    assert msgspec.json.decode(lines[-1], type=Facts) == undisturbed.facts
    assert any(story.WISH in line for line in lines[:-1]), "the story is told before"


async def test_a_data_folder_keeps_the_story_and_holds_one_of_it(tmp_path: Path) -> None:
    done = await foldlog("demo", "--data", str(tmp_path), COLUMNS="80")
    assert done.code == 0, done.err
    assert f"foldlog log {story.CONVERSATION} --data" in done.out
    listed = await foldlog("log", story.CONVERSATION, "--json", "--data", str(tmp_path))
    assert len(listed.json_lines) > LAST_ENTRY
    again = await foldlog("demo", "--json", "--data", str(tmp_path))
    assert again.code == 1
    assert again.err.count("\n") == 1
    assert error_of(again) == "ConversationExists"


async def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = await foldlog("demo", "--json", FOLDLOG_PORT=str(taken.getsockname()[1]))
    refused(done.code, done.err, "address already in use")
    assert error_of(done) == "ServerFailed"


async def test_a_data_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = await foldlog("demo", "--data", str(tmp_path / "file"))
    refused(done.code, done.err, "cannot be written")


async def test_a_data_folder_that_is_up_is_not_taken(tmp_path: Path) -> None:
    async with EmbeddedServer(DataFolder(tmp_path), lasting=True):
        done = await foldlog("demo", "--data", str(tmp_path))
    refused(done.code, done.err, "is served at")


async def test_an_address_is_refused() -> None:
    done = await foldlog("demo", "--url", "nats://127.0.0.1:1")
    assert done.code == 2
    assert "leave --url out" in done.err


def error_of(outcome: Outcome) -> str:
    return str(msgspec.json.decode(outcome.out.splitlines()[-1])["error"]["type"])


def refused(code: int, errors: str, said: str) -> None:
    assert code == 3, errors
    assert errors.count("\n") == 1, errors
    assert said in errors
