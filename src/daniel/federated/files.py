"""Files that appear whole or not at all, and a reader that knows its limit beforehand."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from daniel.data.sitefolder import names_to_disk, to_disk, writing
from daniel.errors import FormatError, InputError
from daniel.leftovers import OLDER, put_back, remove, remove_abandoned

HEAD = 1 << 16  # bytes at the beginning of a file, which tell whose it is


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write to a temporary name beside the target, force it to the disk, then rename."""
    path = path.absolute()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        check_parent(path)
        remove_abandoned(path)
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def check_parent(path: Path) -> None:
    """The folder that a file or folder shall stand in must be there, and let this user write."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"The folder {parent} does not exist; make it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"This user may not write to the folder {parent}: choose another place.")


def check_file(out: Path, marks: Sequence[bytes]) -> None:
    """Refuse a place for a file that others have, or nobody can write; before the work, not after.

    A file whose beginning holds all `marks` is an earlier one of the same kind; an empty one is
    nobody's.
    """
    check_parent(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file to write.")
    if not out.exists():
        return
    with writing(out):
        with out.open("rb") as file:
            head = file.read(HEAD)
        if head and not all(mark in head for mark in marks):
            raise _taken(out)


def _taken(out: Path) -> InputError:
    return InputError(f"{out} exists already and is something else: choose another name.")


def check_folder(out: Path, mark: str, own: Sequence[str] | None = None) -> None:
    """Refuse a place that `new_folder` could not fill; long work asks before it begins."""
    with writing(f"The folder {out}"):
        if out.exists() and not (out / mark).is_file() and (not out.is_dir() or any(out.iterdir())):
            raise _taken(out)
        check_parent(out)
        if Path.cwd().resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{out} is the current folder or holds it, and would be replaced: name another."
            )
        if own is not None and out.exists():
            _check_own(out, own)


def _check_own(out: Path, own: Sequence[str]) -> None:
    """Refuse a folder with a file or folder that is none of `own`, patterns of paths in it."""
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out)
        whole = path.is_dir() and not path.is_symlink()
        mine = (Path(*Path(p).parts[: len(name.parts)]).as_posix() if whole else p for p in own)
        if not any(fnmatch(name.as_posix(), pattern) for pattern in mine):
            raise InputError(
                f"{out} holds {name}, which would be lost: choose another name, or remove it."
            )


@contextmanager
def new_folder(out: Path, mark: str, own: Sequence[str] | None = None) -> Iterator[Path]:
    """A folder to fill, which takes the place of `out` when the block ends well.

    An `out` that holds the file `mark` is an older one of the same kind, and is replaced.  own:
    patterns of all paths that it may hold, for a mark that others use too; another path is refused.
    The older folder stays where the block or the disk fails, also if an earlier run was killed
    while it was replaced; it goes when the new one is on the disk.
    """
    out = out.absolute()
    check_folder(out, mark, own)
    part, old = (out.with_name(f".{out.name}.{w}.{os.getpid()}.part") for w in ("new", OLDER))
    with writing(f"The folder {out}"):
        put_back(out, mark)
        remove_abandoned(out, own=True)
        try:
            part.mkdir()
            yield part
            to_disk(part)
            _swap(part, out, old)
        finally:
            put_back(out, mark)
            remove(part)
            remove(old)


def _swap(part: Path, out: Path, old: Path) -> None:
    """`part` becomes `out`.

    An older `out` is called `old` no longer than it is the only one: half removed, it must not be
    put back.
    """
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    names_to_disk(out.parent)  # before the older one goes
    if old.exists():
        os.replace(old, part)


def read_file(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes; its size is looked at before it is read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise FormatError(
                    f"{path.name} has {size:,} bytes, and at most {limit:,} were expected: it is "
                    "not a file of this study."
                )
            return file.read(limit + 1)
    except FileNotFoundError:
        raise FormatError(f"There is no file {path}.") from None
    except OSError:
        raise FormatError(f"{path} cannot be read.") from None
