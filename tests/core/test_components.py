"""Relatedness: the cosines that users see, by hand-made components."""

import itertools
import tracemalloc

import numpy as np
import pytest

from daniel.core import components, spectrum
from daniel.core.components import (
    ATTRACTION_POWER,
    COUPLED_POWER,
    EXCLUSION,
    LEAST_DEGREE,
    SPECTRUM_POWER,
    SUBSTITUTES,
    Chance,
    coupled,
    first_components,
    positive_part,
    relatedness,
)
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


def plain_attraction(U, signs, kind):
    """The definition, pair by pair."""
    positive, negative = U[:, signs > 0], U[:, signs < 0]
    A = np.zeros((len(U), len(U)))
    for j, k in itertools.permutations(range(len(U)), 2):
        A[j, k] = positive[j] @ positive[k]
        if kind[j] < 0 or kind[j] != kind[k]:
            A[j, k] -= EXCLUSION * negative[j] @ negative[k]
    for one in set(kind) - {-1}:
        own = np.flatnonzero(kind == one)
        mean = negative[own].mean(axis=0)
        mean = mean / np.linalg.norm(mean)
        rows = {j: negative[j] - negative[j] @ mean * mean for j in own}
        pairs = list(itertools.permutations(own, 2))
        attraction = np.sqrt(sum((positive[j] @ positive[k]) ** 2 for j, k in pairs))
        exclusion = np.sqrt(sum((rows[j] @ rows[k]) ** 2 for j, k in pairs))
        share = min(1, SUBSTITUTES * attraction / exclusion) if exclusion > 1e-9 else 0
        for j, k in pairs:
            A[j, k] += share * rows[j] @ rows[k]
    M = np.maximum(A, 0) ** ATTRACTION_POWER
    degree = np.maximum(M.sum(axis=1) / (M.sum() / len(M)), LEAST_DEGREE)
    return M / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize("kind", [KIND, np.full(8, -1)], ids=["kinds", "unknown"])
def test_the_embedding_is_that_of_the_attractions(fitted, kind):
    U, signs = fitted
    found = relatedness(U, signs, kind)
    value, vector = np.linalg.eigh(plain_attraction(U, signs, kind))
    value, vector = np.maximum(value[::-1][:4], 0), vector[:, ::-1][:, :4]
    assert found.shape == (8, 4)
    square = value ** (2 * SPECTRUM_POWER)
    np.testing.assert_allclose(found @ found.T, (vector * square) @ vector.T, atol=1e-9)
    np.testing.assert_allclose((found**2).sum(axis=0), square, atol=1e-9)  # largest axes first


def test_scale_does_not_matter_and_lonely_codes_stay_small(fitted):
    U, signs = fitted
    np.testing.assert_allclose(
        cosines(relatedness(7 * U, signs, KIND)), cosines(relatedness(U, signs, KIND)), atol=1e-9
    )
    lonely = np.vstack([U, 1e-3 * U[:1]])
    norms = np.linalg.norm(relatedness(lonely, signs, np.r_[KIND, 0]), axis=1)
    assert norms[-1] < 0.1 * norms[0]


def test_substitutes_come_nearer(fitted):
    U, signs = fitted
    only_positive = U * (signs > 0)
    plain = cosines(relatedness(only_positive, signs, KIND, 8))
    found = cosines(relatedness(U, signs, KIND, 8))
    assert found[0, 1] > plain[0, 1]
    assert found[2, 3] > plain[2, 3]


def test_components_beside_the_fit_add_to_its_couplings(fitted, rng):
    """As if the fit had them too, but for the number of columns."""
    U, signs = fitted
    more, side = rng.normal(size=(8, 3)), np.array([1.0, 1.0, -1.0])
    found = relatedness(U, signs, KIND, 6, also=(more, side))
    whole = relatedness(np.hstack([U, more]), np.r_[signs, side], KIND, 6)
    np.testing.assert_allclose(cosines(found), cosines(whole), atol=1e-9)
    assert relatedness(U, signs, KIND, also=(more, side)).shape == (8, 4)


def test_two_columns_for_a_component_but_not_for_very_many(rng):
    U = rng.normal(size=(120, 20))
    assert relatedness(U[:, :2], np.ones(2), np.full(120, -1)).shape == (120, 4)
    assert relatedness(U, np.ones(20), np.full(120, -1)).shape == (120, 24)
    assert relatedness(U[:8, :7], np.ones(7), np.full(8, -1)).shape == (8, 8)


