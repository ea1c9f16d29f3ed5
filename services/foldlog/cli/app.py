"""The program `foldlog`: its commands, its exit codes, and how it says what went wrong.

Exit codes: 0 done, 1 a check failed or an input was refused, 2 usage, 3 the broker cannot be
reached, 128 + n ended by signal n. An error is one line on standard error; with `--json` it is
also the last line on standard output, `{"error": {"type", "message"}}`.
"""

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import nats.errors
import stamina.instrumentation
from cyclopts import App, CycloptsError

from foldlog.cli.output import fail
from foldlog.data_folder import DataFolderError
from foldlog.embedded import AlreadyRunning, ServerFailed, ServerNotInstalled
from foldlog.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    FoldlogError,
    JetStreamUnavailable,
    RequestTimeout,
)
from foldlog.settings import SettingsError

DONE, CHECK_FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3


class UsageError(FoldlogError):
    """A command was asked for something that does not go together or does not exist."""


NOT_REACHED = (
    AlreadyRunning,
    BrokerUnreachable,
    ConnectionClosed,
    DataFolderError,
    JetStreamUnavailable,
    RequestTimeout,
    ServerFailed,
    ServerNotInstalled,
    nats.errors.Error,
)

app = App(
    name="foldlog",
    help="The conversation log for LLM agents: immutable entries, contexts folded from them.",
    help_format="plaintext",
    print_error=False,
    exit_on_error=False,
    result_action="return_value",
)
for _name in (
    "up",
    "demo",
    "append",
    "log",
    "context",
    "compact",
    "compactions",
    "conversations",
    "verify",
):
    app.command(f"foldlog.cli.{_name}:{_name}")
for _name in ("diff", "recall", "actions"):
    app.command(f"foldlog.cli.{_name}:{_name}")
for _name in ("erase", "delete", "materialise"):
    app.command(f"foldlog.cli.erase:{_name}")
app.command("foldlog.cli.import_:import_", name="import")
app.command("foldlog.cli.dead:dead", name="dead")
app.command("foldlog.cli.rebuild:rebuild", name="rebuild")
app.command("foldlog.cli.auth:auth", name="auth")
app.command("foldlog.cli.backup:export", name="export")
app.command("foldlog.cli.backup:restore", name="restore")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    stamina.instrumentation.set_on_retry_hooks([])
    try:
        command, bound, _ = app.parse_args(given)
        outcome = command(*bound.args, **bound.kwargs)
        if inspect.iscoroutine(outcome):
            outcome = _run(outcome)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else DONE
    except CycloptsError as error:
        fail("UsageError", f"{error} Try foldlog --help.", as_json=as_json)
        return USAGE
    except Interrupted as interrupted:
        return 128 + interrupted.signal
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        # Of a path that was given; the connection's own are errors of foldlog.
        fail(type(error).__name__, str(error), as_json=as_json)
        return CHECK_FAILED
    except (FoldlogError, nats.errors.Error, ExceptionGroup) as error:
        cause = _first(error)
        if not isinstance(cause, FoldlogError | nats.errors.Error):
            raise
        fail(type(cause).__name__, str(cause), as_json=as_json)
        return exit_code(cause)


def exit_code(error: BaseException) -> int:
    """The exit code that an error on purpose ends a command with."""
    if isinstance(error, NOT_REACHED):
        return UNREACHABLE
    if isinstance(error, UsageError | SettingsError):
        return USAGE
    return CHECK_FAILED


class Interrupted(Exception):
    """A signal asked the command to end."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _run(command: Coroutine[Any, Any, Any]) -> Any:
    """Run a command; a signal cancels it, so that what it started is stopped first."""

    async def cancellable() -> Any:
        task = asyncio.ensure_future(command)
        received: list[signal.Signals] = []

        def cancel(number: signal.Signals) -> None:
            received.append(number)
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, cancel, number)
        try:
            return await task
        except asyncio.CancelledError:
            if received:
                raise Interrupted(received[0]) from None
            raise

    return asyncio.run(cancellable())


@contextlib.contextmanager
def ending_signals() -> Iterator[asyncio.Event]:
    """An event that is set when a signal asks the command to end; it is then not cancelled.

    For a command whose normal end is a signal.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, asked.set)
    try:
        yield asked
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
