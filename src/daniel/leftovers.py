"""What killed runs have left: temporary files and folders, .NAME.….PID.part beside their target."""

import os
import shutil
from collections.abc import Iterator
from glob import escape
from pathlib import Path

OLDER = "old"  # .NAME.old.PID.part: the folder that stood at NAME until a newer one came


def put_back(path: Path, mark: str) -> None:
    """Give an older folder its name again, if the run that moved it away for a newer one was ended.

    It holds the file `mark`, and nothing stands at `path`: it is the only whole one.
    """
    if path.exists():
        return
    parts = [part for part in _abandoned(path, own=True) if _stem(part) == f".{path.name}.{OLDER}"]
    whole = [part for part in parts if (part / mark).is_file()]
    if whole:
        os.replace(max(whole, key=lambda part: part.stat().st_mtime), path)


def remove_abandoned(path: Path, *, own: bool = False) -> None:
    """Remove the leftovers beside `path` of runs that run no more.

    own: also those with the number of this process.  Where every run has the same number, as in a
    container, they are of an earlier one.  The older folder of a longer name, as of model.2 beside
    model, stays: it may be the only one, and its own next run puts it back.
    """
    of_path = (f".{path.name}", f".{path.name}.{OLDER}")  # the first, too, may end with .old
    for part in _abandoned(path, own=own):
        if _stem(part) in of_path or not _stem(part).endswith(f".{OLDER}"):
            remove(part)


def remove(part: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if part.is_symlink() or part.is_file():
        part.unlink(missing_ok=True)
    else:
        shutil.rmtree(part, ignore_errors=True)


def _abandoned(path: Path, *, own: bool) -> Iterator[Path]:
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdigit() and (not _runs(int(pid)) or (own and int(pid) == os.getpid())):
            yield part


def _stem(part: Path) -> str:
    """The name without .PID.part."""
    return part.name.rsplit(".", 2)[0]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
