"""Providers' usage objects in one form, so that no token is counted twice.

Providers differ in whether the prompt's count includes what was read from a cache: OpenAI,
DeepSeek and Google include it, Anthropic and Bedrock do not. They agree that the tokens of one
call are prompt and reply, and some state that sum; where it differs from the fields (which may
add up several calls), the stated sum is the context's size.
"""

from collections.abc import Mapping
from typing import Any

from foldlog_events.messages import Usage


def normalise_usage(usage: object) -> Usage | None:
    """The usage of one call, told by its fields; None where it is of no known shape.

    `usage` is a mapping as it came over the wire, or an official client's object.
    """
    fields = _as_mapping(usage)
    if fields is None:
        return None
    for marks, read in _SHAPES:
        if any(mark in fields for mark in marks):
            return read(fields)
    return None


def from_openai_chat(usage: Mapping[str, Any]) -> Usage:
    """OpenAI's chat completions and what is compatible with them: DeepSeek, xAI, OpenRouter."""
    prompt_details = _details(usage, "prompt_tokens_details")
    prompt = _count(usage, "prompt_tokens")
    read = _count(prompt_details, "cached_tokens") or _count(
        usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"
    )
    written = _count(prompt_details, "cache_write_tokens") or _count(
        usage, "cache_creation_input_tokens"
    )
    output = _count(usage, "completion_tokens")
    return _inclusive(prompt, read, written, output, _count(usage, "total_tokens"))


def from_openai_responses(usage: Mapping[str, Any]) -> Usage:
    """OpenAI's Responses, and Codex' records of them (`cached_input_tokens`)."""
    details = _details(usage, "input_tokens_details")
    return _inclusive(
        _count(usage, "input_tokens"),
        _count(details, "cached_tokens") or _count(usage, "cached_input_tokens"),
        _count(details, "cache_write_tokens") or _count(usage, "cache_write_input_tokens"),
        _count(usage, "output_tokens"),
        _count(usage, "total_tokens"),
    )


def from_anthropic(usage: Mapping[str, Any]) -> Usage:
    """Anthropic's messages: input, cache reads and cache writes apart from each other.

    With `iterations` the fields add up several passes, and the last one tells the context's size.
    """
    result = _exclusive(
        _count(usage, "input_tokens"),
        _count(usage, "cache_read_input_tokens"),
        _count(usage, "cache_creation_input_tokens"),
        _count(usage, "output_tokens"),
    )
    iterations = usage.get("iterations")
    last = _as_mapping(iterations[-1]) if isinstance(iterations, list) and iterations else None
    if last is None:
        return result
    context = from_anthropic({k: v for k, v in last.items() if k != "iterations"}).context_tokens
    return _with_total(result, context)


def from_google(usage: Mapping[str, Any]) -> Usage:
    """Google's `usageMetadata`, as on the wire or as its Python client names the fields.

    The prompt's count includes cached content; thoughts are not in the candidates' count.
    """
    return _inclusive(
        _count(usage, "promptTokenCount", "prompt_token_count")
        + _count(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count"),
        _count(usage, "cachedContentTokenCount", "cached_content_token_count"),
        0,
        _count(usage, "candidatesTokenCount", "candidates_token_count")
        + _count(usage, "thoughtsTokenCount", "thoughts_token_count"),
        _count(usage, "totalTokenCount", "total_token_count"),
    )


def from_bedrock(usage: Mapping[str, Any]) -> Usage:
    """Amazon Bedrock's Converse: like Anthropic's, with a total."""
    result = _exclusive(
        _count(usage, "inputTokens"),
        _count(usage, "cacheReadInputTokens"),
        _count(usage, "cacheWriteInputTokens"),
        _count(usage, "outputTokens"),
    )
    # Its total leaves out the cached tokens for some models, so a smaller one says nothing.
    return _with_total(result, max(_count(usage, "totalTokens"), result.context_tokens))


def from_pi(usage: Mapping[str, Any]) -> Usage:
    """Pi's sessions: input and cache apart, and the context's size as `totalTokens`."""
    result = _exclusive(
        _count(usage, "input"),
        _count(usage, "cacheRead"),
        _count(usage, "cacheWrite"),
        _count(usage, "output"),
    )
    return _with_total(result, _count(usage, "totalTokens"))


def _from_ours(usage: Mapping[str, Any]) -> Usage:
    result = _exclusive(
        _count(usage, "input_tokens"),
        _count(usage, "cache_read_tokens"),
        _count(usage, "cache_write_tokens"),
        _count(usage, "output_tokens"),
    )
    return _with_total(result, _count(usage, "total_tokens"))


# The first shape with one of its marks present is taken, so that the more telling come first:
# gateways add Anthropic's cache fields to OpenAI's, never the other way round.
_SHAPES = (
    (("promptTokenCount", "prompt_token_count", "totalTokenCount"), from_google),
    (("prompt_tokens", "completion_tokens"), from_openai_chat),
    (("inputTokens",), from_bedrock),
    (("cacheRead", "totalTokens", "input"), from_pi),
    (("cache_read_input_tokens", "cache_creation_input_tokens", "iterations"), from_anthropic),
    (("cache_read_tokens", "cache_write_tokens"), _from_ours),
    (("input_tokens_details", "cached_input_tokens", "total_tokens"), from_openai_responses),
    (("input_tokens", "output_tokens"), from_anthropic),
)


def _inclusive(prompt: int, read: int, written: int, output: int, total: int) -> Usage:
    read = min(read, prompt)
    written = min(written, prompt - read)
    return _with_total(_exclusive(prompt - read - written, read, written, output), total)


def _exclusive(fresh: int, read: int, written: int, output: int) -> Usage:
    return Usage(
        input_tokens=fresh,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _with_total(usage: Usage, total: int) -> Usage:
    if total in (0, usage.context_tokens):
        return usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        total_tokens=total,
    )


def _as_mapping(usage: object) -> Mapping[str, Any] | None:
    if isinstance(usage, Mapping):
        return usage
    dump = getattr(usage, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, Mapping) else None


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _as_mapping(usage.get(name)) or {}


def _count(usage: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that holds a count; 0 where none does."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return int(value) if value < 2**53 else 0
    return 0
