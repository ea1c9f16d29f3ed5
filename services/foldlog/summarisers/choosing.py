"""A summariser from settings."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from foldlog.settings import Settings
from foldlog.summarisers import (
    Summariser,
    SummariserMisconfigured,
    SummaryRequest,
    SummaryResult,
    close,
)
from foldlog.summarisers.chunked import Chunked
from foldlog.summarisers.extractive import Extractive

_T = TypeVar("_T")

KINDS = ("extractive", "openai", "anthropic")


class Paced:
    """A summariser that takes its time, as a model does."""

    def __init__(self, summariser: Summariser, seconds: float) -> None:
        self._summariser = summariser
        self._seconds = seconds

    async def close(self) -> None:
        """Close the connections of the inner summariser."""
        await close(self._summariser)

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, `seconds` later. Raises SummariserError."""
        await asyncio.sleep(self._seconds)
        return await self._summariser.summarise(request)


def summariser_of(settings: Settings) -> Summariser:
    """The summariser that a process's settings name. Raises SummariserMisconfigured."""
    summariser = summariser_from(settings.summariser)
    return Paced(summariser, settings.summary_seconds) if settings.summary_seconds else summariser


def summariser_from(settings: Mapping[str, Any]) -> Summariser:
    """The summariser that `kind` names, ready for input of any size.

    The other settings are the fields of `OpenAISettings` or `AnthropicSettings`; `extractive`,
    the default, has none. Raises SummariserMisconfigured, which names the setting.
    """
    values = dict(settings)
    kind = values.pop("kind", "extractive")
    if kind == "openai":
        from foldlog.summarisers.openai import OpenAISettings, OpenAISummariser

        openai = _convert(values, OpenAISettings)
        return Chunked(
            OpenAISummariser(openai),
            window=openai.window,
            spare_output_tokens=openai.spare_output_tokens,
            reuses_prefix_of=openai.model if openai.reuse_prefix else None,
        )
    if kind == "anthropic":
        from foldlog.summarisers.anthropic import AnthropicSettings, AnthropicSummariser

        anthropic = _convert(values, AnthropicSettings)
        return Chunked(
            AnthropicSummariser(anthropic),
            window=anthropic.window,
            spare_output_tokens=anthropic.spare_output_tokens,
            reuses_prefix_of=anthropic.model if anthropic.reuse_prefix else None,
        )
    if kind != "extractive":
        raise SummariserMisconfigured(
            f"kind: there is no summariser {kind!r}, use one of {', '.join(KINDS)}", calls=0
        )
    if values:
        raise SummariserMisconfigured(
            f"{', '.join(values)}: the extractive summariser has no settings", calls=0
        )
    return Extractive()


def _convert(values: Mapping[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise SummariserMisconfigured(f"the summariser's settings: {error}", calls=0) from None
