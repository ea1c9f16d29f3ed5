"""A backup holds what the log holds, and a restore brings it back: ids, order, contexts."""

import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from foldlog import Foldlog, OtherEntry, Section, assistant, audit, connect, user
from foldlog.announcing import publish
from foldlog.backup.checking import check, load_manifest
from foldlog.backup.exporting import export
from foldlog.backup.layout import BrokenBackup, FolderInUse
from foldlog.backup.remapping import Versions
from foldlog.backup.restoring import restore
from foldlog.errors import ConversationExists, EntryTooLarge, FoldlogError
from foldlog.reading import messages
from foldlog.topology import ENTRIES
from foldlog_events.entries import CompactionEntry, ErasedEntry, Recorded
from foldlog_events.messages import Message, ToolCall, tool_result
from foldlog_events.subjects import subject_of
from foldlog_projections.policy import load as load_policy
from foldlog_projections.pressure import manual
from tests.command_line import foldlog as command
from tests.conftest import Server, take_account
from tests.entries import said
from tests.workers import SMALL, eventually, running_compactor

TENANTS = ("default", "acme")
LINE = "The figures of the evening show are in, and they are lower than last week's by a third. "


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


@pytest.fixture
async def other(session_server: Server) -> AsyncIterator[Foldlog]:
    """A log on another, empty broker."""
    async with connect(take_account(session_server)) as opened:
        yield opened


async def answered(foldlog: Foldlog, name: str, turn: int, *, tenant: str = "default") -> None:
    """A turn whose answer records the context that it saw."""
    session = foldlog.session(name, tenant=tenant)
    await session.append(user(f"Question {turn} of {name}: {LINE}"))
    await session.prepare([Section(name="role", text=f"You are {name}.")])
    call = ToolCall(id="again", name="figures", arguments={"turn": turn})
    await session.append(assistant("", call), tool_result("again", f"12{turn:02}. {LINE}"))
    await session.context()
    await session.append(assistant(f"It was 12{turn:02}."))


async def compacted(foldlog: Foldlog, url: str, name: str) -> None:
    async with running_compactor(url):
        view = await foldlog.session(name).context()
        assert await publish(foldlog.records, manual(view, load_policy(SMALL), ""))

        async def is_there() -> bool:
            reads = await foldlog.log.read_all("default", name, lane="shape")
            return any(
                isinstance(read, Recorded) and isinstance(read.entry, CompactionEntry)
                for read in reads
            )

        await eventually(is_there)


async def write_everything(foldlog: Foldlog, url: str) -> None:
    """Conversations of every shape, interleaved."""
    for turn in range(12):
        for name in ("long", "a.b", "*", "\U0001f600"):
            await answered(foldlog, name, turn) if turn < 3 or name == "long" else None
        await answered(foldlog, "long", turn, tenant="acme") if turn < 2 else None
    attached = await foldlog.session("a.b").attach("name,orders\n" * 9_000, "text/csv")
    await foldlog.session("a.b").append(Message(role="user", parts=(attached,)))
    await compacted(foldlog, url, "long")
    child = await foldlog.session("long").fork("child")
    await child.append(user("in the child"))
    early = await foldlog.session("long").fork("early", at=9)
    await early.append(user("before it all"))
    await (await child.fork("grandchild")).append(user("deeper"))
    (wrong,) = await foldlog.session("long").append(user("a tpyo"))
    await foldlog.session("long").edit(wrong.entry.id, [user("a typo")])
    await foldlog.session("*").reset([user("handed over")])
    await answered(foldlog, "*", 9)
    await foldlog.broker.request(subject_of("default", "bad", "log"), b'{"kind":\n"message"')
    await foldlog.session("bad").append(user("after what is no entry"))
    raw = (
        b'{"kind":"app.x","id":"raw-1",\n"conversation":"other","time":"2026-03-01T12:00:00Z",'
        b'"data":{"n":1.50},"later":{"field":[1]}}'
    )
    await foldlog.broker.request(subject_of("default", "other", "log"), raw)
    (secret,) = await foldlog.session("other").append(user("secret"))
    now = datetime.now(UTC)
    tombstone = ErasedEntry(
        id="gone",
        conversation="other",
        time=now,
        target=secret.entry.id,
        target_version=secret.version,
    )
    after = OtherEntry(kind="app.y", id="y", conversation="other", time=now)
    await foldlog.log.append([tombstone, after])
    await foldlog.broker.api(f"STREAM.MSG.DELETE.{ENTRIES}", {"seq": secret.version})
    await answered(foldlog, "long", 13)


