"""The release log of a site: what left, when, approved by whom.

One JSON line for each event, forced to the disk; each line holds the SHA-256 of the line before it,
so that a changed or missing line shows.  `approved` is written before the bytes leave the gate,
`written` after a file has its final name.
"""

import fcntl
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daniel.data.sitefolder import writing
from daniel.errors import InputError, ReleaseError
from daniel.federated.container import MAX_HEADER, META, canonical
from daniel.federated.messages import MANIFEST, Manifest
from daniel.federated.sealed import MAGIC, is_sealed

# What one release is allowed for.  The study's name, not its hash: an edited study, say with
# another roster, is no new occasion.
OCCASION = ("kind", "site", "study_name", "epoch", "round")


@dataclass(frozen=True)
class Ledger:
    """The log file of one site; it lies beside the site's private key."""

    path: Path

    @classmethod
    def beside(cls, key: Path) -> "Ledger":
        return cls(key.with_suffix(".log"))

    def entries(self) -> list[dict[str, Any]]:
        """All lines; a broken chain is refused.  Half a last line is what a killed run left."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")
        entries, previous = [], ""
        for line in lines[:-1]:
            try:
                entry = json.loads(line)
                intact = entry["previous"] == previous
            except (KeyError, TypeError, ValueError):
                intact = False
            if not intact:
                raise ReleaseError(
                    f"The release log {self.path.name} was changed after it was written: nothing "
                    "leaves until the person in charge of releases has looked at it."
                )
            entries.append(entry)
            previous = hashlib.sha256(line).hexdigest()
        return entries

    def approve(self, manifest: Manifest, payload: str, by: str, out: Path | None = None) -> None:
        """Log a release before its bytes leave; a second, different one is refused.

        The same numbers may leave again, for they tell nothing new; so may a release whose file
        never got its name because the run was killed.
        """
        with self._locked():
            self._catch_up()
            entries = self.entries()
            self._refuse_second(entries, manifest, payload)
            kept = {k: v for k, v in manifest.content().items() if v is not None}
            where = {} if out is None else {"out": self._from_here(out)}
            event = {"event": "approved", "by": by, **kept, **where, "payload": payload}
            self._append(event, entries)

    def written(self, manifest: Manifest, payload: str, sha256: str) -> None:
        """Log that the file has its final name."""
        with self._locked():
            self._append_written(_occasion(manifest), payload, sha256)

    def _append_written(self, occasion: dict[str, Any], payload: str, sha256: str) -> None:
        event = {"event": "written", "sha256": sha256, **occasion}
        self._append({**event, "payload": payload}, self.entries())

    def _catch_up(self) -> None:
        """Log files whose run was killed between their name and their line.

        Another file may soon take their place, and only the log would know of them.
        """
        for e in reversed(_unwritten(self.entries())):
            with suppress(OSError):
                if self._holds(e):
                    occasion = {name: e[name] for name in OCCASION}
                    self._append_written(occasion, e["payload"], _sha256(self._here / e["out"]))

    def _holds(self, e: dict[str, Any]) -> bool:
        """Whether the file of an approved line is there, and not merely another in its place.

        A sealed file can be read by the hub alone: it is this one if no line knows it.
        """
        path = self._here / e.get("out", "")
        if not path.is_file():
            return False
        with path.open("rb") as file:
            sealed = is_sealed(file.read(len(MAGIC)))
        if sealed:
            return _sha256(path) not in {known.get("sha256") for known in self.entries()}
        told = manifest_in(path)
        return all(told.get(name) == e[name] for name in (*OCCASION, "payload"))

    def _refuse_second(
        self, entries: list[dict[str, Any]], manifest: Manifest, payload: str
    ) -> None:
        occasion, unwritten = _occasion(manifest), _unwritten(entries)
        for e in entries:
            same = all(e.get(k) == v for k, v in occasion.items())
            if not same or e["event"] != "approved" or e["payload"] == payload:
                continue
            if e not in unwritten or not self._lost(e):
                raise ReleaseError(
                    f"This site has released its answer for {manifest.study_name!r}, epoch "
                    f"{manifest.epoch}, round {manifest.round}, on {e['time']}: two different "
                    "answers could be compared to learn about single patients; send the first one "
                    "again, or let all sites agree on the next epoch."
                )

    def _lost(self, e: dict[str, Any]) -> bool:
        """Whether nothing left after a line: a file that the disk does not give may be the one."""
        try:
            return "out" in e and not self._holds(e)
        except OSError:
            return False

    @property
    def _here(self) -> Path:
        return self.path.resolve().parent

    def _from_here(self, out: Path) -> str:
        """A place as seen from the log, so that a folder with both of them may be moved."""
        return os.path.relpath(out.resolve(), self._here)

    def _append(self, event: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole, _, half = data.rpartition(b"\n")
        last = whole.rpartition(b"\n")[2]
        event["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        event["previous"] = hashlib.sha256(last).hexdigest() if entries else ""
        with writing(f"The release log {self.path}"):
            with self.path.open("r+b" if self.path.exists() else "xb") as file:
                file.seek(len(data) - len(half))
                file.truncate()
                file.write(canonical(event) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self.path.chmod(0o600)

    def _locked(self) -> "_Lock":
        return _Lock(self.path.with_name(f".{self.path.name}.lock"))


class _Lock:
    """One writer at a time; the system frees it when a process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        try:
            self.file = self.path.open("w")
        except OSError:
            raise InputError(f"The folder {self.path.parent} cannot be written to.") from None
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


def manifest_in(path: Path) -> dict[str, Any]:
    """What the message in a file says of itself; empty where there is none.

    Its header is read alone: the numbers of very many codes are many gigabytes.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= MAX_HEADER else b""
    try:
        return dict(json.loads(json.loads(text)[META][MANIFEST]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unwritten(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Approved lines that no line `written` follows for the same numbers."""

    def release(e: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(e.get(name) for name in (*OCCASION, "payload"))

    written = {release(e) for e in entries if e["event"] == "written"}
    return [e for e in entries if e["event"] == "approved" and release(e) not in written]


def _occasion(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in OCCASION}
