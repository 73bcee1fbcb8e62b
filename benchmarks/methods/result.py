"""What every method returns, and what several of them need."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from benchmarks.problems import Problem
from daniel import CodeMatrix


@dataclass(frozen=True)
class Result:
    """What a method found, and what it cost to bring the sites together.

    embedding : (p, d) one row a code, or None.
    theta : (p, p) couplings in ±1 coordinates, intercepts on the diagonal, or None.
    bytes_sent : what one site sends and receives, all rounds together; the mean over the sites
        beside the hub.
    rounds : trips between the hub and the sites.
    seconds : of the fit that counts, where several were tried; None: the whole run counts.
    """

    embedding: np.ndarray | None = None
    theta: np.ndarray | None = None
    bytes_sent: int = 0
    rounds: int = 1
    seconds: float | None = None


def seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def records_of(problem: Problem) -> CodeMatrix | sparse.csr_matrix:
    """Records with the names of the codes; simulated codes have no vocabularies, and no names."""
    if problem.theta is not None:
        return problem.Z
    return CodeMatrix(sparse.csr_array(problem.Z), tuple(problem.codes))


def hub_rows(problem: Problem) -> np.ndarray:
    """(n,) whether a record is the hub's: the site with most records, the first of equals."""
    names, counts = np.unique(problem.sites, return_counts=True)
    rows: np.ndarray = problem.sites == names[np.argmax(counts)]
    return rows


def bytes_of_records(problem: Problem) -> int:
    """What a site sends when its records go elsewhere: 4 bytes a present code, 4 a record."""
    away = ~hub_rows(problem)
    n_sites = len(set(problem.sites[away]))
    return round(4 * (problem.Z[away].nnz + int(away.sum())) / n_sites) if n_sites else 0


def bytes_of_theta(p: int) -> int:
    """A dense start Theta0 (p, p) to a site and its derivative back, symmetric, in float64."""
    return 2 * 8 * p * (p + 1) // 2


def pooled(problem: Problem, **found: np.ndarray | float | None) -> Result:
    """The result of a method that needs all records in one place."""
    return Result(bytes_sent=bytes_of_records(problem), **found)  # type: ignore[arg-type]
