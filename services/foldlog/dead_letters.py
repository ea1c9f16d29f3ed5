"""What could not be handled, kept with its error and its place: the stream `DEAD`."""

import msgspec

from foldlog.records import Records

_encode = msgspec.json.Encoder().encode


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that its service gave up on; the message itself stays where it is."""

    tenant: str
    conversation: str
    reason: str
    version: int = 0
    """Of the entry, where it is one."""
    tries: int = 0
    data: str = ""
    """The message, where it is stored nowhere else."""


async def bury(records: Records, what: str, letter: DeadLetter) -> None:
    """Keep a letter; `what` is `entry` or `pressure`."""
    await records.add_dead(what, letter.tenant, letter.conversation, _encode(letter))
