"""One run: servers, writers, projectors and compactors, faults, and then the checks."""

import asyncio
import contextlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from foldlog.announcing import publish
from foldlog.errors import FoldlogError
from foldlog.reading import Read
from foldlog.session import Foldlog
from foldlog.topology import ENTRIES, PRESSURE
from foldlog_events.entries import Recorded
from foldlog_projections.attempts import unended
from foldlog_projections.policy import load
from foldlog_projections.pressure import manual
from tests.faults.checks import (
    Findings,
    check_attempts,
    check_compactions,
    check_entries,
    check_view,
    longest_pause,
)
from tests.faults.children import Child
from tests.faults.cluster import Cluster
from tests.faults.inject import Scene, heal, inject
from tests.faults.journal import Line, read
from tests.faults.plan import Kind, Plan
from tests.faults.proxy import ClusterProxy
from tests.faults.writing import Spec

ROOT = Path(__file__).parents[2]
POLICY = {"preset": "default", "window": 12_000, "backoff": 0.5, "cooldown": 2.0}
SERVICE = {
    "FOLDLOG_PROJECTOR_PATIENCE": "3",
    "FOLDLOG_COMPACTOR_PATIENCE": "3",
    "FOLDLOG_BROKER_PATIENCE": "10",
    "FOLDLOG_SUMMARY_SECONDS": "0.1",
    "FOLDLOG_LOG_FORMAT": "json",
    "FOLDLOG_POLICY": msgspec.json.encode(POLICY).decode(),
}
SOURCES = {
    "PYTHONPATH": os.pathsep.join(
        str(ROOT / folder) for folder in ("events", "projections", "services", ".")
    )
}
"""So that the processes run the code beside these tests."""
WRITERS_PATIENCE = 180.0
SETTLE_PATIENCE = 180.0
"""Bounds for a machine with much else to do; who is done is not waited for."""
ATTEMPT_PATIENCE = 15.0
"""For the attempts of workers that are not dead."""
EXPECTED_EXITS = frozenset({0, 3, -9, -15})
"""Done; the broker or the consumer is gone; killed; stopped."""


class Result(msgspec.Struct, kw_only=True):
    """What came of a run."""

    plan: Plan
    findings: Findings
    injected: Counter[Kind]
    acknowledged: int = 0
    stored: int = 0
    longest_pause: float = 0.0
    attempts: Counter[str] = msgspec.field(default_factory=Counter)
    stale: int = 0
    """Compactions in the log that changed nothing."""
    seconds: float = 0.0


async def run(plan: Plan, folder: Path) -> Result:
    """Run a plan in an empty folder."""
    began = time.monotonic()
    result = Result(plan=plan, findings=Findings(), injected=Counter())
    cluster = Cluster(plan.nodes, folder)
    try:
        await cluster.start()
        await cluster.set_up()
        async with _scene(plan, cluster, folder) as (scene, tasks):
            await _faults(scene, plan, result)
            await _until_done(tasks[: len(scene.writers)], result.findings)
            histories, foldlog = await _settled(plan, cluster, result.findings)
            await _check(plan, scene, folder, foldlog, histories, result)
    except (FoldlogError, TimeoutError) as error:
        result.findings.processes.append(f"the run broke off: {type(error).__name__} {error}")
    finally:
        await cluster.close()
    result.seconds = time.monotonic() - began
    return result


