"""A FastStream subscriber that takes the log in batches, decodes it and does nothing else."""

import asyncio
import sys
from typing import Annotated

import msgspec
from faststream import AckPolicy, Context, FastStream
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.message import NatsBatchMessage
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from benchmarks.projecting import DECODING
from foldlog.projector import BATCH, GATHER
from foldlog.topology import ENTRIES
from foldlog_events.entries import KnownEntry


async def _undecoded(message: NatsBatchMessage) -> list[Msg]:
    return message.raw_message


def application(url: str) -> FastStream:
    """The subscriber, with the projector's own settings of the consumer."""
    broker = NatsBroker(url, logger=None)
    decoder = msgspec.json.Decoder(KnownEntry)

    @broker.subscriber(
        "entry.>",
        stream=JStream(ENTRIES, declare=False),
        durable=DECODING,
        pull_sub=PullSub(batch_size=BATCH, timeout=GATHER, batch=True),
        ack_policy=AckPolicy.MANUAL,
        config=ConsumerConfig(
            deliver_policy=DeliverPolicy.ALL, ack_wait=30, max_ack_pending=20 * BATCH
        ),
        decoder=_undecoded,
    )
    async def decode(message: Annotated[NatsBatchMessage, Context("message")]) -> None:
        for one in message.raw_message:
            decoder.decode(one.data)
            await one.ack()

    return FastStream(broker, logger=None)


if __name__ == "__main__":
    asyncio.run(application(sys.argv[1]).run())
