"""The law of a synthetic record, against enumeration and against the package's own sampler."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import chi2

from daniel.core.sample import enumerate_states, gibbs
from daniel.data.cohort.law import Chain, Couplings, axis_intercepts, barrier, calibrate
from daniel.data.cohort.patients import UNIT, draw_unit, make_histories, make_law
from daniel.data.cohort.truth import make_truth, prevalences

P, N = 5, 40_000
POWERS = 2 ** np.arange(P)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    couplings = Couplings(sp.csr_array(rng.uniform(0, 1.2, (P, 2)).astype(np.float32)))
    return couplings, np.array([-2.0, -1.5, -2.5, -1.0, -3.0], dtype=np.float32)


@pytest.fixture(scope="module")
def chain(model):
    """Chains after full sweeps and after steps that keep part of y and of the codes."""
    couplings, c = model
    rng = np.random.default_rng(1)
    made = Chain(couplings, np.repeat(c[:, None], N, axis=1), np.ones((P, N), np.float32), rng)
    for _ in range(30):
        made.draw_latent()
        made.draw_codes()
    keep = np.array([[0.0], [0.2], [0.5], [0.8], [0.9]], dtype=np.float32)
    for _ in range(15):
        made.draw_latent(0.7)
        made.draw_codes(keep)
    return made


def probabilities(couplings, c):
    """Chance of each state by number, given that the record is not empty; by enumeration."""
    theta = couplings.U @ couplings.U.T
    np.fill_diagonal(theta, couplings.theta_diagonal(c.astype(float)))
    X, chance = enumerate_states(theta)
    by_number = np.zeros(2**P)
    by_number[(POWERS @ (X > 0).T).astype(int)] = chance
    by_number[0] = 0
    return by_number / by_number.sum()


def surprise(Z, expected):
    """p-value of Pearson's test that the columns of Z follow the chances of states."""
    counts = np.bincount((POWERS @ Z).astype(int), minlength=2**P)
    here = expected > 0
    assert counts[~here].sum() == 0
    wanted = expected[here] * Z.shape[1]
    statistic = ((counts[here] - wanted) ** 2 / wanted).sum()
    return chi2.sf(statistic, here.sum() - 1)


def test_records_follow_the_ising_law(model, chain):
    couplings, c = model
    assert surprise(chain.Z, probabilities(couplings, c)) > 1e-3


def test_another_law_would_be_noticed(model, chain):
    couplings, c = model
    assert surprise(chain.Z, probabilities(couplings, c + np.float32(0.1))) < 1e-6
    weaker = Couplings(couplings.W * np.float32(0.9))
    assert surprise(chain.Z, probabilities(weaker, c)) < 1e-6


@pytest.mark.parametrize("value", [0, 1])
def test_a_held_code_gives_the_law_given_its_value(model, value):
    couplings, c = model
    rng = np.random.default_rng(2)
    made = Chain(couplings, np.repeat(c[:, None], N, axis=1), np.ones((P, N), np.float32), rng)
    everywhere = (2, np.ones(N, dtype=bool))
    for _ in range(40):
        made.draw_latent(0.5)
        made.draw_codes(**{"present" if value else "absent": everywhere})
    expected = probabilities(couplings, c)
    expected[(np.arange(2**P) >> 2 & 1) != value] = 0
    assert surprise(made.Z, expected / expected.sum()) > 1e-3


def test_chains_that_stay_are_untouched(model):
    couplings, c = model
    rng = np.random.default_rng(3)
    made = Chain(couplings, np.repeat(c[:, None], 6, axis=1), np.ones((P, 6), np.float32), rng)
    made.draw_latent()
    Y = made.Y.copy()
    made.keep_only(np.array([True, False, True, True, False, False]))
    np.testing.assert_array_equal(made.Y, Y[:, [0, 2, 3]])
    assert made.Z.shape == made.c.shape == (P, 3)


def test_axis_intercepts_give_the_prevalences():
    w, mu = np.array([2.0, 1.5, 0.8, 0.4]), np.array([0.01, 0.003, 0.05, 0.2])
    c, _, _ = axis_intercepts(w, mu)
    couplings = Couplings(sp.csr_array(w[:, None]))
    theta = couplings.U @ couplings.U.T
    np.fill_diagonal(theta, couplings.theta_diagonal(c))
    X, chance = enumerate_states(theta)
    np.testing.assert_allclose(chance @ (X > 0), mu, rtol=0.02)


def test_barrier_is_the_depth_between_two_peaks():
    assert barrier(np.array([0.0, 3.0, 1.0, 2.5, 0.0])) == 1.5
    assert barrier(-(np.linspace(-1, 1, 9) ** 2)) == 0


@pytest.fixture(scope="module")
def small():
    return make_truth(60, 8, 32, 4.0, seed=5)


def test_full_and_empty_starts_meet(small):
    """No condition keeps a record for long: after the burn-in the start is forgotten."""
    mu = prevalences(small.hospital_rates(1), 4.0)
    rng = np.random.default_rng(0)
    c, pool = calibrate(small.couplings, mu, rng)
    full = np.ones_like(pool)
    means = []
    for Z in (pool, full):
        made = Chain(small.couplings, np.repeat(c[:, None], 512, axis=1), Z.astype("f4"), rng)
        for _ in range(150):
            made.draw_latent()
            made.draw_codes()
        means.append(made.Z.sum(axis=0).mean())
    assert means[1] == pytest.approx(means[0], rel=0.06)
    assert means[0] == pytest.approx(4.0, rel=0.12)


def test_first_records_agree_with_an_independent_sampler(small):
    """One record of each of 4,096 patients against Gibbs samples from Θ itself."""
    law = make_law(small, 1, 4.0, pure=True)
    n = 16 * UNIT
    histories = make_histories(n, n, 5, 1, pure=True)
    Z = np.zeros((n, len(small.book.names)))
    for k in range(16):
        unit = draw_unit(small, law, histories, k)
        Z[k * UNIT + unit.patient, unit.code] = 1
    U, b = small.couplings.U, small.couplings.theta_diagonal(law.c[0].astype(float))
    other = gibbs(U, b, 3_000, np.random.default_rng(7), sweeps=120)
    other = other[other.any(axis=1)].astype(float)
    pairs = np.argwhere(np.triu(U @ U.T, 1) > 0.3)
    for left, right in ((Z, other), (_both(Z, pairs), _both(other, pairs))):
        a, b_ = left.mean(axis=0), right.mean(axis=0)
        both = (left.sum(axis=0) + right.sum(axis=0)) / (len(left) + len(right))
        variance = both * (1 - both) * (1 / len(left) + 1 / len(right))
        seen = both * len(left) > 5
        z2 = (a - b_)[seen] ** 2 / variance[seen]
        assert seen.sum() > 10
        assert z2.mean() < 1.6


def _both(Z, pairs):
    return Z[:, pairs[:, 0]] * Z[:, pairs[:, 1]]


def test_probabilities_are_logistic(model):
    couplings, c = model
    made = Chain(couplings, c[:, None], np.ones((P, 1), np.float32), np.random.default_rng(4))
    made.draw_latent()
    expected = expit(couplings.W.toarray() @ made.Y + c[:, None])
    np.testing.assert_allclose(made.probabilities(), expected, rtol=1e-5)
