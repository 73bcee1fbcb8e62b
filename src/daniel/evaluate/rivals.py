"""What users have today: other embeddings of codes, behind one scikit-learn face.

Every rival takes records × codes, ``fit(X)`` with X (n, p) of zeros and ones, sparse or dense, and
leaves ``embedding_`` (p, d), one row a code. All of them pool the records: ``sites`` is accepted,
so that a loop over methods needs no special case, and not used.

========================  ==========================================================
:class:`PPMISVD`          positive pointwise mutual information, singular vectors
:class:`CorrelationSVT`   correlation matrix, eigenvalues soft-thresholded
:class:`LogisticPCA`      principal components of the Bernoulli likelihood
:class:`RBM`              restricted Boltzmann machine (scikit-learn)
:class:`Word2Vec`         skip-gram with negative samples (gensim, optional)
========================  ==========================================================
"""

from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackError, eigsh, svds
from sklearn.base import BaseEstimator
from sklearn.neural_network import BernoulliRBM

from daniel.errors import InputError, MissingDependencyError, ParameterError
from daniel.evaluate.logistic import SAFE_STEP, Projection, log_odds
from daniel.matrix import read_records

__all__ = ["PPMISVD", "RBM", "CorrelationSVT", "LogisticPCA", "Word2Vec"]

Floats = NDArray[np.float64]


class _Rival(BaseEstimator):
    """Checks the records, then leaves the work to `_embed`."""

    def fit(self, X: Any, y: Any = None, *, sites: ArrayLike | None = None) -> Self:
        """Learn ``embedding_`` (p, d) from X (n, p); y and sites are not used."""
        Z = _records(X)
        n_components = getattr(self, "n_components", None)
        if n_components is not None and not 1 <= n_components <= Z.shape[1]:
            raise ParameterError(
                f"n_components is {n_components}: expected 1 to {Z.shape[1]}, the number of codes."
            )
        self.n_features_in_ = Z.shape[1]
        self.embedding_ = self._embed(Z)
        return self

    def _embed(self, Z: sparse.csr_array) -> Floats:
        raise NotImplementedError


class PPMISVD(_Rival):
    """Singular vectors of the shifted positive PMI matrix of codes within records.

    With C_jk the number of records that hold both j and k (j ≠ k), r its row sums and
    q_k = r_k^a / Σ r^a the context distribution,

        M_jk = max(0, log( C_jk / (r_j q_k) ) - log shift),   M ≈ L S R',   embedding = L S^power.

    Levy & Goldberg (2014) and Levy, Goldberg & Dagan (2015); Hong et al. (2021, KESER) for codes.
    The defaults are the textbook ones. On the emergency visits of the benchmarks
    ``n_components=200, shift=2, context_smoothing=0.5, eigen_power=1, positive_only=True`` did
    better.

    Parameters
    ----------
    n_components : d.
    shift : number of negative samples, 1 for none; log shift is subtracted.
    context_smoothing : a; 1 is the plain PMI, 0.75 is word2vec's.
    eigen_power : exponent of the singular values, usually 0.5.
    positive_only : use the largest eigenvalues of (M + M')/2, none negative, as KESER does,
        instead of the singular values, among which the negative eigenvalues of M count too.
    random_state : seed of the start vector of the iterative decomposition.
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        shift: float = 1.0,
        context_smoothing: float = 1.0,
        eigen_power: float = 0.5,
        positive_only: bool = False,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.shift = shift
        self.context_smoothing = context_smoothing
        self.eigen_power = eigen_power
        self.positive_only = positive_only
        self.random_state = random_state

    def _embed(self, Z: sparse.csr_array) -> Floats:
        if self.shift <= 0:
            raise ParameterError(f"shift is {self.shift}: expected a positive number.")
        ppmi = _ppmi(_cooccurrence(Z), self.shift, self.context_smoothing)
        decompose = _top_positive if self.positive_only else _top_singular
        vectors, values = decompose(ppmi, self.n_components, self.random_state)
        self.singular_values_ = values
        return _some_column(vectors * values**self.eigen_power)


class CorrelationSVT(_Rival):
    """Correlation matrix without its diagonal, eigenvalues soft-thresholded.

        R - I = W diag(v) W',   embedding = W diag( (v - t)₊ )^(1/2)

    with t = 2√(p/n), the size of the eigenvalues that chance alone gives. It is the best positive
    semidefinite fit of the correlations under a nuclear-norm penalty t.

    Parameters
    ----------
    threshold : t, or "auto" for 2√(p/n).
    n_components : keep at most this many components; None keeps all above the threshold.
    """

    def __init__(self, threshold: float | str = "auto", *, n_components: int | None = None) -> None:
        self.threshold = threshold
        self.n_components = n_components

    def _embed(self, Z: sparse.csr_array) -> Floats:
        self.threshold_ = self._threshold(*Z.shape)
        values, vectors = np.linalg.eigh(_correlation(Z) - np.eye(Z.shape[1]))
        values, vectors = values[::-1], vectors[:, ::-1]
        shrunk = np.maximum(values - self.threshold_, 0)[: self.n_components]
        shrunk = shrunk[shrunk > 0]
        self.eigenvalues_ = shrunk
        return _some_column(vectors[:, : len(shrunk)] * np.sqrt(shrunk))

    def _threshold(self, n: int, p: int) -> float:
        if self.threshold == "auto":
            return 2 * float(np.sqrt(p / n))
        if isinstance(self.threshold, str) or self.threshold < 0:
            raise ParameterError(
                f"threshold is {self.threshold!r}: expected 'auto' or a number of at least 0."
            )
        return float(self.threshold)


class LogisticPCA(_Rival):
    """Principal components of the Bernoulli likelihood (Landgraf & Lee, 2020).

    The saturated natural parameters ±m are projected on d directions around a mean,

        logit P(z_ij = 1) = θ_ij,   θ_i = μ + U U'(m(2 z_i - 1) - μ),   U'U = I,

    and U and μ minimise the deviance. Majorisation-minimisation: the deviance at θ is bounded by
    a quadratic around θ + 4(z - σ(θ)), whose minimiser in μ is a mean and in U the leading
    eigenvectors of a p × p matrix. Most codes are rare, where the curvature is far below the
    bound of 1/4, so longer steps than 4 are tried first and kept if they lower the deviance.

    embedding = U diag(standard deviation of the scores), the loadings.

    Parameters
    ----------
    n_components : d.
    saturation : m, the size of the natural parameter that stands for certainty.
    max_iter, tol : stop after so many steps, or at a relative decrease of the deviance below tol.

    Attributes
    ----------
    deviance_path_ : deviance per record at each accepted step; never increases.
    mean_, components_ : μ (p,) and U' (d, p).
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        saturation: float = 4.0,
        max_iter: int = 100,
        tol: float = 1e-4,
    ) -> None:
        self.n_components = n_components
        self.saturation = saturation
        self.max_iter = max_iter
        self.tol = tol

    def _embed(self, Z: sparse.csr_array) -> Floats:
        if self.saturation <= 0:
            raise ParameterError(f"saturation is {self.saturation}: expected a positive number.")
        problem = Projection(Z, self.saturation)
        state = problem.evaluate(*problem.start(self.n_components))
        path = [state.deviance]
        step = SAFE_STEP
        for _ in range(self.max_iter):
            trial = problem.evaluate(*problem.minimise_bound(state, step))
            if trial.deviance > state.deviance:
                if step == SAFE_STEP:
                    break  # only rounding can make the safe step go up
                step = max(SAFE_STEP, step / 4)
                continue
            decrease = state.deviance - trial.deviance
            state = trial
            path.append(state.deviance)
            if decrease <= self.tol * state.deviance:
                break
            step *= 2
        self.deviance_path_ = np.array(path)
        self.mean_, self.components_ = state.mu, state.U.T
        return state.U * state.scores.std(axis=0)


