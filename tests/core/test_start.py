"""Starts: correlations, eigenvalues, spectral and convex."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from daniel.core.coordinates import natural_coordinates, paper_coordinates
from daniel.core.ising import full_sweep
from daniel.core.records import records_from
from daniel.core.spectrum import Spectrum, extreme_eigenpairs
from daniel.core.start import (
    convex_start,
    correlation,
    correlation_operator,
    in_ball,
    signed_factor,
    soft_threshold,
    spectral_start,
)

# --- correlation ----------------------------------------------------------------------------------


def test_correlation_is_numpys_within_each_site(rng, plain):
    Z = plain.binary(500, 6, 0.3, rng)
    site = np.repeat([0, 1, 2], [300, 150, 50])
    Z[site == 1, 0] = 1  # prevalences differ by site; a constant column at one of them
    coords = natural_coordinates(Z.sum(axis=0), 500.0)
    wanted = np.zeros((6, 6))
    for s in range(3):
        wanted += np.cov(Z[site == s], rowvar=False, bias=True) * (site == s).mean()
    wanted /= np.outer(coords.scale, coords.scale)
    np.fill_diagonal(wanted, 0)
    found = correlation(records_from(Z, site=site, n_sites=3), coords)
    np.testing.assert_allclose(found, wanted, atol=1e-14)


def test_correlation_is_minus_the_gradient_at_independence(rng, plain):
    """With the plain prevalences as intercepts, and one site."""
    Z = plain.binary(400, 7, 0.3, rng)
    coords = natural_coordinates(Z.sum(axis=0), 400.0)
    mean = Z.mean(axis=0)
    b = np.log(mean / (1 - mean))[None, :]
    G, _ = plain.gradients(coords, np.zeros((7, 7)), b, Z)
    np.testing.assert_allclose(correlation(records_from(Z), coords), -G, atol=1e-14)


def test_an_empty_site_changes_nothing(rng, plain):
    Z = plain.binary(100, 5, 0.4, rng)
    coords = natural_coordinates(Z.sum(axis=0), 100.0)
    site = np.full(100, 1)
    found = correlation(records_from(Z, site=site, n_sites=3), coords)
    np.testing.assert_allclose(found, correlation(records_from(Z), coords), atol=1e-15)


@pytest.mark.parametrize("merge", [True, False])
def test_correlation_as_a_product_with_vectors(rng, plain, merge):
    Z = plain.binary(300, 8, 0.3, rng)
    Z[:, 5] = 0
    coords = natural_coordinates(Z.sum(axis=0), 300.0)
    records = records_from(Z, merge=merge)
    found = correlation_operator(records, coords) @ np.eye(8)
    np.testing.assert_allclose(found, correlation(records, coords), atol=1e-14)


# --- eigenvalues ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[30, 450], ids=["dense", "lanczos"])
def spectrum_matrix(request):
    """Symmetric, some eigenvalues well apart at both ends; 450 codes take the sparse solver."""
    p = request.param
    rng = np.random.default_rng(11)
    Q, _ = np.linalg.qr(rng.normal(size=(p, p)))
    value = rng.uniform(-0.5, 0.5, p)
    value[:6] = [5, 4, 3.5, 2, 1.5, 1]
    value[-3:] = [-1, -3, -6]
    return (Q * value) @ Q.T


@pytest.mark.parametrize("end", ["LA", "SA"])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_extreme_eigenpairs_against_eigh(spectrum_matrix, end, k):
    value, vector = extreme_eigenpairs(spectrum_matrix, k, end)
    exact = np.linalg.eigvalsh(spectrum_matrix)
    wanted = exact[::-1][:k] if end == "LA" else exact[:k]
    np.testing.assert_allclose(value, wanted, atol=1e-4)
    assert vector.shape == (spectrum_matrix.shape[0], k)
    np.testing.assert_allclose(spectrum_matrix @ vector, vector * value, atol=1e-3)
    np.testing.assert_allclose(vector.T @ vector, np.eye(k), atol=1e-6)


@pytest.mark.parametrize("form", ["array", "operator"])
def test_spectrum_against_eigh(spectrum_matrix, form):
    exact, _ = np.linalg.eigh(spectrum_matrix)
    given = spectrum_matrix if form == "array" else aslinearoperator(spectrum_matrix)
    spectrum = Spectrum(given)
    assert spectrum.largest() == pytest.approx(exact[-1])
    for k in (2, 5, 3):  # more than is known, then less
        value, vector = spectrum.ends(k, "SA")
        np.testing.assert_allclose(value, exact[:k], atol=1e-4)
        np.testing.assert_allclose(spectrum_matrix @ vector, vector * value, atol=1e-3)
    values = spectrum.values()
    if form == "array":
        np.testing.assert_allclose(values, exact, atol=1e-10)
    else:
        assert values is None


@pytest.mark.parametrize("threshold", [10.0, 2.5, 0.9, -0.2])
@pytest.mark.parametrize("most", [3, 20, 256])
def test_count_above_against_eigvalsh(spectrum_matrix, threshold, most):
    exact = int((np.linalg.eigvalsh(spectrum_matrix) > threshold).sum())
    assert Spectrum(spectrum_matrix).count_above(threshold, most) == min(exact, most)


@pytest.mark.parametrize("p", [5, 450])
def test_a_matrix_of_zeros_has_a_spectrum_too(p):
    """One record, or none that vary, has no correlations at all."""
    assert Spectrum(np.zeros((p, p))).count_above(0.1, 256) == 0
    value, vector = extreme_eigenpairs(np.zeros((p, p)), 2, "LA")
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_allclose(vector.T @ vector, np.eye(2), atol=1e-8)


def test_a_block_of_equal_codes_among_zeros_has_one_eigenvalue():
    """Low rank at a size where the sparse solver works: most of the spectrum is exactly zero."""
    matrix = np.zeros((450, 450))
    matrix[:4, :4] = 1 - np.eye(4)
    assert Spectrum(matrix).count_above(0.5, 256) == 1


# --- spectral start -------------------------------------------------------------------------------


def test_spectral_start_is_the_shrunken_spectrum(spectrum_matrix):
    p = spectrum_matrix.shape[0]
    signs = np.array([1.0, 1, 1, -1, -1])
    penalty = np.array([0.7, 0.7, 0.7, 1.2, 1.2])
    U = spectral_start(Spectrum(spectrum_matrix), signs, penalty, np.random.default_rng(0))
    assert U.shape == (p, 5)
    value, vector = np.linalg.eigh(spectrum_matrix)
    wanted = np.zeros((p, p))
    for v, x in zip(value, vector.T, strict=True):
        if v in value[-3:]:
            s = max(v - 0.7, 0)
            wanted += s / (1 + s) * np.outer(x, x)
        if v in value[:2]:
            s = max(-v - 1.2, 0)
            wanted -= s / (1 + s) * np.outer(x, x)
    # The noise has columns of norm 0.03.
    assert np.linalg.norm((U * signs) @ U.T - wanted, 2) < 0.15


def test_spectral_start_leaves_the_saddle():
    """All eigenvalues under the penalty: zero is a saddle, so a little noise is left."""
    U = spectral_start(
        Spectrum(np.zeros((40, 40))), np.array([1.0, -1.0]), np.ones(2), np.random.default_rng(0)
    )
    norms = np.linalg.norm(U, axis=0)
    assert (norms > 0.01).all()
    assert (norms < 0.06).all()


def test_spectral_start_is_reproducible_for_a_seed(spectrum_matrix):
    one, two = (
        spectral_start(Spectrum(spectrum_matrix), np.ones(3), np.ones(3), np.random.default_rng(5))
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


# --- convex start ---------------------------------------------------------------------------------


@pytest.fixture
def paper_problem(rng, plain):
    """Records with planted couplings, and W as a function of theta."""
    p = 8
    chance = np.where(rng.random((400, 1)) < 0.5, 0.7, 0.25)
    Z = (rng.random((400, p)) < chance).astype(float)
    X = 2 * Z - 1
    return X, lambda theta: plain.paper_W(theta, X)


def test_convex_start_of_five_plain_steps(paper_problem):
    """The paper's start: no penalty, no ball."""
    X, W = paper_problem
    theta = np.zeros((8, 8))
    for _ in range(5):
        theta = theta - 0.1 * W(theta)
    records = records_from((X + 1) / 2)

    def derivative(t):
        G = full_sweep(records, paper_coordinates(8), t, None).G
        return G + G.T - np.diag(np.diag(G))

    found = convex_start(derivative, 8, step_size=0.1)
    np.testing.assert_allclose(found, theta, atol=1e-13)


