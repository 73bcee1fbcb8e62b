"""Relatedness: the cosines that users see, by hand-made components."""

import numpy as np
import pytest

from daniel.core.components import SUBSTITUTES, first_components, relatedness
from daniel.core.spectrum import Spectrum


def cosines(E):
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.fixture
def fitted(rng):
    """Two positive components over all codes; codes 0-3 are drugs, 4-7 diagnoses.

    Drugs 0 and 1 exclude each other, as do 2 and 3; the diagnoses all exclude one another.
    """
    positive = np.abs(rng.normal(size=(8, 2))) * 0.1 + 0.1
    positive[:4] = [[0.2, 0.05], [0.05, 0.2], [0.2, 0.05], [0.05, 0.2]]
    pair = np.zeros((8, 3))
    pair[:4, 0] = [0.4, 0.4, -0.4, -0.4]
    pair[:4, 1] = [0.3, 0.3, 0.3, 0.3]  # all drugs compete
    pair[4:, 2] = [0.5, 0.5, 0.5, 0.5]  # all diagnoses compete
    return np.hstack([positive, pair]), np.array([1.0, 1, -1, -1, -1])


KIND = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def test_without_kinds_only_positive_components_count(fitted):
    U, signs = fitted
    found = relatedness(U, signs, np.full(8, -1))
    size = (U[:, :2] ** 2).sum(axis=0)
    wanted = U[:, :2] * (1 - size**2) ** -0.4
    np.testing.assert_allclose(found, wanted)


def test_substitutes_come_nearer_and_competition_does_not_count(fitted):
    U, signs = fitted
    plain = cosines(relatedness(U, signs, np.full(8, -1)))
    found = cosines(relatedness(U, signs, KIND))
    assert found[0, 1] > plain[0, 1]
    assert found[2, 3] > plain[2, 3]
    assert found[0, 2] < plain[0, 2]
    np.testing.assert_allclose(found[4:, 4:], plain[4:, 4:])  # the common direction is taken out


def test_exclusion_across_kinds_adds_nothing(fitted):
    U, signs = fitted
    plain = relatedness(U, signs, np.full(8, -1))
    found = relatedness(U, signs, KIND)
    np.testing.assert_allclose((found @ found.T)[:4, 4:], (plain @ plain.T)[:4, 4:])


def test_exclusion_counts_for_a_share_of_the_attraction(fitted):
    U, signs = fitted
    U = U * np.array([1, 1, 9, 9, 9])
    plain = relatedness(U, signs, np.full(8, -1))
    found = relatedness(U, signs, KIND)
    off = ~np.eye(4, dtype=bool)
    added = (found @ found.T - plain @ plain.T)[:4, :4][off]
    attraction = np.linalg.norm((plain @ plain.T)[:4, :4][off])
    np.testing.assert_allclose(np.linalg.norm(added), SUBSTITUTES * attraction)


def test_no_negative_components_or_no_positive_ones(fitted):
    U, _ = fitted
    assert relatedness(U[:, :2], np.ones(2), KIND).shape == (8, 2)
    assert relatedness(U[:, 2:], -np.ones(3), KIND).shape == (8, 0)
    assert np.isfinite(relatedness(np.zeros((8, 2)), np.array([1.0, -1.0]), KIND)).all()


def test_a_penalty_by_number_holds_for_all_components(rng):
    matrix = rng.normal(size=(12, 12))
    matrix = (matrix + matrix.T) / 2
    first = first_components(Spectrum(matrix), 1.0, 0.0, 0.0, rng, penalty=0.3)
    assert (first.penalties == 0.3).all()
    assert first.penalty == 0.3
    assert (np.sort(np.unique(first.signs)) == [-1, 1]).all()


def test_clear_components_bear_less_of_the_automatic_penalty(rng):
    matrix = np.diag([5.0, 2.0, 0.1, 0, 0, 0, 0, 0])
    first = first_components(Spectrum(matrix), 1.0, 0.0, 0.0, rng)
    positive = first.penalties[first.signs > 0]
    assert positive[0] < positive[1] < first.penalty
    assert (positive[2:] == first.penalty).all()
    rare = first_components(Spectrum(matrix), 1.0, 0.9, 1.0, rng)
    assert (rare.penalties[rare.signs > 0] == rare.penalty).all()