class RBM(_Rival):
    """Restricted Boltzmann machine of scikit-learn; embedding = weights (p, d).

    The visible biases start at the log-odds of the codes, as Hinton (2012) advises. From zeros,
    scikit-learn's own start, all weights learn first that codes are rare, and little else.

    Parameters
    ----------
    n_components : d, the hidden units.
    learning_rate, batch_size, n_iter : of stochastic maximum likelihood; n_iter counts passes.
    random_state : seed.
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        learning_rate: float = 1.0,
        batch_size: int = 100,
        n_iter: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state

    def _embed(self, Z: sparse.csr_array) -> Floats:
        if min(self.n_iter, self.batch_size) < 1:
            raise ParameterError(
                f"n_iter is {self.n_iter} and batch_size {self.batch_size}: expected at least 1."
            )
        n, size = Z.shape[0], min(self.batch_size, Z.shape[0])
        machine = BernoulliRBM(
            n_components=self.n_components,
            learning_rate=self.learning_rate,
            batch_size=size,
            random_state=self.random_state,
        )
        machine.intercept_visible_ = log_odds(np.asarray(Z.sum(axis=0)).ravel(), n)
        rng = np.random.default_rng(self.random_state)
        for _ in range(self.n_iter):
            shuffled = sparse.csr_matrix(Z[rng.permutation(n)])  # it does not read csr_array
            # A last, smaller batch would not fit the machine's chains: its records wait a pass.
            for start in range(0, n - size + 1, size):
                machine.partial_fit(shuffled[start : start + size])
        return np.asarray(machine.components_.T, dtype=np.float64)


class Word2Vec(_Rival):
    """Skip-gram with negative samples (gensim): a record is a sentence, its codes the words.

    The window is the whole record, so the order of the codes does not matter. One thread, since
    more would make the answer depend on their timing. A code that no record holds gets zeros.

    Parameters
    ----------
    n_components : d.
    negative : negative samples for each pair.
    n_iter : passes over the records.
    random_state : seed.
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        negative: int = 5,
        n_iter: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.negative = negative
        self.n_iter = n_iter
        self.random_state = random_state

    def _embed(self, Z: sparse.csr_array) -> Floats:
        try:
            from gensim.models import Word2Vec as Gensim
        except ImportError as error:
            raise MissingDependencyError.of(
                "gensim", extra="rivals", purpose="the word2vec rival"
            ) from error
        sentences = [codes.tolist() for codes in np.split(Z.indices, Z.indptr[1:-1])]
        model = Gensim(
            sentences=[[str(code) for code in sentence] for sentence in sentences],
            vector_size=self.n_components,
            window=max(1, int(np.diff(Z.indptr).max())),
            shrink_windows=False,
            min_count=1,
            sg=1,
            negative=self.negative,
            sample=0,
            epochs=self.n_iter,
            seed=self.random_state,
            workers=1,
        )
        embedding = np.zeros((Z.shape[1], self.n_components))
        embedding[[int(code) for code in model.wv.index_to_key]] = model.wv.vectors
        return embedding


