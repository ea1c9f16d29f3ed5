"""The command line: one module for each command."""

from foldlog.cli.app import main

__all__ = ["main"]
