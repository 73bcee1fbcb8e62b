"""What killed runs have left: temporary files and folders, .NAME.….PID.part beside their target."""

import os
import shutil
from pathlib import Path


def remove_abandoned(path: Path, *, own: bool = False) -> None:
    """Remove the leftovers beside `path` of runs that run no more.

    own: also those with the number of this process.  Where every run has the same number, as in a
    container, they are of an earlier one.
    """
    for part in path.parent.glob(f".{path.name}.*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdigit() and (not _runs(int(pid)) or (own and int(pid) == os.getpid())):
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
