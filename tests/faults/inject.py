"""Making each kind of fault happen. A function says whether there was something to hit."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from foldlog.topology import COMPACTIONS, ENTRIES, PRESSURE, VIEWS
from tests.faults.children import Child
from tests.faults.cluster import Cluster, Node
from tests.faults.plan import Fault, Kind
from tests.faults.proxy import ClusterProxy

T = TypeVar("T")
STREAMS = (ENTRIES, VIEWS, PRESSURE, COMPACTIONS)
CONSUMERS = ((ENTRIES, "projector"), (PRESSURE, "compactor"))
MAX_ANSWER_DELAY = 2.5


class Scene:
    """What a fault can hit."""

    def __init__(
        self,
        cluster: Cluster,
        proxies: Sequence[ClusterProxy],
        writers: Sequence[Child],
        projectors: Sequence[Child],
        compactors: Sequence[Child],
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.writers = writers
        self.projectors = projectors
        self.compactors = compactors


async def inject(scene: Scene, fault: Fault) -> bool:
    """Make a fault happen and end. False where nothing was there to be hit."""
    return await _KINDS[fault.kind](scene, fault)


def _chosen(things: Sequence[T], fault: Fault) -> T:
    return things[fault.target % len(things)]


async def _kill_writer(scene: Scene, fault: Fault) -> bool:
    return _chosen(scene.writers, fault).kill()


async def _freeze_writer(scene: Scene, fault: Fault) -> bool:
    return await _chosen(scene.writers, fault).freeze(fault.seconds)


async def _kill_projector(scene: Scene, fault: Fault) -> bool:
    return _chosen(scene.projectors, fault).kill()


async def _freeze_projector(scene: Scene, fault: Fault) -> bool:
    return await _chosen(scene.projectors, fault).freeze(2 * fault.seconds)


async def _kill_compactor(scene: Scene, fault: Fault) -> bool:
    return _chosen(scene.compactors, fault).kill()


async def _freeze_compactor(scene: Scene, fault: Fault) -> bool:
    return await _chosen(scene.compactors, fault).freeze(2 * fault.seconds)


async def _kill(node: Node, seconds: float) -> bool:
    killed = await node.kill()
    await asyncio.sleep(seconds)
    await node.start()
    return killed


async def _kill_server(scene: Scene, fault: Fault) -> bool:
    return await _kill(_chosen(scene.cluster.nodes, fault), fault.seconds)


async def _freeze_server(scene: Scene, fault: Fault) -> bool:
    return await _chosen(scene.cluster.nodes, fault).freeze(fault.seconds)


async def _restart_all(scene: Scene, fault: Fault) -> bool:
    killed = await asyncio.gather(*(node.kill() for node in scene.cluster.nodes))
    await asyncio.sleep(fault.seconds / 3)
    await scene.cluster.start()
    return any(killed)


async def _step_down(scene: Scene, fault: Fault) -> bool:
    return await scene.cluster.step_down(_chosen(STREAMS, fault))


async def _kill_leader(scene: Scene, fault: Fault) -> bool:
    node = await scene.cluster.leader(_chosen(STREAMS, fault))
    return node is not None and await _kill(node, fault.seconds)


async def _lose_acknowledgements(scene: Scene, fault: Fault) -> bool:
    _chosen(scene.proxies, fault).lose(1 + fault.target % 3)
    return True


async def _delay_answers(scene: Scene, fault: Fault) -> bool:
    proxy = _chosen(scene.proxies, fault)
    proxy.answer_delay = min(fault.seconds, MAX_ANSWER_DELAY)
    await asyncio.sleep(fault.seconds)
    proxy.answer_delay = 0
    return True


async def _hold_requests(scene: Scene, fault: Fault) -> bool:
    proxy = _chosen(scene.proxies, fault)
    proxy.hold_requests()
    await asyncio.sleep(fault.seconds)
    proxy.release()
    return True


async def _cut_connections(scene: Scene, fault: Fault) -> bool:
    _chosen(scene.proxies, fault).cut()
    return True


async def _full_disk(scene: Scene, fault: Fault) -> bool:
    """By the file system of one server where there is one, else (and in turns) by the quota."""
    if scene.cluster.can_fill_disk and fault.target % 2:
        return await _fill_one(_chosen(scene.cluster.nodes, fault), fault.seconds)
    filled = await scene.cluster.fill_quota()
    await asyncio.sleep(fault.seconds)
    await scene.cluster.empty_quota()
    return filled


async def _fill_one(node: Node, seconds: float) -> bool:
    node.fill()
    await asyncio.sleep(seconds)
    node.empty()
    # nats-server turns JetStream off when its disk is full, until it is started again.
    await node.kill()
    await node.start()
    return True


async def _delete_consumer(scene: Scene, fault: Fault) -> bool:
    return await scene.cluster.delete_consumer(*_chosen(CONSUMERS, fault))


_KINDS: dict[Kind, Callable[[Scene, Fault], Awaitable[bool]]] = {
    "kill writer": _kill_writer,
    "freeze writer": _freeze_writer,
    "kill projector": _kill_projector,
    "freeze projector": _freeze_projector,
    "kill compactor": _kill_compactor,
    "freeze compactor": _freeze_compactor,
    "kill server": _kill_server,
    "freeze server": _freeze_server,
    "restart all servers": _restart_all,
    "leader steps down": _step_down,
    "kill leader": _kill_leader,
    "lose acknowledgements": _lose_acknowledgements,
    "delay answers": _delay_answers,
    "hold requests": _hold_requests,
    "cut connections": _cut_connections,
    "full disk": _full_disk,
    "delete consumer": _delete_consumer,
}


async def heal(scene: Scene) -> None:
    """End every fault."""
    for proxy in scene.proxies:
        proxy.release()
        proxy.lose(0)
        proxy.answer_delay = 0
    for node in scene.cluster.nodes:
        node.empty()
    await scene.cluster.start()
    with contextlib.suppress(TimeoutError):
        await scene.cluster.empty_quota()
