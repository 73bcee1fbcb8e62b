"""The runner: seeds, processes, interruption, and files of others."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from daniel import simulation
from daniel.errors import FormatError, InputError, ParameterError
from daniel.simulation.runner import run


def test_all_cells_are_there_once(results):
    study = results[results["method"] != "pilot"]
    sited = study[study["method"].isin(["default", "paper", "SV-Topd"])]
    assert len(sited) == 2 * 2 * 3 * 3  # n, x, methods, repetitions
    assert len(study) - len(sited) == 2 * 2 * 3  # n, methods without sites, repetitions
    assert not study.duplicated(["n", "p", "x", "method", "rep"]).any()
    assert study["error"].notna().all()
    pilot = results[results["method"] == "pilot"]
    assert len(pilot) == 2 * 3 * 5  # n, pilots, steps


def test_step_is_the_best_of_the_pilot_and_used_by_all(results):
    pilot = results[results["method"] == "pilot"]
    for n, rows in pilot.groupby("n"):
        best = rows.groupby("eta")["error"].mean().idxmin()
        used = results[results["method"].isin(["paper", "SV-Topd"]) & (results["n"] == n)]
        assert set(used["eta"]) == {best}
    assert results[results["method"] == "default"]["eta"].isna().all()


def test_pilot_is_not_the_study(results):
    both = results[(results["method"].isin(["pilot", "paper"])) & (results["x"] == 0)]
    by_rep = both.groupby(["n", "rep", "method"])["error"].first().unstack()
    assert (by_rep["pilot"] != by_rep["paper"]).all()


def test_a_repetition_alone_is_that_of_the_study(results):
    """In this process, with however many threads: equal but for rounding."""
    rows = results[(results["rep"] == 2) & (results["n"] == 200) & (results["x"] == 0.5)]
    cell = simulation.Cell(200, 10, 1, 0.5)
    drawn = simulation.draw(cell, seed=0, rep=2)
    assert len(rows) == 3
    for row in rows.itertuples():
        alone = simulation.measure(row.method, cell, drawn, row.eta)
        assert alone.error == pytest.approx(row.error, rel=1e-4)


SCRIPT = """
from daniel import simulation
if __name__ == "__main__":
    design = simulation.make_design("main", n=[100, 200], p=[10], x=[0.5])
    simulation.run(design, reps=2, methods=["default", "paper", "zero"], out={out!r})
"""


def test_killed_at_a_random_moment_it_goes_on_and_more_can_be_added(
    small, methods, results, without_times, tmp_path
):
    """A part of the study, killed; then all of it by one process: the rows are those of two."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(out=str(tmp_path)), encoding="utf-8")
    path = tmp_path / "main.csv"
    lines = random.randrange(3, 40)
    process = subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL)
    while process.poll() is None and not (path.exists() and _lines(path) >= lines):
        time.sleep(0.001)
    workers = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _gone(workers), "the processes of a killed study live on"
    with path.open("ab") as file:
        file.write(b"200,10,1,0.5,14,default,2,,0.1")  # as if the kill had torn a line
    seen = []
    again = run(
        small, reps=3, methods=methods, out=tmp_path, progress=lambda *share: seen.append(share)
    )
    pd.testing.assert_frame_equal(without_times(again), without_times(results))
    assert path.read_bytes().endswith(b"\n")
    assert seen[-1][0] == pytest.approx(seen[-1][1])
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_finished_study_is_left_as_it_is(small, methods, folder):
    before = (folder / "main.csv").read_bytes()
    run(small, reps=2, methods=methods, out=folder)
    assert (folder / "main.csv").read_bytes() == before


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _children(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    if not listing.exists():
        return []
    return [int(child) for child in listing.read_text().split()]


def _gone(pids: list[int]) -> bool:
    for _ in range(100):
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


# --- files ----------------------------------------------------------------------------------------


def copy(folder: Path, to: Path) -> Path:
    target = to / "main.csv"
    target.write_bytes((folder / "main.csv").read_bytes())
    return target


def test_a_torn_last_line_is_not_read(folder, results, tmp_path):
    path = copy(folder, tmp_path)
    whole = path.read_bytes()
    for cut in (1, 9, 30):
        path.write_bytes(whole[:-cut])
        assert len(simulation.read_results(path)) == len(results) - 1


@pytest.mark.parametrize(
    ("options", "word"), [({"seed": 1}, "seed"), ({"d": 1}, "d is"), ({"name": "dimension"}, "")]
)
def test_results_of_another_design_are_refused_and_left_alone(folder, tmp_path, options, word):
    path = copy(folder, tmp_path)
    path.write_bytes(path.read_bytes()[:-5])  # a torn line too must stay as it is
    before = path.read_bytes()
    name = options.get("name", "main")
    if name != "main":
        path = path.rename(tmp_path / f"{name}.csv")
    design = simulation.make_design(name, p=[20] if name != "main" else [10], d=options.get("d"))
    with pytest.raises(FormatError, match="another study") as caught:
        run(design, reps=1, seed=options.get("seed", 0), methods=["zero"], out=tmp_path)
    assert word in str(caught.value)
    assert path.read_bytes() == before


def test_another_version_may_read_but_not_add(small, methods, folder, tmp_path):
    path = copy(folder, tmp_path)
    head, rest = path.read_bytes().split(b"\n", 1)
    version = simulation.store.__version__.encode()
    path.write_bytes(head.replace(version, b"0.0.0") + b"\n" + rest)
    before = path.read_bytes()
    assert len(run(small, reps=3, methods=methods, out=tmp_path)) > 0
    with pytest.raises(FormatError, match=r"'0\.0\.0'"):
        run(small, reps=4, methods=["zero"], out=tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b"# daniel simulation {not json\n", b"\xff"]
)
def test_a_strange_file_is_refused_and_left_alone(small, tmp_path, content):
    path = tmp_path / "main.csv"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a result file"):
        run(small, reps=1, methods=["zero"], out=tmp_path)
    assert path.read_bytes() == content


def test_a_damaged_line_inside_is_named(folder, tmp_path):
    path = copy(folder, tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[5] = b"2000,fifty,5,0"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(FormatError, match="damaged"):
        simulation.read_results(path)


def test_no_file_is_said(tmp_path):
    with pytest.raises(InputError, match="no result file"):
        simulation.read_results(tmp_path / "main.csv")


@pytest.mark.parametrize("wrong", [{"reps": 0}, {"jobs": 0}, {"seed": -1}])
def test_wrong_numbers_are_said_before_anything_is_written(small, tmp_path, wrong):
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"{name} is"):
        run(small, out=tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()
