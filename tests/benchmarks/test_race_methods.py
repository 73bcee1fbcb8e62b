"""The methods of the races: all run, and those written here do what they say."""

import signal
import time
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks import race_one
from benchmarks.catalogue import METHODS, raced
from benchmarks.methods import als, daniel_one_shot, fedavg, limit, nodewise, paper, sv_soft
from benchmarks.methods.result import bytes_of_records, hub_rows
from benchmarks.problems_made import simulation
from daniel import Daniel
from daniel.core.components import Components
from daniel.core.ising import reference_conditional
from daniel.core.natural import Options, fit
from daniel.core.records import records_from
from daniel.core.solve import LBFGS
from daniel.errors import MissingDependencyError
from daniel.simulation.design import Cell

COLUMNS = Components(np.zeros((20, 3)), np.array([1.0, 1.0, -1.0]), np.full(3, 0.1), 0.1)
ONE_OF_EACH = {entry.label: entry for entry in METHODS.values()}


@pytest.mark.parametrize("label", list(ONE_OF_EACH))
def test_every_method_runs(label):
    entry = ONE_OF_EACH[label]
    problem = race_one.tiny(truth=False)
    try:
        found = import_module(entry.module).run(problem, np.random.default_rng(0), **entry.options)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert found.embedding.shape[0] == 20
    assert np.isfinite(found.embedding).all()
    assert (found.bytes_sent > 0) == (entry.where != "hub")
    if entry.where == "pooled":
        assert found.bytes_sent == bytes_of_records(problem)


def test_the_papers_recipe_is_that_of_the_package():
    problem = simulation("x", Cell(600, 20, 2, 0.2))
    problem = replace(problem, sites=np.where(np.arange(600) < 300, "a", "b"))
    found = paper.run(problem, np.random.default_rng(0))
    model = Daniel(2, recipe="paper", step_size=0.1, max_iter=50).fit(
        problem.Z, sites=problem.sites
    )
    assert found.theta == pytest.approx(model.U_ @ model.V_.T, abs=1e-8)


def test_a_step_that_diverges_gives_way_to_a_smaller_one(monkeypatch):
    tried = []

    def one_shot(problem, said, eta):
        tried.append(eta)
        if eta > 0.001:
            raise np.linalg.LinAlgError
        return np.ones((20, 1)), np.ones((20, 1))

    monkeypatch.setattr(paper, "one_shot", one_shot)
    found = paper.run(race_one.tiny(truth=False), np.random.default_rng(0))
    assert tried == [0.01, 0.003, 0.001]
    assert found.seconds < 1


def test_every_step_of_the_papers_recipe_has_the_whole_limit(monkeypatch):
    """The time that is told is that of one step: what diverged before must not use the limit."""
    left = []

    def one_shot(problem, said, eta):
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        time.sleep(0.05)
        if eta > 0.001:
            raise np.linalg.LinAlgError
        return np.ones((20, 1)), np.ones((20, 1))

    monkeypatch.setattr(paper, "one_shot", one_shot)
    before = signal.getsignal(signal.SIGALRM)
    try:
        limit.begin(100)
        paper.run(race_one.tiny(truth=False), np.random.default_rng(0))
    finally:
        limit.end()
        signal.signal(signal.SIGALRM, before)
    assert left == pytest.approx([100] * 3, abs=0.02)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    paper.run(race_one.tiny(truth=False), np.random.default_rng(0))
    assert left[-1] == 0  # without a limit there is none


