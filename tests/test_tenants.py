"""Tenants cannot reach each other, whatever their ids and whatever they send to the broker."""

import asyncio
import base64
import json
import shutil
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from foldlog import Foldlog, connect, user
from foldlog.broker import Broker, status_of
from foldlog.broker import connect as connect_broker
from foldlog.errors import BrokerUnreachable, FoldlogError
from foldlog.topology import ENTRIES, STREAMS
from foldlog_events.subjects import encode_token, subject_of, view_key
from tests.command_line import foldlog as command
from tests.conftest import Server
from tests.services import service
from tests.test_projector import is_current
from tests.workers import eventually

VICTIM = "victim"
ATTACKERS = ["*", ">", "victim.>", "a.b", "vic\ntim", '" } ]', "=2A", "$SYS", "..", "x" * 900]
"""Ids chosen to break out."""


class Guarded(Server):
    """A server with a generated configuration."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = folder / "auth" / "nats-server.conf"

    def reload(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    server = Guarded(tmp_path)
    yield server
    server.stop(kill=True)


async def add(server: Guarded, tenant: str) -> dict[str, str]:
    added = await command("auth", "add-tenant", str(server.folder / "auth"), tenant, "--json")
    assert added.code == 0, added.err
    return {str(name): str(value) for name, value in added.json.items()}


async def begun(server: Guarded, *arguments: str) -> None:
    folder = str(server.folder / "auth")
    made = await command("auth", "init", folder, "--port", str(server.port), *arguments)
    assert made.code == 0, made.err


@asynccontextmanager
async def broker_at(url: str) -> AsyncIterator[Broker]:
    broker = await connect_broker(url)
    try:
        yield broker
    finally:
        await broker.close()


async def requested(broker: Broker, subject: str, body: Any = b"") -> bytes:
    """What the broker answers; nothing where it answers nothing or says no."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        answer = await broker.request(subject, data, within=0.3)
    except FoldlogError:
        return b""
    if status_of(answer) is not None:
        return b""
    return bytes(answer.data) + str(answer.headers).encode()


