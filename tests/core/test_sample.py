"""The enumerator and the Gibbs sampler."""

import numpy as np
import pytest

from daniel.core.sample import MAX_ENUMERATED, enumerate_states, gibbs, gibbs_factor
from daniel.errors import ParameterError


def moments(X, weight):
    """Exact mean (p,) and second moments (p, p) of weighted states."""
    return weight @ X, X.T @ (weight[:, None] * X)


def assert_moments_agree(X, theta):
    """Means and pair moments of draws within 4 standard errors of the exact ones.

    A pair moment is the mean of ±1 values, so its standard error is sqrt((1 - m^2) / n).
    """
    n = X.shape[0]
    mean, second = moments(*enumerate_states(theta))
    pairs = np.triu_indices(theta.shape[0], 1)
    found = np.concatenate([X.mean(axis=0), (X.T @ X / n)[pairs]])
    wanted = np.concatenate([mean, second[pairs]])
    error = np.sqrt((1 - wanted**2) / n)
    assert (np.abs(found - wanted) / error).max() < 4


def test_enumeration_holds_every_state_once_with_the_probability_of_the_joint(rng, plain):
    """By loops over unordered pairs, for a theta with intercepts."""
    theta = plain.symmetric_theta(5, rng)
    X, weight = enumerate_states(theta)
    assert X.shape == (32, 5)
    assert len({tuple(x) for x in X}) == 32
    assert set(np.unique(X)) == {-1.0, 1.0}
    score = np.array(
        [
            sum(theta[j, k] * x[j] * x[k] for j in range(5) for k in range(j + 1, 5))
            + sum(theta[j, j] * x[j] for j in range(5))
            for x in X
        ]
    )
    wanted = np.exp(score) / np.exp(score).sum()
    np.testing.assert_allclose(weight, wanted, rtol=1e-12)


def test_enumeration_survives_large_couplings():
    _, weight = enumerate_states(np.full((4, 4), 500.0))
    assert np.isfinite(weight).all()
    np.testing.assert_allclose(weight.sum(), 1)


def test_enumeration_of_too_many_codes_is_refused_with_a_sentence():
    with pytest.raises(ParameterError, match=r"p is 21; use at most 20 codes, or the Gibbs"):
        enumerate_states(np.zeros((MAX_ENUMERATED + 1, MAX_ENUMERATED + 1)))


def test_gibbs_matches_exact_means_and_pair_moments(rng):
    U = rng.normal(size=(6, 2)) * 0.5
    b = np.array([-1.0, 0.5, 0.0, -0.3, 0.8, -2.0])
    theta = U @ U.T
    np.fill_diagonal(theta, b)
    Z = gibbs(U, b, 40_000, np.random.default_rng(5))
    assert Z.shape == (40_000, 6)
    assert Z.dtype == np.uint8
    assert_moments_agree(2.0 * Z - 1, theta)


def test_the_moment_test_can_fail(rng):
    """The same draws do not fit the reading over ordered pairs, which doubles the couplings."""
    U = rng.normal(size=(6, 2)) * 0.5
    Z = gibbs(U, np.zeros(6), 40_000, np.random.default_rng(5))
    doubled = 2 * U @ U.T
    np.fill_diagonal(doubled, 0)
    with pytest.raises(AssertionError):
        assert_moments_agree(2.0 * Z - 1, doubled)


def test_gibbs_without_couplings_is_independence():
    b = np.array([-2.0, 0.0, 1.0])
    Z = gibbs(np.zeros((3, 1)), b, 40_000, np.random.default_rng(1), sweeps=1)
    theta = np.diag(b)
    assert_moments_agree(2.0 * Z - 1, theta)


def test_gibbs_factor_of_an_indefinite_theta(rng, plain):
    theta = plain.symmetric_theta(6, rng, size=0.5)
    assert np.linalg.eigvalsh(theta)[0] < -0.1 < 0.1 < np.linalg.eigvalsh(theta)[-1]
    U = gibbs_factor(theta)
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose((U @ U.T)[off], theta[off], atol=1e-12)
    Z = gibbs(U, np.diag(theta), 40_000, np.random.default_rng(6))
    assert_moments_agree(2.0 * Z - 1, theta)


def test_gibbs_factor_of_no_couplings_is_zero():
    assert not gibbs_factor(np.diag([1.0, -2.0, 3.0])).any()


def test_gibbs_is_reproducible_for_a_seed(rng):
    U, b = rng.normal(size=(10, 3)) * 0.3, rng.normal(size=10)
    first, again, other = (gibbs(U, b, 200, np.random.default_rng(seed)) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_gibbs_leaves_its_arguments_alone(rng):
    U, b = rng.normal(size=(4, 2)), rng.normal(size=4)
    before = U.copy(), b.copy()
    gibbs(U, b, 50, np.random.default_rng(0), sweeps=3)
    np.testing.assert_array_equal(U, before[0])
    np.testing.assert_array_equal(b, before[1])
