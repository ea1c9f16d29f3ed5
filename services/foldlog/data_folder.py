"""The data folder of the embedded server: where it is, what lies in it, and who holds it.

Locks are the operating system's own (`flock`): they end with the process that holds them,
however it ends, so no file that a killed process left behind is ever taken for a running one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import platformdirs

from foldlog_events.errors import FoldlogError


class DataFolderError(FoldlogError):
    """The data folder cannot be used."""


class RunningServer(msgspec.Struct, frozen=True):
    """What a running embedded server says of itself in its data folder."""

    address: str
    pid: int
    """Of the foldlog process that started it."""
    lasting: bool = False
    """Until it is stopped, and not only while one command needs it."""


class DataFolder:
    """Paths of a data folder. Making one touches nothing; `prepare` does."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.run = self.path / "run"
        self.store = self.path / "jetstream"
        self.config = self.run / "nats.conf"
        self.log = self.run / "nats.log"
        self.pid = self.run / "nats.pid"
        self.address = self.run / "server.json"

    def prepare(self) -> None:
        """Make the folders. Raises DataFolderError where that is not possible."""
        try:
            for folder in (self.path, self.run, self.store):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(13, "Permission denied", str(folder))
        except OSError as error:
            raise DataFolderError(
                f"the data folder {self.path} cannot be written ({error.strerror}): "
                "choose another with --data or FOLDLOG_DATA"
            ) from None

    def read_address(self) -> RunningServer | None:
        """What the last server wrote of itself; None where there is nothing to read."""
        try:
            return msgspec.json.decode(self.address.read_bytes(), type=RunningServer)
        except (OSError, msgspec.DecodeError):
            return None

    def write_address(self, server: RunningServer) -> None:
        """Say where the server is; readers see the whole of it or nothing."""
        draft = self.address.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(server))
        draft.replace(self.address)

    def read_server_pid(self) -> int | None:
        """The nats-server's process id, as it wrote it."""
        try:
            return int(self.pid.read_text())
        except (OSError, ValueError):
            return None

    def clear_traces(self) -> None:
        """Remove what an earlier server said of itself."""
        for trace in (self.address, self.pid, *self.run.glob("*.ports")):
            trace.unlink(missing_ok=True)


class Lock:
    """One of the folder's locks: `owner`, `server` or `users`. Closing it releases it."""

    def __init__(self, folder: DataFolder, name: str) -> None:
        try:
            self.descriptor = os.open(
                folder.run / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise DataFolderError(
                f"the data folder {folder.path} cannot be locked ({error.strerror}): "
                "choose another with --data or FOLDLOG_DATA"
            ) from None

    def acquire(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free; whether it was. An exclusive one is turned into shared."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise DataFolderError(
                f"the data folder's file system cannot lock files ({error.strerror}): "
                "choose a local one with --data or FOLDLOG_DATA"
            ) from None
        return True

    def close(self) -> None:
        """Release the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@contextlib.contextmanager
def lock(folder: DataFolder, name: str) -> Iterator[Lock]:
    """A lock that is closed at the end; it is not yet acquired."""
    held = Lock(folder, name)
    try:
        yield held
    finally:
        held.close()


def locate(given: Path | None, environment: Mapping[str, str] = os.environ) -> DataFolder:
    """The folder given, else FOLDLOG_DATA, else the platform's folder for user data."""
    named = environment.get("FOLDLOG_DATA")
    return DataFolder(given or (Path(named) if named else platformdirs.user_data_path("foldlog")))