async def told(foldlog: Foldlog) -> list[tuple[str, str, str]]:
    """Everything in the log in its order: subject, kind, and id or bytes."""
    found = []
    async for page in messages(foldlog.broker, ENTRIES, "entry.>"):
        for stored in page:
            try:
                fields = json.loads(stored.data)
                found.append((stored.subject, fields["kind"], fields["id"]))
            except ValueError:
                found.append((stored.subject, "", repr(stored.data)))
    return found


async def contexts(foldlog: Foldlog) -> dict[tuple[str, str], tuple[Any, ...]]:
    found = {}
    async for one in foldlog.log.conversations():
        view = (await foldlog.contexts.rebuilt(one.tenant, one.conversation)).view()
        found[one.tenant, one.conversation] = (
            view.digest,
            view.tokens,
            view.stale_compactions,
            view.tools,
            len(view.faults),
        )
    return found


async def check_equal(foldlog: Foldlog, other: Foldlog) -> None:
    assert await contexts(other) == await contexts(foldlog)
    for name in ("long", "child", "early", "grandchild"):
        mine = await foldlog.log.read_all("default", name)
        theirs = await other.log.read_all("default", name)
        for one, same in zip(mine, theirs, strict=True):
            before = (await foldlog.contexts.at("default", name, one.version)).view()
            after = (await other.contexts.at("default", name, same.version)).view()
            assert after.digest == before.digest
            assert after.tokens == before.tokens
    for tenant in TENANTS:
        theirs_seen = Foldlog(other.broker, tenant=tenant)
        verdict = await audit.verify(theirs_seen)
        assert {one.kind for one in verdict.differences} <= {"unreadable"}


async def test_what_is_restored_is_what_was_exported(
    nats_url: str, foldlog: Foldlog, other: Foldlog, tmp_path: Path
) -> None:
    await write_everything(foldlog, nats_url)
    manifest = await export(foldlog, tmp_path / "b", all_tenants=True)
    assert len(manifest.conversations) == 10
    assert manifest.missing == ()
    restored = await restore(other, tmp_path / "b")
    assert restored.different == ()
    assert (
        restored.appended == restored.entries == sum(one.entries for one in manifest.conversations)
    )
    assert await told(other) == await told(foldlog)
    await check_equal(foldlog, other)
    reads = await other.log.read_all("default", "a.b")
    digests = [artifact.digest for artifact in manifest.artifacts]
    assert len(digests) == 1
    assert await other.artifacts.get(digests[0]) == b"name,orders\n" * 9_000
    assert isinstance(reads[-1], Recorded)
    pages = messages(other.broker, ENTRIES, subject_of("default", "other", "log"))
    first = (await anext(pages))[0].data
    assert b'"later":{"field":[1]}' in first
    assert b"1.50" in first
    again = await restore(other, tmp_path / "b")
    assert (again.appended, again.different) == (0, ())
    assert await told(other) == await told(foldlog)


async def test_references_follow_to_other_versions(
    nats_url: str, foldlog: Foldlog, other: Foldlog, tmp_path: Path
) -> None:
    await write_everything(foldlog, nats_url)
    await export(foldlog, tmp_path / "b", all_tenants=True)
    for number in range(7):
        await other.session("already there").append(user(f"{number}"))
    assert (await restore(other, tmp_path / "b")).different == ()
    assert (await told(other))[7:] == await told(foldlog)
    mine, theirs = await contexts(foldlog), await contexts(other)
    del theirs["default", "already there"]
    assert theirs == mine
    for tenant in TENANTS:
        verdict = await audit.verify(Foldlog(other.broker, tenant=tenant))
        assert {one.kind for one in verdict.differences} <= {"unreadable"}
    forks = [read async for read in other.log.read("default", "early")]
    parents = [read async for read in other.log.read("default", "long")]
    assert isinstance(forks[0], Recorded)
    assert forks[0].entry.parent_version >= parents[0].version  # type: ignore[union-attr]