def test_convex_start_with_penalty_ends_where_the_subgradient_holds_zero(paper_problem):
    """-W = penalty * (L R' + N), N orthogonal to the rank-r part and of norm at most one."""
    _, W = paper_problem
    penalty = 0.25
    theta = convex_start(W, 8, step_size=0.15, penalty=penalty, steps=600)
    left, value, right = np.linalg.svd(theta)
    r = int((value > 1e-9).sum())
    assert 0 < r < 8, "the penalty must leave some of the spectrum and remove some"
    L, R = left[:, :r], right[:r].T
    gradient = -W(theta) / penalty
    np.testing.assert_allclose(gradient @ R, L, atol=1e-8)
    np.testing.assert_allclose(L.T @ gradient, R.T, atol=1e-8)
    N = gradient - L @ R.T
    assert np.linalg.norm(N, 2) < 1
    np.testing.assert_allclose(theta, theta.T, atol=1e-12)


def test_convex_start_stays_in_the_ball(paper_problem):
    _, W = paper_problem
    free = convex_start(W, 8, step_size=0.15, steps=100)
    radius = np.linalg.norm(free) / 3
    for steps in (1, 2, 5, 100):
        theta = convex_start(W, 8, step_size=0.15, radius=radius, steps=steps)
        assert np.linalg.norm(theta) <= radius * (1 + 1e-12)
    # At the end it stands on the sphere, and the rest of the gradient points outwards.
    np.testing.assert_allclose(np.linalg.norm(theta), radius)
    outwards = -W(theta)
    np.testing.assert_allclose(
        outwards / np.linalg.norm(outwards), theta / np.linalg.norm(theta), atol=1e-4
    )