@contextlib.asynccontextmanager
async def _scene(
    plan: Plan, cluster: Cluster, folder: Path
) -> AsyncIterator[tuple[Scene, list[asyncio.Task[None]]]]:
    async with contextlib.AsyncExitStack() as stack:
        proxies = [
            ClusterProxy(cluster.ports, random.Random(f"{plan.seed} {number}"))
            for number in range(len(plan.clocks))
        ]
        for proxy in proxies:
            await stack.enter_async_context(proxy)
        scene = Scene(
            cluster,
            proxies,
            [_writer(plan, number, proxy, folder) for number, proxy in enumerate(proxies)],
            _services("projector", plan.projectors, cluster, folder),
            _services("compactor", plan.compactors, cluster, folder),
        )
        children = [*scene.writers, *scene.projectors, *scene.compactors]
        tasks = [asyncio.create_task(child.run(), name=child.name) for child in children]
        try:
            yield scene, tasks
        finally:
            await asyncio.gather(*(child.stop() for child in children))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _writer(plan: Plan, number: int, proxy: ClusterProxy, folder: Path) -> Child:
    name = f"writer-{number}"
    random_ = random.Random(f"{plan.seed} {name}")
    spec = Spec(
        url=proxy.url(""),
        name=name,
        seed=plan.seed,
        journal=str(folder / f"{name}.journal"),
        conversations=tuple(random_.sample(plan.conversations, len(plan.conversations) // 2)),
        appends=plan.appends,
        pause=plan.seconds / plan.appends,
        clock_hours=plan.clocks[number],
    )
    module = "tests.faults.naive" if plan.naive else "tests.faults.writer"
    command = ("-m", module, msgspec.json.encode(spec).decode())
    return Child(name, command, folder, SOURCES)


def _services(kind: str, count: int, cluster: Cluster, folder: Path) -> list[Child]:
    environment = SERVICE | SOURCES | {"FOLDLOG_URL": cluster.url}
    return [
        Child(f"{kind}-{number}", ("-m", f"foldlog.{kind}"), folder, environment)
        for number in range(count)
    ]


async def _faults(scene: Scene, plan: Plan, result: Result) -> None:
    """Inject the plan's faults, from the moment that every writer has begun; then heal."""
    result.injected["clock hours off"] += sum(hours != 0 for hours in plan.clocks)
    async with asyncio.timeout(WRITERS_PATIENCE):
        while not all(_has_begun(writer) for writer in scene.writers):
            await asyncio.sleep(0.02)
    began = time.monotonic()

    async def one(number: int) -> None:
        fault = plan.faults[number]
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        if await inject(scene, fault):
            result.injected[fault.kind] += 1

    await asyncio.gather(*(one(number) for number in range(len(plan.faults))))
    await heal(scene)


def _has_begun(writer: Child) -> bool:
    return any(writer.output.parent.glob(f"{writer.name}.journal"))


async def _until_done(writers: Sequence[asyncio.Task[None]], findings: Findings) -> None:
    done, late = await asyncio.wait(writers, timeout=WRITERS_PATIENCE)
    findings.processes += [
        f"{task.get_name()} was not done {WRITERS_PATIENCE:g} s after the last fault"
        for task in late
    ]
    for task in done:
        task.result()


async def _settled(
    plan: Plan, cluster: Cluster, findings: Findings
) -> tuple[dict[str, list[Read]], Foldlog]:
    """The log, once the services have caught up with it."""
    foldlog = Foldlog(await cluster.operator())
    if not plan.naive:
        waiting = await _until_nothing(lambda: _behind(plan, foldlog), SETTLE_PATIENCE)
        left_open = await _until_nothing(lambda: _open_attempts(plan, foldlog), ATTEMPT_PATIENCE)
        # Their workers are dead, and who handles the next event of the conversation ends them.
        for conversation in left_open:
            context = await foldlog.contexts.current(foldlog.tenant, conversation)
            await publish(foldlog.records, manual(context.view(), load(POLICY)))
        if left_open:
            waiting += await _until_nothing(lambda: _behind(plan, foldlog), SETTLE_PATIENCE)
            await _until_nothing(lambda: _open_attempts(plan, foldlog), ATTEMPT_PATIENCE)
        findings.processes += [f"{what} after {SETTLE_PATIENCE:g} s" for what in waiting]
    histories = {
        conversation: await foldlog.log.read_all(foldlog.tenant, conversation)
        for conversation in plan.conversations
    }
    return histories, foldlog


async def _until_nothing(what: Callable[[], Awaitable[list[str]]], patience: float) -> list[str]:
    """Ask until there is nothing to wait for, or patience is over; what there is then."""
    waiting = ["the broker does not answer"]
    deadline = time.monotonic() + patience
    while waiting and time.monotonic() < deadline:
        with contextlib.suppress(FoldlogError):
            waiting = await what()
        await asyncio.sleep(0.1)
    return waiting


async def _open_attempts(plan: Plan, foldlog: Foldlog) -> list[str]:
    """Conversations with an attempt that has not ended."""
    return [
        conversation
        for conversation in plan.conversations
        if unended(await foldlog.attempts.read(foldlog.tenant, conversation))
    ]


async def _behind(plan: Plan, foldlog: Foldlog) -> list[str]:
    """What the services have still to do."""
    behind = []
    for stream, consumer in ((ENTRIES, "projector"), (PRESSURE, "compactor")):
        info = await foldlog.broker.api(f"CONSUMER.INFO.{stream}.{consumer}")
        if left := info["num_pending"] + info["num_ack_pending"]:
            behind.append(f"{left} messages are left to the {consumer}")
    for conversation in plan.conversations:
        last = await foldlog.log.last_versions(foldlog.tenant, conversation)
        context = await foldlog.contexts.stored(foldlog.tenant, conversation)
        version = context.version if context else 0
        if version != max(last.log, last.shape):
            behind.append(f"the view of {conversation} is at {version}, and the log at {last}")
    return behind


async def _check(
    plan: Plan,
    scene: Scene,
    folder: Path,
    foldlog: Foldlog,
    histories: dict[str, list[Read]],
    result: Result,
) -> None:
    journals: dict[str, list[Line]] = {
        writer.name: list(read(folder / f"{writer.name}.journal")) for writer in scene.writers
    }
    findings = result.findings
    found = check_entries(histories, journals)
    for field in found.__struct_fields__:
        getattr(findings, field).extend(getattr(found, field))
    result.acknowledged = sum(
        len(line.ids)
        for lines in journals.values()
        for line in lines
        if line.what == "acknowledged"
    )
    result.stored = sum(len(reads) for reads in histories.values())
    result.longest_pause = longest_pause(
        journals, {writer.name: writer.frozen for writer in scene.writers}
    )
    info = await foldlog.broker.api(f"STREAM.INFO.{ENTRIES}")
    if info["state"]["messages"] != result.stored:
        findings.lost.append(
            f"the stream holds {info['state']['messages']} entries and can be read {result.stored}"
        )
    if plan.naive:
        return
    for conversation, reads in histories.items():
        await _check_conversation(foldlog, conversation, reads, result)
    findings.dead += [
        f"{letter.subject}: {letter.data.decode()[:500]}" for letter in await foldlog.records.dead()
    ]
    for child in (*scene.writers, *scene.projectors, *scene.compactors):
        findings.processes += [
            f"{child.name} ended with code {code}, and said last: {said}"
            for code, said in child.exits
            if code not in EXPECTED_EXITS
        ]


async def _check_conversation(
    foldlog: Foldlog, conversation: str, reads: Sequence[Read], result: Result
) -> None:
    findings = result.findings
    unreadable = [read for read in reads if not isinstance(read, Recorded)]
    findings.lost += [f"{read} cannot be read" for read in unreadable]
    if not reads:
        return
    view = await check_view(findings, foldlog, conversation, reads[-1].version)
    _, stale = check_compactions(findings, reads, view)
    result.stale += stale
    if view is not None:
        result.attempts += await check_attempts(findings, foldlog, view, load(POLICY), time.time())


def run_in(plan: Plan, folder: Path) -> Result:
    """`run`, for callers without an event loop; the folder is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return asyncio.run(run(plan, folder))
