"""Ten thousand malformed entries, frames and files: each is refused by name, or does no harm.

FOLDLOG_EXAMPLES says how many; `make test-long` asks for more than ten thousand. A failing seed
is in the test's id or message, and makes the same input again.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foldlog import Foldlog, connect, user
from foldlog.backup.exporting import export
from foldlog.backup.layout import BrokenBackup
from foldlog.backup.restoring import restore
from foldlog.cli.app import main
from foldlog.entry_lines import Filling, MalformedLine, parse_entries
from foldlog.errors import ConversationExists, EntryTooLarge
from foldlog.importers import UnknownFormat, read_file
from foldlog.importers.conversations import record_offline
from foldlog.importers.errors import ConversationDiverged, UnresolvedReference
from foldlog.projector import CONSUMER
from foldlog.topology import ENTRIES, PRESSURE
from foldlog_events.codec import decode, encode
from foldlog_events.entries import Entry
from foldlog_events.errors import InvalidEntry, InvalidIdentifier, UndecodableEntry
from foldlog_events.subjects import decode_token, encode_token, parse_subject, subject_of
from foldlog_projections.fold import ContextFold, ForkWithoutParent, empty
from tests.conftest import Server, take_account
from tests.hostile import TOKENS, VALUES, WHOLE, hostile, hostile_file
from tests.test_projector import check_view
from tests.workers import eventually, running_compactor, running_projector

EXAMPLES = int(os.environ.get("FOLDLOG_EXAMPLES", "600"))
ROOT = Path(__file__).parents[1]
SECONDS = 20.0
"""No single input may take so long, on however busy a machine."""


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


@contextlib.contextmanager
def soon(what: object) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SECONDS, what


def test_the_codec_refuses_or_reads_and_what_it_reads_can_be_folded() -> None:
    read: list[Entry] = []
    refused = 0
    for seed in range(EXAMPLES):
        data = hostile(random.Random(seed))
        with soon(seed):
            try:
                entry = decode(data)
            except UndecodableEntry as error:
                refused += bool(error.reason)
                continue
            with contextlib.suppress(InvalidEntry):
                assert decode(encode(entry)) == decode(encode(decode(encode(entry)))), seed
            read.append(entry)
    assert refused > EXAMPLES / 4
    assert len(read) > EXAMPLES / 10
    for seed in range(EXAMPLES // 20):
        chance = random.Random(seed)
        context = ContextFold(empty("t", "c"))
        for version, entry in enumerate(chance.choices(read, k=25), start=1):
            with soon(seed), contextlib.suppress(ForkWithoutParent):
                context.apply(version, entry)
        view = context.view()
        assert ContextFold(context.state()).view() == view, seed


def test_entries_built_from_anything_are_encoded_or_refused_by_their_place() -> None:
    refused = 0
    for seed in range(EXAMPLES):
        chance = random.Random(seed)
        whole = decode(chance.choice(WHOLE))
        fields = {name: getattr(whole, name) for name in whole.__struct_fields__}
        fields[chance.choice(list(fields))] = chance.choice(VALUES)
        entry = type(whole)(**fields)
        with soon(seed):
            try:
                assert decode(encode(entry)) is not None
            except InvalidEntry as error:
                refused += error.place.startswith("$")
    assert refused > EXAMPLES / 4


def test_subjects_and_tokens_are_parsed_or_refused() -> None:
    for seed in range(EXAMPLES):
        chance = random.Random(seed)
        raw = b".".join(
            chance.choice((b"entry", b"3", b"log", b"shape", b"=2A", *TOKENS))
            for _ in range(chance.randrange(7))
        )
        text = raw.decode(errors="surrogateescape")
        for function in (encode_token, decode_token, parse_subject):
            with soon(seed), contextlib.suppress(InvalidIdentifier):
                function(text)


def test_lines_to_append_are_entries_or_one_malformed_line() -> None:
    filling = Filling(
        conversation="c", tenant="t", new_id=lambda: "n", now=lambda: datetime.now(UTC)
    )
    for seed in range(EXAMPLES):
        lines = hostile_file(random.Random(seed), WHOLE).splitlines()
        with soon(seed):
            line = 1
            try:
                parse_entries(lines, filling, source="here")
            except MalformedLine as error:
                line = error.line
            assert 1 <= line <= max(1, len(lines)), seed


def sample_files() -> list[Path]:
    found = sorted(
        path
        for folder in (ROOT / "tests" / "samples", ROOT / "examples" / "transcripts")
        for path in folder.rglob("*.json*")
    )
    assert found
    return found


def test_files_of_other_programs_are_imported_or_refused_line_by_line(tmp_path: Path) -> None:
    samples = [(path.name, path.read_bytes().splitlines()) for path in sample_files()]
    for seed in range(EXAMPLES // 2):
        chance = random.Random(seed)
        name, lines = chance.choice(samples)
        path = tmp_path / name
        path.write_bytes(hostile_file(chance, lines[:40]))
        with soon(seed):
            try:
                file = read_file(path, repair=chance.random() < 0.3)
                for conversation in file:
                    record_offline(conversation)
            except (UnknownFormat, ConversationDiverged, UnresolvedReference):
                continue
            assert file.report is not None


async def test_a_projector_outlives_every_frame_and_the_others_go_on(
    nats_url: str, foldlog: Foldlog
) -> None:
    """Case 38, ten thousand times: what is no entry marks its own conversation, or is buried."""
    chance = random.Random(38)
    subjects = [
        *(subject_of("default", name, lane) for name in "abc" for lane in ("log", "shape")),
        *("entry.x", "entry.1.2.3.4", "entry.0.default.a.log", "entry.7.=.=.shape"),
        *(f"entry.3.default.=={'0' * 64}.log", "entry.0.default.c.log.more", "entry.999.a.b.log"),
    ]
    headers = [
        {},
        {"Foldlog-Predecessor": "x"},
        {"Foldlog-Predecessor": "-9" * 30},
        {"Nats-Expected-Last-Subject-Sequence": "0", "Other": "\u00e9"},
    ]
    async with running_projector(nats_url), running_projector(nats_url):
        for number in range(EXAMPLES):
            await foldlog.broker.publish(
                chance.choice(subjects),
                hostile(chance)[:100_000],
                chance.choice(headers) if number % 3 else None,
            )
            if number % 50 == 0:
                await foldlog.session("good").append(user(f"message {number}"))
        await foldlog.session("good").append(user("the end"))
        await check_view(foldlog, "good")

        async def is_done() -> bool:
            info = await foldlog.broker.api(f"CONSUMER.INFO.{ENTRIES}.{CONSUMER}")
            return bool(info["num_pending"] + info["num_ack_pending"] == 0)

        await eventually(is_done, within=60 + EXAMPLES / 20)
        for name in "abc":
            if await foldlog.views.get("default", name) is not None:
                await check_view(foldlog, name)
    assert (await foldlog.session("good").context()).faults == ()


async def test_a_compactor_outlives_every_frame(nats_url: str, foldlog: Foldlog) -> None:
    chance = random.Random(39)
    async with running_compactor(nats_url):
        for _ in range(EXAMPLES // 6):
            name = chance.choice(("x", "default.a", "default.b", "a.b.c", "=.="))
            await foldlog.broker.publish(f"pressure.{name}", hostile(chance)[:100_000])

        async def is_done() -> bool:
            return not (await foldlog.broker.api(f"STREAM.INFO.{PRESSURE}"))["state"]["messages"]

        await eventually(is_done, within=60 + EXAMPLES / 20)


async def test_backups_are_refused_whole(
    foldlog: Foldlog, session_server: Server, tmp_path: Path
) -> None:
    for number in range(4):
        await foldlog.session("a").append(user(f"{number}"))
    await export(foldlog, tmp_path / "whole")
    (file,) = (tmp_path / "whole" / "conversations").iterdir()
    manifest = tmp_path / "whole" / "manifest.json"
    contents = {path: path.read_bytes() for path in (file, manifest)}
    async with connect(take_account(session_server)) as other:
        for seed in range(EXAMPLES // 4):
            chance = random.Random(seed)
            path = chance.choice(list(contents))
            lines = contents[path].splitlines()
            path.write_bytes(hostile_file(chance, lines))
            with soon(seed):
                try:
                    await restore(other, tmp_path / "whole")
                except (BrokenBackup, EntryTooLarge, ConversationExists):
                    state = (await other.broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]
                    assert state["messages"] in (0, 4), seed
                else:
                    state = (await other.broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]
                    assert state["messages"] == 4, seed
            path.write_bytes(contents[path])


NAMES = ["", "a", "*", ">", "a.b", "\x01", "\n", "../../etc", "-", "--", "--json", "x" * 40_000]
COMMANDS = [
    "append",
    "log",
    "context",
    "import",
    "restore",
    "export",
    "verify",
    "compact",
    "dead",
    "diff",
    "recall",
    "actions",
    "conversations",
    "no such command",
]


def test_the_command_line_ends_with_one_line_and_a_code(
    nats_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in list(os.environ):
        if name.startswith("FOLDLOG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FOLDLOG_URL", nats_url)
    monkeypatch.chdir(tmp_path)
    asyncio.run(_seed(nats_url))
    for seed in range(max(20, EXAMPLES // 20)):
        chance = random.Random(seed)
        path = tmp_path / f"file-{seed}.jsonl"
        path.write_bytes(hostile_file(chance, WHOLE))
        command = chance.choice(COMMANDS)
        arguments = [
            command,
            *chance.choices([*NAMES, str(path), "7", "--at", "99"], k=chance.randrange(4)),
        ]
        if command == "compact":
            arguments.append("--help")
        with soon((seed, arguments)), path.open(errors="replace") as given:
            monkeypatch.setattr("sys.stdin", given)
            code = main(arguments)
        out = capfd.readouterr()
        assert code in (0, 1, 2, 3), (seed, arguments)
        assert "Traceback" not in out.out + out.err, (seed, arguments)
        if code:
            assert (out.out + out.err).strip(), (seed, arguments)


async def _seed(url: str) -> None:
    async with connect(url) as foldlog:
        await foldlog.session("a").append(user("hello"))