def test_an_embedding_of_very_many_codes_makes_one_square_array(rng, monkeypatch):
    """A product in another precision would copy it whole, at each step of the spectrum."""
    p = 1500
    monkeypatch.setattr(spectrum, "WHOLE", 500)
    monkeypatch.setattr(components, "ROWS", 64)
    U = rng.normal(size=(p, 6)).astype(np.float32)
    tracemalloc.start()
    relatedness(U, np.ones(6), np.full(p, -1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * U.itemsize * p**2


def test_few_columns_keep_the_components():
    """Three components tell four groups apart; three columns of their attractions would not."""
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / 10
    U = np.repeat(corners, 3, axis=0)
    for d in (None, 3, 5):
        found = relatedness(U, np.ones(3), np.full(12, -1), d)
        assert found.shape == (12, d or 6)
        near, far = cosines(found)[0, 1], cosines(found)[0, 3:]
        assert near > 0.99 and far.max() < 0.01


def test_the_number_of_columns_can_be_given(fitted):
    assert relatedness(*fitted, KIND, 3).shape == (8, 3)
    assert relatedness(*fitted, KIND, 8).shape == (8, 8)


def test_no_negative_components_or_no_positive_ones(fitted):
    U, _ = fitted
    assert relatedness(U[:, :2], np.ones(2), KIND).shape == (8, 4)
    assert relatedness(U[:, 2:], -np.ones(3), KIND).shape == (8, 0)
    assert np.isfinite(relatedness(np.zeros((8, 2)), np.array([1.0, -1.0]), KIND)).all()


def test_common_codes_are_related_by_couplings_and_by_all_that_records_show(fitted, rng):
    U, signs = fitted
    seen = rng.normal(size=(8, 8))
    value, vector = np.linalg.eigh(seen + seen.T)
    shown = (vector * np.maximum(value, 0)) @ vector.T
    also = positive_part(Spectrum(seen + seen.T))
    np.testing.assert_allclose(also @ also.T, shown, atol=1e-9)

    phi = (U * signs) @ U.T
    np.fill_diagonal(phi, 0)
    value, vector = np.linalg.eigh(phi + shown)
    value, vector = np.maximum(value[::-1], 0), vector[:, ::-1]
    for d in (None, 6):
        found, k = coupled(U, signs, also, d), d or also.shape[1]
        square = value[:k] ** (2 * COUPLED_POWER)
        np.testing.assert_allclose(found @ found.T, (vector[:, :k] * square) @ vector[:, :k].T)
    kept = np.count_nonzero(signs > 0)
    np.testing.assert_array_equal(coupled(U, signs, also, kept), U[:, signs > 0])


def test_a_penalty_by_number_holds_for_all_components(rng):
    matrix = rng.normal(size=(12, 12))
    matrix = (matrix + matrix.T) / 2
    first = first_components(Spectrum(matrix), Chance(1.0, 0.0, 0.0), rng, penalty=0.3)
    assert (first.penalties == 0.3).all()
    assert first.penalty == 0.3
    assert (np.sort(np.unique(first.signs)) == [-1, 1]).all()


def test_clear_components_bear_less_of_the_automatic_penalty(rng):
    matrix = np.diag([5.0, 2.0, 0.1, 0, 0, 0, 0, 0])
    first = first_components(Spectrum(matrix), Chance(1.0, 0.0, 0.0), rng)
    positive = first.penalties[first.signs > 0]
    assert positive[0] < positive[1] < first.penalty
    assert (positive[2:] == first.penalty).all()
    rare = first_components(Spectrum(matrix), Chance(1.0, 0.9, 1.0), rng)
    assert (rare.penalties[rare.signs > 0] == rare.penalty).all()


def test_without_a_positive_component_there_is_an_embedding_of_no_columns(rng):
    """Exclusions, or correlations beside the fit, attract codes that no component holds."""
    kind = np.full(30, -1)
    only_negative = rng.normal(size=(30, 2)).astype(np.float32)
    also = np.abs(only_negative), np.ones(2)
    for more in (None, also):
        assert relatedness(only_negative, -np.ones(2), kind, also=more).shape == (30, 0)
    assert coupled(np.zeros((30, 1)), np.ones(1), np.zeros((30, 0))).shape == (30, 0)
