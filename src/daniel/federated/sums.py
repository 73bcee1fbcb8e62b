"""What a site's records come to at a start: sums over records, in units of records.

    derivative S_jk = sum (z_j - mu_j)(pi_k - z_k), symmetrised, j <= k: the derivative of the loss
               in Phi at the start is G = S / (n sigma_j sigma_k), eq. (B_star) in natural
               coordinates; pi is the model's probability of z_k given the record's other codes;
               or its sketch n sigma_j (G Q)_jc along the start's directions Q
    b          sum (pi_j - z_j), the derivative in the intercepts
    counts     records with each code;  patients  patients with each code
    totals     records, patients

Only the symmetric part of G matters to a symmetric Phi.  Every term of a record lies in [-1, 1].
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from daniel.core import natural, sketch
from daniel.core.ising import full_sweep
from daniel.core.place import once
from daniel.core.records import Records, records_from
from daniel.federated.directions import along, squared_norms, triangle_of
from daniel.federated.messages import TOTALS, size_of_triangle
from daniel.matrix import CodeMatrix

BLOCK = 256  # records whose patients are clipped at once
PATIENT_ROWS = 1 << 16  # records whose patients are counted at once
RECORD_WEIGHT = 5.0  # of one record beside the patient's counts, where both get noise
COUNT_CLIP = 0.25  # of a patient's counts, in units of the clip of the derivative


@dataclass(frozen=True)
class Sums:
    """Sums over the records of a site, or over sites; a site's derivative may be float32."""

    derivative: np.ndarray  # (p (p + 1) / 2,) triangle, or (p k,) sketch, row by row
    b: np.ndarray  # (p,)
    counts: np.ndarray  # (p,)
    patients: np.ndarray  # (p,)
    totals: np.ndarray  # (2,)

    def vector(self) -> np.ndarray:
        """All numbers in one float64 vector."""
        parts = (self.derivative, self.b, self.counts, self.patients, self.totals)
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])

    @classmethod
    def of_vector(cls, vector: np.ndarray, p: int) -> "Sums":
        edges = np.cumsum([vector.size - 3 * p - TOTALS, p, p, p])
        return cls(*np.split(vector, edges))


def patient_numbers(matrix: CodeMatrix) -> np.ndarray:
    """(n,) number of each record's patient; without patients every record is one."""
    if matrix.patients is None:
        return np.arange(matrix.Z.shape[0])
    return np.unique(matrix.patients, return_inverse=True)[1]


def patients_with(matrix: CodeMatrix, patient: np.ndarray) -> np.ndarray:
    """(p,) patients that have each code in some record; so many records at once."""
    order = np.argsort(patient, kind="stable")
    patient = patient[order]
    begins = np.flatnonzero(np.diff(patient, prepend=-1))  # of each patient's records
    rows = np.arange(0, patient.size, PATIENT_ROWS)
    edges = begins[np.searchsorted(begins, rows, "right") - 1]
    counts = np.zeros(matrix.Z.shape[1])
    for first, last in pairwise([*np.unique(edges), patient.size]):
        Z = matrix.Z[order[first:last]]
        number = patient[first:last] - patient[first]
        owner = sp.csr_array((np.ones(number.size), (number, np.arange(number.size))))
        counts += np.bincount((owner @ Z).tocsr().indices, minlength=counts.size)
    return counts


def site_sums(
    matrix: CodeMatrix,
    start: natural.Start,
    options: natural.Options,
    *,
    clip: float | None = None,
    with_counts: bool = False,
    Q: np.ndarray | None = None,
    directions: np.ndarray | None = None,
) -> Sums:
    """The sums of a site at the start.

    With `clip` a patient whose derivative has a norm above it counts less in the derivatives, so
    that it comes down to the clip.  with_counts: the patient's counts and number of records are
    brought down to COUNT_CLIP times the clip, by a weight of their own; without it they stay exact.
    Q (p, d): tell the derivative along these directions only (`daniel.federated.directions`), as
    answers with noise do.  directions (p, k): sketch it along these (`daniel.core.sketch`).
    """
    patient = patient_numbers(matrix)
    records = counted = records_from(matrix.Z, merge=clip is None)
    b = start.b
    with once(records):
        if options.intercept == "site":
            b = natural.site_intercepts(records, start)
        if clip is not None:
            norms, of_counts = patient_norms(records, patient, start, b, Q)
            records = replace(records, weight=_weights(norms, clip)[patient])
            if with_counts:
                counted = replace(records, weight=_weights(of_counts, COUNT_CLIP * clip)[patient])
        derivative, of_b = _derivative(records, start, b, Q, directions)
    return Sums(
        derivative,
        of_b[0] * records.total,
        counted.counts().astype(np.float64),  # whole numbers where there is no code at all
        patients_with(matrix, patient),
        np.array([counted.total, patient.max() + 1.0]),
    )


