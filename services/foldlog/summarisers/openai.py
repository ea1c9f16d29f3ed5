"""Summaries by OpenAI's chat completions, or by any provider that speaks them."""

from typing import TYPE_CHECKING, Any, Literal

from foldlog.summarisers import SummariserMisconfigured, SummariserRefused, SummaryRequest
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
from foldlog_projections.renderers import openai_chat
from foldlog_projections.summary_source import SummaryResult
from foldlog_projections.usage import normalise_usage
from foldlog_projections.views import ContextView

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
}


class OpenAISettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a model behind chat completions."""

    limit_parameter: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The name under which the provider takes the output limit; older ones know the second."""


class OpenAISummariser:
    """A summariser over the official `openai` client."""

    def __init__(self, settings: OpenAISettings) -> None:
        """Raises SummariserMisconfigured where the client is not installed or has no key."""
        try:
            import openai
            from openai.types.chat import ChatCompletion
        except ImportError:
            raise SummariserMisconfigured(
                "the package openai is not installed: pip install 'foldlog[openai]'", calls=0
            ) from None
        self._settings = settings
        self._errors: Any = openai
        self._answer = ChatCompletion
        try:
            self._client = openai.AsyncOpenAI(
                api_key=settings.api_key,
                base_url=settings.base_url,
                timeout=settings.timeout,
                max_retries=settings.retries,
            )
        except openai.OpenAIError as error:
            raise SummariserMisconfigured(f"{error}", model=settings.model, calls=0) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, unchecked. Raises SummariserError."""
        settings = self._settings
        options: dict[str, Any] = {
            settings.limit_parameter: output_tokens(request, settings),
        }
        if request.prefix is not None:
            messages = _after_prefix(request.prefix, request)
            if tools := openai_chat.tools(request.prefix):
                options["tools"] = tools
        else:
            prompt = user_prompt(request, structured=settings.structured)
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
            if settings.structured:
                schema = {"name": "summary", "strict": True, "schema": SCHEMA}
                options["response_format"] = {"type": "json_schema", "json_schema": schema}
        async with errors_translated(self._errors, settings):
            completion: ChatCompletion = await self._client.chat.completions.create(
                model=settings.model, messages=messages, **options
            )
        # The client hands out whatever it cannot read as it came.
        if not isinstance(completion, self._answer):
            raise not_an_answer(completion, settings)
        return _result(completion, settings.model)


def _after_prefix(prefix: ContextView, request: SummaryRequest) -> Any:
    """The conversation's own request, and one message more. A schema would stand before all of it
    and keep it from being found in the cache: the sections are asked for in words."""
    return [*openai_chat.render(prefix), {"role": "user", "content": prefix_prompt(request)}]


def _result(completion: "ChatCompletion", asked: str) -> SummaryResult:
    model = completion.model or asked
    usage = normalise_usage(completion.usage)
    # Compatible providers leave these out where something went wrong on their side.
    if not completion.choices or not completion.choices[0].message:
        return SummaryResult(text="", finish_reason="error", model=model, usage=usage)
    choice = completion.choices[0]
    message = choice.message
    if message.refusal or choice.finish_reason == "content_filter":
        said = message.refusal or "its content filter stopped the answer"
        raise SummariserRefused(f"{model} refused: {said[:500]}", usage=usage, model=model)
    return result_of(
        message.content or "",
        finish_reason=_FINISH.get(choice.finish_reason, "error"),
        tool_called=bool(message.tool_calls or message.function_call),
        model=model,
        usage=usage,
    )
