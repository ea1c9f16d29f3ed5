"""`foldlog demo`: the story of one conversation, told while it happens."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foldlog.cli.app import CHECK_FAILED, DONE, UsageError
from foldlog.cli.common import Common
from foldlog.cli.output import console, print_json
from foldlog.data_folder import DataFolder
from foldlog.demo.show import checks, show
from foldlog.demo.telling import Speaker, tell
from foldlog.embedded import EmbeddedServer
from foldlog.logging_setup import configure

PROCESSES_LOG = "demo.log"
_VOICES: dict[Speaker, tuple[str, str]] = {
    "person": ("you", "bold"),
    "analyst": ("analyst", "green"),
    "system": ("meanwhile", "dim"),
}


async def demo(
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Tell a story: two agents, a projector and a compactor share one conversation.

    An analyst's agent is asked why sales fell; its context comes under pressure and is compacted
    while you go on talking, a process is killed, and a summary made of an outdated table is
    refused. Runs on a server of its own, in a temporary folder or in --data. With --json the last
    line are the facts shown. Ends with 1 where one of them does not hold.
    """
    if common.url is not None:
        raise UsageError("`demo` starts a server of its own: leave --url out, or give --data")
    settings = common.settings()
    configure("demo", msgspec.structs.replace(settings, log_level="error"))
    out = console()
    with _folder(common.data) as folder:
        async with EmbeddedServer(folder, port=settings.port) as server:
            _introduce(out)

            def say(speaker: Speaker, text: str) -> None:
                _say(out, speaker, text)

            shown = await tell(server.address, folder.path / PROCESSES_LOG, say=say)
        out.print()
        show(out, shown)
        if common.data is not None:
            out.print(f"Look around: foldlog log {shown.facts.conversation} --data {common.data}")
    if common.json:
        print_json(shown.facts)
    return DONE if all(holds for holds, _ in checks(shown)) else CHECK_FAILED


@contextmanager
def _folder(given: Path | None) -> Iterator[DataFolder]:
    if given is not None:
        yield DataFolder(given)
        return
    with tempfile.TemporaryDirectory(prefix="foldlog-demo-") as temporary:
        yield DataFolder(Path(temporary))


def _introduce(out: Console) -> None:
    out.print(
        Text(
            "Two agents share one conversation: an analyst, and a warehouse that runs its tools. "
            "A projector keeps the view, a compactor makes it smaller. Nobody waits for anybody."
        )
    )
    out.print()


def _say(out: Console, speaker: Speaker, text: str) -> None:
    name, style = _VOICES[speaker]
    line = Table.grid()
    line.add_column(width=max(len(one) for one, _ in _VOICES.values()) + 1)
    line.add_column(ratio=1)
    line.add_row(Text(name, style=style), Text(text, style=style))
    out.print(line)
