"""Which code this is: the version stays the same for long."""

import hashlib
from importlib.resources import files


def fingerprint(*packages: str) -> str:
    """Eight letters that change with the Python files of these packages."""
    digest = hashlib.sha256()
    for package in packages:
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