def test_the_papers_recipe_counts_a_symmetric_derivative_once(monkeypatch):
    monkeypatch.setattr(paper, "one_shot", lambda *_: (np.ones((20, 3)), np.ones((20, 3))))
    found = paper.run(race_one.tiny(truth=False), np.random.default_rng(0))
    assert found.bytes_sent == 8 * (2 * 20 * 3 + 20 * 21 // 2)


def test_a_longer_step_of_the_convex_baselines_goes_further_on_real_records_alone():
    problem = race_one.tiny(truth=False)
    short, longer = (
        sv_soft.run(problem, np.random.default_rng(0), **METHODS[name].options).theta
        for name in ("sv-soft", "sv-soft-0.1")
    )
    assert np.linalg.norm(longer) > 2 * np.linalg.norm(short)
    assert "sv-soft-0.1" in raced("visits")
    assert "sv-soft-0.1" not in raced("simulation-50")
    assert METHODS["sv-soft"].options == {}  # the name of results that are stored


def test_the_l1_penalty_leaves_the_intercept_free():
    """Of a rare code that depends on nothing: log-odds of its share."""
    rng = np.random.default_rng(0)
    Z = sparse.csr_matrix((rng.random((2000, 12)) < 0.02).astype(np.float32))
    _, b = nodewise.coefficients(Z, "l1", 0)
    mean = np.asarray(Z.mean(axis=0)).ravel()
    assert b == pytest.approx(np.log(mean / (1 - mean)), abs=0.1)


def test_averaging_uses_daniels_guess_of_the_curvature(monkeypatch):
    guesses = []
    monkeypatch.setattr(fedavg, "LBFGS", lambda guess=None: guesses.append(guess) or LBFGS(guess))
    (site,) = fedavg.objectives([records_from(race_one.tiny(truth=False).Z)], COLUMNS, tied=False)
    fedavg.average([site], 2, 1, np.random.default_rng(1))
    assert len(guesses) == 2
    assert all(callable(guess) for guess in guesses)


def test_als_runs_with_one_thread_of_blas(monkeypatch):
    pytest.importorskip("implicit")
    from implicit.cpu.als import AlternatingLeastSquares

    fit, seen = AlternatingLeastSquares.fit, []

    def watched(self, *args, **kwargs):
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(AlternatingLeastSquares, "fit", watched)
    with threadpool_limits(2, "blas"):
        als.run(race_one.tiny(truth=False), np.random.default_rng(0), d=5)
    assert set(seen) == {1}


def test_node_wise_coefficients_become_couplings():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 6))
    W = W + W.T
    np.fill_diagonal(W, 0)
    b = rng.standard_normal(6)
    Z = rng.integers(0, 2, (50, 6))
    expected = 1 / (1 + np.exp(-(b + Z @ W)))
    assert reference_conditional(nodewise.couplings(W, b), 2 * Z - 1) == pytest.approx(expected)


def test_averaging_has_the_columns_and_penalties_of_daniels_pooled_fit():
    records = records_from(race_one.tiny(truth=False).Z)
    like = fedavg.columns(records, np.random.default_rng(0), tied=False)
    fitted = fit(records, Options(), np.random.default_rng(0))
    assert fitted.penalty == like.penalty
    assert fitted.signs.tolist() == like.signs.tolist()


def test_averaging_equal_sites_is_one_site():
    problem = race_one.tiny(truth=False)
    records = records_from(problem.Z)

    def averaged(parts):
        sites = fedavg.objectives(parts, COLUMNS, tied=False)
        # Two sites share coordinates of twice the records: take those of one.
        sites = [replace(site, coords=one.coords) for site in sites]
        return fedavg.average(sites, 4, 2, np.random.default_rng(1))

    (one,) = fedavg.objectives([records], COLUMNS, tied=False)
    assert averaged([records, records]) == pytest.approx(averaged([records]), abs=1e-6)


def test_more_rounds_of_averaging_lower_the_loss_of_all():
    problem = simulation("x", Cell(800, 20, 2, 0.3))
    site = problem.sites.astype(int)
    parts = records_from(problem.Z, site=site, n_sites=site.max() + 1).by_site()
    sites = fedavg.objectives(parts, COLUMNS, tied=True)

    def loss(rounds):
        U = fedavg.average(sites, rounds, 1, np.random.default_rng(1))
        return np.mean([s(U.ravel())[0] for s in sites])

    assert loss(8) < loss(2) < loss(0)


def test_bytes():
    assert daniel_one_shot.bytes_of(10, 2) == (80 + 8 + 240) + (220 + 240 + 10 + 16)
    problem = race_one.tiny(truth=False)
    assert hub_rows(problem).sum() == 60
    present = int(problem.Z[60:].sum())
    assert bytes_of_records(problem) == 4 * present + 4 * 60
