"""Announcing pressure: one message for each conversation, until a compactor has dealt with it."""

import time

import msgspec
import structlog

from foldlog.attempt_log import AttemptLog
from foldlog.records import Records
from foldlog_projections.policy import Policies
from foldlog_projections.pressure import Pressure, assess, fixed_tokens, level_of, tokens_of
from foldlog_projections.views import ContextView

_logger = structlog.get_logger("foldlog.pressure")
_encode = msgspec.json.Encoder().encode


class Announcer:
    """Publishes pressure where a view is over a limit of its policy."""

    def __init__(self, records: Records, policies: Policies) -> None:
        self._records = records
        self._attempts = AttemptLog(records)
        self._policies = policies

    async def announce(self, view: ContextView, model: str | None = None) -> None:
        """Publish what the policy says of this view, if anything.

        `model` is the one that is to go on, where that is not the one that answered last.
        """
        policy = self._policies.of(model or model_of(view))
        fixed = fixed_tokens(view)
        if fixed < policy.hard_limit and not level_of(tokens_of(view, policy), policy, fixed):
            return
        last = await self._attempts.last(view.tenant, view.conversation)
        found = assess(view, policy, last, time.time())
        if isinstance(found, Pressure):
            await publish(self._records, msgspec.structs.replace(found, model=model or ""))
        elif found is not None:
            await self._attempts.unreachable(found, policy)
            _logger.error(
                "the prompt alone is over the limit",
                conversation=found.conversation,
                prompt_tokens=found.fixed,
                limit_tokens=found.hard,
            )


async def publish(records: Records, pressure: Pressure) -> int | None:
    """Queue a pressure event, and its place in the queue.

    None where one of the conversation is queued or in progress already.
    """
    request = await records.announce_pressure(
        pressure.tenant, pressure.conversation, _encode(pressure)
    )
    if request is not None:
        _logger.info(
            "pressure",
            conversation=pressure.conversation,
            tokens=pressure.tokens,
            level=pressure.level,
            trigger=pressure.reason,
        )
    return request


def model_of(view: ContextView) -> str | None:
    """The model that answered last."""
    return next((one.model for one in reversed(view.messages) if one.model), None)
