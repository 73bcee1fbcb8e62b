"""The command line: one file per command, and each command is parse, one call, print."""

from daniel.cli import answer as _answer  # noqa: F401 - importing a command adds it to the app
from daniel.cli import cohort as _cohort  # noqa: F401
from daniel.cli import demo as _demo  # noqa: F401
from daniel.cli import export as _export  # noqa: F401
from daniel.cli import finish as _finish  # noqa: F401
from daniel.cli import fit as _fit  # noqa: F401
from daniel.cli import graph as _graph  # noqa: F401
from daniel.cli import inspect as _inspect  # noqa: F401
from daniel.cli import keys as _keys  # noqa: F401
from daniel.cli import network as _network  # noqa: F401
from daniel.cli import new as _new  # noqa: F401
from daniel.cli import prepare as _prepare  # noqa: F401
from daniel.cli import report as _report  # noqa: F401
from daniel.cli import simulate as _simulate  # noqa: F401
from daniel.cli import start as _start  # noqa: F401
from daniel.cli import status as _status  # noqa: F401
from daniel.cli import validate as _validate  # noqa: F401
from daniel.cli import widen as _widen  # noqa: F401
from daniel.cli.app import app

__all__ = ["app"]
