"""Options that every command has, and the broker they lead to."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from foldlog.cli.output import say
from foldlog.data_folder import DataFolder, locate
from foldlog.embedded import attach_or_start
from foldlog.logging_setup import configure
from foldlog.session import Foldlog, connect
from foldlog.settings import Settings, load


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command."""

    url: Annotated[
        str | None,
        Parameter(help="Address of the broker (FOLDLOG_URL). Else the data folder's own server."),
    ] = None
    data: Annotated[
        Path | None, Parameter(help="Data folder of the embedded server (FOLDLOG_DATA).")
    ] = None
    tenant: Annotated[str | None, Parameter(help="Whose conversations (FOLDLOG_TENANT).")] = None
    config: Annotated[Path | None, Parameter(help="Settings file, TOML (FOLDLOG_CONFIG).")] = None
    json: Annotated[bool, Parameter(help="Results as JSON.", negative=())] = False

    def settings(self) -> Settings:
        """The settings in force. Raises SettingsError."""
        return load(self.config)

    def folder(self, settings: Settings) -> DataFolder:
        """The data folder in force."""
        return locate(self.data or (Path(settings.data) if settings.data else None))

    @contextlib.asynccontextmanager
    async def broker(self) -> AsyncIterator[str]:
        """Address of the broker to use, for the time of the block.

        The address given, else the server that runs on the data folder, else one started for
        this block. A data folder on the command line outweighs an address in the settings.
        """
        settings = self.settings()
        url = self.url or (settings.url if self.data is None else None)
        if url is not None:
            yield url
            return

        def waiting() -> None:
            say("done; another command still uses this server, waiting for it")

        async with attach_or_start(self.folder(settings), on_wait=waiting) as server:
            yield server.address

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Foldlog]:
        """The log behind the broker to use. Raises what `broker` and `connect` raise."""
        configure("foldlog", quiet(self.settings()))
        async with self.broker() as url, connect(url, tenant=self.tenant_name()) as foldlog:
            yield foldlog

    def tenant_name(self) -> str:
        """The tenant in force."""
        return self.tenant or self.settings().tenant


def quiet(settings: Settings) -> Settings:
    """The settings for a command that prints results: it logs what went wrong only."""
    if settings.log_level == "info":
        return msgspec.structs.replace(settings, log_level="warning")
    return settings