# --- what the rivals share ------------------------------------------------------------------------


def _records(X: Any) -> sparse.csr_array:
    """X as a CSR array of zeros and ones in float64."""
    Z = read_records(X)[0].astype(np.float64)
    if Z.shape[0] < 2 or Z.shape[1] < 2:
        raise InputError(f"X has shape {Z.shape}: expected at least 2 records and 2 codes.")
    return Z


def _cooccurrence(Z: sparse.csr_array) -> sparse.csr_array:
    """(p, p) number of records that hold both codes, zero diagonal."""
    C = sparse.csr_array(Z.T @ Z)
    C.setdiag(0)
    C.eliminate_zeros()
    return C


def _ppmi(C: sparse.csr_array, shift: float, context_smoothing: float) -> sparse.csr_array:
    """Shifted positive PMI of co-occurrence counts; sparse, since pairs never seen give 0."""
    counts = sparse.coo_array(C)
    marginal = np.asarray(C.sum(axis=1), dtype=np.float64).ravel()
    # A code that never meets another has no entry in C, and 0**a must not become a context.
    context = np.where(marginal > 0, marginal, np.nan) ** context_smoothing
    context /= np.nansum(context)
    row, column = counts.coords
    ratio = counts.data / (marginal[row] * context[column])
    values = np.maximum(np.log(ratio) - np.log(shift), 0)
    return sparse.csr_array((values, (row, column)), shape=C.shape)


def _top_singular(M: sparse.csr_array, k: int, random_state: int) -> tuple[Floats, Floats]:
    """Left singular vectors (p, k) and values (k,) of a square matrix, largest first."""
    if _few(k, M):
        with suppress(ArpackError):  # of values next to zero, or too close together
            left, values, _ = svds(M, k=k, v0=_start(M, random_state), return_singular_vectors="u")
            return _largest(left, values, k)
    left, values, _ = np.linalg.svd(M.toarray())
    return _largest(left, values, k)


def _top_positive(M: sparse.csr_array, k: int, random_state: int) -> tuple[Floats, Floats]:
    """Largest positive eigenvalues, at most k, of (M + M')/2, and their vectors (p, ≤ k)."""
    vectors, values = _top_eigen((M + M.T) / 2, k, random_state)
    return vectors[:, values > 0], values[values > 0]


def _top_eigen(S: sparse.csr_array, k: int, random_state: int) -> tuple[Floats, Floats]:
    """Eigenvectors (p, k) and eigenvalues (k,) of a symmetric matrix, largest first."""
    if _few(k, S):
        with suppress(ArpackError):
            values, vectors = eigsh(S, k=k, which="LA", v0=_start(S, random_state))
            return _largest(vectors, values, k)
    values, vectors = np.linalg.eigh(S.toarray())
    return _largest(vectors, values, k)


def _largest(vectors: Floats, values: Floats, k: int) -> tuple[Floats, Floats]:
    order = np.argsort(values)[::-1][:k]
    return vectors[:, order], values[order]


def _few(k: int, M: sparse.csr_array) -> bool:
    """Whether k vectors are few enough for ARPACK; a dense solver is quicker otherwise.

    ARPACK knows no matrix of zeros, as of records with one code each.
    """
    return k <= M.shape[0] // 3 and bool(M.count_nonzero())


def _some_column(embedding: Floats) -> Floats:
    """The embedding, or one column of zeros where nothing stood above chance, as Daniel has it."""
    return embedding if embedding.shape[1] else np.zeros((len(embedding), 1))


def _start(M: sparse.csr_array, random_state: int) -> Floats:
    return np.random.default_rng(random_state).standard_normal(M.shape[0])


def _correlation(Z: sparse.csr_array) -> Floats:
    """(p, p) correlations; a code in no record, or in all, is correlated with nothing else."""
    n, p = Z.shape
    mean = np.asarray(Z.sum(axis=0)).ravel() / n  # not Z.mean, which can exceed 1 by rounding
    deviation = np.sqrt(mean * (1 - mean))
    scale = np.divide(1, deviation, out=np.zeros(p), where=deviation > 0)
    R = ((Z.T @ Z).toarray() / n - np.outer(mean, mean)) * np.outer(scale, scale)
    np.fill_diagonal(R, 1)
    return np.asarray(R)
