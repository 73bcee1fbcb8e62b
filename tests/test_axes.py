import numpy as np
import pytest

from daniel.axes import simple_axes, varimax


def criterion(L):
    return (L**2).var(axis=0).sum()


def test_planted_groups_are_found_again():
    """Codes of one group each, rotated by chance: every axis is one group again."""
    rng = np.random.default_rng(0)
    sizes = [40, 30, 20, 10]
    planted = np.repeat(np.eye(4), sizes, axis=0) * rng.uniform(0.5, 1.5, (100, 1))
    turned = planted @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    found = simple_axes(turned)
    strength = (planted**2).sum(axis=0)
    np.testing.assert_allclose(found, planted[:, np.argsort(-strength)], atol=1e-3)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_a_rotation_changes_nothing_but_the_axes(d):
    rng = np.random.default_rng(d)
    U = rng.standard_normal((50, d)) ** 3
    found = simple_axes(U)
    np.testing.assert_allclose(found @ found.T, U @ U.T, atol=1e-9)
    length = np.linalg.norm(U, axis=1, keepdims=True)
    assert criterion(found / length) >= criterion(U / length) - 1e-12


def test_the_rotation_is_orthogonal_and_a_maximum():
    """No rotation in a plane of two axes raises the criterion."""
    rng = np.random.default_rng(1)
    L = rng.standard_normal((60, 4)) ** 3
    R = varimax(L)
    np.testing.assert_allclose(R.T @ R, np.eye(4), atol=1e-10)
    best = criterion(L @ R)
    for i, j in np.argwhere(np.triu(np.ones((4, 4)), 1)):
        for angle in np.linspace(-0.7, 0.7, 29):
            G = np.eye(4)
            G[[i, j], [i, j]] = np.cos(angle)
            G[i, j], G[j, i] = np.sin(angle), -np.sin(angle)
            assert criterion(L @ R @ G) <= best + 1e-3 * abs(best)


def test_zero_columns_and_rows_stay():
    U = np.zeros((6, 3), dtype=np.float32)
    U[:4, :2] = np.random.default_rng(0).standard_normal((4, 2))
    found = simple_axes(U)
    assert found.dtype == U.dtype
    assert not found[:, 2].any()
    assert not found[4:].any()
    assert not simple_axes(np.zeros((5, 2))).any()
