"""What a digest of messages is made of."""

import hashlib

import msgspec

from foldlog_events.messages import Message

_encode = msgspec.json.Encoder().encode


def message_digest(message: Message) -> bytes:
    """Of what a model is shown: not of which context it answered, a version of one log."""
    if message.seen is not None:
        message = msgspec.structs.replace(message, seen=None)
    return hashlib.sha256(_encode(message)).digest()
