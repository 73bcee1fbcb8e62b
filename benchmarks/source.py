"""Which code made a result, and where."""

import hashlib
import re
from pathlib import Path

import daniel
from benchmarks.race import commit, machine, versions

ROOT = Path(daniel.__file__).parent
CORE = "fingerprint of daniel.core"  # its name in results


def made_by() -> str:
    """Processor, commit, core and versions, in a line for results that are text."""
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"{made_on()}; commit {commit() or 'unknown'}; core {core()}; {told}"


def made_on() -> str:
    """Processor and cores, in a line for results that are text."""
    where = machine()
    return f"Machine: {where['processor']}, {where['cores']} cores"


def told_core(text: str) -> str | None:
    """The fingerprint in the line of `made_by`, if there is one."""
    said = re.search(r"; core ([0-9a-f]{8});", text)
    return None if said is None else said[1]


def told_processor(text: str) -> str | None:
    """The processor in the line of `made_on`, if there is one."""
    said = re.search(r"Machine: (.+?), \d+ cores", text)
    return None if said is None else said[1]


def core() -> str:
    """The fingerprint of the numerical core."""
    return fingerprint("core/*.py")


def fingerprint(*patterns: str) -> str:
    """Eight letters that change with the files of the package under these patterns."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
