"""Node-wise logistic regression: one regression per code on all others (scikit-learn, sparse).

Ravikumar, Wainwright & Lafferty (2010), with the columns scaled to variance one.  The L1 penalty is
the size of the largest of p chance derivatives, ``sigma_j sqrt(2 log p / n)``; the L2 penalty that
of a prior under which all other codes together explain one unit of log-odds.  Both directions of a
pair are averaged.
"""

import warnings

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmarks.methods.result import Result, pooled, seed
from benchmarks.problems import Problem

DIMENSION = 50
FREE_INTERCEPT = 100.0  # liblinear penalises the intercept, divided by this


def coefficients(
    Z: sparse.csr_matrix, penalty: str, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """W (p, p), row j: log-odds that a present code adds to code j; and the intercepts (p,)."""
    n, p = Z.shape
    mean = np.asarray(Z.mean(axis=0)).ravel()
    sigma = np.sqrt(np.maximum(mean * (1 - mean), 1 / n))
    scaled = sparse.csc_matrix(Z @ sparse.diags_array(1 / sigma))
    W, b = np.zeros((p, p)), np.log(np.clip(mean, 0.5 / n, None))
    for j in np.flatnonzero((mean > 0) & (mean < 1)):
        others = np.delete(np.arange(p), j)
        y = Z[:, [j]].toarray().ravel()
        strength = {"l1": sigma[j] * np.sqrt(2 * np.log(p) / n), "l2": p / n}[penalty]
        model = LogisticRegression(
            C=1 / (n * strength),
            l1_ratio=float(penalty == "l1"),
            solver="liblinear" if penalty == "l1" else "lbfgs",
            intercept_scaling=FREE_INTERCEPT,
            random_state=random_state,
        )
        model.fit(scaled[:, others].tocsr(), y)
        W[j, others] = model.coef_[0] / sigma[others]
        b[j] = model.intercept_[0]
    return W, b


def couplings(W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(p, p) Theta: mean of W_jk / 4 and W_kj / 4; on the diagonal b_j / 2 + sum_k W_jk / 4."""
    theta = (W + W.T) / 8
    np.fill_diagonal(theta, b / 2 + W.sum(axis=1) / 4)
    return theta


def run(problem: Problem, rng: np.random.Generator, *, penalty: str) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        W, b = coefficients(problem.Z, penalty, seed(rng))
    theta = couplings(W, b)
    mean = np.asarray(problem.Z.mean(axis=0)).ravel()
    sigma = np.sqrt(mean * (1 - mean))
    phi = theta * np.outer(sigma, sigma)  # rare codes have large couplings, and no more relations
    np.fill_diagonal(phi, 0)
    value, vector = np.linalg.eigh(phi)
    top = np.argsort(-value)[:DIMENSION]
    embedding = vector[:, top] * np.sqrt(np.maximum(value[top], 0))
    return pooled(problem, embedding=embedding, theta=theta)
