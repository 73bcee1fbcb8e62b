"""What makes one fit the same as another: only then may it go on from the other's state."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from daniel.core.records import refuse_cut
from daniel.federated.messages import Message
from daniel.federated.sums import patient_numbers
from daniel.fingerprint import fingerprint
from daniel.matrix import CodeMatrix
from daniel.study import Study

# Of what is imported: the files may change while a fit runs.
CODE = fingerprint("daniel.core", "daniel.federated")


def key_of_finish(
    matrix: CodeMatrix, study: Study, opening: Message, used: Mapping[str, Message]
) -> str:
    """Study, start, answers, the hub's records and the program."""
    answers = sorted(message.sha256 for message in used.values())
    return " ".join([study.hash, opening.sha256, *answers, records_hash(matrix), _program()])


def key_of_fit(matrices: Mapping[str, CodeMatrix], study: Study, round: int) -> str | None:
    """Study without its keys, which every run makes anew, records of all sites, and the program.

    None where noise is added: no two runs draw the same.
    """
    if study.disclosure.epsilon is not None:
        return None
    sites = tuple(replace(site, signing_key=None, masking_key=None) for site in study.sites)
    records = [f"{name} {records_hash(matrices[name])}" for name in sorted(matrices)]
    return " ".join([replace(study, sites=sites).hash, str(round), *records, _program()])


def _program() -> str:
    """Its version, and the fingerprint of the code that made the state."""
    return f"{version('daniel')} {CODE}"


def records_hash(matrix: CodeMatrix) -> str:
    """SHA-256 over the present codes of each record, its patient, and the codes that lack."""
    refuse_cut(matrix.Z.indices)
    absent = np.zeros(matrix.shape[1], dtype=bool) if matrix.absent is None else matrix.absent
    digest = hashlib.sha256()
    for values in (matrix.Z.indptr, patient_numbers(matrix), absent):
        digest.update(np.ascontiguousarray(values, dtype=np.int64).data)
    digest.update(np.ascontiguousarray(matrix.Z.indices, dtype=np.int32).data)
    return digest.hexdigest()