def _derivative(
    records: Records,
    start: natural.Start,
    b: np.ndarray,
    Q: np.ndarray | None,
    directions: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The sum that stands for the derivative in Phi, and the mean derivative in b (1, p)."""
    scale, total = start.coords.scale, records.total
    free = None if start.coords.tied else b
    if directions is not None:
        GQ, of_b = sketch.along(records, start, free, directions)
        return (GQ * (total * scale)[:, None]).astype(np.float32).ravel(), of_b
    out = full_sweep(records, start.coords, (start.U, start.V), free)
    if Q is None:
        return _triangle(out.G, total, scale), out.b
    S = (out.G + out.G.T).astype(np.float64) * (total / 2)
    return triangle_of(along(S, Q), Q, scale), out.b


def _weights(norms: np.ndarray, most: float) -> np.ndarray:
    """Factors that bring norms down to `most`."""
    return np.minimum(1.0, most / np.maximum(norms, 1e-300))


def _triangle(G: np.ndarray, total: float, scale: np.ndarray) -> np.ndarray:
    """Upper triangle of total * scale scale' (G + G')/2, row by row, in float32."""
    p = G.shape[0]
    out = np.empty(size_of_triangle(p), dtype=np.float32)
    first = 0
    for j in range(p):
        row = (G[j, j:].astype(np.float64) + G[j:, j]) * (0.5 * total * scale[j]) * scale[j:]
        out[first : first + p - j] = row
        first += p - j
    return out


def symmetric(triangle: np.ndarray, p: int, dtype: type = np.float64) -> np.ndarray:
    """(p, p) symmetric matrix of an upper triangle."""
    out: np.ndarray = np.empty((p, p), dtype=dtype)
    first = 0
    for j in range(p):
        row = triangle[first : first + p - j]
        out[j, j:] = row
        out[j:, j] = row
        first += p - j
    return out


def triangle_of_scales(scale: np.ndarray) -> np.ndarray:
    """Upper triangle of scale scale'."""
    return np.concatenate([scale[j] * scale[j:] for j in range(scale.size)])


def patient_norms(
    records: Records,
    patient: np.ndarray,
    start: natural.Start,
    b: np.ndarray,
    Q: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(patients,) norms of each patient's share of the derivative, and of the counts.

    A patient's derivative is A = sum_r x_r y_r' over the patient's records, without its diagonal d:
    ``|sym A|^2 = (|A|^2 + <A, A'>)/2 - |d|^2``, where ``|A|^2 = sum_rs (x_r'x_s)(y_r'y_s)`` and
    ``<A, A'> = sum_rs (x_r'y_s)(y_r'x_s)``: Gram matrices of records, never a (p, p) array.  To it
    comes the derivative in the intercepts, |sum y_r|^2.  The counts are sum z_r / sigma and the
    number of records times RECORD_WEIGHT.  With Q the derivative is what `directions` leaves of it.
    """
    coords = start.coords
    order = np.argsort(patient, kind="stable")
    owner = patient[order]
    edges = np.append(np.flatnonzero(np.diff(owner, prepend=-1)), owner.size)
    Z = records.csr(np.float64)[order]
    norms = np.zeros((2, int(patient.max()) + 1))
    first = 0
    while first < edges.size - 1:
        last = max(int(np.searchsorted(edges, edges[first] + BLOCK, "right")) - 1, first + 1)
        rows = slice(edges[first], edges[last])
        z = Z[rows].toarray()
        x = (z - coords.center) / coords.scale
        y = _residual(x, z, start, b) * coords.gain
        runs = edges[first:last] - edges[first]
        squared = _squared_norms(x, y, runs) if Q is None else squared_norms(x, y, runs, Q)
        squared += (np.add.reduceat(y, runs) ** 2).sum(axis=1)
        if coords.tie is not None:
            column = np.add.reduceat(y / coords.gain, runs)
            squared += ((coords.tie * column) ** 2).sum(axis=1)
        counts = (np.add.reduceat(z / coords.scale, runs) ** 2).sum(axis=1)
        counts += (RECORD_WEIGHT * np.diff(np.append(runs, z.shape[0]))) ** 2
        norms[:, owner[edges[first:last]]] = np.sqrt([squared, counts])
        first = last
    return norms[0], norms[1]


def _residual(x: np.ndarray, z: np.ndarray, start: natural.Start, b: np.ndarray) -> np.ndarray:
    """(rows, p) probability of each code given the record's others, minus the code."""
    phi = np.einsum("jc,jc->j", start.U, start.V, dtype=np.float64)
    free = b[0] if start.coords.tie is None else start.coords.tie * phi
    M = (x @ start.U.astype(np.float64)) @ start.V.T.astype(np.float64) - x * phi
    return expit(free + start.coords.gain * M) - z


def _squared_norms(x: np.ndarray, y: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """(patients,) squared norms of the derivatives of consecutive runs of records."""
    own = np.repeat(np.arange(runs.size), np.diff(np.append(runs, x.shape[0])))
    same = own[:, None] == own
    xx, yy, xy = x @ x.T, y @ y.T, x @ y.T
    pairs = ((xx * yy + xy * xy.T) / 2 * same).sum(axis=1)
    d = np.add.reduceat(x * y, runs)
    return np.maximum(np.add.reduceat(pairs, runs) - (d**2).sum(axis=1), 0)