async def test_an_export_of_some_brings_what_they_inherit_from(
    foldlog: Foldlog, other: Foldlog, tmp_path: Path
) -> None:
    await answered(foldlog, "parent", 1)
    await answered(foldlog, "unrelated", 1)
    child = await foldlog.session("parent").fork("child")
    await child.append(user("own"))
    manifest = await export(foldlog, tmp_path / "b", ["child"])
    assert {one.conversation for one in manifest.conversations} == {"parent", "child"}
    assert (await restore(other, tmp_path / "b")).different == ()


async def test_a_restore_that_was_broken_off_goes_on(
    foldlog: Foldlog, other: Foldlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn in range(4):
        for name in ("a", "b"):
            await answered(foldlog, name, turn)
    await foldlog.broker.request(subject_of("default", "a", "log"), b"no entry")
    await answered(foldlog, "a", 5)
    await export(foldlog, tmp_path / "b")
    append = other.log.append_prepared
    left = 9

    async def failing(*args: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise FoldlogError("the power went out")
        return await append(*args, **options)

    monkeypatch.setattr(other.log, "append_prepared", failing)
    for _ in range(3):
        with pytest.raises(FoldlogError, match="power"):
            await restore(other, tmp_path / "b")
        left = 7
    left = 10**9
    restored = await restore(other, tmp_path / "b")
    assert 0 < restored.appended < restored.entries
    assert restored.different == ()
    assert await told(other) == await told(foldlog)


async def test_a_conversation_with_other_entries_is_not_restored_over(
    foldlog: Foldlog, other: Foldlog, tmp_path: Path
) -> None:
    await answered(foldlog, "a", 1)
    await answered(foldlog, "b", 1)
    await export(foldlog, tmp_path / "b")
    await other.session("b").append(user("mine"))
    with pytest.raises(ConversationExists):
        await restore(other, tmp_path / "b")
    assert len(await told(other)) == 1


def edit_file(change: Callable[[bytes], bytes], *, seal: bool) -> Callable[[Path], None]:
    """Change the first conversation's file, and its hash in the manifest where `seal`."""

    def broken(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        file = manifest["conversations"][0]
        path = folder / file["file"]
        path.write_bytes(change(path.read_bytes()))
        if seal:
            file["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            (folder / "manifest.json").write_text(json.dumps(manifest))

    return broken


def edit_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return broken


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


def edit_bytes(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.write_bytes(change(path.read_bytes()))

    return broken


BREAKS: dict[str, Callable[[Path], None]] = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": edit_bytes("manifest.json", lambda content: content[:100]),
    "another format": edit_manifest(lambda one: one.update(format=2)),
    "a field is missing": edit_manifest(lambda one: one["conversations"][0].pop("sha256")),
    "twice the same": edit_manifest(
        lambda one: one["conversations"].append(one["conversations"][0])
    ),
    "a way out": edit_manifest(
        lambda one: one["conversations"][0].update(file="../../etc/hostname")
    ),
    "no file": lambda folder: shutil.rmtree(folder / "conversations"),
    "cut": edit_file(lambda content: content[:-20], seal=False),
    "cut and sealed": edit_file(lambda content: content[:-20], seal=True),
    "a byte": edit_file(lambda content: content.replace(b"Question", b"question"), seal=False),
    "a line less": edit_file(lines(lambda all: all[:-1]), seal=True),
    "lines turned": edit_file(lines(lambda all: all[::-1]), seal=True),
    "a line twice": edit_file(lines(lambda all: [all[0], *all]), seal=True),
    "no JSON": edit_file(lines(lambda all: [*all[:-1], b"\xff{\n"]), seal=True),
    "no entry": edit_file(
        lines(lambda all: [b'{"version":1,"lane":"log","entry":{"kind":"message"}}\n', *all[1:]]),
        seal=True,
    ),
    "neither": edit_file(lines(lambda all: [b'{"version":1,"lane":"log"}\n', *all[1:]]), seal=True),
    "of another": edit_file(
        lambda content: content.replace(b'"conversation":"a"', b'"conversation":"b"'), seal=True
    ),
    "on the wrong lane": edit_file(
        lambda content: content.replace(b'"lane":"log"', b'"lane":"shape"'), seal=True
    ),
    "no artifact": lambda folder: shutil.rmtree(folder / "artifacts"),
    "a damaged artifact": edit_bytes("artifacts/*", lambda content: b"x"),
    "an artifact's way out": edit_manifest(
        lambda one: one["artifacts"][0].update(digest="sha256:../../../../../../etc/hostname")
    ),
}


@pytest.fixture
async def backup(foldlog: Foldlog, tmp_path: Path) -> Path:
    await answered(foldlog, "a", 1)
    attached = await foldlog.session("a").attach("x" * 100_000)
    await foldlog.session("a").append(Message(role="user", parts=(attached,)))
    await answered(foldlog, "b", 1)
    await export(foldlog, tmp_path / "b")
    return tmp_path / "b"


@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_backup_is_refused_before_anything_is_written(
    backup: Path, other: Foldlog, name: str
) -> None:
    BREAKS[name](backup)
    with pytest.raises(BrokenBackup, match="nothing was restored"):
        await restore(other, backup)
    assert await told(other) == []
    assert [one async for one in other.artifacts.names()] == []


async def test_an_entry_that_the_other_broker_would_not_take_is_found_before(
    foldlog: Foldlog, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await foldlog.session("a").append(user("small"))
    await foldlog.log.append([said("x" * 2_000_000, "a")])
    await export(foldlog, tmp_path / "b")
    server = Server(tmp_path_factory.mktemp("small"), "")
    server.file.write_text(server.file.read_text().replace("max_payload: 8MB", "max_payload: 1MB"))
    server.start()
    try:
        async with connect(server.url) as other:
            with pytest.raises(EntryTooLarge):
                await restore(other, tmp_path / "b")
            assert await told(other) == []
    finally:
        server.stop(kill=True)


async def test_a_backup_is_written_to_a_folder_of_its_own(foldlog: Foldlog, backup: Path) -> None:
    with pytest.raises(FolderInUse):
        await export(foldlog, backup)
    with pytest.raises(FolderInUse):
        await export(foldlog, backup / "manifest.json")


async def test_a_backup_tells_of_artifacts_that_are_gone(
    foldlog: Foldlog, other: Foldlog, tmp_path: Path
) -> None:
    attached = await foldlog.session("a").attach("x" * 100_000)
    await foldlog.session("a").append(Message(role="user", parts=(attached,)))
    await foldlog.artifacts.delete(attached.digest)
    manifest = await export(foldlog, tmp_path / "b")
    assert manifest.missing == (attached.digest,)
    assert (await restore(other, tmp_path / "b")).different == ()


async def test_the_commands(
    nats_url: str, backup: Path, other: Foldlog, session_server: Server, tmp_path: Path
) -> None:
    url = take_account(session_server)
    out = await command("export", str(tmp_path / "c"), "--json", FOLDLOG_URL=nats_url)
    assert out.json == {"conversations": 2, "entries": 9, "artifacts": 1, "missing": []}
    back = await command("restore", str(tmp_path / "c"), "--json", FOLDLOG_URL=url)
    assert back.code == 0
    assert back.json["appended"] == 9
    for arguments in (
        ("export", str(backup)),
        ("restore", str(tmp_path / "nothing")),
        ("export", str(tmp_path / "d"), "no such conversation"),
        ("export", str(tmp_path / "e"), "a", "--all-tenants"),
    ):
        refused = await command(*arguments, FOLDLOG_URL=url)
        assert refused.code in (1, 2), arguments
        assert "Traceback" not in refused.err


def test_versions_between_entries_are_those_of_the_one_before() -> None:
    versions = Versions()
    key, another = ("t", "a"), ("t", "b")
    for old, new in ((3, 10), (5, 11), (9, 12)):
        versions.add(key if old != 5 else another, "log", old, new)
    assert [versions.of(old) for old in (0, 2, 3, 4, 5, 8, 9, 50)] == [0, 0, 10, 10, 11, 11, 12, 12]
    assert versions.of_lane(key, "log", 8) == 10
    assert versions.of_lane(key, "shape", 8) == 0
    assert versions.of_lane(another, "log", 9) == 12


async def test_a_manifest_names_its_entries(backup: Path) -> None:
    manifest = load_manifest(backup)
    items = check(backup, manifest)
    assert [item.version for item in items] == sorted(item.version for item in items)
    assert len(items) == sum(one.entries for one in manifest.conversations)
