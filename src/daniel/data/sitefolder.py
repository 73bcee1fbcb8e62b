"""The site folder: a site's records, and everything that stays beside them.

    site.json            what it is: study hash, site, versions, exact counts, SHA-256 of the files
    study.json           the study's content; its SHA-256 is the study hash
    records.safetensors  indptr, indices (CSR), patient, window
    codes.parquet        code, description, patients, records, absent
    codes.tsv            the code list alone, which a study can adopt
    patients.parquet     number, pseudonym and id of each patient, first date
    summary.txt          for people; only this one may leave

Only its owner can open it.  It is filled under another name, forced to the disk and then renamed:
never half a folder.
"""

import errno
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from daniel.data.records import RecordArrays
from daniel.data.summary import Facts
from daniel.errors import DanielError, FormatError, InputError
from daniel.leftovers import remove_abandoned
from daniel.matrix import CodeMatrix
from daniel.study import Study

FORMAT = 1
MAPPED = 16_000_000  # bytes of records from which on their codes are mapped
INFO = "site.json"
CANNOT = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)
RECORDS, CODES, PATIENTS = "records.safetensors", "codes.parquet", "patients.parquet"


@contextmanager
def new(out: Path) -> Iterator[Path]:
    """A folder to fill, renamed to `out` when the block ends well, and removed when it does not."""
    out = out.absolute()
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with writing(f"The folder {out}"):
            _check_free(out)
            remove_abandoned(out, own=True)  # such a folder holds patients' data
            part.mkdir(mode=0o700)
            yield part
            to_disk(part)
            os.replace(part, out)
            names_to_disk(out.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def to_disk(folder: Path) -> None:
    """Force all that a folder holds to the disk: a power cut leaves what is renamed after this."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        if path.is_dir():
            names_to_disk(path)
        else:
            _force(path, os.O_RDWR)  # some systems force only what may be written
    names_to_disk(folder)


def names_to_disk(folder: Path) -> None:
    """Force the names in a folder to the disk, where platform and file system can do that."""
    try:
        _force(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in CANNOT:
            raise


def _force(path: Path, how: int) -> None:
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(what: str | Path) -> Iterator[None]:
    """What the system says when it cannot write, as one sentence."""
    try:
        yield
    except DanielError:  # some are errors of the system too
        raise
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else "the disk may be full"
        raise InputError(
            f"{what} cannot be written ({why}): free some space, or choose a place that this user "
            "may write to, and run the command again."
        ) from None


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: remove it first, or choose another name.")
    if not out.parent.is_dir():
        raise InputError(f"The folder {out.parent} does not exist; make it first.")


def fill(
    folder: Path,
    study: Study,
    site: str,
    facts: Facts,
    codes: pa.Table,
    cells: RecordArrays,
    patients: pa.Table,
    summary: str,
) -> None:
    """Write all files of a site folder."""
    arrays = {f: np.ascontiguousarray(getattr(cells, f)) for f in cells.__dataclass_fields__}
    save_file(arrays, folder / RECORDS)
    pq.write_table(codes, folder / CODES)
    pq.write_table(patients, folder / PATIENTS)
    (folder / "codes.tsv").write_text(_code_list(codes), "utf-8")
    (folder / "study.json").write_bytes(study.canonical)
    (folder / "summary.txt").write_text(summary, "utf-8")
    info = {
        "format": FORMAT,
        "kind": "daniel site",
        "site": site,
        "study": study.hash,
        "study_name": study.name,
        "epoch": study.epoch,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("daniel", "duckdb", "numpy", "pyarrow")}
        | {"python": platform.python_version()},
        "facts": asdict(facts),
        "files": {path.name: _sha256(path) for path in sorted(folder.iterdir())},
    }
    (folder / INFO).write_text(json.dumps(info, indent=1, sort_keys=True) + "\n", "utf-8")
    for path in folder.iterdir():
        path.chmod(0o600)


def read_info(folder: str | Path) -> dict[str, Any]:
    """site.json of a folder."""
    path = Path(folder) / INFO
    try:
        info = json.loads(path.read_text("utf-8"))
        kind, found = info["kind"], info["format"]
    except FileNotFoundError:
        raise FormatError(f"{folder} is no site folder: `daniel prepare` makes one.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{path} is damaged: make the folder again.") from None
    if kind != "daniel site" or found != FORMAT:
        raise FormatError(
            f"{folder} has site format {found}, and this daniel reads format {FORMAT}: make it "
            "again with `daniel prepare`."
        )
    return dict(info)


def read_site(folder: str | Path) -> CodeMatrix:
    """The records of a site folder, checked against its hashes.

    The codes of very many records are mapped from the file, not read: a sweep touches them block
    by block, and the system may drop from memory what it has passed.  The file must then stay as it
    is; it may be removed.
    """
    folder = Path(folder)
    info = read_info(folder)
    try:
        for name in (RECORDS, CODES, PATIENTS):
            path = folder / name
            if not path.is_file() or _sha256(path) != info["files"].get(name):
                raise FormatError(f"{path} is missing or damaged: make the folder again.")
        arrays = _arrays(folder / RECORDS)
        codes = pq.read_table(folder / CODES, columns=["code", "absent"])
        patients = pq.read_table(folder / PATIENTS, columns=["number", "pseudonym"])
        return _matrix(arrays, codes, patients)
    except DanielError:  # some are errors of values too
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "the disk may be damaged"
        raise InputError(
            f"The records of {folder} cannot be read ({why}): see that the disk is well and that "
            "this user may read them, and run the command again."
        ) from None
    except (SafetensorError, pa.ArrowException, KeyError, ValueError):
        raise FormatError(f"{folder} is damaged: make it again with `daniel prepare`.") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, the codes mapped if they are many."""
    if path.stat().st_size < MAPPED:
        return load_file(path)
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in ("indptr", "patient", "window")}
    with path.open("rb") as raw:  # a length, a header with offsets, then the data
        length = int.from_bytes(raw.read(8), "little")
        about = json.loads(raw.read(length))["indices"]
    if about["dtype"] != "I32":
        raise ValueError("codes are numbered in 32 bits")
    offset = 8 + length + about["data_offsets"][0]
    codes = np.memmap(path, np.int32, "c", offset, tuple(about["shape"]))  # never written back
    return arrays | {"indices": np.asarray(codes)}


def _matrix(arrays: dict[str, np.ndarray], codes: pa.Table, patients: pa.Table) -> CodeMatrix:
    indptr, indices = arrays["indptr"], arrays["indices"]
    if indices.size < np.iinfo(indices.dtype).max:  # SciPy wants one type for both
        indptr = indptr.astype(indices.dtype)
    ones = np.ones(indices.size, dtype=np.float32)
    Z = sp.csr_array((ones, indices, indptr), shape=(indptr.size - 1, codes.num_rows))
    number = patients["number"].to_numpy()
    pseudonym = patients["pseudonym"].to_numpy()
    absent = codes["absent"].to_numpy()
    return CodeMatrix(
        Z,
        tuple(codes["code"].to_pylist()),
        patients=pseudonym[np.searchsorted(number, arrays["patient"])],
        windows=arrays["window"],
        absent=absent if absent.any() else None,
    )


def _code_list(codes: pa.Table) -> str:
    rows = zip(codes["code"].to_pylist(), codes["description"].to_pylist(), strict=True)
    return "code\tdescription\n" + "".join(f"{code}\t{text or ''}\n" for code, text in rows)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
