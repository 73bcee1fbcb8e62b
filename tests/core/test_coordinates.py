"""Coordinates: every recipe is the same Ising family, and the translation is exact."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from daniel.core.coordinates import (
    RARE_RECORDS,
    natural_coordinates,
    paper_coordinates,
    smoothed_mean,
    theta_from,
)
from daniel.core.ising import conditional, reference_conditional, reference_loss, sweep
from daniel.core.records import records_from


@pytest.fixture
def Z(plain, rng):
    return plain.binary(300, 8, 0.3, rng)


def make_coords(kind, Z):
    if kind == "paper":
        return paper_coordinates(Z.shape[1])
    return natural_coordinates(Z.sum(axis=0), float(Z.shape[0]), tied=kind == "tied")


kinds = pytest.mark.parametrize("kind", ["paper", "natural", "tied"])


@kinds
def test_sweep_loss_is_the_reference_loss_of_theta_from(kind, Z, rng):
    """Symmetric Phi = U D U', one negative component."""
    coords = make_coords(kind, Z)
    U = rng.normal(size=(8, 3)) * 0.4
    V = U * [1, 1, -1]
    b = None if coords.tied else rng.normal(size=(1, 8))
    theta = theta_from(coords, U, V, np.full((1, 8), np.nan) if b is None else b)
    np.testing.assert_allclose(theta, theta.T, atol=1e-15)
    X = 2 * Z - 1
    found = sweep(records_from(Z), coords, U, V, b).loss
    np.testing.assert_allclose(found, reference_loss(theta, X), rtol=1e-12)


@kinds
def test_sweep_loss_is_the_reference_loss_for_a_free_phi_too(kind, Z, rng):
    coords = make_coords(kind, Z)
    U, V = rng.normal(size=(2, 8, 3)) * 0.4
    b = None if coords.tied else rng.normal(size=(1, 8))
    theta = theta_from(coords, U, V, np.zeros((1, 8)) if b is None else b)
    found = sweep(records_from(Z), coords, U, V, b).loss
    np.testing.assert_allclose(found, reference_loss(theta, 2 * Z - 1), rtol=1e-12)


@kinds
def test_conditional_is_the_reference_conditional_of_theta_from(kind, Z, rng):
    coords = make_coords(kind, Z)
    U, V = rng.normal(size=(2, 8, 3)) * 0.4
    b = None if coords.tied else rng.normal(size=(1, 8))
    theta = theta_from(coords, U, V, np.zeros((1, 8)) if b is None else b)
    features = np.array([5, 0, 7])
    found = conditional(records_from(Z, merge=False), coords, U, V, b, features)
    np.testing.assert_allclose(found, reference_conditional(theta, 2 * Z - 1)[:, features])


def test_theta_formula_of_the_method_by_loops(Z, rng):
    """theta_jk = phi_jk / (4 s_j s_k), b±_j = b_j / 2 + sum_{k != j} theta_jk (1 - 2 mu_k)."""
    coords = make_coords("natural", Z)
    U = rng.normal(size=(8, 2))
    phi, b = U @ U.T, rng.normal(size=8)
    mu, s = coords.center, coords.scale
    theta = theta_from(coords, U, U, b)
    for j in range(8):
        intercept = b[j] / 2
        for k in range(8):
            if k != j:
                wanted = phi[j, k] / (4 * s[j] * s[k])
                np.testing.assert_allclose(theta[j, k], wanted, rtol=1e-13)
                intercept += wanted * (1 - 2 * mu[k])
        np.testing.assert_allclose(theta[j, j], intercept, rtol=1e-12)


def test_model_formula_of_the_method_by_loops(Z, rng):
    """logit P(z_j = 1 | rest) = b_j + (1 / s_j) sum_{k != j} phi_jk (z_k - mu_k) / s_k."""
    coords = make_coords("natural", Z)
    U, b = rng.normal(size=(8, 2)), rng.normal(size=(1, 8))
    phi = U @ U.T
    found = conditional(records_from(Z[:20], merge=False), coords, U, U, b, np.arange(8))
    for z, row in zip(Z[:20], found, strict=True):
        for j in range(8):
            total = b[0, j]
            for k in range(8):
                if k != j:
                    total += (
                        phi[j, k] * (z[k] - coords.center[k]) / coords.scale[k] / coords.scale[j]
                    )
            np.testing.assert_allclose(row[j], expit(total), rtol=1e-12)


def test_tied_diagonal_is_theta_of_the_whole_phi(Z, rng):
    """theta_jj = (UV')_jj in the paper's units: the diagonal has the formula of the rest."""
    coords = make_coords("tied", Z)
    U = rng.normal(size=(8, 2))
    theta = theta_from(coords, U, U, np.zeros((1, 8)))
    s = coords.scale
    np.testing.assert_allclose(theta, (U @ U.T) / (4 * np.outer(s, s)), rtol=1e-13)


def test_paper_theta_is_phi_itself(rng):
    U, V = rng.normal(size=(2, 5, 2))
    theta = theta_from(paper_coordinates(5), U, V, np.zeros((1, 5)))
    np.testing.assert_allclose(theta, U @ V.T, rtol=1e-13)


def test_centre_and_scale_are_smoothed_prevalence_and_its_deviation():
    counts, total = np.array([3.0, 50, 100]), 100.0
    coords = natural_coordinates(counts, total)
    mean = np.array([3.5, 50.5, 100.5]) / 101
    np.testing.assert_allclose(coords.center, mean, rtol=1e-14)
    np.testing.assert_allclose(coords.scale**2, mean * (1 - mean) + RARE_RECORDS / 101)
    np.testing.assert_allclose(coords.gain * coords.scale, 1)
    np.testing.assert_allclose(smoothed_mean(counts, total), mean)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("total", [1.0, 50.0, 1e7])
def test_codes_never_or_always_present_have_a_finite_scale(tied, total, rng):
    coords = natural_coordinates(np.array([0.0, total, total / 2]), total, tied=tied)
    for name in ("center", "scale", "gain", "to_theta"):
        assert np.isfinite(getattr(coords, name)).all()
    assert (coords.scale > 0).all()
    assert np.isfinite(logit(smoothed_mean(np.array([0.0, total]), total))).all()
    U = rng.normal(size=(3, 1))
    assert np.isfinite(theta_from(coords, U, U, np.zeros((1, 3)))).all()


def test_hessian_is_near_the_identity_at_independence(rng, plain):
    """Why these coordinates: with exact scales a step of one in Phi is right."""
    mean = np.array([0.5, 0.02, 0.3, 0.9])
    Z = (rng.random((200_000, 4)) < mean).astype(float)
    coords = natural_coordinates(Z.sum(axis=0), 2e5)
    b = logit(coords.center)[None, :]

    def column_gradient(phi):
        return plain.gradients(coords, phi, b, Z)[0]

    direction = rng.normal(size=(4, 4))
    np.fill_diagonal(direction, 0)
    change = (column_gradient(1e-4 * direction) - column_gradient(-1e-4 * direction)) / 2e-4
    np.testing.assert_allclose(change, direction, atol=0.1)


def test_tied_flag_follows_tie():
    coords = paper_coordinates(3)
    assert coords.tied
    assert not replace(coords, tie=None).tied
