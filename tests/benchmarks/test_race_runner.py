"""The runner of the races: every run is a row, whatever happens; what is there is kept."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import problems_file, race, race_one
from benchmarks.catalogue import Entry
from benchmarks.methods.result import Result

HERE = Path(__file__).parent
FAILED = {"status": "failed", "reason": "-"}


def entry(**options):
    return Entry("racing_fakes", "a fake", options=options)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the file of a small problem, which processes find the fakes from."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{race.ROOT}")
    problem = replace(race_one.tiny(truth=False), name="small")
    problems_file.write(problem, tmp_path / "problems")
    return tmp_path


def results(place):
    found = {path.stem: json.loads(path.read_text()) for path in (place / "out").glob("*.json")}
    return {name.removeprefix("small."): result for name, result in found.items()}


def run(place, methods, **options):
    where = {"out": place / "out", "files": place / "problems"}
    race.race("small", list(methods), methods=methods, **where, **options)
    return results(place)


def test_failures_and_late_runs_are_rows_and_a_second_race_does_what_is_missing(place, monkeypatch):
    monkeypatch.setattr(race, "DISTURBED", 1000)  # tests share their machine
    log = place / "log"
    methods = {"good": entry(what="hungry", log=str(log)), "bad": entry(what="fails")}
    run(place, methods)
    methods["late"] = entry(what="sleeps")
    found = run(place, {"late": methods["late"]}, limit=0.5)
    assert found["good"]["status"] == "done"
    assert (found["good"]["bytes_sent"], found["good"]["rounds"]) == (7, 3)
    assert 450 < found["good"]["memory_mb"] < 1500  # packages, and 305 MB of ones
    assert min(found["good"]["other_cores"], found["good"]["load_average"]) >= 0
    assert found["good"]["commit"] and found["good"]["versions"]["numpy"] == np.__version__
    assert found["bad"]["status"] == "failed"
    assert found["bad"]["reason"] == "ValueError: no such luck"
    assert found["late"]["status"] == "over the limit"
    assert found["late"]["reason"] == "more than 0.5 s"
    ran = log.read_text()
    again = run(place, {name: methods[name] for name in ("good", "late")}, limit=0.5)
    assert again == found
    assert log.read_text() == ran
    assert not list(place.glob("out/*.part"))


def test_what_is_kept():
    config = race.config("visits", {"sha256": "x"}, entry(d=5))
    done = {"config": config, "status": "done", "limit": 5.0}
    assert race.kept(done, config, 10.0)
    assert not race.kept(None, config, 10.0)
    assert not race.kept(done | {"status": "failed"}, config, 10.0)
    over = done | {"status": race.OVER, "reason": "more than 5 s"}
    assert race.kept(over, config, 5.0)
    assert not race.kept(over, config, 10.0)  # a longer limit is a new chance
    assert race.kept(over | {"other_cores": 0.1}, config, 5.0)
    assert not race.kept(over | {"other_cores": 0.11}, config, 5.0)  # others were the cause, maybe
    spared = over | {"reason": "more than 5 s on a smaller problem"}
    assert race.kept(spared, config, 5.0, "more than 5 s on a smaller problem")
    assert not race.kept(spared, config, 5.0, None)
    for cores, again in ((None, True), (0.11, True), (0.1, False)):
        old = done if cores is None else done | {"other_cores": cores}
        assert race.kept(old, config, 5.0)  # by itself nothing that ended is raced again
        assert race.kept(old, config, 5.0, again_disturbed=True) != again
    slow = spared["reason"]
    assert race.kept(spared, config, 5.0, slow, again_disturbed=True)  # it did not run
    for other in (
        race.config("visits", {"sha256": "y"}, entry(d=5)),
        race.config("visits", {"sha256": "x"}, entry(d=6)),
        race.config("medicare", {"sha256": "x"}, entry(d=5)),
    ):
        assert not race.kept(done, other, 5.0)


def test_what_was_disturbed_is_raced_again_once_and_the_better_stays(place, monkeypatch):
    calls, loads = [], iter([0.5, 0.8, 0.3, 0.05])

    def measure(*_):
        calls.append(1)
        return {
            "status": "done",
            "seconds": 1.0,
            "memory_mb": 1,
            "auc": 1,
            "other_cores": next(loads),
        }

    monkeypatch.setattr(race, "measure", measure)
    seen = []
    for again in (False, False, True, True, True, True):
        found = run(place, {"m": entry()}, again_disturbed=again)
        seen.append((len(calls), found["m"]["other_cores"]))
    assert seen == [(1, 0.5), (1, 0.5), (2, 0.5), (3, 0.3), (4, 0.05), (4, 0.05)]
    late = {"status": race.OVER, "reason": "more than 5 s", "limit": 5.0, "config": 1}
    assert race.worse(late, late | {"status": "done"}, 1)
    assert not race.worse(late, late | {"status": "done"}, 2)  # of another configuration


def test_a_method_too_slow_for_the_smaller_problem_is_not_tried_on_the_larger(place, monkeypatch):
    monkeypatch.setattr(race, "SMALLER", {"small": "smaller"})
    calls = []
    monkeypatch.setattr(race, "measure", lambda *_: calls.append(1) or FAILED)
    late = {"status": race.OVER, "reason": "more than 5 s", "limit": 5.0}
    late["config"] = race.config("smaller", {"sha256": "x"}, entry())

    def tried(limit=5.0, method=None, **changes):
        """Whether it was, with such a result on the smaller problem."""
        calls.clear()
        race.write(place / "out" / "smaller.m.json", late | changes)
        run(place, {"m": method or entry()}, limit=limit)
        return bool(calls)

    assert not tried()
    assert results(place)["m"]["reason"] == "more than 5 s on a smaller problem"
    assert not tried()
    assert tried(status="done")  # what is stored of the larger problem does not count any more
    assert not tried()
    assert tried(other_cores=0.5)
    assert not tried()
    assert tried(limit=6.0)
    assert tried(method=replace(entry(), edition=2))


def test_a_chain_of_smaller_problems_ends_at_one_that_was_tried(monkeypatch):
    monkeypatch.setattr(race, "SMALLER", {"large": "middle", "middle": "small"})
    over = {"status": race.OVER, "limit": 5.0, "reason": "more than 5 s"}
    found = {"middle": over | {"reason": over["reason"] + race.SMALLER_TOLD}, "small": over}

    def slow():
        return race.too_slow(lambda problem, name: found.get(problem), "large", "m", 5.0)

    assert slow() == "more than 5 s on a smaller problem"
    found["small"] = over | {"status": "done"}
    assert slow() is None


def test_what_other_programs_used_is_told(monkeypatch):
    clock = iter([100.0, 107.0])
    monkeypatch.setattr(race, "busy", lambda: next(clock))
    monkeypatch.setattr(race.time, "perf_counter", iter([0.0, 4.0]).__next__)
    found = race.Load().until_now(own=5.0)
    assert found["other_cores"] == 0.5
    monkeypatch.setattr(race, "busy", lambda: None)  # not every system tells
    monkeypatch.setattr(race.time, "perf_counter", lambda: 0.0)
    assert list(race.Load().until_now(own=5.0)) == ["load_average"]


def test_a_method_that_changed_is_raced_again():
    old = race.config("visits", {"sha256": "x"}, entry(d=5))
    done = {"config": old, "status": "done", "limit": 5.0}
    new = race.config("visits", {"sha256": "x"}, replace(entry(d=5), edition=2))
    assert not race.kept(done, new, 5.0)
    assert race.kept(done | {"config": new}, new, 5.0)


def test_a_torn_result_is_no_result(tmp_path):
    path = tmp_path / "a.json"
    assert race.stored(path) is None
    path.write_text('{"status": "do')
    assert race.stored(path) is None


def test_a_problem_that_cannot_be_made_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(race.sys, "executable", "false")
    assert race.prepare("no such problem", tmp_path) is None
    assert "left out" in capsys.readouterr().out


def test_the_runner_stays_small():
    """Its memory would count in the peak of every run."""
    code = "import sys, benchmarks.race; print('numpy' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=race.ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


def test_a_problem_comes_back_from_its_file(tmp_path):
    problem = replace(race_one.tiny(truth=True), theta=np.arange(400.0).reshape(20, 20))
    problems_file.write(problem, tmp_path)
    found = problems_file.read(tmp_path / "tiny.npz")
    assert np.array_equal(found.Z.toarray(), problem.Z.toarray())
    assert np.array_equal(found.theta, problem.theta)
    assert found.codes == problem.codes
    assert found.sites.tolist() == problem.sites.tolist()
    assert found.pairs.equals(problem.pairs)
    facts = json.loads((tmp_path / "tiny.json").read_text())
    assert (facts["records"], facts["codes"], facts["sites"]) == (120, 20, 2)
    other = replace(problem, Z=problem.Z[::-1].tocsr())
    assert problems_file.facts(other)["sha256"] != facts["sha256"]
    assert problems_file.facts(problem)["sha256"] == facts["sha256"]


def test_the_better_of_two_scores_counts_and_the_error_is_a_norm():
    problem = race_one.tiny(truth=True)
    theta = np.zeros((20, 20))
    theta[[0, 1, 2], [3, 4, 5]] = theta[[3, 4, 5], [0, 1, 2]] = 2.0  # the known pairs
    found = race_one.score(problem, Result(np.eye(20), theta))
    assert found["score"] == "theta"
    assert found["auc"] == 1.0
    assert found["error"] == pytest.approx(np.sqrt(6 * 4.0))
    vectors = np.eye(20)
    vectors[[3, 4, 5]] = vectors[[0, 1, 2]]
    assert race_one.score(problem, Result(vectors, np.zeros((20, 20))))["score"] == "cosine"


def test_a_short_run_is_repeated_and_its_own_time_counts():
    calls = []
    _, seconds, _ = race_one.timed(lambda: calls.append(1) or Result(seconds=float(len(calls))))
    assert len(calls) == race_one.REPEATS
    assert seconds == 2.0  # the median of 1, 2, 3
    calls.clear()
    race_one.timed(lambda: calls.append(1) or Result(seconds=100.0))
    assert len(calls) == 1
