"""The natural recipe: the objective by finite differences, the fit by stationarity, one shot."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from daniel.core import damping, intercepts, natural, synthetic
from daniel.core.components import principal_axes, relatedness
from daniel.core.coordinates import natural_coordinates, theta_from
from daniel.core.exchange import Start
from daniel.core.intercepts import prior_intercepts, site_intercepts
from daniel.core.ising import full_sweep, logit_moments, sweep
from daniel.core.natural import Options, answer, finish, fit, make_start, mean_answer
from daniel.core.records import records_from
from daniel.core.sample import gibbs
from daniel.core.solve import LBFGS, minimise, minimise_in_stages, small_falls
from daniel.core.start import corrected_correlation, correlation
from daniel.core.surrogate import Anchor, Factors, Surrogate
from daniel.simulation.design import Cell, draw

MODES = ["site", "shared", "tied"]
modes = pytest.mark.parametrize("mode", MODES)
EXACT = Options(n_components=2, dtype=np.float64, tol=1e-13, max_iter=3000)


def draw_sites(sizes, p=10, seed=0, spread=0.0, size=0.5):
    """Dense 0/1 records of sites with the same couplings; intercepts differ by `spread`."""
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(p, 2)) * size
    b = rng.normal(size=p) * 0.4 - 0.5
    return [
        gibbs(U, b + spread * rng.normal(size=p), n, rng, sweeps=30).astype(float) for n in sizes
    ]


def theta_of(fitted):
    return theta_from(fitted.coords, fitted.U, fitted.U * fitted.signs, fitted.b)


def distance(a, b):
    """Relative distance of two fits' couplings, intercepts left out."""
    A, B = theta_of(a), theta_of(b)
    off = ~np.eye(A.shape[0], dtype=bool)
    return np.linalg.norm((A - B)[off]) / np.linalg.norm(B[off])


def one_shot(sites, options, seed=1):
    hub, *_ = records = [records_from(Z) for Z in sites]
    start = make_start(hub, options, np.random.default_rng(seed))
    answers = [answer(r, start, options) for r in records]
    return finish(hub, start, mean_answer(answers), options, np.random.default_rng(seed))


def rare_records(n, p=60, groups=12, seed=0):
    """Codes of a few percent in groups of which a record has one or two, and some others."""
    rng = np.random.default_rng(seed)
    group = np.arange(p) % groups
    chosen = rng.random((n, groups)) < 0.08
    return ((rng.random((n, p)) < 0.5) & chosen[:, group] | (rng.random((n, p)) < 0.01)) * 1.0


# --- the objective --------------------------------------------------------------------------------


def make_objective(plain, rng, *, tied=False, signed=True, sites=1, **parts):
    """A Surrogate with random data, and a plain value function of its factors."""
    n, p, d = 90, 6, 3
    Z = plain.binary(n, p, 0.35, rng)
    site = rng.integers(0, sites, n)
    coords = natural_coordinates(Z.sum(axis=0), float(n), tied=tied)
    signs = np.array([1.0, 1.0, -1.0]) if signed else None
    prior = None if tied else rng.normal(size=(sites, p))
    U0, V0, w = rng.normal(size=(p, 2)), rng.normal(size=(p, 2)), rng.uniform(0.1, 2, (2, p))
    L = rng.normal(size=(2, p))
    every = {
        "penalty": np.array([0.3, 0.0, 0.7]),
        "correction": rng.normal(size=(p, p)),
        "intercept_correction": None if tied else rng.normal(size=(sites, p)),
        "anchors": [Anchor(U0, V0, w[0]), Anchor(U0, V0, w[1], L)],
        "balance": 0.4,
    }
    chosen = {name: every[name] for name in parts.get("only", every)}
    records = records_from(Z, site=site, n_sites=sites)
    objective = Surrogate(records, coords, prior, signs, **chosen)

    def value(U, V, b):
        phi = U @ V.T
        total = plain.loss(coords, phi, b, Z, site=site)
        if not tied:  # one pseudo-record, shared out to the sites by their size
            share = np.array([(site == s).mean() for s in range(sites)])[:, None]
            total += (share * coords.scale**2 * (b - prior) ** 2).sum() / (2 * n)
        if "penalty" in chosen:
            for c, weight in enumerate(chosen["penalty"]):
                total += weight * (U[:, c] @ U[:, c] + V[:, c] @ V[:, c]) / 2
        if "correction" in chosen:
            total += (chosen["correction"] * phi).sum()
        if chosen.get("intercept_correction") is not None:
            total += (chosen["intercept_correction"] * b).sum()
        if "anchors" in chosen:
            E = phi - U0 @ V0.T
            for weight, M in zip(w, (np.eye(p), np.eye(p) + L.T @ L), strict=True):
                total += (weight * np.einsum("jk,kl,jl->j", E, M, E)).sum() / 2
        if "balance" in chosen:
            total += chosen["balance"] * ((U.T @ U - V.T @ V) ** 2).sum()
        return total

    U, V = rng.normal(size=(2, p, d)) * 0.4
    if signed:
        V = U * signs
    factors = Factors(U, V, None if tied else rng.normal(size=(sites, p)))
    return objective, value, factors


