"""When a context is compacted, how much of it stays, and what giving up means.

A policy belongs to a model, since the window does. All sizes are tokens, except the prune limits,
which are code points.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from foldlog_events.errors import FoldlogError

MARKER_ROOM = 512
"""Code points set aside for the marker in a pruned result, so that it stays under the limit."""


class InvalidPolicy(FoldlogError):
    """A policy that cannot work: `field` has a value outside `limit`; `fix` says what to change."""

    def __init__(self, field: str, value: object, limit: str, fix: str) -> None:
        super().__init__(f"policy: {field} is {value!r}, and must be {limit}: {fix}")
        self.field = field
        self.value = value
        self.limit = limit
        self.fix = fix


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one model's contexts. Construction raises `InvalidPolicy`."""

    window: int
    """Tokens the model takes, the reply included."""
    reserve_output: int
    """Tokens kept free for the reply: providers count it into the window."""
    safety_margin: int = 0
    """Tokens kept free because sizes are estimates."""
    background_margin: int = 0
    """How far below the hard limit compaction starts, while the agent goes on."""
    keep_recent: int
    """Tokens at the end that stay verbatim."""
    result_limit: int = 8_192
    """A tool result of more code points than this is pruned."""
    head: int = 4_096
    """Code points kept of a pruned result's beginning."""
    tail: int = 1_024
    """Code points kept of its end."""
    informative: bool = True
    """Results that parse as JSON or as a table are pruned by their structure."""
    max_attempts: int = 3
    """Failed or fruitless attempts in a row after which the conversation is left alone."""
    backoff: float = 5.0
    """Seconds before the second attempt; each further one waits twice as long."""
    cooldown: float = 3_600.0
    """Seconds for which a conversation is left alone; no back-off is longer."""
    name: str = "custom"

    @property
    def hard_limit(self) -> int:
        """A request of more tokens is not sent."""
        return self.window - self.reserve_output - self.safety_margin

    @property
    def soft_limit(self) -> int:
        """A context of more tokens is compacted in the background."""
        return self.hard_limit - self.background_margin

    def keep(self, fixed: int = 0) -> int:
        """Tokens to keep verbatim beside a prompt (sections and tools) of `fixed` tokens.

        `keep_recent`, or less where the prompt leaves no room for that below the soft limit; at
        least 1, so that something is kept.
        """
        return max(1, min(self.keep_recent, (self.soft_limit - fixed) // 2))

    def delay(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        if failures <= 0:
            return 0.0
        if failures >= self.max_attempts:
            return self.cooldown
        return float(min(self.cooldown, self.backoff * 2.0 ** (failures - 1)))

    def most_attempts(self, seconds: float) -> int:
        """The most attempts within these seconds where every one fails and nothing but the
        version changes: a bound on what is paid for nothing. An attempt asks for a summary once,
        and once more where the first one states values that its source does not hold.
        """
        return self.max_attempts + int(seconds // self.cooldown)

    def __post_init__(self) -> None:
        for field in _COUNTS:
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidPolicy(field, value, "a whole number", "give it as an integer")
        for field in ("window", "keep_recent", "result_limit", "head", "max_attempts"):
            _require(getattr(self, field) > 0, self, field, "above 0", "give a positive number")
        for field in ("reserve_output", "safety_margin", "background_margin", "tail"):
            _require(getattr(self, field) >= 0, self, field, "0 or more", "give no negative number")
        for field in ("backoff", "cooldown"):
            seconds = getattr(self, field)
            _require(
                isinstance(seconds, int | float) and 0 < seconds < float("inf"),
                self,
                field,
                "above 0 seconds and finite",
                "give a positive number of seconds",
            )
        _require(
            self.hard_limit > 0,
            self,
            "window",
            f"above reserve_output + safety_margin = {self.reserve_output + self.safety_margin:,}",
            "raise the window or reserve less",
        )
        _require(
            self.soft_limit > 0,
            self,
            "background_margin",
            f"below the hard limit of {self.hard_limit:,}",
            "start the background compaction later",
        )
        _require(
            self.keep_recent < self.soft_limit,
            self,
            "keep_recent",
            f"below the soft limit of {self.soft_limit:,}",
            "keep less, or every compaction would leave a context that needs another",
        )
        _require(
            self.head + self.tail + MARKER_ROOM <= self.result_limit,
            self,
            "result_limit",
            f"at least head + tail + {MARKER_ROOM} = {self.head + self.tail + MARKER_ROOM:,}",
            "raise it or keep less of a pruned result, or pruning would save nothing",
        )


_COUNTS = (
    "window",
    "reserve_output",
    "safety_margin",
    "background_margin",
    "keep_recent",
    "result_limit",
    "head",
    "tail",
    "max_attempts",
)


def _require(holds: bool, policy: Policy, field: str, limit: str, fix: str) -> None:
    if not holds:
        raise InvalidPolicy(field, getattr(policy, field), limit, fix)


def default(window: int) -> Policy:
    """Ours: every size is a share of the window; for 32,000 tokens the hard limit is 26,000.

    The reserves stop growing at 256,000 tokens, where a share would reserve more than replies
    and errors of the estimate take.
    """
    scaled = min(window, 256_000)
    hard = window - scaled // 8 - scaled // 16
    return Policy(
        name="default",
        window=window,
        reserve_output=scaled // 8,
        safety_margin=scaled // 16,
        background_margin=hard // 8,
        keep_recent=max(1, hard // 5),
    )


def pi(window: int) -> Policy:
    """Pi's: 16,384 reserved, 20,000 kept, background compaction from 32,768 below the limit.

    In a window where that would start below what is kept, the background starts half-way
    between the two.
    """
    hard = window - 16_384
    return Policy(
        name="pi",
        window=window,
        reserve_output=16_384,
        background_margin=max(0, min(32_768, (hard - 20_000) // 2)),
        keep_recent=20_000,
        informative=False,
    )


def deepseek_harness(window: int) -> Policy:
    """DeepSeek Harness': compact at 0.8 of the window, keep 0.16 of it, two attempts."""
    return Policy(
        name="deepseek-harness",
        window=window,
        reserve_output=window - window * 4 // 5,
        keep_recent=max(1, window * 4 // 25),
        max_attempts=2,
        informative=False,
    )


PRESETS = {"default": default, "pi": pi, "deepseek-harness": deepseek_harness}


def load(settings: Mapping[str, Any]) -> Policy:
    """A policy from settings: `preset` and `window`, with any other field to override.

    Without a preset every required field must be given. Raises `InvalidPolicy`.
    """
    given = dict(settings)
    preset = given.pop("preset", None)
    if preset is not None:
        given = _from_preset(preset, given)
    known = Policy.__struct_fields__
    for field in given:
        if field not in known:
            fix = f"use one of {', '.join(sorted(known))}"
            raise InvalidPolicy(str(field), given[field], "a known setting", fix)
    try:
        return msgspec.convert(given, Policy)
    except msgspec.ValidationError as error:
        field = _field_of(error)
        raise InvalidPolicy(
            field, given.get(field), "valid and given where required", str(error)
        ) from error


def _from_preset(preset: object, given: dict[str, Any]) -> dict[str, Any]:
    make = PRESETS.get(preset) if isinstance(preset, str) else None
    if make is None:
        raise InvalidPolicy("preset", preset, f"one of {', '.join(PRESETS)}", "name one of these")
    window = given.get("window")
    if isinstance(window, bool) or not isinstance(window, int):
        raise InvalidPolicy("window", window, "a whole number of tokens", "give the model's window")
    return msgspec.structs.asdict(make(window)) | {"name": preset} | given


def _field_of(error: msgspec.ValidationError) -> str:
    """The field that msgspec's message names: at its end as a path, or as the missing one."""
    text = str(error)
    if "`$." in text:
        return text.rsplit("`$.", 1)[1].rstrip("`")
    return text.split("`")[1] if text.count("`") > 1 else "policy"


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy a model has."""

    fallback: Policy
    """For models that are not named."""
    by_model: dict[str, Policy] = {}

    def of(self, model: str | None) -> Policy:
        """The policy of a model: its own, else that of the longest name it is a version of
        (`gpt-5` for `gpt-5-2026-01-01`), else the fallback.
        """
        if not model:
            return self.fallback
        if model in self.by_model:
            return self.by_model[model]
        families = [
            name for name in self.by_model if model.startswith(name) and model[len(name)] in "-@:."
        ]
        return self.by_model[max(families, key=len)] if families else self.fallback
