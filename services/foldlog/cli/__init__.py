"""The command line: one module for each command."""

import sys


def main() -> int:
    """Run the program `foldlog`; its exit code."""
    try:
        from foldlog.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("foldlog"):
            raise
        print(
            f"foldlog: the command line needs {error.name}: pip install 'foldlog[server]'",
            file=sys.stderr,
        )
        return 2
    return run()


__all__ = ["main"]
