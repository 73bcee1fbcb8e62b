"""An interrupted run goes on where it was, to the same end."""

from dataclasses import replace

import numpy as np
import pytest

from daniel.core.checkpoint import Checkpoint
from daniel.core.solve import Stage, minimise_in_stages


def make_objective(A, y, fail_after=None):
    calls = []

    def objective(x):
        calls.append(1)
        if fail_after is not None and len(calls) > fail_after:
            raise KeyboardInterrupt
        m = A @ x
        s = 1 / (1 + np.exp(-m))
        value = np.mean(np.logaddexp(0, m) - y * m) + 1e-3 * x @ x
        return float(value), A.T @ (s - y) / y.size + 2e-3 * x

    return objective


@pytest.fixture
def data(rng):
    A = rng.normal(size=(400, 30)) * np.geomspace(0.1, 3, 30)
    return A, (rng.random(400) < 0.4).astype(float)


def run(data, keeper=None, fail_part=None, fail_whole=None):
    A, y = data
    part, whole = make_objective(A[:100], y[:100], fail_part), make_objective(A, y, fail_whole)
    plain = make_objective(A[:100], y[:100]), make_objective(A, y)

    def corrected(x):
        shift = np.subtract(*(objective(x)[1] for objective in plain[::-1]))
        return lambda z: tuple(a + b for a, b in zip(part(z), (shift @ z, shift), strict=True))

    stages = [Stage.on(part), Stage(corrected, 12)]
    return minimise_in_stages(stages, whole, np.zeros(30), max_iter=100, tol=1e-9, keeper=keeper)


@pytest.mark.parametrize(
    "where", [{"fail_part": 5}, {"fail_part": 16}, {"fail_whole": 1}, {"fail_whole": 12}]
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(data, tmp_path, where):
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(data, Checkpoint(path, "this fit", every=0), **where)
    assert path.is_file()
    assert path.stat().st_mode & 0o077 == 0
    wanted = run(data)
    found = run(data, Checkpoint(path, "this fit", every=0))
    np.testing.assert_array_equal(found.x, wanted.x)
    assert found.curve == wanted.curve
    assert (found.n_iter, found.converged) == (wanted.n_iter, wanted.converged)


def test_a_state_of_another_size_is_not_used(data, tmp_path):
    """As another version may leave it, or a spectrum that another machine cuts elsewhere."""
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(data, Checkpoint(path, "this fit", every=0), fail_whole=12)
    A, y = data
    fewer = (A[:, :20], y)
    whole = make_objective(*fewer)
    wanted = minimise_in_stages([], whole, np.zeros(20), max_iter=100, tol=1e-9)
    for x in (np.zeros(20), np.zeros(20, dtype=np.float32)):
        keeper = Checkpoint(path, "this fit", every=1e9)
        found = minimise_in_stages([], whole, x, max_iter=100, tol=1e-9, keeper=keeper)
        np.testing.assert_allclose(found.x, wanted.x, atol=2e-3)


def test_a_state_of_a_later_stage_is_not_used(data, tmp_path):
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(data, Checkpoint(path, "this fit", every=0), fail_whole=12)
    whole = make_objective(*data)
    alone = {"max_iter": 100, "tol": 1e-9}
    wanted = minimise_in_stages([], whole, np.zeros(30), **alone)
    keeper = Checkpoint(path, "this fit", every=1e9)
    found = minimise_in_stages([], whole, np.zeros(30), **alone, keeper=keeper)
    np.testing.assert_array_equal(found.x, wanted.x)


def test_going_on_spares_the_steps_that_were_made(data, tmp_path):
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(data, Checkpoint(path, "this fit", every=0), fail_whole=12)
    A, y = data
    counted = []
    whole = make_objective(A, y)

    def counting(x):
        counted.append(1)
        return whole(x)

    minimise_in_stages(
        [Stage(lambda x: pytest.fail("the part is over"), 8)] * 2,
        counting,
        np.zeros(30),
        max_iter=100,
        tol=1e-9,
        keeper=Checkpoint(path, "this fit"),
    )
    fresh = run(data)
    assert len(counted) < fresh.n_iter


@pytest.mark.parametrize("content", ["another", b"", b"damaged" * 100, None])
def test_a_state_of_another_fit_or_a_damaged_one_is_not_used(data, tmp_path, content):
    path = tmp_path / "state"
    if content == "another":
        with pytest.raises(KeyboardInterrupt):
            run(data, Checkpoint(path, "another fit", every=0), fail_whole=12)
    elif content is not None:
        path.write_bytes(content)
    keeper = Checkpoint(path, "this fit")
    assert keeper.load() is None
    np.testing.assert_array_equal(run(data, keeper).x, run(data).x)


def test_states_are_written_now_and_then(data, tmp_path):
    keeper = Checkpoint(tmp_path / "state", "this fit", every=3600)
    with pytest.raises(KeyboardInterrupt):
        run(data, keeper, fail_whole=12)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_iter", [100, 5, 0])
def test_the_end_is_always_written_and_needs_no_evaluation(data, tmp_path, max_iter):
    """Whether it converged or not: what comes after the fit may fail and be made again."""

    def solve(objective):
        return minimise_in_stages(
            [],
            objective,
            np.zeros(30),
            max_iter=max_iter,
            tol=1e-9,
            keeper=Checkpoint(tmp_path / "state", "this fit", every=3600),
        )

    wanted = solve(make_objective(*data))
    assert wanted.converged == (max_iter == 100)
    found = solve(lambda x: pytest.fail("it is solved"))
    np.testing.assert_array_equal(found.x, wanted.x)
    assert replace(found, x=None) == replace(wanted, x=None)


def test_a_disk_that_cannot_be_written_does_not_end_the_fit(data, tmp_path):
    keeper = Checkpoint(tmp_path / "missing" / "state", "this fit", every=0)
    assert run(data, keeper).converged