CASES = {
    "signed": {},
    "signed, two sites": {"sites": 2},
    "signed, tied": {"tied": True},
    "free": {"signed": False},
    "free, two sites": {"signed": False, "sites": 2},
    "free, tied": {"signed": False, "tied": True},
    "nothing": {"only": []},
    "penalty": {"only": ["penalty"]},
    "correction": {"only": ["correction"]},
    "intercept correction": {"only": ["intercept_correction"]},
    "anchors": {"only": ["anchors"]},
    "balance": {"only": ["balance"], "signed": False},
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_surrogate_value_is_the_formula(case, rng, plain):
    objective, value, f = make_objective(plain, rng, **case)
    found, _ = objective(objective.pack(f))
    np.testing.assert_allclose(found, value(f.U, f.V, f.b), rtol=1e-12)


@pytest.mark.parametrize("case", [{}, {"tied": True}, {"signed": False}, {"only": []}])
def test_a_part_is_corrected_to_the_derivative_of_all_records(case, rng, plain):
    objective, _, f = make_objective(plain, rng, **case)
    x = objective.pack(f)
    part = objective.records.take(np.arange(40))
    corrected = objective.corrected_on(part, x)
    (_, there), (_, here) = corrected(x), objective(x)
    if objective.prior is not None:  # the pseudo-record weighs more among fewer records
        weight = 1 / part.total - 1 / objective.records.total
        there[-objective.prior.size :] -= (
            weight * (objective.coords.scale * (f.b - objective.prior)).ravel()
        )
    np.testing.assert_allclose(there, here, atol=1e-12)
    assert np.abs(objective.on(part)(x)[1] - here).max() > 1e-3
    elsewhere = x + 0.3 * rng.normal(size=x.size)
    assert np.abs(corrected(elsewhere)[1] - objective(elsewhere)[1]).max() > 1e-3


@pytest.mark.parametrize("case", [{}, {"sites": 2}, {"tied": True}, {"only": []}])
def test_guess_is_a_symmetric_positive_product(case, rng, plain):
    objective, _, f = make_objective(plain, rng, **case)
    x = objective.pack(f)
    product = objective.guess()(x)
    H = np.array([product(e) for e in np.eye(x.size)])
    np.testing.assert_allclose(H, H.T, atol=1e-10)
    assert np.linalg.eigvalsh(H).min() > 0
    nothing = objective.guess()(np.zeros_like(x))  # where every column is zero
    assert all(np.isfinite(nothing(e)).all() and nothing(e) @ e > 0 for e in np.eye(x.size))


def test_guess_saves_steps_where_columns_differ_in_size(rng, plain):
    Z = plain.binary(2000, 30, 0.3, rng)
    Z[:, :15] = np.maximum(Z[:, :15], Z[:, :1])  # one strong component, and many weak ones
    records = records_from(Z)
    coords = natural_coordinates(Z.sum(axis=0), 2000.0, tied=False)
    signs = np.ones(8)
    objective = Surrogate(records, coords, prior_intercepts(records), signs, 0.02)
    U = 0.1 * rng.normal(size=(30, 8))
    U[:15, 0] += 0.5
    x = objective.pack(Factors(U, U * signs, objective.prior))
    least = minimise(objective, x, solver=LBFGS(), max_iter=400, stop=small_falls(1e-12))
    steps = []
    for guess in (None, objective.guess()):
        solver = LBFGS(guess)
        found = minimise(objective, x, solver=solver, max_iter=200, stop=small_falls(1e-12))
        steps.append(sum(value > 1.0001 * least.value for value in found.curve))
    assert steps[1] < 0.7 * steps[0], steps


def test_intercepts_are_found_where_the_penalty_removes_every_column(rng, plain):
    """U shrinks to nothing within a few steps; the intercepts must not stop moving with it."""
    Z = plain.binary(3000, 30, 0.3, rng)
    records = records_from(Z)
    coords = natural_coordinates(Z.sum(axis=0), 3000.0, tied=False)
    U = 0.3 * rng.normal(size=(30, 4))
    prior = prior_intercepts(records)
    objective = Surrogate(records, coords, prior, np.ones(4), 100.0)
    x = objective.pack(Factors(U, U, prior + 1))
    found = minimise(
        objective, x, solver=LBFGS(objective.guess()), max_iter=200, stop=small_falls(1e-5)
    )
    f = objective.unpack(found.x)
    assert np.abs(f.U).max() < 1e-2
    np.testing.assert_allclose(f.b, prior, atol=0.05)


@cases
def test_surrogate_gradient_by_finite_differences(case, rng, plain):
    objective, value, f = make_objective(plain, rng, **case)
    x = objective.pack(f)

    def of_vector(v):
        g = objective.unpack(v)
        return value(g.U, g.V, g.b)

    wanted = plain.finite_difference(of_vector, x)
    _, gradient = objective(x)
    np.testing.assert_allclose(gradient, wanted, atol=2e-7 * np.abs(wanted).max())


@cases
def test_pack_and_unpack_are_inverse(case, rng, plain):
    objective, _, f = make_objective(plain, rng, **case)
    back = objective.unpack(objective.pack(f))
    np.testing.assert_allclose(back.U, f.U)
    np.testing.assert_allclose(back.V, f.V)
    assert (back.b is None) == (f.b is None)
    if f.b is not None:
        np.testing.assert_allclose(back.b, f.b)


def test_surrogate_works_in_single_precision(rng, plain):
    objective, value, f = make_objective(plain, rng, sites=2)
    x = objective.pack(f)
    found, gradient = objective(x.astype(np.float32))
    assert gradient.dtype == np.float32
    assert abs(found - value(f.U, f.V, f.b)) < 1e-5 * abs(found)
    assert plain.relative_error(gradient, objective(x)[1]) < 1e-5


def test_surrogate_on_other_records_keeps_all_but_the_loss(rng, plain):
    objective, value, f = make_objective(plain, rng, tied=True)
    part = objective.records.take(np.arange(20))
    dense = np.repeat(part.csr().toarray(), part.weight.astype(int), axis=0)
    phi = f.U @ f.V.T
    other = objective.on(part)(objective.pack(f))[0] - plain.loss(
        objective.coords, phi, None, dense
    )
    whole = objective.records.csr().toarray()
    weight = objective.records.weight
    rest = value(f.U, f.V, f.b) - plain.loss(objective.coords, phi, None, whole, weight=weight)
    np.testing.assert_allclose(other, rest, rtol=1e-10)


# --- the pooled fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["shared", "tied"])
def test_fit_is_the_minimum_that_scipy_finds(mode, plain):
    """The objective typed again, minimised by someone else's solver from another start."""
    (Z,) = draw_sites([800], p=8)
    options = replace(EXACT, penalty=0.1, intercept=mode)
    found = fit(records_from(Z), options, np.random.default_rng(0))
    coords = natural_coordinates(Z.sum(axis=0), 800.0, tied=mode == "tied")
    prior = logit((Z.sum(axis=0) + 0.5) / 801)

    def value(x):
        U, b = x[:16].reshape(8, 2), x[16:][None, :]
        total = plain.loss(coords, U @ U.T, b, Z) + 0.1 * (U**2).sum()
        G, gb = plain.gradients(coords, U @ U.T, b, Z)
        gU = (G + G.T) @ U + 0.2 * U
        if mode == "tied":
            return total, np.concatenate([gU.ravel(), np.zeros(8)])
        pull = coords.scale**2 / 800 * (b[0] - prior)
        total += pull @ (b[0] - prior) / 2
        return total, np.concatenate([gU.ravel(), gb[0] + pull])

    start = np.concatenate([np.random.default_rng(9).normal(size=16) * 0.3, prior])
    rival = minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    x = np.concatenate([found.U.ravel(), found.b[0]])
    assert abs(found.solution.value - rival.fun) < 1e-9
    np.testing.assert_allclose(value(x)[0], found.solution.value, rtol=1e-12)
    assert np.abs(value(x)[1]).max() < 1e-5
    U = rival.x[:16].reshape(8, 2)
    np.testing.assert_allclose(found.U @ found.U.T, U @ U.T, atol=1e-4)
    assert np.linalg.norm(U) > 0.3, "a penalty that removes everything would show nothing"
    assert (found.signs > 0).all()
    assert found.penalty == 0.1


def test_fit_does_not_depend_on_row_order_or_merging(rng):
    (Z,) = draw_sites([500], p=8)
    options = replace(EXACT, penalty=0.1)
    one, two, three = (
        fit(records, options, np.random.default_rng(0))
        for records in (
            records_from(Z),
            records_from(Z, merge=False),
            records_from(Z[rng.permutation(500)]),
        )
    )
    np.testing.assert_allclose(theta_of(two), theta_of(one), atol=1e-4)
    np.testing.assert_allclose(theta_of(three), theta_of(one), atol=1e-4)


def test_fit_ignores_site_labels(rng):
    """Centralised is centralised: one intercept vector for all."""
    (Z,) = draw_sites([300], p=6)
    site = rng.integers(0, 3, 300)
    one, two = (
        fit(r, EXACT, np.random.default_rng(0))
        for r in (records_from(Z, merge=False), records_from(Z, site=site, n_sites=3, merge=False))
    )
    np.testing.assert_array_equal(one.U, two.U)
    assert one.b.shape == two.b.shape == (1, 6)


def test_fit_follows_a_permutation_of_codes(rng):
    (Z,) = draw_sites([800], p=8)
    options = replace(EXACT, penalty=0.1)
    order = rng.permutation(8)
    one = theta_of(fit(records_from(Z), options, np.random.default_rng(0)))
    two = theta_of(fit(records_from(Z[:, order]), options, np.random.default_rng(0)))
    np.testing.assert_allclose(two, one[np.ix_(order, order)], atol=1e-4)


def test_the_progressive_way_ends_at_the_same_fit(monkeypatch):
    (Z,) = draw_sites([2000], p=8)
    options = replace(EXACT, penalty=0.1)
    records = records_from(Z, merge=False)
    direct = fit(records, options, np.random.default_rng(0))
    monkeypatch.setattr(natural, "LARGE", 0)
    staged = fit(records, options, np.random.default_rng(0))
    assert staged.solution.curve[0] < direct.solution.curve[0]
    np.testing.assert_allclose(staged.solution.value, direct.solution.value, rtol=1e-10)
    np.testing.assert_allclose(theta_of(staged), theta_of(direct), atol=1e-4)


def test_a_corrected_part_leads_nearer_to_the_end_than_parts_alone(monkeypatch):
    records = records_from(rare_records(6000), merge=False)
    options = Options(tol=1e-7)
    end = fit(records, options, np.random.default_rng(0)).solution.value
    monkeypatch.setattr(natural, "LARGE", 1)
    above = []
    for whole in (0, natural.WHOLE):  # of more codes than that no part is corrected
        monkeypatch.setattr(natural, "WHOLE", max(whole, 1))
        fitted = fit(records, options, np.random.default_rng(0))
        above.append(fitted.solution.curve[0] - end)
        assert fitted.solution.value == pytest.approx(end, rel=1e-4)
    assert above[1] < 0.2 * above[0], above


def test_the_progressive_one_shot_ends_at_the_same_fit(monkeypatch):
    sites = draw_sites([2000, 2000], p=8)
    options = replace(EXACT, penalty=0.1)
    direct = one_shot(sites, options)
    monkeypatch.setattr(natural, "LARGE", 0)
    hub, other = (records_from(Z) for Z in sites)
    start = make_start(hub, options, np.random.default_rng(1))  # rough, so that it differs
    monkeypatch.setattr(natural, "LARGE", np.inf)
    mean = [mean_answer(answer(r, start, options) for r in (hub, other)) for _ in range(2)]
    same_start = finish(hub, start, mean[0], options, np.random.default_rng(1))
    monkeypatch.setattr(natural, "LARGE", 0)
    staged = finish(hub, start, mean[1], options, np.random.default_rng(1))
    np.testing.assert_allclose(staged.solution.value, same_start.solution.value, rtol=1e-9)
    np.testing.assert_allclose(theta_of(staged), theta_of(same_start), atol=1e-4)
    assert distance(staged, direct) < 0.2


def test_the_penalty_of_noise_alone_leaves_nothing(rng):
    """Independent codes: at twice the noise level no component survives."""
    Z = (rng.random((2000, 15)) < 0.3).astype(float)
    records = records_from(Z)
    noise = natural.noise_level(
        records.counts(), 2000.0, natural_coordinates(records.counts(), 2000.0).scale, rng
    )
    found = fit(records, replace(EXACT, penalty=2 * noise), rng)
    assert np.linalg.norm(found.U) < 1e-3
    np.testing.assert_allclose(found.b, prior_intercepts(records), atol=1e-2)


def test_a_large_penalty_leaves_nothing_of_either_sign():
    """The penalty a user asks for holds for components of both signs."""
    rng = np.random.default_rng(0)
    Z = (rng.random((2000, 9)) < 0.4).astype(float)
    Z[:, 1] = np.where(rng.random(2000) < 0.8, Z[:, 0], Z[:, 1])
    Z[:, 3] = np.where(rng.random(2000) < 0.8, 1 - Z[:, 2], Z[:, 3])
    small, large = (
        fit(records_from(Z), replace(EXACT, n_components=6, penalty=penalty), rng)
        for penalty in (0.2, 5.0)
    )
    theta = theta_of(small)
    assert theta[0, 1] > 0.2
    assert theta[2, 3] < -0.2
    assert np.linalg.norm(large.U) < 1e-2


def test_codes_that_exclude_each_other_get_a_negative_coupling():
    rng = np.random.default_rng(0)
    Z = (rng.random((4000, 12)) < 0.3).astype(float)
    Z[:, 1] *= 1 - Z[:, 0]
    found = fit(records_from(Z), Options(dtype=np.float64), rng)
    theta = theta_of(found)
    assert (found.signs < 0).any()
    assert theta[0, 1] < -0.2
    assert np.abs(theta[2:, 2:] - np.diag(np.diag(theta[2:, 2:]))).max() < 0.1


@modes
def test_constant_codes_give_a_finite_fit(mode, rng):
    Z = (rng.random((60, 6)) < 0.4).astype(float)
    Z[:, 0], Z[:, 1] = 0, 1
    Z[:, 2] = Z[:, 3]
    found = fit(records_from(Z), Options(intercept=mode), rng)
    assert np.isfinite(theta_of(found)).all()
    assert np.isfinite(found.b).all()


@pytest.mark.parametrize("Z", [np.eye(5)[:1], np.zeros((3, 5)), np.array([[1.0], [0.0]])])
def test_hardly_any_data_gives_a_finite_fit(Z, rng):
    assert np.isfinite(theta_of(fit(records_from(Z), Options(), rng))).all()


def test_one_record_of_many_codes_gives_a_finite_fit(rng):
    Z = (rng.random((1, 450)) < 0.1).astype(float)
    assert np.isfinite(fit(records_from(Z), Options(), rng).U).all()


@pytest.mark.parametrize("d", [1, 4, 8])
def test_the_number_of_components_is_what_was_asked_for(d, rng):
    (Z,) = draw_sites([300], p=8)
    found = fit(records_from(Z), Options(n_components=d), rng)
    assert found.U.shape == (8, d)
    assert found.signs.shape == (d,)
    assert found.U.dtype == np.float32


# --- site intercepts and answers ------------------------------------------------------------------


def random_start(Z, rng, d=3):
    coords = natural_coordinates(Z.sum(axis=0), float(Z.shape[0]))
    U = rng.normal(size=(Z.shape[1], d)) * 0.2
    return Start(coords, U, np.array([1.0, 1.0, -1.0][:d]), rng.normal(size=(1, Z.shape[1])))


def test_intercepts_fit_beside_enormous_logits():
    """One code calls another with a logit of hundreds; expected and observed still agree."""
    Z = np.zeros((400, 4))
    Z[:40, 0], Z[30:70, 1], Z[::2, 2], Z[::3, 3] = 1, 1, 1, 1
    records = records_from(Z)
    coords = natural_coordinates(records.counts(), records.total)
    U = np.zeros((4, 1))
    U[:2, 0] = 8.0
    start = Start(coords, U, np.ones(1), prior_intercepts(records))
    b = site_intercepts(records, start)
    mean, _ = logit_moments(records, coords, U, start.V, b)
    pull = coords.scale**2 * (b - prior_intercepts(records))
    np.testing.assert_allclose(mean + pull, Z.sum(axis=0)[None, :], atol=1e-3)


@pytest.mark.parametrize("strength", [1.0, 5.0, 20.0])
def test_intercepts_are_the_roots_that_another_solver_finds(strength):
    """With logits up to hundreds, from a start that may be far off, for every seed."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = (rng.random((300, 6)) < rng.uniform(0.02, 0.5, 6)).astype(float)
        records = records_from(Z, merge=False)
        coords = natural_coordinates(records.counts(), records.total)
        U = rng.normal(size=(6, 2)) * np.sqrt(strength)
        prior = prior_intercepts(records)
        start = Start(coords, U, np.ones(2), prior + rng.normal(size=(1, 6)) * 10 * strength)
        found = site_intercepts(records, start)
        phi = U @ U.T
        np.fill_diagonal(phi, 0)
        logits = ((Z - coords.center) / coords.scale) @ phi * coords.gain

        def excess(b, j, logits=logits, Z=Z, coords=coords, prior=prior):
            pulled = coords.scale[j] ** 2 * (b - prior[0, j])
            return expit(b + logits[:, j]).sum() + pulled - Z[:, j].sum()

        root = [brentq(excess, -1e5, 1e5, args=(j,), xtol=1e-10) for j in range(6)]
        np.testing.assert_allclose(found[0], root, atol=1e-3)


def test_intercepts_of_very_many_records_are_off_by_a_part_of_their_standard_error(monkeypatch):
    records = records_from(rare_records(8000), merge=False)
    coords = natural_coordinates(records.counts(), records.total)
    U = 0.4 * np.random.default_rng(1).normal(size=(60, 3))
    start = Start(coords, U, np.ones(3), prior_intercepts(records) - 1)
    exact = site_intercepts(records, start)
    monkeypatch.setattr(intercepts, "LARGE", 0)
    found = site_intercepts(records, start)
    _, variance = logit_moments(records, coords, U, U, exact)
    off = np.abs(found - exact) * np.sqrt(variance)
    assert 1e-6 < off.max() < intercepts.LAST_ERROR


def test_the_derivative_vanishes_at_site_intercepts(rng, plain):
    """Of the site's loss plus its pseudo-record; of the loss itself up to that one record."""
    (Z,) = draw_sites([400])
    Z[:, 0] = 0
    start = random_start(Z, rng)
    b = site_intercepts(records_from(Z), start)
    _, gb = plain.gradients(start.coords, start.U @ start.V.T, b, Z)
    prior = logit((Z.sum(axis=0) + 0.5) / 401)
    pull = start.coords.scale**2 * (b - prior) / 400
    np.testing.assert_allclose(gb + pull, 0, atol=1e-8)
    assert np.abs(gb[0, 1:]).max() < 2e-3
    _, elsewhere = plain.gradients(start.coords, start.U @ start.V.T, b + 0.1, Z)
    assert np.abs(elsewhere).max() > 1e-2
    assert np.isfinite(b).all()


def test_an_answer_is_the_derivative_at_the_start(rng, plain):
    (Z,) = draw_sites([400])
    start = random_start(Z, rng)
    for mode in ("site", "shared"):
        options = Options(intercept=mode, dtype=np.float64)
        b = site_intercepts(records_from(Z), start) if mode == "site" else start.b
        found = answer(records_from(Z), start, options)
        G, gb = plain.gradients(start.coords, start.U @ start.V.T, b, Z)
        np.testing.assert_allclose(found.G, G, atol=1e-12)
        np.testing.assert_allclose(found.b, gb, atol=1e-12)
        assert found.n == 400
        np.testing.assert_array_equal(found.counts, Z.sum(axis=0))


def test_an_answer_with_site_intercepts_does_not_depend_on_the_centre(rng, plain):
    """Another centre is another intercept, and the site fits that itself."""
    (Z,) = draw_sites([5000])
    start = random_start(Z, rng)
    other = replace(start, coords=replace(start.coords, center=rng.uniform(0.2, 0.8, 10)))
    options = Options(dtype=np.float64)
    one, two = (answer(records_from(Z), s, options) for s in (start, other))
    assert plain.relative_error(two.G, one.G) < 5e-3  # the pseudo-record's share


def test_the_start_of_a_hub_with_fewer_records_than_codes_is_independence(rng):
    Z = (rng.random((9, 10)) < 0.3).astype(float)
    start = make_start(records_from(Z), Options(), rng)
    assert not start.U.any()
    np.testing.assert_allclose(start.b, logit((Z.sum(axis=0) + 0.5) / 10)[None, :])
    (more,) = draw_sites([400])
    assert make_start(records_from(more), Options(), rng).U.any()


# --- one shot -------------------------------------------------------------------------------------


class Recorder:
    """Stands in for Surrogate in `finish`, and remembers what was minimised last."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(natural, "Surrogate", self)

    def __call__(self, *args, **kwargs):
        self.objective = Surrogate(*args, **kwargs)
        return self.objective


@modes
def test_a_hub_that_is_the_only_site_gives_the_pooled_fit(mode, monkeypatch):
    (Z,) = draw_sites([800])
    recorder = Recorder(monkeypatch)
    options = replace(EXACT, penalty=0.1, intercept=mode)
    found = one_shot([Z], options)
    assert not recorder.objective.anchors  # damping 0: the hub has all records
    D = recorder.objective.correction
    np.testing.assert_allclose(D + D.T, 0, atol=1e-12)  # all that a symmetric Phi sees of it
    pooled = fit(records_from(Z), options, np.random.default_rng(5))
    np.testing.assert_allclose(found.solution.value, pooled.solution.value, rtol=1e-9)
    np.testing.assert_allclose(theta_of(found), theta_of(pooled), atol=1e-4)
    np.testing.assert_allclose(found.b, pooled.b, atol=1e-3)


@modes
def test_order_of_answers_does_not_matter(mode):
    sites = draw_sites([300, 200, 150], spread=0.2)
    options = replace(EXACT, penalty=0.1, intercept=mode)
    hub, *_ = records = [records_from(Z) for Z in sites]
    start = make_start(hub, options, np.random.default_rng(0))
    answers = [answer(r, start, options) for r in records]
    one, two = (
        finish(hub, start, mean_answer(a), options, np.random.default_rng(0))
        for a in (answers, answers[::-1])
    )
    np.testing.assert_allclose(theta_of(two), theta_of(one), atol=1e-6)


@modes
def test_two_copies_of_a_site_are_the_pooled_fit(mode):
    (Z,) = draw_sites([600])
    options = replace(EXACT, penalty=0.1, intercept=mode)
    pooled = fit(records_from(np.vstack([Z, Z])), options, np.random.default_rng(0))
    plain_way = one_shot([Z, Z], replace(options, damping=0.0))
    assert distance(plain_way, pooled) < 0.01
    np.testing.assert_allclose(theta_of(plain_way), theta_of(pooled), atol=0.02)
    damped = one_shot([Z, Z], options)
    assert distance(damped, pooled) < 0.3


@modes
@pytest.mark.parametrize("surrogate", ["hub", "model"])
def test_the_objective_has_the_derivative_of_all_sites_at_the_start(
    mode, surrogate, monkeypatch, plain
):
    """What one round is for: loss and corrections at Phi0 say what pooled records would say."""
    sites = draw_sites([400, 300, 50], spread=0.3)
    options = replace(EXACT, penalty=0.1, intercept=mode, surrogate=surrogate)
    hub, *_ = records = [records_from(Z) for Z in sites]
    start = make_start(hub, options, np.random.default_rng(0))
    answers = [answer(r, start, options) for r in records]
    recorder = Recorder(monkeypatch)
    fitted = finish(hub, start, mean_answer(answers), options, np.random.default_rng(0))
    objective, moved = recorder.objective, fitted.start
    coords, phi = moved.coords, moved.U @ moved.V.T
    off = phi * (1 - np.eye(10))

    def intercepts(r):
        """Those the answers were computed with, said about the centre of the new coordinates."""
        if mode == "tied":
            return None
        b = site_intercepts(r, start) if mode == "site" else start.b
        return b + ((coords.center - start.coords.center) / coords.scale) @ off * coords.gain

    before = theta_from(start.coords, start.U, start.V, site_intercepts(hub, start))
    after = theta_from(coords, moved.U, moved.V, intercepts(hub))
    if mode == "site":  # the start is the same model in both coordinates
        np.testing.assert_allclose(after, before, atol=1e-12)

    wanted, wanted_b = np.zeros((10, 10)), np.zeros((1, 10))
    for r, Z in zip(records, sites, strict=True):
        G, gb = plain.gradients(coords, phi, intercepts(r), Z)
        wanted += G * r.total / 750
        wanted_b += gb * r.total / 750
    reference = objective.records
    dense, weight = reference.csr().toarray(), reference.weight
    G, gb = plain.gradients(coords, phi, intercepts(reference), dense, weight=weight)

    def symmetric(D):
        return D + D.T

    corrected = symmetric(G + objective.correction)
    assert plain.relative_error(corrected, symmetric(wanted)) < 1e-9
    assert plain.relative_error(symmetric(G), symmetric(wanted)) > 1e-2
    if mode == "shared":
        assert plain.relative_error(gb + objective.intercept_correction, wanted_b) < 1e-9
    else:
        assert objective.intercept_correction is None


@pytest.mark.parametrize(
    ("mode", "surrogate", "most"),
    [
        ("site", "hub", 0.7),
        ("site", "model", 0.7),
        ("shared", "hub", 0.7),
        ("shared", "model", 0.7),
        ("tied", "hub", 0.9),  # a tied diagonal fits these prevalences badly, pooled or not
    ],
)
def test_one_shot_is_nearer_to_the_pooled_fit_than_the_hub_alone(mode, surrogate, most):
    """A tenth of the records at the hub; the mean of three studies."""
    options = Options(n_components=6, intercept=mode, surrogate=surrogate, dtype=np.float64)
    ratios = []
    for seed in (4, 5, 6):
        sites = draw_sites([500, 1500, 1500, 1500], p=15, seed=seed, size=0.2)
        pooled = fit(records_from(np.vstack(sites)), options, np.random.default_rng(0))
        alone = fit(records_from(sites[0]), options, np.random.default_rng(0))
        found = one_shot(sites, options)
        assert found.solution.converged
        ratios.append(distance(found, pooled) / distance(alone, pooled))
    assert np.mean(ratios) < most


@modes
@pytest.mark.parametrize("surrogate", ["hub", "model"])
def test_one_shot_is_finite_when_sites_differ(mode, surrogate):
    sites = draw_sites([200, 400, 1, 30], spread=1.0, seed=3)
    found = one_shot(sites, Options(intercept=mode, surrogate=surrogate))
    assert np.isfinite(theta_of(found)).all()
    assert np.isfinite(found.b).all()


@modes
def test_a_tiny_hub_uses_the_model_surrogate(mode, monkeypatch):
    """Fewer records than codes: synthetic records, at the prevalences of the whole study."""
    sites = draw_sites([12, 700, 700], p=20, seed=2, size=0.1)
    recorder = Recorder(monkeypatch)
    options = Options(intercept=mode, dtype=np.float64)
    found = one_shot(sites, options)
    reference = recorder.objective.records
    assert reference.total == synthetic.NUMBER[0]  # few codes need few
    assert np.isfinite(theta_of(found)).all()
    assert found.solution.converged
    pooled = fit(records_from(np.vstack(sites)), options, np.random.default_rng(0))
    # Uneven codes do not fit a tied intercept: there only that it does not run away.
    assert distance(found, pooled) < (1.5 if mode == "tied" else 0.5)
    study = np.vstack(sites).mean(axis=0)
    np.testing.assert_allclose(reference.counts() / reference.total, study, atol=0.03)


@pytest.mark.parametrize("size", [0.2, 0.3, 0.5])
def test_a_tiny_hub_does_not_run_away(size):
    """Stronger couplings than independence can foresee: still better than the answer "none"."""
    sites = draw_sites([12, 700, 700], p=20, seed=2, size=size)
    options = Options(dtype=np.float64)
    pooled = fit(records_from(np.vstack(sites)), options, np.random.default_rng(0))
    assert distance(one_shot(sites, options), pooled) < 1


def test_synthetic_records_of_a_real_start_have_the_prevalences_of_the_study(monkeypatch):
    sites = draw_sites([600, 600], p=12, spread=0.5, size=0.3)
    recorder = Recorder(monkeypatch)
    one_shot(sites, Options(surrogate="model", dtype=np.float64))
    reference = recorder.objective.records
    study = np.vstack(sites).mean(axis=0)
    assert np.abs(sites[0].mean(axis=0) - study).max() > 0.1, "the hub must differ for this"
    np.testing.assert_allclose(reference.counts() / reference.total, study, atol=0.04)


def unlike_hospitals(seed, p=120, rare=0.1, short=0.5, long=3.0):
    """Short and long records of groups of codes; at the first site a third of the codes is rare."""
    n, groups = 2_000, 12
    rng = np.random.default_rng(seed)
    here = np.where(np.arange(p) < p // 3, rare, 1.0)
    sites = []
    for share in (here, np.ones(p)):
        care = np.where(rng.random((n, 1)) < 0.2, long, short)
        chosen = rng.random((n, groups)) < 0.05 * care
        of_group = (rng.random((n, p)) < 0.4 * share) & chosen[:, np.arange(p) % groups]
        sites.append((of_group | (rng.random((n, p)) < 0.03 * share * care)) * 1.0)
    return sites


def way_left(sites):
    """From the pooled fit's loss, 0, to that of the start, 1: where one shot ends."""
    options = Options()
    start = make_start(records_from(sites[0]), options, np.random.default_rng(1))
    assert start.U.any(), "the start must be the hub's fit for this"
    pooled = fit(records_from(np.vstack(sites)), options, np.random.default_rng(1))
    ends = one_shot(sites, options), pooled, start
    shot, least, most = (loss_at_all_sites(sites, fitted) for fitted in ends)
    return (shot - least) / (most - least)


def loss_at_all_sites(sites, fitted):
    """Mean over the sites of the loss with each site's own intercepts."""
    model = Start(fitted.coords, fitted.U, fitted.signs, fitted.b)
    losses = []
    for records in map(records_from, sites):
        b = site_intercepts(records, model).astype(model.U.dtype)
        losses.append(sweep(records, model.coords, model.U, model.V, b).loss)
    return np.mean(losses)


@pytest.mark.parametrize("seed", range(3))
def test_a_hub_that_lacks_codes_comes_near_the_pooled_fit(seed):
    assert way_left(unlike_hospitals(seed)) < 0.2


def test_what_a_hub_lacks_is_held_along_what_records_vary_most_in(monkeypatch):
    sites = unlike_hospitals(0, p=240, rare=0.05, short=0.1, long=10.0)
    assert way_left(sites) < 0.2
    monkeypatch.setattr(damping, "STEEP", 0)
    assert way_left(sites) > 0.3


def test_one_record_more_elsewhere_hardly_moves_the_fit():
    sites = [rare_records(6_000), rare_records(1, seed=1)]
    alone = fit(records_from(sites[0]), Options(), np.random.default_rng(1))
    assert distance(one_shot(sites, Options()), alone) < 0.05


def test_damping_holds_the_couplings_at_the_start():
    sites = draw_sites([300, 300, 300])
    options = replace(EXACT, penalty=0.1)

    def moved(damping):
        found = one_shot(sites, replace(options, damping=damping))
        phi0 = found.start.U @ found.start.V.T
        phi = (found.U * found.signs) @ found.U.T
        off = ~np.eye(10, dtype=bool)
        return np.linalg.norm((phi - phi0)[off]) / np.linalg.norm(phi0[off])

    far, near, still = moved(0.0), moved(3.0), moved(1e5)
    assert far > near > still
    assert still < 1e-2 < far


@pytest.mark.parametrize(("mode", "close"), [("site", 0.02), ("shared", 0.06)])
def test_the_intercepts_of_the_study_are_not_the_hubs(mode, close):
    """Independent codes, a hub with other prevalences: b is the log-odds of all records."""
    rng = np.random.default_rng(0)
    sites = [(rng.random((n, 6)) < m).astype(float) for n, m in ((1000, 0.3), (3000, 0.4))]
    everyone, hub = (logit(Z.mean(axis=0)) for Z in (np.vstack(sites), sites[0]))
    found = one_shot(sites, replace(EXACT, penalty=1.0, intercept=mode))
    assert np.linalg.norm(found.U) < 1e-2
    np.testing.assert_allclose(found.b[0], everyone, atol=close)
    assert (np.abs(hub - everyone) > 0.15).all()


# --- principal axes -------------------------------------------------------------------------------


def test_principal_axes_keep_phi_and_order_the_columns(rng):
    U = rng.normal(size=(9, 5)) * [1, 2, 0.5, 3, 1]
    signs = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    out, out_signs = principal_axes(U, signs)
    np.testing.assert_allclose((out * out_signs) @ out.T, (U * signs) @ U.T, atol=1e-12)
    assert out_signs.tolist() == [1, 1, 1, -1, -1]
    size = np.linalg.norm(out, axis=0)
    assert size[0] >= size[1] >= size[2]
    assert size[3] >= size[4]
    for side in (out_signs > 0, out_signs < 0):
        gram = out[:, side].T @ out[:, side]
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10)


