"""The progress line."""

from pathlib import Path

import numpy as np

from daniel.cli.watch import memory, steps_left, watched
from daniel.federated import folder
from daniel.study import Codes, Study


def test_steps_left_of_a_loss_that_falls_geometrically():
    """A loss 1 + 0.5^k falls by less than 1e-5 after about 16 steps."""
    losses = [1 + 0.5**k for k in range(10)]
    assert 6 <= steps_left(losses, 1e-5) <= 9
    assert steps_left(losses, 8e-5) == steps_left(losses, 1e-5) - 3  # eight times looser
    assert steps_left(losses[:4], 1e-5) is None  # too early to tell
    assert steps_left([10.0 - k for k in range(10)], 1e-5) is None  # not slowing down


def test_very_many_records_are_fitted_to_a_looser_tolerance(monkeypatch):
    """The command line knows it before the records are read."""
    info = {"facts": {"records": 400_904}}
    monkeypatch.setattr(folder, "read_info", lambda _: info)
    study = Study(codes=Codes(names=tuple(map(str, range(2142)))))
    assert folder.tolerance(study, Path("north")) == 8 * study.model.tol
    info["facts"]["records"] = 1000
    assert folder.tolerance(study, Path("north")) == study.model.tol


def test_elsewhere_than_on_a_terminal_nothing_is_shown(capsys):
    with watched("fitting", 1e-5) as line:
        for step, loss in enumerate(np.linspace(2, 1, 20), 1):
            line(step, loss)
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_memory_is_in_megabytes():
    assert 10 < memory() < 1e5
