"""What could not be handled, kept with its error and its place: the stream `DEAD`."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from foldlog.announcing import Announcer
from foldlog.contexts import Contexts
from foldlog.errors import FoldlogError
from foldlog.rebuilding import make_view_anew
from foldlog.records import Record, Records
from foldlog.views import Views
from foldlog_events.errors import InvalidIdentifier
from foldlog_events.subjects import decode_token

NOBODY = "-"
"""Token in the subject of a letter about a message whose subject names no conversation."""

_encode = msgspec.json.Encoder().encode


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that its service gave up on; the message itself stays where it is."""

    tenant: str
    conversation: str
    """Both are subject tokens where nobody can say whose message it was."""
    reason: str
    version: int = 0
    """Of the entry, where it is one."""
    tries: int = 0
    data: str = ""
    """The message, where it is stored nowhere else."""
    subject: str = ""
    """Of the message, where that is all that is known of whose it is."""


class Buried(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as it lies in the stream."""

    number: int
    what: str
    """`entry` or `pressure`."""
    time: datetime
    letter: DeadLetter


class UnknownLetter(FoldlogError):
    """No letter has this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"no dead letter {number}: `foldlog dead list` shows those there are")
        self.number = number


class NotRequeued(FoldlogError):
    """A letter that nothing can be done with; it stays where it is."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"dead letter {number} was not requeued: {reason}")
        self.number = number


_decode = msgspec.json.Decoder(DeadLetter).decode


async def bury(records: Records, what: str, letter: DeadLetter) -> None:
    """Keep a letter; `what` is `entry` or `pressure`."""
    if not letter.subject:
        await records.add_dead(what, letter.tenant, letter.conversation, _encode(letter))
        return
    tokens = (letter.tenant or NOBODY, letter.conversation or NOBODY)
    await records.add_dead_tokens(what, *tokens, _encode(letter))


async def letters(records: Records, tenant: str | None = None) -> AsyncIterator[Buried]:
    """The letters of a tenant, or all, oldest first."""
    for record in await records.dead(tenant=tenant):
        yield _buried(record)


async def letter(records: Records, number: int) -> Buried:
    """One letter. Raises UnknownLetter."""
    async for buried in letters(records):
        if buried.number == number:
            return buried
    raise UnknownLetter(number)


async def requeue(
    buried: Buried, records: Records, contexts: Contexts, views: Views, announcer: Announcer
) -> None:
    """Have what was given up done after all, and remove its letter once that is certain.

    An entry is in the log: its conversation's view is made anew from there. A pressure event goes
    back to the queue, which may hold a newer one. Raises NotRequeued, and what folding raises;
    then the letter stays.
    """
    letter = buried.letter
    if letter.subject:
        raise NotRequeued(buried.number, f"nobody can say whose message {letter.subject} is")
    if buried.what == "pressure":
        await records.announce_pressure(letter.tenant, letter.conversation, letter.data.encode())
    else:
        view = await make_view_anew(letter.tenant, letter.conversation, contexts, views)
        await announcer.announce(view)
    await records.remove_dead(buried.number)


def _buried(record: Record) -> Buried:
    _, what, tenant, conversation = record.subject.split(".")
    try:
        letter = _decode(record.data)
    except msgspec.DecodeError as error:
        letter = DeadLetter(
            tenant=_identifier(tenant),
            conversation=_identifier(conversation),
            reason=f"the letter itself cannot be read: {error}",
            data=record.data.decode(errors="replace"),
            subject=record.subject,
        )
    return Buried(number=record.version, what=what, time=record.time, letter=letter)


def _identifier(token: str) -> str:
    try:
        return decode_token(token) or token
    except InvalidIdentifier:
        return token