def test_principal_axes_do_not_depend_on_the_rotation_given(rng):
    U = rng.normal(size=(9, 4))
    signs = np.ones(4)
    R, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    np.testing.assert_allclose(principal_axes(U @ R, signs)[0], principal_axes(U, signs)[0])


def test_principal_axes_set_negligible_columns_to_zero_and_last(rng):
    U = rng.normal(size=(9, 4)) * [1e-4, 1, 1e-4, 1]
    out, signs = principal_axes(U, np.array([1.0, 1.0, -1.0, -1.0]))
    assert signs[:2].tolist() == [1, -1]
    assert not out[:, 2:].any()
    assert principal_axes(np.zeros((5, 2)), np.ones(2))[0].tolist() == np.zeros((5, 2)).tolist()


def test_principal_axes_with_more_columns_than_codes(rng):
    U = rng.normal(size=(3, 5))
    out, signs = principal_axes(U, np.ones(5))
    assert out.shape == (3, 5)
    np.testing.assert_allclose((out * signs) @ out.T, U @ U.T, atol=1e-12)


# --- codes that hardly meet -----------------------------------------------------------------------


def test_a_step_counts_by_what_all_records_gain_for_a_number_that_is_fitted(monkeypatch):
    """Very large fits stop by the gain of all records, small ones later, of common codes never."""
    asked = []

    def stages(parts, whole, x, *, tol, least, **kwargs):
        asked.append((tol, least, x.size))
        return minimise_in_stages(parts, whole, x, tol=tol, least=least, **kwargs)

    monkeypatch.setattr(natural, "minimise_in_stages", stages)
    for n, large in ((300, 60 * 300), (600, 60 * 300), (300, 60 * 1200)):
        monkeypatch.setattr(natural, "LARGE", large)
        fit(records_from(rare_records(n)), Options(n_components=3), np.random.default_rng(0))
        tol, least, size = asked[-1]
        assert least == pytest.approx(tol * natural.GAIN * size / max(n, large / 60))
    (Z,) = draw_sites([4000])
    fit(records_from(Z), Options(n_components=3), np.random.default_rng(0))
    assert asked[-1][1] == 0


