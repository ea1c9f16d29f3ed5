"""Whether a provider's refusal says that the request does not fit the model's window."""

import re

# As the providers word it. Several count the reply's reserve: a request at 78 % of the window
# is refused where its input and its `max_tokens` exceed the window together.
_OVERFLOW = re.compile(
    r"""
    context_length_exceeded | context_window_exceeded | exceed_context_size | request_too_large
    | string_above_max_length
    | prompt\ is\ too\ long                                          # Anthropic
    | input\ length\ and\ `?max_tokens`?\ exceed\ context\ limit     # Anthropic
    | exceeds?\ the\ context\ window                                 # OpenAI
    | maximum\ (context|prompt|input)\ length\ (is|of)               # OpenAI, DeepSeek, vLLM, xAI
    | maximum\ allowed\ (input|prompt|context)\ length              # hosted models of several kinds
    | input\ token\ count.{0,40}exceeds\ the\ maximum                # Google
    | input\ is\ too\ long\ for\ (the\ )?requested\ model            # Bedrock
    | too\ large\ for\ model\ with\ \d+\ maximum\ context            # Mistral
    | reduce\ the\ length\ of\ the\ messages                         # OpenAI, Groq
    | exceeds?\ the\ (available\ context\ size|limit\ of\ \d+\ tokens) # llama.cpp
    | prompt\ token\ count\ of\ \d+\ exceeds\ the\ limit             # Copilot
    | greater\ than\ the\ context\ length                            # LM Studio
    | context\ window\ exceeds\ limit                                # MiniMax
    | exceeded\ model\ token\ limit                                  # Moonshot
    | (total|input)\ tokens?.{0,40}exceeds?.{0,20}context            # several gateways
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

# These speak of too many tokens too, and waiting helps where compacting does not.
_RATE_LIMIT = re.compile(
    r"rate.?limit|tokens? per (minute|min|day|hour)|\bTPM\b|throttl|quota|please wait|overloaded",
    re.IGNORECASE,
)


def is_overflow(message: str, *, code: str = "", status: int | None = None) -> bool:
    """Whether an error's message, its code or its HTTP status says that the request is too long.

    A status of 413 says so whatever the words; 429 and words about rates never do.
    """
    if status == 429:
        return False
    if _OVERFLOW.search(code) or status == 413:
        return True
    return bool(_OVERFLOW.search(message)) and not _RATE_LIMIT.search(message)
