"""The rivals: each against a plain reckoning of its formula, all on planted structure."""

import sys
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import ArpackError
from sklearn.base import clone
from sklearn.decomposition import PCA

from daniel.errors import InputError, MissingDependencyError, ParameterError
from daniel.evaluate import rivals
from daniel.evaluate.phenotype import phenotype
from daniel.evaluate.relations import cosine_pairs, rank_auc
from daniel.evaluate.rivals import PPMISVD, RBM, CorrelationSVT, LogisticPCA, Word2Vec
from daniel.matrix import CodeMatrix

RIVALS = [
    PPMISVD(2),
    PPMISVD(2, positive_only=True, eigen_power=1, context_smoothing=0.75),
    CorrelationSVT(),
    LogisticPCA(2),
    RBM(4),
    Word2Vec(4, n_iter=30),
]
NAMES = ["ppmi", "ppmi-positive", "correlation", "logistic", "rbm", "word2vec"]
each_rival = pytest.mark.parametrize("rival", RIVALS, ids=NAMES)


def needs(rival):
    if isinstance(rival, Word2Vec):
        pytest.importorskip("gensim", reason="gensim is optional (extra 'rivals')")


def records(n=40, p=7, density=0.4, seed=0):
    return (np.random.default_rng(seed).random((n, p)) < density).astype(float)


