"""The progress line."""

from itertools import count
from threading import Event
from types import SimpleNamespace

import numpy as np

from daniel.cli.watch import memory, stages, steps_left, watched, working


def test_steps_left_of_a_loss_that_falls_geometrically():
    """A loss 1 + 0.5^k falls by less than 1e-5 after about 16 steps."""
    losses = [1 + 0.5**k for k in range(10)]
    assert 6 <= steps_left(losses, 1e-5) <= 9
    assert steps_left(losses, 8e-5) == steps_left(losses, 1e-5) - 3  # eight times looser
    assert steps_left(losses[:4], 1e-5) == steps_left(losses, 1e-5) + 6  # early on
    assert steps_left(losses[:3], 1e-5) is None  # too early to tell
    assert steps_left([10.0 - k for k in range(10)], 1e-5) is None  # not slowing down


def fitted(steps):
    with watched("fitting") as line:
        for step, loss in enumerate(np.linspace(2, 1, steps), 1):
            line(step, loss, 1e-5)


def test_elsewhere_than_on_a_terminal_short_work_shows_nothing(capsys):
    fitted(20)
    with stages() as show:
        show("records", 1.0)
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_elsewhere_long_work_shows_a_line_now_and_then(capsys, monkeypatch):
    clock = count(0, 11)  # seconds between two looks at it
    monkeypatch.setattr("daniel.cli.watch.time", SimpleNamespace(monotonic=lambda: next(clock)))
    fitted(20)
    told = capsys.readouterr().err.splitlines()
    assert 3 < len(told) < 20
    assert all(line.startswith("fitting: step ") for line in told)
    with stages() as show:
        for share in np.linspace(0, 1, 10):
            show("[records]", share, "of 2 files")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "[records]: 22% of 2 files" and len(told) == 3


def test_memory_is_in_megabytes():
    assert 10 < memory() < 1e5


def test_a_part_of_the_records_promises_no_end(capsys, monkeypatch):
    clock = count(0, 31)
    monkeypatch.setattr("daniel.cli.watch.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with watched("fitting") as line:
        for step in range(1, 10):
            line(step, 1 + 0.5**step, None)
        for step in range(1, 10):
            line(step, 1 + 0.5**step, 1e-5)
    told = capsys.readouterr().err.splitlines()
    part = [line for line in told if line.startswith("fitting on a part of the records: step ")]
    assert len(part) == 9 and not any("left" in line for line in part)
    assert "left" in told[-1]


def test_work_that_tells_nothing_has_a_clock(capsys, monkeypatch):
    with working("answering"):
        pass
    assert capsys.readouterr().err == ""
    told, said = Event(), []

    def say(console, line, **how):
        said.append(line)
        told.set()

    monkeypatch.setattr("daniel.cli.watch.PAUSE", 0.0)
    monkeypatch.setattr("daniel.cli.watch.SECOND", 0.01)
    monkeypatch.setattr("daniel.cli.watch.Console.print", say)
    with working("answering"):
        assert told.wait(10)
    assert said[0].startswith("answering: 0 s, ")
