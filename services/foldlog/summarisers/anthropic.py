"""Summaries by Anthropic's messages, or by any provider that speaks them."""

from typing import TYPE_CHECKING, Any

from foldlog.summarisers import (
    SummariserMisconfigured,
    SummariserOverflow,
    SummariserRefused,
    SummaryRequest,
)
from foldlog.summarisers.providers import (
    SCHEMA,
    SYSTEM,
    ModelSettings,
    errors_translated,
    not_an_answer,
    output_tokens,
    prefix_prompt,
    result_of,
    user_prompt,
)
from foldlog_events.messages import FinishReason
from foldlog_projections.renderers import anthropic as anthropic_messages
from foldlog_projections.summary_source import SummaryResult
from foldlog_projections.usage import normalise_usage
from foldlog_projections.views import ContextView

if TYPE_CHECKING:
    from anthropic.types import Message

_FINISH: dict[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_call",
    "pause_turn": "deferred",
}


class AnthropicSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a model behind Anthropic's messages."""


class AnthropicSummariser:
    """A summariser over the official `anthropic` client."""

    def __init__(self, settings: AnthropicSettings) -> None:
        """Raises SummariserMisconfigured where the client is not installed."""
        try:
            import anthropic
            from anthropic.types import Message
        except ImportError:
            raise SummariserMisconfigured(
                "the package anthropic is not installed: pip install 'foldlog[anthropic]'", calls=0
            ) from None
        self._settings = settings
        self._errors: Any = anthropic
        self._answer = Message
        self._client = anthropic.AsyncAnthropic(
            api_key=settings.api_key,
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=settings.retries,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, unchecked. Raises SummariserError."""
        settings = self._settings
        if request.prefix is not None:
            options = _after_prefix(request.prefix, request)
        else:
            prompt = user_prompt(request, structured=settings.structured)
            options = {"system": SYSTEM, "messages": [{"role": "user", "content": prompt}]}
            if settings.structured:
                options["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        async with errors_translated(self._errors, settings):
            try:
                message: Message = await self._client.messages.create(
                    model=settings.model,
                    max_tokens=output_tokens(request, settings),
                    **options,
                )
            except TypeError as error:
                # The client's way of saying that it found no key anywhere.
                raise SummariserMisconfigured(f"{error}", model=settings.model, calls=0) from None
        # The client hands out whatever it cannot read as it came.
        if not isinstance(message, self._answer):
            raise not_an_answer(message, settings)
        return _result(message)


def _after_prefix(prefix: ContextView, request: SummaryRequest) -> dict[str, Any]:
    """The conversation's own request, and one message more. What an output format adds to the
    system prompt would keep it from being found in the cache: sections are asked for in words."""
    own = anthropic_messages.render(prefix)
    asked = {"type": "text", "text": prefix_prompt(request)}
    last = own["messages"][-1]
    if last["role"] == "user":
        last["content"].append(asked)
    else:
        own["messages"].append({"role": "user", "content": [asked]})
    return {name: value for name, value in own.items() if value}


def _result(message: "Message") -> SummaryResult:
    usage = normalise_usage(message.usage)
    if message.stop_reason == "refusal":
        raise SummariserRefused(
            f"{message.model} refused to summarise", usage=usage, model=message.model
        )
    if message.stop_reason == "model_context_window_exceeded":
        raise SummariserOverflow(
            f"{message.model} filled its window before the summary was done",
            usage=usage,
            model=message.model,
        )
    return result_of(
        "".join(block.text for block in message.content or () if block.type == "text"),
        finish_reason=_FINISH.get(message.stop_reason, "error"),
        tool_called=any(block.type == "tool_use" for block in message.content or ()),
        model=message.model,
        usage=usage,
    )