def test_a_large_penalty_gives_zero(paper_problem):
    _, W = paper_problem
    limit = np.linalg.norm(W(np.zeros((8, 8))), 2)
    assert not convex_start(W, 8, step_size=0.1, penalty=1.01 * limit).any()
    assert convex_start(W, 8, step_size=0.1, penalty=0.9 * limit).any()


def test_soft_threshold_is_the_proximal_map_of_the_nuclear_norm(rng):
    """No random move lowers |T - A|^2 / 2 + t |T|_*; and the singular values are shifted."""
    A = rng.normal(size=(5, 5))
    T = soft_threshold(A, 0.8)
    value = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(
        np.linalg.svd(T, compute_uv=False), np.maximum(value - 0.8, 0), atol=1e-12
    )

    def objective(M):
        return ((M - A) ** 2).sum() / 2 + 0.8 * np.linalg.norm(M, "nuc")

    best = objective(T)
    for size in (1e-3, 0.1, 1):
        for _ in range(20):
            assert objective(T + size * rng.normal(size=(5, 5))) > best


def test_in_ball_leaves_the_inside_alone(rng):
    A = rng.normal(size=(3, 3))
    norm = np.linalg.norm(A)
    assert in_ball(A, norm * 1.01) is A
    np.testing.assert_allclose(in_ball(A, norm / 2), A / 2, rtol=1e-14)
    np.testing.assert_array_equal(in_ball(np.zeros((2, 2)), 1.0), 0)


@pytest.mark.parametrize("d", [1, 3, 7])
def test_signed_factor_is_the_rank_d_svd_of_an_indefinite_matrix(d, rng, plain):
    theta = plain.symmetric_theta(7, rng)
    U, signs = signed_factor(theta, d)
    left, value, right = np.linalg.svd(theta)
    wanted = (left[:, :d] * value[:d]) @ right[:d]
    np.testing.assert_allclose((U * signs) @ U.T, wanted, atol=1e-12)
    np.testing.assert_allclose(U.T @ U, np.diag(value[:d]), atol=1e-12)  # balanced, U = L sqrt(S)
    assert set(np.unique(signs)) <= {-1.0, 1.0}
    if d == 7:
        assert (signs == -1).sum() == (np.linalg.eigvalsh(theta) < 0).sum() > 0


@pytest.mark.parametrize("given", [np.asarray, aslinearoperator], ids=["array", "operator"])
def test_outer_eigenpairs_of_a_large_matrix(monkeypatch, rng, given):
    """Eigenvalues that stand clear of the noise are sharp; those in it are nearly found."""
    monkeypatch.setattr("daniel.core.spectrum.WHOLE", 500)
    noise = rng.normal(size=(600, 600))
    noise = (noise + noise.T) / np.sqrt(8 * 600)  # norm 1
    clear, _ = np.linalg.qr(rng.normal(size=(600, 12)))
    size = np.concatenate([np.linspace(2, 6, 8), np.linspace(-4, -2, 4)])
    matrix = noise + (clear * size) @ clear.T
    exact, vector = np.linalg.eigh(matrix)
    spectrum = Spectrum(given(matrix))
    for end, wanted, axes in (("LA", exact[::-1], vector[:, ::-1]), ("SA", exact, vector)):
        found, own = spectrum.ends(40, end)
        sharp = 8 if end == "LA" else 4
        np.testing.assert_allclose(found[:sharp], wanted[:sharp], rtol=1e-8)
        np.testing.assert_allclose(np.abs((own * axes[:, :40]).sum(axis=0))[:sharp], 1, rtol=1e-6)
        np.testing.assert_allclose(found, wanted[:40], atol=0.06)
        np.testing.assert_allclose(own.T @ own, np.eye(40), atol=1e-8)
    assert spectrum.count_above(1.5, 256) == 8
