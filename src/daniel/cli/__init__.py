"""The command line: one file per command, and each command is parse, one call, print."""

from daniel.cli import demo as _demo  # noqa: F401 - importing a command adds it to the app
from daniel.cli.app import app

__all__ = ["app"]