def attacks(attacker: str) -> list[tuple[str, Any]]:
    """Reads, writes, purges and changes that name the victim."""
    subject = subject_of(VICTIM, "secret", "log")
    key = f"$KV.VIEWS.{view_key(VICTIM, 'secret')}"
    found: list[tuple[str, Any]] = [
        (subject, b"forged"),
        (key, b"forged"),
        (f"pressure.{VICTIM}.secret", b"forged"),
        (f"dead.entry.{VICTIM}.secret", b"forged"),
        (f"compaction.{VICTIM}.secret", b"forged"),
        (f"foldlog.cancel.pressure.{VICTIM}.secret", b""),
        (f"$JS.API.DIRECT.GET.{ENTRIES}.{subject}", b""),
        (f"$JS.API.DIRECT.GET.{ENTRIES}", {"last_by_subj": subject}),
        (f"$JS.API.DIRECT.GET.{ENTRIES}", {"seq": 1}),
        (f"$JS.API.DIRECT.GET.{ENTRIES}", {"seq": 1, "batch": 10, "next_by_subj": "entry.>"}),
        (f"$JS.API.DIRECT.GET.{ENTRIES}", {"multi_last": [">"], "batch": 10}),
        ("$JS.API.DIRECT.GET.KV_VIEWS", {"last_by_subj": key}),
        (f"$JS.API.STREAM.MSG.GET.{ENTRIES}", {"seq": 1}),
        (f"$JS.API.STREAM.MSG.GET.{ENTRIES}", {"last_by_subj": subject}),
        (f"$JS.API.STREAM.INFO.{ENTRIES}", {"subjects_filter": ">"}),
        (
            f"$JS.API.CONSUMER.CREATE.{ENTRIES}",
            {"stream_name": ENTRIES, "config": {"filter_subject": subject, "ack_policy": "none"}},
        ),
        (
            f"$JS.API.STREAM.CREATE.MIRROR-{encode_token(attacker)[:20]}",
            {
                "name": f"MIRROR-{encode_token(attacker)[:20]}",
                "mirror": {"name": ENTRIES, "external": {"api": "$JS.TENANT-victim.API"}},
            },
        ),
    ]
    for stream in (str(one["name"]) for one in STREAMS):
        found += [
            (f"$JS.API.STREAM.PURGE.{stream}", b""),
            (f"$JS.API.STREAM.DELETE.{stream}", b""),
            (f"$JS.API.STREAM.UPDATE.{stream}", {"name": stream, "max_msgs": 1}),
            (f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": 1}),
            (f"$JS.API.STREAM.SNAPSHOT.{stream}", {"deliver_subject": "_INBOX.x"}),
            (f"$JS.API.CONSUMER.DELETE.{stream}.projector", b""),
        ]
    return found


async def state(foldlog: Foldlog) -> dict[str, Any]:
    return {
        str(one["name"]): {
            "messages": info["state"]["messages"],
            "last": info["state"]["last_seq"],
            "config": info["config"],
        }
        for one in STREAMS
        for info in [await foldlog.broker.api(f"STREAM.INFO.{one['name']}")]
    }


@pytest.mark.parametrize("role", ["agent", "service", "operator"])
async def test_34_no_tenant_reads_writes_purges_or_watches_another(
    guarded: Guarded, role: str
) -> None:
    await begun(guarded)
    victim = await add(guarded, VICTIM)
    others = {name: await add(guarded, name) for name in ATTACKERS}
    guarded.start()
    async with connect(victim["operator"], tenant=VICTIM) as foldlog:
        await foldlog.session("secret").append(user("the secret of the victim"))
        await foldlog.views.put(VICTIM, "secret", b"secret view", revision=0)
        # What follows finds something where it is allowed to.
        reads = [one for one in attacks(VICTIM) if ".GET." in one[0]]
        found = [await requested(foldlog.broker, *one) for one in reads]
        assert sum(b"the secret" in one or b"dGhlIHNlY3JldC" in one for one in found) > 2
        before = await state(foldlog)
        for attacker, addresses in others.items():
            async with connect(addresses["operator"], tenant=attacker) as own:
                await own.session("mine").append(user("mine"))
            async with broker_at(addresses[role]) as broker:
                heard: list[bytes] = []

                async def listen(message: Any, heard: list[bytes] = heard) -> None:
                    heard.append(message.data)

                for subject in (">", "entry.>", "$KV.>", "$JS.>", f"entry.*.{VICTIM}.>"):
                    with suppress(Exception):
                        await broker.client.subscribe(subject, cb=listen)
                answers = await asyncio.gather(
                    *(requested(broker, subject, body) for subject, body in attacks(attacker))
                )
                await foldlog.session("other").append(user("said while others listen"))
                await broker.client.flush()
                said = b" ".join(answers)
                for secret in (b"the secret", b"secret view", b"listen"):
                    assert secret not in said + b" ".join(heard), (attacker, role)
                    assert base64.b64encode(secret)[:8] not in said, (attacker, role)
        after = await state(foldlog)
        told = after.pop(ENTRIES)
        assert told["config"] == before.pop(ENTRIES)["config"]
        assert told["messages"] == 1 + len(others)
        assert after == before
        (only, *_) = await foldlog.log.read_all(VICTIM, "secret")
        assert only.version == 1


async def test_within_a_tenant_an_agent_may_append_and_read_and_no_more(
    guarded: Guarded, tmp_path: Path
) -> None:
    await begun(guarded)
    addresses = await add(guarded, "acme.*")
    guarded.start()
    with pytest.raises(FoldlogError):
        async with connect(addresses["agent"], tenant="acme.*"):
            pass
    async with connect(addresses["operator"], tenant="acme.*") as foldlog:
        await foldlog.session("c").append(user("from the operator"))
        before = await state(foldlog)
        async with connect(addresses["agent"], tenant="acme.*") as agent:
            await agent.session("c").append(user("from the agent"))
            assert len((await agent.session("c").context()).messages) == 2
            attached = await agent.session("c").attach("x" * 200_000)
            assert await agent.artifacts.get(attached.digest) == b"x" * 200_000
            watched = agent.log.watch("acme.*", "c")
            assert (await anext(watched)).version == 1
            await watched.aclose()  # type: ignore[attr-defined]
            child = await agent.session("c").fork("child")
            await child.append(user("in the child"))
            assert [one.conversation async for one in agent.log.conversations("acme.*")] == [
                "c",
                "child",
            ]
        async with (
            service("projector", addresses["service"], tmp_path, projector_patience=5) as projector,
            service("compactor", addresses["service"], tmp_path) as compactor,
        ):

            async def is_projected() -> bool:
                stored = await foldlog.contexts.stored("acme.*", "c")
                last = await foldlog.log.last_versions("acme.*", "c")
                return stored is not None and stored.base_version == last

            await eventually(is_projected)
            async with broker_at(addresses["agent"]) as broker:
                for subject, body in attacks("acme"):
                    if "DIRECT.GET" in subject or "MSG.GET" in subject or "INFO" in subject:
                        continue
                    if subject.endswith(f"CONSUMER.CREATE.{ENTRIES}"):
                        continue
                    assert await requested(broker, subject, body) == b"", subject
                for subject in (
                    f"$KV.VIEWS.{view_key('acme.*', 'c')}",
                    f"$JS.API.CONSUMER.MSG.NEXT.{ENTRIES}.projector",
                    f"$JS.API.CONSUMER.CREATE.{ENTRIES}.projector",
                    f"$JS.API.CONSUMER.DURABLE.CREATE.{ENTRIES}.projector",
                ):
                    assert await requested(broker, subject, b"{}") == b"", subject
            assert (await projector.stop(), await compactor.stop()) == (0, 0)
            assert "violation" not in (projector.said() + compactor.said()).lower()
        after = await state(foldlog)
        assert {name: one["config"] for name, one in after.items()} == {
            name: one["config"] for name, one in before.items()
        }
        assert after[ENTRIES]["messages"] == 4
        assert after["DEAD"]["messages"] == 0


async def test_nobody_connects_without_a_secret_of_a_tenant(guarded: Guarded) -> None:
    await begun(guarded)
    guarded.start()
    for url in (
        guarded.url,
        f"nats://nobody:nobody@127.0.0.1:{guarded.port}",
        f"nats://nobody:@127.0.0.1:{guarded.port}",
    ):
        with pytest.raises(BrokerUnreachable):
            await connect_broker(url, wait=2)


async def test_a_tenant_is_added_to_a_server_that_runs(guarded: Guarded) -> None:
    await begun(guarded)
    first = await add(guarded, "first")
    guarded.start()
    async with connect(first["operator"], tenant="first") as foldlog:
        second = await add(guarded, "second")
        guarded.reload()

        async def is_let_in() -> bool:
            with suppress(BrokerUnreachable):
                async with broker_at(second["operator"]):
                    return True
            return False

        await eventually(is_let_in)
        await foldlog.session("c").append(user("the connection of the first still lives"))
        assert await is_current(foldlog, "c") is False


async def test_the_files_are_their_owners_alone_and_nothing_is_added_twice(
    guarded: Guarded,
) -> None:
    await begun(guarded)
    folder = guarded.folder / "auth"
    addresses = await add(guarded, "acme")
    for name in ("tenants.json", "nats-server.conf"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    secrets = {url.split("@")[0] for name, url in addresses.items() if name != "tenant"}
    assert len(secrets) == 3
    again = await command("auth", "add-tenant", str(folder), "acme")
    assert (again.code, again.out) == (1, "")
    for arguments in (
        ("auth", "init", str(folder)),
        ("auth", "add-tenant", str(folder / "nowhere"), "x"),
        ("auth", "add-tenant", str(folder), ""),
        ("auth", "init", str(folder / "new"), "--store", 'a"b'),
        ("auth", "init", str(folder / "new"), "--store", "a\nb"),
        ("auth", "init", str(folder / "new"), "--host", '"'),
        ("auth", "init", str(folder / "new"), "--tls-cert", str(folder / "none")),
    ):
        refused = await command(*arguments)
        assert refused.code == 1, arguments
        assert "Traceback" not in refused.err
    assert not (folder / "new").exists()


def make_certificate(certificate: Path, key: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_tls_by_given_files(guarded: Guarded, tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    await asyncio.to_thread(make_certificate, certificate, key)
    await begun(guarded, "--tls-cert", str(certificate), "--tls-key", str(key))
    addresses = await add(guarded, "acme")
    assert addresses["operator"].startswith("tls://")
    guarded.start()
    url = addresses["operator"]
    told = await command("conversations", "--json", FOLDLOG_URL=url, SSL_CERT_FILE=str(certificate))
    assert (told.code, told.json) == (0, {"conversations": []})
    assert (await command("conversations", FOLDLOG_URL=url)).code == 3
    plain = url.replace("tls://", "nats://")
    refused = await command("conversations", FOLDLOG_URL=plain)
    assert refused.code == 3