def two_blocks(n=1500, size=6, seed=0):
    """Codes 0..size-1 come together, the others too; each record is of one kind."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.5
    chance = np.where(np.arange(2 * size) < size, kind[:, None], ~kind[:, None]) * 0.35 + 0.05
    return (rng.random((n, 2 * size)) < chance).astype(float)


# --- PPMI -----------------------------------------------------------------------------------------


def brute_ppmi(Z, shift, smoothing):
    """The definition, one pair at a time."""
    p = Z.shape[1]
    C = np.zeros((p, p))
    for record in Z:
        for j in np.flatnonzero(record):
            for k in np.flatnonzero(record):
                C[j, k] += j != k
    context = C.sum(0) ** smoothing / (C.sum(0) ** smoothing).sum()
    M = np.zeros((p, p))
    for j in range(p):
        for k in range(p):
            if C[j, k] > 0:
                joint, code = C[j, k] / C.sum(), C[j].sum() / C.sum()
                M[j, k] = max(0, np.log(joint / (code * context[k])) - np.log(shift))
    return M


@pytest.mark.parametrize("shift", [1, 1.2])
@pytest.mark.parametrize("smoothing", [1, 0.75])
def test_ppmi_is_the_brute_force(shift, smoothing):
    Z = records()
    p = Z.shape[1]
    M = brute_ppmi(Z, shift, smoothing)
    assert (M > 0).any()
    # With every component and power 1, the Gram matrix of the rows is MM'.
    E = PPMISVD(p, shift=shift, context_smoothing=smoothing, eigen_power=1).fit(Z).embedding_
    assert pytest.approx(M @ M.T, abs=1e-10) == E @ E.T


def test_ppmi_embedding_is_truncated_svd():
    Z = records(200, 30, 0.15)
    left, values, _ = np.linalg.svd(brute_ppmi(Z, 1, 1))
    expected = left[:, :3] * np.sqrt(values[:3])
    E = PPMISVD(3).fit(Z).embedding_
    assert np.abs(np.sum(E * expected, 0)) == pytest.approx(values[:3])  # up to signs


def test_ppmi_positive_only_is_the_positive_part():
    Z = records(200, 30, 0.15)
    M = brute_ppmi(Z, 1, 0.75)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    for d in (4, 30):  # by ARPACK, and dense with negative eigenvalues to leave out
        top = np.where(np.argsort(np.argsort(-values)) < d, np.maximum(values, 0), 0)
        E = PPMISVD(d, context_smoothing=0.75, positive_only=True).fit(Z).embedding_
        assert pytest.approx((vectors * top) @ vectors.T, abs=1e-8) == E @ E.T


# --- correlation ----------------------------------------------------------------------------------


def test_correlation_svt_is_corrcoef_and_eigh():
    Z = two_blocks()
    n, p = Z.shape
    values, vectors = np.linalg.eigh(np.corrcoef(Z.T) - np.eye(p))
    shrunk = np.maximum(values - 2 * np.sqrt(p / n), 0)
    rival = CorrelationSVT().fit(Z)
    assert rival.threshold_ == pytest.approx(2 * np.sqrt(p / n))
    assert rival.embedding_.shape[1] == (shrunk > 0).sum()
    assert rival.embedding_ @ rival.embedding_.T == pytest.approx(
        (vectors * shrunk) @ vectors.T, abs=1e-10
    )
    assert CorrelationSVT(0.0, n_components=1).fit(Z).embedding_.shape == (p, 1)


def test_correlation_svt_finds_nothing_in_noise():
    Z = records(5000, 40, 0.3)
    E = CorrelationSVT(threshold=2.3 * np.sqrt(40 / 5000)).fit(Z).embedding_
    assert E.shape == (40, 1) and not E.any()


def test_a_rival_that_finds_nothing_guesses():
    """A column of zeros: classifiers need one, and have nothing to go by."""
    Z = records(400, 40, 0.3)
    nothing = CorrelationSVT(threshold=9.0).fit(Z)
    codes = tuple(f"PheCode:{j}" for j in range(40))
    found = phenotype(nothing, CodeMatrix(sparse.csr_array(Z), codes), codes[3])
    assert found.auc() == 0.5
    assert found.table.set_index("method")["auc"].drop("unsupervised").isna().all()


@pytest.mark.parametrize("positive_only", [False, True])
def test_records_of_one_code_each_have_no_pairs(positive_only):
    Z = np.eye(60)[np.random.default_rng(0).integers(0, 60, 300)]
    E = PPMISVD(10, positive_only=positive_only).fit(Z).embedding_
    assert len(E) == 60 and E.shape[1] >= 1 and not E.any()


@pytest.mark.parametrize("positive_only", [False, True])
def test_records_whose_pmi_is_never_above_the_shift(positive_only):
    """Common codes: no pair meets twice as often as chance has it."""
    E = PPMISVD(10, shift=2, positive_only=positive_only).fit(records(500, 60, 0.5)).embedding_
    assert len(E) == 60 and not E.any()


@pytest.mark.parametrize("positive_only", [False, True])
def test_where_arpack_fails_a_dense_solver_does_it(positive_only, monkeypatch):
    rival = PPMISVD(10, eigen_power=1, positive_only=positive_only)
    Z = records(200, 40, 0.15)
    wanted = rival.fit(Z).embedding_
    for name in ("svds", "eigsh"):
        monkeypatch.setattr(rivals, name, Mock(side_effect=ArpackError(-9)))
    found = clone(rival).fit(Z).embedding_
    assert found @ found.T == pytest.approx(wanted @ wanted.T, abs=1e-8)


def test_singular_values_next_to_zero():
    """Their squares underflow, and ARPACK says that its starting vector is zero."""
    M = 1e-200 * records(60, 60, 0.2)
    vectors, values = rivals._top_singular(sparse.csr_array(M), 10, 0)
    assert values * 1e200 == pytest.approx(np.linalg.svd(M * 1e200)[1][:10])
    assert vectors.T @ vectors == pytest.approx(np.eye(10), abs=1e-8)


def test_constant_codes_are_zero_rows():
    Z = two_blocks()
    Z = np.c_[Z, np.zeros(len(Z)), np.ones(len(Z))]
    assert (CorrelationSVT().fit(Z).embedding_[-2:] == 0).all()


# --- logistic PCA ---------------------------------------------------------------------------------


def deviance(Z, theta):
    return -2 * np.sum(Z * theta - np.logaddexp(0, theta)) / len(Z)


def natural_parameters(rival, Z):
    """θ as the docstring has it, dense."""
    mu, U = rival.mean_, rival.components_.T
    return mu + (rival.saturation * (2 * Z - 1) - mu) @ U @ U.T


def test_logistic_pca_deviance_decreases_and_beats_rank_zero():
    Z = two_blocks()
    rival = LogisticPCA(2).fit(Z)
    path = rival.deviance_path_
    assert len(path) > 3
    assert (np.diff(path) <= 0).all()
    assert path[-1] == pytest.approx(deviance(Z, natural_parameters(rival, Z)), rel=1e-5)
    mean = Z.mean(0)
    assert path[-1] < 0.9 * deviance(Z, np.log(mean / (1 - mean)))
    assert rival.components_ @ rival.components_.T == pytest.approx(np.eye(2), abs=1e-10)


def test_logistic_pca_ends_at_a_stationary_point():
    """No small rotation of U and no small change of mu lowers the deviance noticeably."""
    Z = two_blocks(400, 4)
    rival = LogisticPCA(2, tol=1e-10, max_iter=500).fit(Z)
    best = deviance(Z, natural_parameters(rival, Z))
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = clone(rival)
        U, _ = np.linalg.qr(rival.components_.T + 1e-2 * rng.standard_normal((8, 2)))
        other.components_ = U.T
        other.mean_ = rival.mean_ + 1e-2 * rng.standard_normal(8)
        assert deviance(Z, natural_parameters(other, Z)) > best - 1e-5


def test_logistic_pca_of_full_rank_reproduces_the_saturated_model():
    Z = records(60, 5)
    rival = LogisticPCA(5, saturation=3).fit(Z)
    assert natural_parameters(rival, Z) == pytest.approx(3 * (2 * Z - 1), abs=1e-8)


def test_logistic_pca_embedding_is_scaled_loadings():
    Z = two_blocks()
    rival = LogisticPCA(2).fit(Z)
    scores = (rival.saturation * (2 * Z - 1) - rival.mean_) @ rival.components_.T
    assert rival.embedding_ == pytest.approx(rival.components_.T * scores.std(0))
    start = LogisticPCA(2, max_iter=0).fit(Z)
    plain = PCA(2).fit(Z).components_
    assert np.abs(np.sum(start.components_ * plain, 1)) == pytest.approx(1)


# --- all of them ----------------------------------------------------------------------------------


@each_rival
def test_two_blocks_are_recovered(rival):
    needs(rival)
    E = clone(rival).fit(two_blocks()).embedding_
    assert E.shape[0] == 12
    i, j = np.triu_indices(12, 1)
    same = (i < 6) == (j < 6)
    cosine = cosine_pairs(E, i, j)
    assert rank_auc(cosine[same], cosine[~same]) > 0.95


@each_rival
def test_sparse_and_dense_and_a_second_fit_agree(rival):
    needs(rival)
    Z = two_blocks(300)
    E = clone(rival).fit(Z).embedding_
    assert np.isfinite(E).all()
    again = clone(rival).fit(sparse.csr_matrix(Z.astype(np.float32)), sites=np.zeros(300))
    assert again.n_features_in_ == 12
    assert np.array_equal(again.embedding_, E)


@each_rival
def test_wrong_input_is_named(rival):
    for X in (2 * two_blocks(50), two_blocks(50) - 0.5, np.full((5, 4), np.nan)):
        with pytest.raises(InputError, match="records are binary"):
            clone(rival).fit(X)
    with pytest.raises(InputError, match="at least 2 records"):
        clone(rival).fit(np.ones((1, 5)))
    with pytest.raises(ParameterError, match="n_components is 99"):
        clone(rival).set_params(n_components=99).fit(two_blocks(50))


@pytest.mark.parametrize(
    ("rival", "message"),
    [
        (PPMISVD(2, shift=0), "shift"),
        (LogisticPCA(2, saturation=-1), "saturation"),
        (RBM(2, n_iter=0), "n_iter"),
        (CorrelationSVT("large"), "threshold"),
        (CorrelationSVT(-1.0), "threshold"),
    ],
)
def test_wrong_parameters_are_named(rival, message):
    with pytest.raises(ParameterError, match=message):
        rival.fit(two_blocks(50))


def test_seed_matters_where_there_is_chance():
    Z = two_blocks(300)
    E = RBM(4, random_state=0).fit(Z).embedding_
    assert not np.array_equal(E, RBM(4, random_state=1).fit(Z).embedding_)


def test_word2vec_gives_zeros_to_a_code_never_seen():
    pytest.importorskip("gensim", reason="gensim is optional (extra 'rivals')")
    Z = np.c_[two_blocks(100), np.zeros(100)]
    E = Word2Vec(3, n_iter=1).fit(Z).embedding_
    assert (E[-1] == 0).all()
    assert (np.abs(E[:-1]).sum(1) > 0).all()


def test_word2vec_without_gensim_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'daniel\[rivals\]'"):
        Word2Vec(2).fit(two_blocks(50))
