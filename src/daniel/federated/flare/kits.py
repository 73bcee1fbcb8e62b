"""What stands in a start-up kit beside FLARE's own files, and who may read it.

    local/daniel.toml     the site's settings: where its study, records and keys are
    local/approval.json   who approved the site's answer, for which study, and for which start
    inbox/HASH.daniel     the starts that the hub sent last, for people to inspect
    outbox/HASH.daniel    the answer to each: a repeated question gets the same bytes
    exchange/HASH/        at the hub: start.daniel, answers/SITE.daniel, status.json

The hub sends none of the files in `local`, and cannot read them.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daniel import studyfile
from daniel.errors import FormatError, InputError, ReleaseError
from daniel.federated.files import read_file, write_file
from daniel.study import Study, key

LARGEST_START = 512 * 2**20  # bytes; a start at p = 10,000 and d = 200 has 16 MB
LARGEST_ANSWER = 8 * 2**30
SMALL = 10**6
INBOX = 5  # starts that a site keeps
WAITING, ANSWERED = "waiting", "answered"  # states of a site in status.json
SETTINGS, APPROVAL = "local/daniel.toml", "local/approval.json"


@dataclass(frozen=True)
class Settings:
    """local/daniel.toml: what a site keeps to itself.  Paths start at the kit."""

    study: str = key("study.toml", "The study file.")
    records: str = key("records", "The site folder that `daniel prepare` made.")
    private_key: str = key("site.key", "The key file that `daniel keys` made.")


# Makes a site's answer: its kit, the start's file, the file to write, and who approved.
Answerer = Callable[["Kit", Path, Path, str], None]


@dataclass(frozen=True)
class Kit:
    """A site's start-up kit."""

    folder: Path

    @property
    def settings(self) -> Settings:
        path = self.folder / SETTINGS
        return studyfile.build(Settings, studyfile.read(path), path.name)

    def path(self, name: str) -> Path:
        """A file that the settings name."""
        return self.folder / os.path.expanduser(name)

    def study(self) -> Study:
        return Study.load(self.path(self.settings.study))

    def approve(self, by: str, start: Path | None = None) -> None:
        """Write the approval: for one start, or for every start of this study and epoch."""
        if not by.strip():
            raise InputError("The approval has no name: say who approves, with --by NAME.")
        content = {
            "study": self.study().hash,
            "start": None if start is None else digest(read_file(start, LARGEST_START)),
            "by": by.strip(),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(self.folder / APPROVAL, content)

    def withdraw(self) -> None:
        (self.folder / APPROVAL).unlink(missing_ok=True)

    def approver(self, start: bytes) -> str:
        """Who approved the answer to this start; ReleaseError when nobody did."""
        given = _approval(self.folder / APPROVAL)
        if given is None:
            raise ReleaseError(
                f"Nobody has approved an answer to inbox/{digest(start)[:16]}.daniel: look at it "
                "with `daniel inspect`, then run `daniel network approve`."
            )
        if given.get("study") != self.study().hash:
            raise ReleaseError("The approval is for another study or epoch: approve this one.")
        if given.get("start") not in {None, digest(start)}:
            raise ReleaseError("The approval is for another start: inspect this one and approve.")
        return str(given["by"])

    def answer(self, start: bytes, make: Answerer) -> Path:
        """The file with this site's answer to a start; made once, then repeated as it is.

        The start is kept for inspection first, so that a refused one can be looked at.
        """
        if len(start) > LARGEST_START:
            raise ReleaseError("The start is larger than any start of daniel.")
        name = f"{digest(start)[:16]}.daniel"
        received, path = self.folder / "inbox" / name, self.folder / "outbox" / name
        write_bytes(received, start)
        _keep_newest(received.parent)
        by = self.approver(start)
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            make(self, received, path, by)
        return path


def _keep_newest(inbox: Path) -> None:
    """A hub that sends and sends must not fill the site's disk."""
    files = sorted(inbox.glob("*.daniel"), key=lambda path: path.stat().st_mtime_ns)
    for path in files[:-INBOX]:
        path.unlink(missing_ok=True)


def digest(data: bytes) -> str:
    """SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def exchange_folder(server: Path, start: str) -> Path:
    """Where the hub keeps one exchange: a folder for each start, so that rounds never mix."""
    return server / "exchange" / start[:16]


def write_bytes(path: Path, data: bytes) -> None:
    """A whole file or none, which only its owner can read, in a folder that is made for it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(path, data, mode=0o600)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of one of the small files here."""
    data = read_file(path, SMALL)
    try:
        return json.loads(data)
    except ValueError:
        raise FormatError(f"{path} cannot be read as JSON: restore it, or make it anew.") from None


def _approval(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or not content.get("by"):
        raise ReleaseError("The approval names nobody: run `daniel network approve` again.")
    return content
