"""Noise level, and the penalty that follows from them."""

import numpy as np
import pytest

from daniel.core.coordinates import natural_coordinates
from daniel.core.noise import (
    FIRM,
    LEAST,
    RELIEF,
    least_risk,
    noise_level,
    penalty_factor,
    rarity,
    relief,
)


def permuted_norm(Z, scale, rng):
    """Largest eigenvalue of the correlation of column-permuted dense records, zero diagonal."""
    shuffled = np.column_stack([rng.permutation(column) for column in Z.T])
    matrix = np.cov(shuffled, rowvar=False, bias=True) / np.outer(scale, scale)
    np.fill_diagonal(matrix, 0)
    return np.linalg.eigvalsh(matrix)[-1]


@pytest.mark.parametrize(("n", "p"), [(5000, 200), (20_000, 100)])
def test_noise_level_of_even_codes_is_about_two_root_p_over_n(n, p):
    level = noise_level(np.full(p, n / 2), float(n), np.full(p, 0.5), np.random.default_rng(0))
    assert abs(level / (2 * np.sqrt(p / n)) - 1) < 0.15


@pytest.mark.parametrize("p", [4, 30], ids=["dense", "lanczos"])
def test_noise_level_is_that_of_explicitly_permuted_columns(p, rng, plain):
    """The same law: means of 100 draws of each differ by less than 4 standard errors."""
    Z = plain.binary(200, p, 0.2, rng)
    scale = natural_coordinates(Z.sum(axis=0), 200.0).scale
    plain_norms = [permuted_norm(Z, scale, rng) for _ in range(100)]
    norms = [noise_level(Z.sum(axis=0), 200.0, scale, rng, draws=1) for _ in range(100)]
    gap = np.mean(norms) - np.mean(plain_norms)
    assert abs(gap) < 4 * np.sqrt((np.var(norms) + np.var(plain_norms)) / 100)
    assert abs(gap) < 0.1 * np.mean(plain_norms)


def test_noise_level_is_the_norm_of_the_symmetric_gradient_of_permuted_records(rng, plain):
    """What the penalty is measured in: (G + G')/2 at independence with fitted intercepts."""
    Z = plain.binary(300, 12, 0.3, rng)
    counts = Z.sum(axis=0)
    coords = natural_coordinates(counts, 300.0)
    b = np.log(counts / (300 - counts))[None, :]
    norms = []
    for _ in range(60):
        shuffled = np.column_stack([rng.permutation(column) for column in Z.T])
        G, _ = plain.gradients(coords, np.zeros((12, 12)), b, shuffled)
        norms.append(np.linalg.norm((G + G.T) / 2, 2))
    found = noise_level(counts, 300.0, coords.scale, rng, draws=60)
    assert abs(found - np.mean(norms)) < 4 * np.std(norms) * np.sqrt(2 / 60)


def test_noise_level_without_codes_that_vary_is_the_formula(rng):
    for counts in ([0.0, 50, 0], [50.0, 20, 0]):
        level = noise_level(np.array(counts), 50.0, np.full(3, 0.3), rng)
        np.testing.assert_allclose(level, 2 * np.sqrt(3 / 50))


def test_noise_level_does_not_see_constant_codes(rng):
    counts = np.array([0.0, 30, 100, 40, 20])
    scale = np.array([0.1, 0.5, 0.1, 0.5, 0.4])
    kept = [1, 3, 4]
    one = noise_level(counts, 100.0, scale, np.random.default_rng(2))
    two = noise_level(counts[kept], 100.0, scale[kept], np.random.default_rng(2))
    assert one == two


def test_rarity_is_the_mean_over_pairs(rng):
    counts = rng.integers(0, 1001, 128).astype(float)
    mean = np.sort((counts + 0.5) / 1001)
    mean = np.minimum(mean, 1 - mean)
    wanted = np.mean([[1 / (1 + 1000 * a * b) for a in mean] for b in mean])
    np.testing.assert_allclose(rarity(counts, 1000.0), wanted, rtol=1e-3)