def test_correlations_of_all_records_are_those_of_the_hub_and_the_correction(rng):
    """At a start from independence, and without one for two copies of the hub, exactly."""
    one, two = rare_records(900, seed=1), rare_records(700, seed=2)
    hub, both = records_from(one), records_from(np.vstack([one, two]))
    coords = natural_coordinates(both.counts(), both.total)
    at = {}
    for name, some in (("hub", hub), ("both", both)):
        site = replace(coords, center=some.counts() / some.total)  # about its own means
        b = logit(np.clip(some.counts() / some.total, 1e-6, 1))[None, :]
        nothing = np.zeros((60, 1))
        at[name] = full_sweep(some, site, (nothing, nothing), b).G
    found = corrected_correlation(hub, coords, at["both"] - at["hub"])
    np.testing.assert_allclose(found, correlation(both, coords), atol=1e-4)
    alone = corrected_correlation(hub, coords, np.zeros((60, 60)))
    np.testing.assert_allclose(alone, correlation(hub, coords), atol=1e-12)


def test_very_many_codes_have_the_same_corrected_correlations(rng, monkeypatch):
    hub = records_from(rare_records(500))
    coords = natural_coordinates(hub.counts(), hub.total)
    correction = rng.normal(size=(60, 60)) / 50
    whole = corrected_correlation(hub, coords, correction)
    monkeypatch.setattr("daniel.core.start.WHOLE", 10)
    product = corrected_correlation(hub, coords, correction) @ np.eye(60)
    np.testing.assert_allclose(product, whole, atol=1e-9)


