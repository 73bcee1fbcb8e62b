"""Wider code groups: rare codes under their parents, so that a floor at each site hides fewer.

wider(matrix, parents, least)                    the group of each code
write_groups(folder, parents, vocabulary, ...)   the same as a file for the study's [[maps]]
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from daniel.data.frames import read_text
from daniel.data.sitefolder import read_site
from daniel.errors import InputError
from daniel.matrix import CodeMatrix
from daniel.studyfile import write_text

STEPS = 50  # more levels than any vocabulary has


def wider(matrix: CodeMatrix, parents: Mapping[str, str], least: int) -> list[str]:
    """The group of each code: itself, or the nearest ancestor that `least` patients share.

    Codes of fewer patients move up one level, all at once, until every group has enough patients or
    no parent; a patient of several codes of a group counts once.
    """
    has = _patients_and_codes(matrix)
    groups = list(matrix.codes)
    for _ in range(STEPS):
        names, number = np.unique(groups, return_inverse=True)
        patients = _patients_of(has, number, names.size)
        small = {str(g) for g, n in zip(names, patients, strict=True) if n < least and g in parents}
        if not small:
            return groups
        groups = [parents[g] if g in small else g for g in groups]
    raise InputError("The parents of a code lead back to it: mend the file of parents.")


def grouped(matrix: CodeMatrix, groups: Sequence[str]) -> CodeMatrix:
    """The records with one column a group, in alphabetical order."""
    names, number = np.unique(list(groups), return_inverse=True)
    Z = _merged(matrix.Z, number, names.size)
    return CodeMatrix(Z, tuple(map(str, names)), matrix.patients, matrix.windows)


def write_groups(folder: Path, parents: Path, vocabulary: str, least: int, out: Path) -> str:
    """Write the groups of all codes of a vocabulary as a map, code and target; the study's entry.

    The site's codes and those of the file of parents: other sites have codes that this one lacks.
    """
    matrix = read_site(folder)
    prefix = f"{vocabulary}:"
    columns = [j for j, code in enumerate(matrix.codes) if code.startswith(prefix)]
    if not columns:
        raise InputError(f"{folder} has no code of {vocabulary!r}: name one of its vocabularies.")
    codes = [matrix.codes[j].removeprefix(prefix) for j in columns]
    above = _read_parents(parents)
    if above.keys().isdisjoint(codes):
        raise InputError(
            f"{parents} names no parent of a {vocabulary} code of {folder}: expected codes "
            f"without the vocabulary, such as {codes[0]!r}."
        )
    elsewhere = sorted(above.keys() - set(codes))
    nobody = sp.csr_array((matrix.Z.shape[0], len(elsewhere)), dtype=matrix.Z.dtype)
    Z = sp.csr_array(sp.hstack([matrix.Z[:, columns], nobody]))
    codes += elsewhere
    groups = wider(CodeMatrix(Z, tuple(codes), matrix.patients), above, least)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [("code", "target"), *zip(codes, groups, strict=True)]
    )
    write_text(out, text.getvalue())
    return (
        f'[[maps]]\nsource = ["{vocabulary}"]\ntarget = "{vocabulary}"\nfile = "{out}"\n'
        f"# {len(codes)} codes in {len(set(groups))} groups"
    )


def _read_parents(path: Path) -> dict[str, str]:
    """code -> parent from the first two columns of a CSV or TSV."""
    if not path.is_file():
        raise InputError(f"There is no file {path}: name a table of two columns, code and parent.")
    separator = "\t" if ".tsv" in path.name else ","
    try:
        table = read_text(path, separator).fillna("")
        if table.shape[1] < 2:
            raise ValueError
    except (OSError, ValueError):
        raise InputError(
            f"{path} cannot be read as a table of two columns, code and parent."
        ) from None
    pairs = table.iloc[:, :2].to_numpy().tolist()
    return {code.strip(): parent.strip() for code, parent in pairs if parent.strip()}


def _patients_and_codes(matrix: CodeMatrix) -> sp.csr_array:
    """(patients, p) who has which code in some record."""
    n = matrix.Z.shape[0]
    owner = np.arange(n) if matrix.patients is None else matrix.patients
    number = np.unique(owner, return_inverse=True)[1]
    own = sp.csr_array((np.ones(n), (number, np.arange(n))), shape=(number.max() + 1, n))
    return sp.csr_array(own @ matrix.Z)


def _patients_of(has: sp.csr_array, number: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(_merged(has, number, size).indices, minlength=size)


def _merged(Z: sp.csr_array, number: np.ndarray, size: int) -> sp.csr_array:
    """0/1 columns of groups: 1 where a column of the group has an entry."""
    into = sp.csr_array(
        (np.ones(number.size), (np.arange(number.size), number)), shape=(number.size, size)
    )
    out = sp.csr_array(Z @ into)
    out.eliminate_zeros()
    out.data = np.ones(out.data.size, dtype=np.float32)
    return out
