"""The quantities in the theory's conditions, for a fit and the records that it was made from.

    curvature         kappa_min and kappa_max of eq. (constraint_main)
    gradient_moment   || mean W W' || / p of the assumption ass:reg_grad
    couplings         the quantities in Proposition 1 (prop:rationality_assumption)
    distance          || Theta0 - Theta ||_F, and stacked_norm, || Z0 ||_op, of eq. (eta_ineq)

They cost a few dozen sweeps of the records; above MOST_LOGITS a random part of them is used.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

from daniel.core.coordinates import Coordinates
from daniel.core.ising import conditional, hessian_product
from daniel.core.records import Records
from daniel.core.spectrum import extreme_eigenpairs
from daniel.core.surrogate import Anchor
from daniel.core.threads import one_blas_thread

MOST_LOGITS = 1 << 22  # records * codes of one Hessian product; about 0.1 s
KRYLOV = 20  # vectors that Lanczos keeps; with no more unknowns the Hessian is formed whole
FEW_VECTORS = 8  # where each of them takes 16 MB or more
MANY_UNKNOWNS = 1 << 21
TOLERANCE = 1e-3  # of the eigenvalues, in units of the largest
MOST_RESTARTS = 20
NEGLIGIBLE = 1e-3  # couplings below this share of the largest are no edges


@dataclass(frozen=True)
class Curvature:
    """Smallest and largest second derivative of the loss over directions of norm 1."""

    smallest: float
    largest: float


@dataclass(frozen=True)
class Couplings:
    """Off the diagonal of Theta: extremes, most neighbours of a code, largest row sum of sizes."""

    lowest: float
    highest: float
    degree: int
    row_sum: float


def part_of(records: Records, most: int = MOST_LOGITS) -> Records:
    """At most so many logits' worth of records, drawn with a fixed seed."""
    rows = max(1, most // records.p)
    if records.n <= rows:
        return records
    return records.drawn(rows / records.total, np.random.default_rng(0))


def curvature(
    records: Records, coords: Coordinates, phi: np.ndarray, b: np.ndarray | None
) -> Curvature | None:
    """kappa_min and kappa_max, eq. (constraint_main), of the mean loss of these records at phi.

    They are the extremes of ``d^2/dt^2 L(phi + t D)`` over *symmetric* D (p, p) with ||D||_F = 1,
    intercepts held; where the intercepts are free the diagonal is no parameter, and D has none.
    In ±1 coordinates phi is Theta.  The paper writes "any matrix", and puts a record both into the
    row and the column of the matrix Y in eq. (hess_mat): that form is zero for an antisymmetric D
    and, for a symmetric D with zero diagonal, four times the second derivative, which is what its
    Lemma lem:RSC_RSS uses and what is computed here.

    By Lanczos on Hessian-vector products.  A Ritz value lies inside the spectrum, so that the first
    number is never below kappa_min and the second never above kappa_max.  None when there is no
    such D, or when Lanczos does not converge.
    """
    p = records.p
    i, j = np.triu_indices(p, 0 if coords.tied else 1)
    if i.size == 0:
        return None
    weight = np.where(i == j, 1.0, np.sqrt(0.5))  # an orthonormal basis of the symmetric matrices

    def apply(v: np.ndarray) -> np.ndarray:
        D = np.zeros((p, p))
        D[i, j] = D[j, i] = weight * v.ravel()
        H = hessian_product(records, coords, phi, b, D)
        return np.where(i == j, H[i, j], weight * (H[i, j] + H[j, i]))

    if i.size <= KRYLOV:
        value = np.linalg.eigvalsh(np.column_stack([apply(e) for e in np.eye(i.size)]))
        return Curvature(max(float(value[0]), 0.0), float(value[-1]))
    try:
        with one_blas_thread():  # hessian_product has threads of its own
            largest = _top(apply, i.size)
            # The small end is crowded: relative to kappa_max it converges, relative to itself not.
            smallest = largest - _top(lambda v: largest * v.ravel() - apply(v), i.size)
    except ArpackError:
        return None
    return Curvature(max(smallest, 0.0), largest)


def _top(apply: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """The largest eigenvalue of a symmetric operator without negative ones, by Lanczos."""
    v0 = np.random.default_rng(0).standard_normal(size)
    if not apply(v0).any():  # Lanczos cannot start on a zero operator
        return 0.0
    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    options = {
        "v0": v0,
        "ncv": KRYLOV if size < MANY_UNKNOWNS else FEW_VECTORS,
        "maxiter": MOST_RESTARTS,
        "return_eigenvectors": False,
    }
    try:
        value = eigsh(operator, k=1, which="LA", tol=TOLERANCE, **options)
    except ArpackNoConvergence:
        value = eigsh(operator, k=1, which="LA", tol=10 * TOLERANCE, **options)
    return float(value[0])


def gradient_moment(
    records: Records, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray
) -> float:
    """|| mean of W W' ||_op / p at the fit, the constant C of the assumption ass:reg_grad.

    With the residual ``u = P(z = 1 | rest) - z = x B`` a record's eq. (B_star) is
    ``W = 2 (u x' + x u') + diag(c)``, ``c = 2 u - 4 u x``, so that W W' is made of five products.
    """
    Z = records.csr().toarray()
    x = 2 * Z - 1
    u = conditional(records, coords, U, V, b, np.arange(records.p)).astype(np.float64) - Z
    c = 2 * u - 4 * u * x
    share = (records.weight / records.total)[:, None]
    ux, uu = (u * x).sum(axis=1)[:, None], (u * u).sum(axis=1)[:, None]
    cross = 4 * (share * ux * u).T @ x + 2 * (share * u).T @ (x * c) + 2 * (share * x).T @ (u * c)
    moment = cross + cross.T + 4 * records.p * (share * u).T @ u + 4 * (share * uu * x).T @ x
    moment += np.diag((share * c * c).sum(axis=0))
    return float(extreme_eigenpairs(moment, 1, "LA")[0][0]) / records.p


def couplings(theta: np.ndarray) -> Couplings:
    """What Proposition 1 speaks of; an edge is a coupling that is not negligible."""
    off = theta - np.diag(np.diag(theta))
    size = np.abs(off)
    degree = (size > NEGLIGIBLE * size.max()).sum(axis=1).max()
    pairs = off[np.triu_indices(len(theta), 1)]
    lowest, highest = (float(pairs.min()), float(pairs.max())) if pairs.size else (0.0, 0.0)
    return Couplings(lowest, highest, int(degree), float(size.sum(axis=1).max()))


def distance(
    U: np.ndarray, V: np.ndarray, U0: np.ndarray, V0: np.ndarray, *, diagonal: bool
) -> float:
    """||UV' - U0 V0'||_F, with or without the diagonal; the factors may differ in width."""
    U, V, U0, V0 = (factor.astype(np.float64) for factor in (U, V, U0, V0))
    square = 2 * Anchor(U0, V0, np.ones(U.shape[0]))(U, V)[0]
    if not diagonal:
        square -= float(((np.einsum("jc,jc->j", U, V) - np.einsum("jc,jc->j", U0, V0)) ** 2).sum())
    return float(np.sqrt(max(square, 0.0)))


def stacked_norm(U: np.ndarray, V: np.ndarray) -> float:
    """||Z||_op of Z = [U; V], as in eq. (eta_ineq), by the d x d matrix Z'Z."""
    U, V = U.astype(np.float64), V.astype(np.float64)
    return float(np.sqrt(np.linalg.norm(U.T @ U + V.T @ V, 2)))
