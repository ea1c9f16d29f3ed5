"""Settings, from a TOML file and from the environment; the environment wins.

Every name is checked when settings are loaded: a misspelt one is refused, never passed over.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from foldlog_events.entries import DEFAULT_TENANT
from foldlog_events.errors import FoldlogError
from foldlog_events.messages import Usage

PREFIX = "FOLDLOG_"
CONFIG = "FOLDLOG_CONFIG"
NOT_SETTINGS = frozenset({CONFIG, "FOLDLOG_EXAMPLES", "FOLDLOG_CORPUS"})
"""Names with the prefix that are read elsewhere: where settings lie, and what tests run on."""


MOST_AT_ONCE = 256
"""Conversations that one compactor may be set to work on at the same time."""
DEFAULT_POLICY = {"preset": "default", "window": 200_000}


class SettingsError(FoldlogError):
    """A setting that does not exist or cannot have its value."""


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens of each kind cost, in any one currency."""

    input: float
    output: float
    cache_read: float | None = None
    """None: as much as input."""
    cache_write: float | None = None
    """None: as much as input."""

    def of(self, usage: Usage) -> float:
        """What a usage cost."""
        read = self.input if self.cache_read is None else self.cache_read
        written = self.input if self.cache_write is None else self.cache_write
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * written
        ) / 1_000_000


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be set; `FOLDLOG_` and the name in capitals is the variable of a setting."""

    url: str | None = None
    """Address of the broker; none: the embedded server of the data folder."""
    data: str | None = None
    """Data folder of the embedded server; none: the platform's folder for user data."""
    port: int = 0
    """Port of the embedded server; 0: any free one."""
    tenant: str = DEFAULT_TENANT
    broker_patience: float = 60.0
    """Seconds without a connection after which a service ends with an error."""
    projector_patience: float = 30.0
    """Seconds after which entries that a projector took and did not acknowledge go to another."""
    compactor_patience: float = 30.0
    """Seconds without a sign of life of a compactor after which another is given its work."""
    summariser: dict[str, Any] = {}
    """What summarises: `kind` (extractive, openai or anthropic) and that kind's own settings."""
    summary_deadline: float = 600.0
    """Seconds after which a compactor gives up a summary that has not come."""
    compactions_at_once: int = 4
    """Conversations that one compactor works on at the same time."""
    prices: dict[str, Price] = {}
    """By model of the summariser: what its tokens cost, so that records can name it."""
    health_port: int = 0
    """Port on which a service answers `/live` and `/ready`; 0: none."""
    health_host: str = "127.0.0.1"
    """Address for that port; `0.0.0.0` where checks come from elsewhere."""
    silence_patience: float = 30.0
    """Seconds that work may wait while a service is given none of it, before it ends."""
    lag_allowed: int = 10_000
    """Messages that may wait, and grow in number, before a service says it is not ready."""
    check_seconds: float = 5.0
    """Seconds between two looks of a service at its consumer."""
    summary_seconds: float = 0.0
    """Seconds that a summary takes at the least, as if a slower model made it."""
    views_in_memory: int = 2_000
    """Conversations whose context a projector keeps at hand."""
    policy: dict[str, Any] = msgspec.field(default_factory=lambda: dict(DEFAULT_POLICY))
    """For models without a policy of their own: fields of `Policy`, or a preset and a window."""
    policies: dict[str, dict[str, Any]] = {}
    """The same by model."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: for people on a terminal, JSON lines elsewhere."""


def load(config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force. Raises SettingsError, which names the setting and its source.

    `config` is a TOML file; without it, the file that FOLDLOG_CONFIG names, if any.
    """
    named = environment.get(CONFIG)
    file = config or (Path(named) if named else None)
    values = {} if file is None else _from_file(file)
    values |= _from_environment(environment)
    return _convert(values, "the settings")


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SettingsError(f"the settings file {file} cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {file} is no TOML: {error}") from None
    for name in values:
        _check_name(name, str(file), name, {})
    _convert(values, str(file))
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {
        variable.removeprefix(PREFIX).lower(): _value(variable, value)
        for variable, value in environment.items()
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS
    }
    for name in values:
        _check_name(name, "the environment", PREFIX + name.upper(), environment)
    _convert(values, "the environment")
    return values


def _value(variable: str, value: str) -> Any:
    """A variable's value; an object is written as JSON."""
    if not value.startswith("{"):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise SettingsError(f"the environment sets {variable}, which is no JSON: {error}") from None


def _check_name(name: str, source: str, shown: str, environment: Mapping[str, str]) -> None:
    fields = Settings.__struct_fields__
    if name in fields:
        return
    close = difflib.get_close_matches(name, fields, n=1)
    as_written = (PREFIX + close[0].upper() if environment else close[0]) if close else ""
    hint = f"did you mean {as_written}?" if close else f"known are {', '.join(fields)}"
    raise SettingsError(f"{source} sets {shown}, which is no setting of foldlog: {hint}")


def _convert(values: dict[str, Any], source: str) -> Settings:
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{source}: {error}") from None
    if not 0 <= settings.port < 65536:
        raise SettingsError(f"{source}: port {settings.port} is not in 0 to 65535 - `$.port`")
    if not 0 <= settings.health_port < 65536:
        raise SettingsError(
            f"{source}: health_port {settings.health_port} is not in 0 to 65535 - `$.health_port`"
        )
    for name in ("silence_patience", "check_seconds", "broker_patience"):
        if not getattr(settings, name) > 0:
            raise SettingsError(f"{source}: {name} is in seconds and must be over 0 - `$.{name}`")
    if not 1 <= settings.compactions_at_once <= MOST_AT_ONCE:
        raise SettingsError(
            f"{source}: compactions_at_once is {settings.compactions_at_once}, and must be in 1 to "
            f"{MOST_AT_ONCE} - `$.compactions_at_once`"
        )
    if settings.summary_deadline <= 0:
        raise SettingsError(
            f"{source}: summary_deadline is in seconds and must be over 0 - `$.summary_deadline`"
        )
    return settings
