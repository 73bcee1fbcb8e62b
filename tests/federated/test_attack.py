"""The reconstruction attack: it reads a raw answer, and nothing of what the gate lets out."""

import numpy as np
import pytest

from benchmarks.attack import attack, cliques, recovered, views


@pytest.fixture(scope="module")
def seen():
    return views(n=50, seed=3)


def test_records_are_read_back_from_a_raw_answer(seen):
    target, views = seen
    assert recovered(target, attack(views["raw"])) >= 45


@pytest.mark.parametrize("kind", ["masked", "open"])
def test_none_is_read_back_through_the_gate(seen, kind):
    target, views = seen
    assert recovered(target, attack(views[kind])) == 0


def test_cliques_by_hand():
    """Two triangles that share an edge, and a pair."""
    A = np.zeros((6, 6), dtype=bool)
    for i, j in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (4, 5)]:
        A[i, j] = A[j, i] = True
    assert set(cliques(A)) == {frozenset({0, 1, 2}), frozenset({1, 2, 3}), frozenset({4, 5})}
