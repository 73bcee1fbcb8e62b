"""The release log of a site: what left, when, approved by whom.

One JSON line for each event, forced to the disk; each line holds the SHA-256 of the line before it,
so that a changed or missing line shows.  `approved` is written before the bytes leave the gate,
`written` after a file has its final name.
"""

import fcntl
import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daniel.data.sitefolder import writing
from daniel.errors import InputError, ReleaseError
from daniel.federated.container import canonical
from daniel.federated.messages import Manifest


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
            entries = self.entries()
            self._refuse_second(entries, manifest, payload)
            kept = {k: v for k, v in manifest.content().items() if v is not None}
            where = {} if out is None else {"out": self._from_here(out)}
            event = {"event": "approved", "by": by, **kept, **where, "payload": payload}
            self._append(event, entries)

    def written(self, manifest: Manifest, payload: str, sha256: str) -> None:
        """Log that the file has its final name."""
        with self._locked():
            event = {"event": "written", "sha256": sha256, **_occasion(manifest)}
            self._append({**event, "payload": payload}, self.entries())

    def _refuse_second(
        self, entries: list[dict[str, Any]], manifest: Manifest, payload: str
    ) -> None:
        occasion = _occasion(manifest)
        same = [e for e in entries if all(e.get(k) == v for k, v in occasion.items())]
        written = {e["payload"] for e in same if e["event"] == "written"}
        for e in same:
            if e["event"] != "approved" or e["payload"] == payload:
                continue
            lost = "out" in e and not (self._here / e["out"]).exists()
            if not lost or e["payload"] in written:
                raise ReleaseError(
                    f"This site has released its answer for {manifest.study_name!r}, epoch "
                    f"{manifest.epoch}, round {manifest.round}, on {e['time']}: two different "
                    "answers could be compared to learn about single patients; send the first one "
                    "again, or let all sites agree on the next epoch."
                )

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


def _occasion(manifest: Manifest) -> dict[str, Any]:
    """What one release is allowed for.  The study's name, not its hash: an edited study, say with
    another roster, is no new occasion."""
    return {
        "kind": manifest.kind,
        "site": manifest.site,
        "study_name": manifest.study_name,
        "epoch": manifest.epoch,
        "round": manifest.round,
    }
