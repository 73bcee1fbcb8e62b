"""Which code made a result."""

import hashlib
from pathlib import Path

import daniel
from benchmarks.race import commit, versions

ROOT = Path(daniel.__file__).parent


def made_by() -> str:
    """Commit and versions, in a line for results that are text."""
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"commit {commit() or 'unknown'}; {told}"


def fingerprint(*patterns: str) -> str:
    """Eight letters that change with the files of the package under these patterns."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
