"""The progress line."""

import numpy as np

from daniel.cli.watch import memory, steps_left, watched


def test_steps_left_of_a_loss_that_falls_geometrically():
    """A loss 1 + 0.5^k falls by less than 1e-5 after about 16 steps."""
    losses = [1 + 0.5**k for k in range(10)]
    assert 6 <= steps_left(losses, 1e-5) <= 9
    assert steps_left(losses, 8e-5) == steps_left(losses, 1e-5) - 3  # eight times looser
    assert steps_left(losses[:4], 1e-5) is None  # too early to tell
    assert steps_left([10.0 - k for k in range(10)], 1e-5) is None  # not slowing down


def test_elsewhere_than_on_a_terminal_nothing_is_shown(capsys):
    with watched("fitting") as line:
        for step, loss in enumerate(np.linspace(2, 1, 20), 1):
            line(step, loss, 1e-5)
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_memory_is_in_megabytes():
    assert 10 < memory() < 1e5