@pytest.mark.parametrize("firm", [0.0, 0.5, 1.0])
def test_an_embedding_takes_in_correlations_unless_cliques_make_them(firm, monkeypatch):
    monkeypatch.setattr(natural, "firmness", lambda records, rng: firm)
    sites = [rare_records(n, seed=n) for n in (900, 800)]
    for fitted in (
        fit(records_from(np.vstack(sites)), Options(), np.random.default_rng(0)),
        one_shot(sites, Options()),
    ):
        if firm == 1:
            assert fitted.also is None
            continue
        U, signs = fitted.also
        scale = natural.CORRELATED * (1 - firm)
        shown = np.linalg.eigvalsh((U * signs) @ U.T)[-1] / scale
        seen = np.linalg.eigvalsh(correlation(records_from(np.vstack(sites)), fitted.coords))[-1]
        s = seen - fitted.penalty
        assert shown == pytest.approx(s / (1 + s), rel=0.1)  # soft-thresholded and squeezed


def test_common_codes_whose_couplings_drown_are_still_told_in_order():
    """The penalty leaves hardly a component; all that the records show ranks the pairs."""
    drawn = draw(Cell(4000, 100, 10, 0.3), 0, 0)
    Z, above = drawn.Z.toarray(), np.triu_indices(100, 1)
    strong = drawn.theta[above] > np.quantile(drawn.theta[above], 0.9)
    for fitted in (
        fit(records_from(Z), Options(), np.random.default_rng(0)),
        one_shot(np.array_split(Z, 8), Options()),
    ):
        assert fitted.common
        U, signs = principal_axes(fitted.U, fitted.signs)
        kind = np.full(100, -1)
        found = fitted.embedding(U, signs, kind)
        of_phi, of_all = (
            roc_auc_score(strong, cosine_similarity(rows)[above])
            for rows in (relatedness(U, signs, kind), found)
        )
        assert of_all > of_phi + 0.02
        assert fitted.embedding(U, signs, kind, 7).shape == (100, 7)


def test_parts_of_rows_that_stand_for_many_have_the_prevalences_of_all(rng, plain, monkeypatch):
    Z = rare_records(1500)
    records = records_from(np.vstack([np.repeat(Z[:60], 400, axis=0), Z]))
    assert records.weight.max() >= 400
    monkeypatch.setattr(natural, "LARGE", 1)
    objective = replace(make_objective(plain, rng)[0], records=records)
    for part in natural._parts(objective, rng, rough=True):
        some = part.at(np.zeros(1)).records
        np.testing.assert_allclose(
            some.counts() / some.total, records.counts() / records.total, atol=0.04
        )