def test_rarity_takes_presence_and_absence_alike(rng):
    counts = rng.integers(0, 1001, 80).astype(float)
    np.testing.assert_allclose(rarity(counts, 1000.0), rarity(1000 - counts, 1000.0), rtol=1e-12)


def test_penalty_factor_is_high_only_for_rare_codes_in_records_that_differ():
    assert penalty_factor(0.0, 0.0) == penalty_factor(0.0, 1.0) == penalty_factor(0.9, 0.0) == LEAST
    assert penalty_factor(0.9, 1.0) == pytest.approx(FIRM)
    steps = [penalty_factor(rare, 0.5) for rare in (0.0, 0.1, 0.3, 0.6)]
    assert (np.diff(steps) > 0).all()


def test_penalty_factor_rises_when_the_signal_drowns():
    low, middle, high = (penalty_factor(0.0, 0.0, least) for least in (0.4, 0.7, 1.2))
    assert LEAST == low < middle < high == 1.1
    assert penalty_factor(0.9, 1.0, 0.7) == FIRM < penalty_factor(0.9, 1.0, 1.2) == high


def test_relief_is_for_clear_components_of_common_codes():
    values = np.array([0.5, 1.0, 2.0, 8.0])
    common = relief(values, 1.0, 0.0)
    assert common[0] == common[1] == 1
    assert 1 > common[2] > common[3] > 1 - RELIEF
    assert relief(values, 1.0, 0.6).tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(relief(10 * values, 10.0, 0.2), relief(values, 1.0, 0.2))
    assert relief(values, 0.0, 0.0).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("size", [0.0, 0.15, 0.5, 2.0])
def test_least_risk_is_where_the_true_error_is_least(size):
    """Planted components in Gaussian noise: Stein's estimate against the error to the truth."""
    rng = np.random.default_rng(1)
    p, sigma = 80, 0.05
    noise = 2 * sigma * np.sqrt(p)
    vectors = np.linalg.qr(rng.standard_normal((p, 8)))[0]
    truth = size * noise * (vectors @ vectors.T)
    half = rng.standard_normal((p, p)) * sigma
    matrix = truth + (half + half.T) / np.sqrt(2)
    value, vector = np.linalg.eigh(matrix)

    def error(factor):
        kept = (vector * np.maximum(value - factor * noise, 0)) @ vector.T
        return np.linalg.norm(kept - truth) ** 2

    best = min(error(factor) for factor in np.arange(0.4, 1.3, 0.05))
    worst = max(error(factor) for factor in np.arange(0.4, 1.3, 0.05))
    assert error(least_risk(np.linalg.eigvalsh(matrix), noise)) < best + 0.1 * (worst - best)


def test_least_risk_does_without_noise_or_without_the_whole_spectrum():
    assert least_risk(np.ones(5), 0.0) == 0
    assert least_risk(None, 1.0) == 0


def test_of_very_many_records_a_share_shows_the_noise_of_all(monkeypatch):
    n, counts = 40_000, np.linspace(200, 2000, 300)
    scale = np.sqrt(counts / n)
    whole = noise_level(counts, float(n), scale, np.random.default_rng(0))
    monkeypatch.setattr("daniel.core.noise.MANY_PRESENT", int(counts.sum() / 6))
    found = noise_level(counts, float(n), scale, np.random.default_rng(0))
    assert found != whole
    assert found == pytest.approx(whole, rel=0.06)


def test_a_code_of_nearly_every_record_can_be_drawn_from_a_share(monkeypatch):
    counts = np.full(301, 500)
    counts[0] = 9_999
    monkeypatch.setattr("daniel.core.noise.MANY_PRESENT", 20_001)
    for seed in range(20):
        assert 0 < noise_level(counts, 10_000.0, np.full(301, 0.3), np.random.default_rng(seed)) < 9
