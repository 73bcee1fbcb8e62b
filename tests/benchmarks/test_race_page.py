"""The page of the benchmarks: made from results, losses and gaps included."""

import json

import numpy as np
import pytest

from benchmarks import (
    growth,
    page,
    page_asked,
    page_commands,
    page_dask,
    page_growth,
    page_races,
    source,
    tables,
)

FACTS = {"records": 1000, "codes": 50, "sites": 3, "codes_per_record": 4.0, "pairs": 20}
MACHINE = {"processor": "P", "cores": 2, "memory_gb": 8.0, "threads": {"OMP_NUM_THREADS": None}}


def result(label, auc=0.8, seconds=2.0, **changes):
    about = {
        "problem": "visits",
        "facts": FACTS,
        "method": label,
        "label": label,
        "setting": "",
        "where": "pooled",
        "pairs": True,
        "status": "done",
        "seconds": seconds,
        "memory_mb": 100,
        "bytes_sent": 5_000_000,
        "rounds": 1,
        "auc": auc,
        "relations": {"a": {"auc": auc + 0.05}, "b": {"auc": auc - 0.05}},
        "machine": MACHINE,
        "versions": {"daniel": "1"},
        "commit": "abc",
        "limit": 40.0,
    }
    return about | changes


POOLED = result("Daniel, pooled", 0.9, 2.0)
ONE_SHOT = result("Daniel, one shot", 0.85, 4.0, where="stay")


def text(*races):
    return "\n".join(page_races.section([POOLED, ONE_SHOT, *races]))


def row(page_text, label):
    (line,) = [line for line in page_text.splitlines() if line.startswith(f"| {label} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_peer_stands_with_its_best_setting_and_its_ratio_to_the_right_daniel():
    found = text(
        result("peer", 0.70, 3.0, setting="d=25"),
        result("peer", 0.75, 30.0, setting="d=50"),
        result("site peer", 0.5, 40.0, where="stay", rounds=7),
    )
    peer = row(found, "peer")
    assert peer[1:] == [
        *("d=50", "0.750", "0.800", "0.700"),
        *("30 s", "15 ×", "100 MB", "records, 5.0 MB", "–"),
    ]
    assert row(found, "site peer")[5:] == ["40 s", "10 ×", "100 MB", "5.0 MB", "7"]
    assert "Daniel is first in quality." in found
    assert "Daniel is the fastest" in found


def test_what_is_lost_is_said():
    found = text(
        result("good", 0.93, 5.0, setting="d=50"),
        result("good", 0.91, 5.0, setting="d=25"),
        result("quick", 0.5, 1.0),
        result("counts", 0.6, 0.5, pairs=False),
        result("federated", 0.86, 5.0, where="stay"),
    )
    assert "- mean AUC: good, d=50 0.930, Daniel, pooled 0.900" in found
    assert "- a: good, d=50 0.980, Daniel, pooled 0.950" in found
    assert "d=25 0.91" not in found
    assert "- mean AUC: federated 0.860, Daniel, one shot 0.850" in found
    assert "- quick takes 0.50 × the time of Daniel, pooled (AUC 0.500, ours 0.900)" in found
    assert "counts takes" not in found
    assert "Daniel, pooled takes 4.00 × the time of counts" in found


def test_a_fast_setting_of_a_good_peer_is_said():
    best = result("peer", 0.7, 30.0, setting="d=50")
    found = text(best, result("peer", 0.69, 1.0, setting="d=5"))
    assert row(found, "peer")[1] == "d=50"
    assert "- peer, d=5 takes 0.50 × the time of Daniel, pooled (AUC 0.690, ours 0.900)" in found
    assert "the fastest." not in found
    assert "the fastest." in text(best, result("peer", 0.68, 1.0, setting="d=5"))  # and worse


def test_a_machine_that_was_not_idle_is_said():
    quiet, shared = result("quiet", other_cores=0.02), result("shared", other_cores=0.84)
    found = text(quiet, shared)
    assert "in brackets the cores that other programs used: shared (0.8)." in found
    assert "is not stored for 2 of 4 runs" in found  # those of Daniel
    assert "not idle" not in text(quiet)


def test_results_from_before_a_method_changed_are_to_be_raced_again():
    old = result("als", method="als-50", config={"options": {"d": 50}})
    new = result("als", method="als-50", config={"options": {"d": 50}, "edition": 2})
    said = "Raced before the method changed: `python -m benchmarks.race --problems visits --methods"
    assert f"{said} als-50`." in text(old)
    assert "| als |" not in text(old) and "| als |" in text(new)
    better = old | {"auc": 0.99, "seconds": 0.1}
    assert "- mean AUC: als" not in text(better) and "als takes" not in text(better)
    alone = "\n".join(page_races.section([old]))
    assert f"{said} als-50`." in alone and "first" not in alone.split("###")[1]
    assert said not in text(new)
    assert "als-50" not in text(new).split("Not raced yet")[1]


def test_times_of_two_machines_are_losses_without_a_ratio_in_the_table():
    there = {"machine": MACHINE | {"processor": "Q"}}
    found = text(
        result("quick", 0.5, 1.0, **there),
        result("counts", 0.6, 0.5, pairs=False, **there),
        result("both", 0.7, 1.5, setting="d=5", **there),
        result("both", 0.6, 30.0, setting="d=50"),
        result("slow", 0.6, 9.0, **there),
    )
    assert row(found, "quick")[6] == row(found, "counts")[6] == row(found, "both")[6] == "–"
    said = "Timed on another machine than Daniel, and not compared in time"
    assert f"{said}: quick; counts; both, d=5; slow." in found
    assert " takes " not in found.split("###")[1]
    lost = found.split("Where Daniel is not the fastest:")[1]
    assert "- quick: less time, on another machine: 0.50 × (AUC 0.500, ours 0.900)" in lost
    assert "- both, d=5: less time, on another machine: 0.75 × (AUC" in lost
    assert "counts" not in lost.split("Timed")[0] and "slow" not in lost.split("Timed")[0]
    assert "the fastest." not in found
    slow = text(result("slow", 0.6, 9.0, **there), result("near", 0.6, 9.0))
    assert "a model of pairs and whose times can be compared Daniel is the fastest." in slow
    assert "the fastest." not in text(result("slow", 0.6, 9.0, **there))  # nobody to say it of
    assert said not in text(result("quick"))


def test_a_setting_here_that_is_faster_stands_beside_one_elsewhere():
    there = {"machine": MACHINE | {"processor": "Q"}}
    found = text(
        result("both", 0.7, 0.2, setting="d=5", **there),
        result("both", 0.7, 1.0, setting="d=9"),
    )
    assert "- both, d=5: less time, on another machine: 0.10 ×" in found
    assert "- both, d=9 takes 0.50 × the time of Daniel, pooled" in found


def test_times_on_a_busy_machine_have_no_ratio_and_no_limit():
    busy = {"other_cores": 0.31}
    late = result("nodewise", method="nodewise-l2", **busy)
    late |= {"status": "over the limit", "reason": "more than 40 s"}
    found = text(
        result("quick", 0.5, 1.0, **busy),
        result("word2vec", 0.5, 9.0, method="word2vec-25", **busy),
        result("calm", 0.5, 9.0, other_cores=0.3),
        late,
    )
    assert row(found, "quick")[6] == row(found, "word2vec")[6] == "–" != row(found, "calm")[6]
    assert "- quick: less time, on a busy machine (AUC 0.500, ours 0.900)" in found
    assert row(found, "nodewise")[5] == "stopped on a busy machine"
    assert "more than 40 s" not in found
    assert "Above 0.3 cores a time is not compared" in found
    assert "--methods word2vec-25 nodewise-l2 --again-disturbed`." in found
    disturbed = "\n".join(page_races.section([POOLED | busy, ONE_SHOT, result("quick", 0.5, 1.0)]))
    assert row(disturbed, "quick")[6] == "–"  # Daniel's time says nothing either
    assert "- quick: less time, on a busy machine" in disturbed
    assert "Above 0.3" not in text(result("calm", other_cores=0.3))


def test_a_method_that_was_spared_counts_while_the_smaller_problem_takes_too_long():
    late = result("m", method="nodewise-l2", problem="cohort-50th") | {
        "status": "over the limit",
        "reason": "more than 40 s",
    }
    spared = late | {"problem": "cohort-20th", "reason": "more than 40 s on a smaller problem"}

    def shown(**changes):
        found = text(late | changes, spared).split("###")[-1]
        return "more than 40 s on a smaller problem" in found

    assert shown()
    assert not shown(other_cores=0.5)
    assert not shown(status="done")
    found = text(late | {"status": "done"}, spared).split("###")[-1]
    assert "nodewise-l2" in found.split("Not raced yet")[1]


def test_errors_to_the_truth_are_compared():
    ours = POOLED | {"error": 0.5}
    races = [ours, ONE_SHOT | {"error": 0.6}, result("peer", 0.1, error=0.4, error_of_none=0.7)]
    found = "\n".join(page_races.section(races))
    assert "- error: peer 0.400, Daniel, pooled 0.500" in found
    assert "A model without couplings has the error 0.700." in found


def test_runs_that_did_not_end_stay_in_the_table():
    late = result("late") | {"status": "over the limit", "reason": "more than 600 s"}
    broken = result("broken") | {"status": "failed", "reason": "ValueError: x"}
    for key in ("auc", "relations", "seconds"):
        late.pop(key), broken.pop(key)
    found = text(late, broken)
    assert row(found, "late")[2:6] == ["–", "–", "–", "more than 600 s"]
    assert "ValueError: x" in row(found, "broken")
    assert "Not finished, and so not compared: late (more than 600 s); broken" in found
    assert "Stopped sooner" not in found
    assert "Stopped sooner than Daniel ended: late." in text(late | {"limit": 0.1})
    assert "Daniel is first in quality of the methods that finished." in found


def test_without_daniel_nothing_is_claimed():
    found = "\n".join(page_races.section([result("peer", 0.1)]))
    assert "no result of Daniel" in found
    assert "first" not in found


def test_rounds_of_averaging_stand_beside_the_one_exchange():
    averaged = [
        result(
            page_races.FEDAVG, 0.7 + k / 1000, 3.0, where="stay", rounds=k, setting=f"rounds={k}"
        )
        for k in (20, 5)
    ]
    lines = text(*averaged).splitlines()
    table = lines[
        lines.index("| federated fit | rounds | bytes of a site | time | AUC | error |") :
    ]
    assert [line.split("|")[2].strip() for line in table[2:5]] == ["1", "5", "20"]


def test_an_empty_folder_gives_the_commands(tmp_path):
    found = page.page(tmp_path)
    for command in ("race", "growth", "papersize", "large", "sketch"):
        assert f"`python -m benchmarks.{command}`" in found
    for command in ("dask", "bench", "solver"):
        assert f"`make {command}`" in found


def test_the_page_holds_what_is_stored(tmp_path):
    (tmp_path / "races").mkdir()
    for run in (POOLED, ONE_SHOT):
        (tmp_path / "races" / f"{run['label']}.json").write_text(json.dumps(run))
    (tmp_path / "growth.json").write_text(json.dumps(grown()))
    (tmp_path / "papersize.json").write_text(json.dumps(papersize()))
    (tmp_path / "federation").mkdir()
    for name in ("large.md", "federation/sketch.md"):
        (tmp_path / name).write_text(f"# A heading\n\n{LARGE}")
    for name in ("dask.txt", "sweep.txt", "solver.txt"):
        (tmp_path / name).write_text(f"measured for {name}\n")
    found = page.page(tmp_path)
    assert "| loss | 58.3 |" in found
    assert "| records at the hub | 400,000 |" in found
    assert "| own answer | 17 |" in found
    assert "```\nmeasured for dask.txt\n```" in found
    assert found.count(LARGE.strip()) == 2
    assert "A heading" not in found
    assert "| sweep | 1.00 ± 0.00 | 1.00 ± 0.00 | 1.00 ± 0.00 |" in found
    assert "| 100 Gflop/s |" in found
    assert "Not measured yet" not in found


DASK = """commit abc; python 3
  2,142 codes; 2 Dask workers
                                         here       Dask
  one sweep, 6,250 records            0.100 s    0.190 s   1.90 x       +90 ms
    its full derivative (p x p)       0.226 s    0.562 s   2.48 x      +336 ms
  one sweep, 50,000 records           0.535 s    0.583 s   1.09 x       +48 ms
  answer, 50,000 records              1.000 s    1.300 s   1.30 x      +300 ms
  fit, 8 steps                       14.484 s   13.771 s   0.95 x      -714 ms
    relative difference of Phi 0.0e+00
  fit, a worker killed at step 3     14.484 s   17.791 s   1.26 x     +3307 ms
"""


def test_a_cluster_is_held_against_its_bound():
    assert page_dask.verdict(DASK)[0] == (
        "A fit or an answer may take 1.25 × the local time. Within it: fit, 8 steps (0.95 ×). "
        "**Above it**: answer, 50,000 records (1.30 ×); fit, a worker killed at step 3 (1.26 ×). "
        "Other rows above it: "
        "one sweep, 6,250 records (1.90 ×); "
        "one sweep, 6,250 records, its full derivative (p x p) (2.48 ×)."
    )
    stays = DASK.replace("+300 ms", f"+300 ms  {page_dask.STAYS}")
    assert "50,000 records (1.30 ×, made here in both cases)" in page_dask.verdict(stays)[0]
    line = page_asked.cluster(stays)[1]
    assert line.found == "1.30 × (50,000 records, made here in both cases)"
    within = DASK.replace("1.26", "1.25").replace("1.30 x", "1.25 x")
    assert "**" not in page_dask.verdict(within)[0]


SIZES = {"n": (10, 20, 40, 80), "p": (5, 10, 20, 40), "d": (2, 4, 8)}


def grown(passes=None):
    """Growth of a machine that makes 100 Gflop/s and nothing else; passes: as they are stored."""
    rows = [
        point
        | {"sweep": 6 * point["n"] * point["p"] * point["d"] / 1e11}
        | {"answer": 2 * point["n"] * point["p"] * (point["d"] + 3) / 1e11}
        | {"exchange": point["n"] * point["p"] ** 2 * 1e-6}
        for point in growth.points(SIZES)
    ]
    found = {
        "points": rows,
        "exponents": growth.exponents(rows, SIZES),
        "machine": MACHINE,
        "commit": "abc",
    }
    if passes is None:
        return found
    for row in rows:  # a pass is 2npd flops, a derivative 2np(d + 3)
        row["pass"] = 2 * row["n"] * row["p"] * row["d"] / 1e11
        row["derivative"] = row["answer"]
        row["answer"] += passes["few"] * row["pass"]
        row["passes"] = passes["few"]
    return found | {"passes": passes}


PASSES = {
    "few": 5.0,
    "many": 1.5,
    "independence": 2.0,
    "size of many": {"n": 125_000, "p": 2_200, "d": 20},
}


def test_exponents_and_cost_model_find_what_was_put_in():
    found = grown()
    assert len(found["points"]) == 9  # 4 + 4 + 3, the base once
    assert found["exponents"]["exchange"]["p"]["exponent"] == pytest.approx(2)
    assert found["exponents"]["sweep"]["d"]["exponent"] == pytest.approx(1)
    assert 0 < found["exponents"]["answer"]["d"]["exponent"] < 1
    model = growth.cost_model(found["points"])
    flop, entry, pair = model["answer"]["seconds"].values()
    assert flop == pytest.approx(1e-11)
    assert entry == pytest.approx(6e-11)
    assert pair == pytest.approx(0, abs=1e-15)
    assert model["answer"]["worst"] < 1e-6
    assert growth.predicted(model, "sweep", 1e6, 1e3, 100) == pytest.approx(6.0)


def test_an_answer_is_the_counted_passes_and_a_derivative():
    model = growth.cost_model(grown(PASSES)["points"], PASSES)

    def seconds(n, p, d, passes):
        return 2e-11 * n * p * (d + 3) + passes * 2e-11 * n * p * d

    for size, passes in (
        ((1e4, 1e3, 10), 5.0),
        ((1e6, 1e3, 10), 1.5),  # more records times codes than 2^28
        ((1e6, 1e3, 1), 2.0),  # a start at independence
    ):
        assert growth.predicted(model, "answer", *size) == pytest.approx(seconds(*size, passes))
    said = "\n".join(page_growth.section(grown(PASSES), page_commands.Stored([], [], None)))
    assert "Passes, counted: 5.0 up to 268,435,456" in said
    assert "differ from this by at most 0%" in said
    assert "Missing" not in said
    old = "\n".join(page_growth.section(grown(), page_commands.Stored([], [], None)))
    assert "**Missing**" in old


def test_passes_of_a_site_with_other_prevalences_are_counted(monkeypatch):
    place = growth.make_place(4_000, 100, 10)
    assert place.start.U.shape == (100, 10) and place.start.U.any()
    found = growth.passes(place.site, place.start)
    assert found > growth.passes(place.hub, place.start) >= 2
    share = place.site.counts() / place.hub.counts().clip(1)
    assert share.std() > 0.1  # other prevalences
    monkeypatch.setattr(growth.intercepts, "LARGE", 1)
    part = growth.passes(place.site, place.start) % 1
    assert part * 16 == pytest.approx(round(part * 16))  # of the records, a sixteenth


LARGE = """20,000 codes, 100 components, two sites

| records | start | answers | step | time | file |
| --- | --- | --- | --- | --- | --- |
| 50,000 | independence | plain | start | 3 s | 1 MB |
| 50,000 | independence | plain | answer | 25 s | 1 MB |
| 50,000 | independence | plain | finish | 1,212 s | 1 MB |
| 60,000 | fitted | plain | start | 30 s | 1 MB |
| 60,000 | fitted | plain | answer | 35 s | 1 MB |
| 60,000 | fitted | plain | finish | 200 s | 1 MB |
"""


def papersize(**changes):
    took = {"start": 30.0, "own answer": 17.0, "answer": 21.0, "finish": 253.0}
    found = {
        "records at the hub": 400_000,
        "records at the other site": 500_000,
        "codes": 2_000,
        "components": 200,
        "seconds of a bare sweep over the hub (unit)": 6.0,
        "seconds of a full sweep over the hub": 10.0,
        "loss": 58.333,
        "steps": [{"step": step, "seconds": seconds} for step, seconds in took.items()],
        "machine": {"processor": "P"},
    }
    return found | changes


def test_stored_commands_are_found(tmp_path):
    (tmp_path / "papersize.json").write_text(json.dumps(papersize()))
    (tmp_path / "large.md").write_text(LARGE)
    found = page_commands.stored(tmp_path)
    assert (found.sweeps, found.processor) == (30, "P")
    rows = [tuple(row.values())[1:] for row in found.answers]
    assert rows == [
        *((400_000, 2_000, 200, 17.0, "P"), (500_000, 2_000, 200, 21.0, "P")),
        *((50_000, 20_000, 1, 25.0, None), (60_000, 20_000, 100, 35.0, None)),
    ]
    assert [row["seconds"] for row in found.hubs] == [300.0, 1215.0, 230.0]
    assert len(found.on("P").answers) == 2
    assert page_commands.stored(tmp_path / "none") == page_commands.Stored([], [], None)
    old = {k: v for k, v in papersize().items() if "full sweep" not in k}
    (tmp_path / "papersize.json").write_text(json.dumps(old))
    assert page_commands.stored(tmp_path).sweeps is None


def commands(model, more, processor="P"):
    """Answers of commands that take more(n, p) seconds beside the step."""
    sizes = ((1e5, 1e3, 10), (2e5, 1e3, 10), (1e4, 1e4, 1), (5e4, 2e4, 1))
    return [
        {
            "run": "papersize",
            **dict(zip("npd", size, strict=True)),
            "seconds": growth.predicted(model, "answer", *size) + more(*size[:2]),
            "processor": processor,
        }
        for size in sizes
    ]


def test_commands_are_the_step_and_what_is_fitted_beside_it():
    model = growth.cost_model(grown(PASSES)["points"], PASSES)
    rows = commands(model, lambda n, p: 4 + 1e-5 * n + 3e-8 * p**2)
    (_, by_record), (_, by_code) = page_commands.beside(model, rows)
    assert list(by_record["seconds"].values()) == pytest.approx([4, 1e-5, 3e-8], rel=1e-6)
    rows_by_code = commands(model, lambda n, p: 4 + 1e-8 * n * p + 3e-8 * p**2)
    _, (_, by_code) = page_commands.beside(model, rows_by_code)
    assert list(by_code["seconds"].values()) == pytest.approx([4, 1e-8, 3e-8], rel=1e-6)
    rows[-1]["seconds"] *= 2  # a row that the others do not foresee
    text = "\n".join(page_commands.section(model, page_commands.Stored(rows, [], None), "P"))
    last = row(text.replace("| papersize | 50,000", "| y | 50,000"), "y")[-1]
    assert "(0.50" in last  # by the record, as it was made
    few = page_commands.Stored(rows[:2], [], None)
    assert page_commands.beside(model, few.answers) == []
    text = "\n".join(page_commands.section(model, few, "P"))
    assert row(text.replace("| papersize | 200,000", "| y | 2"), "y")[-2:] == ["–", "–"]


def test_commands_of_another_processor_are_not_held_against_the_model():
    model = growth.cost_model(grown(PASSES)["points"], PASSES)
    rows = commands(model, lambda n, p: 4 + 1e-5 * n, "Q")
    text = "\n".join(page_commands.section(model, page_commands.Stored(rows, [], None), "P"))
    assert "which is of P: papersize (Q), `python -m benchmarks.papersize`." in text
    assert "|" not in text


def planned(found, stored):
    counted = found.get("passes")
    model = growth.cost_model(found["points"], counted)
    variants = page_commands.beside(model, stored.on("P").answers)
    return model, "\n".join(page_growth.plan(model, variants, stored, "P"))


HUBS = [{"run": "papersize", "processor": "P"}]


def test_the_hub_of_the_plan_takes_the_measured_full_sweeps():
    model, text = planned(grown(PASSES), page_commands.Stored([], HUBS, 30.0, "P"))
    assert "30 full sweeps over its own records" in text
    hours = 30 * growth.predicted(model, "sweep", 1e7, 2142, 200) / 3600
    assert row(text, "2,142")[3] == f"{hours:.1f} h"
    assert row(text, "20,000")[3] == "–"  # the solver has a stage less
    assert row(text, "2,142")[2].startswith("more than ")  # the step alone
    _, text = planned(grown(PASSES), page_commands.Stored([], HUBS, None, "P"))
    assert "a full sweep, which are not stored: `python -m benchmarks.papersize`" in text
    assert row(text, "2,142")[3] == "–" != row(text, "2,142")[2]
    _, text = planned(grown(), page_commands.Stored([], HUBS, 30.0, "P"))
    assert "without the passes of a site: `python -m benchmarks.growth`" in text
    assert row(text, "2,142")[2] == "–" != row(text, "2,142")[3]


def test_the_plan_has_no_seconds_of_two_processors():
    _, text = planned(grown(PASSES), page_commands.Stored([], HUBS, 30.0, "Q"))
    assert "growth was measured on P and the paper's size on Q: run `python" in text
    assert row(text, "2,142")[2:4] == row(text, "20,000")[2:4] == ["–", "–"]
    assert row(text, "2,142")[4] == "9.2 MB"


def test_the_plan_has_a_range_where_the_commands_do_not_tell_terms_apart():
    model = growth.cost_model(grown(PASSES)["points"], PASSES)
    rows = commands(model, lambda n, p: 4 + 1e-5 * n + 3e-8 * p**2)
    _, text = planned(grown(PASSES), page_commands.Stored(rows, HUBS, 30.0, "P"))
    assert " to " in row(text, "20,000")[2]


def test_units_that_are_not_told_apart_are_said():
    model = growth.cost_model(grown()["points"])
    model["sweep"]["seconds"]["entry of the residual, np"] = 0.0
    assert "| entry of the residual, np | not told apart from the others |" in "\n".join(
        page_growth.model(model, [])
    )


def test_what_another_core_made_is_said(tmp_path):
    (tmp_path / "growth.json").write_text(json.dumps(grown() | {source.CORE: "aaaaaaaa"}))
    (tmp_path / "papersize.json").write_text(json.dumps(papersize()))
    (tmp_path / "dask.txt").write_text("Machine: P, 2 cores; commit x; core aaaaaaaa; python 3\n")
    rows = LARGE.replace("file |", "file | core |").replace("1 MB |", "1 MB | aaaaaaaa |")
    rows = rows.replace("--- |\n", "--- | --- |\n")
    (tmp_path / "large.md").write_text(f"# A heading\n\n{rows}")

    def told(core):
        text = page.page(tmp_path, core)
        assert page.told_core(text) == core
        return [line for line in text.splitlines() if line.startswith("Made with other code")]

    unknown = "Made with other code than the present core, or not known"
    assert told("aaaaaaaa") == [f"{unknown}: papersize.json.", f"{unknown}."]
    names = "growth.json, papersize.json, large.md, dask.txt"
    other = "Made with other code than the present core."
    assert told("bbbbbbbb") == [f"{unknown}: {names}.", other, f"{unknown}.", other, other]


ASKED = {
    "hub time in units (at most 60)": 72.0,
    "hub time / 200 iterations of the dense way, extrapolated, "
    "in double precision (at most 0.025)": 1 / 50,
    "hub time / 200 iterations of the dense way, extrapolated, in single precision": 1 / 30,
    "answer / bare product X'R over its records (at most 1)": 0.8,
    "largest memory, MB (at most 3,000)": 1240.0,
    "the loss against that of the same finish, run to its end": {
        "percent above (at most 0.5)": 0.6
    },
}


def asked(tmp_path, *races):
    """Lines of the table by what was asked."""
    lines = page_asked.section(tmp_path, [POOLED, ONE_SHOT, *races] if races else [])
    return {r["asked"]: (r["found"], r["met"]) for r in tables.read("\n".join(lines))}


def met(found, *words):
    (line,) = [v for k, v in found.items() if all(word in k for word in words)]
    return line


def test_what_was_asked_is_not_stored_in_an_empty_folder(tmp_path):
    found = asked(tmp_path)
    assert len(found) == 5 + 12 + 3 + 1 + 1 + 14 + 1
    assert {line[1] for line in found.values()} == {"not stored"}


def test_what_was_asked_is_held_against_what_is_stored(tmp_path):
    (tmp_path / "papersize.json").write_text(json.dumps(papersize(**ASKED)))
    (tmp_path / "growth.json").write_text(json.dumps(grown()))
    killed = DASK + "    relative difference of Phi 2.0e-05\n"
    (tmp_path / "dask.txt").write_text(killed)
    both = LARGE + LARGE.split("--- |\n")[1].replace("plain", "sketched")
    (tmp_path / "large.md").write_text(LARGE)
    found = asked(tmp_path, result("good", 0.93, 1.0), result("slow", 0.6, 9.0))
    assert met(found, "60 bare sweeps") == ("72.0", "no, 1.20 times what was asked")
    assert met(found, "dense way") == ("1/50 (in single precision 1/30)", "yes")
    assert met(found, "memory") == ("1.24 GB", "yes")
    assert met(found, "X'R") == ("0.80 ×", "yes")
    assert met(found, "loss") == ("0.60 % above", "no, 1.20 times what was asked")
    assert met(found, "sweep: time grows with records") == ("1.00 ± 0.00", "yes")
    assert met(found, "exchange: time grows with rank")[1] == "no, it grows more slowly: 0.85 below"
    assert met(found, "a fit") == ("0.95 × (fit, 8 steps)", "yes")
    answer = met(found, "two Dask workers, an answer")
    assert answer == ("1.30 × (50,000 records)", "no, 1.04 times what was asked")
    assert met(found, "killed")[1] == "no, 2.00 times what was asked"
    assert met(found, "20,000 codes")[1] == "no, not all of sketched"
    quality = met(found, "emergency visits", "quality")
    assert quality[0] == "first in 0 of 3 columns"
    assert quality[1].startswith("no, behind by 0.03 in mean AUC (good)")
    time = ("1 of 2 took longer", "no: good 0.50 ×")
    assert met(found, "emergency visits", "pairs") == time
    assert met(found, "Medicare", "quality")[1] == "not stored"
    order = sorted(both.splitlines()[4:], key=lambda line: line.split("|")[1])
    (tmp_path / "large.md").write_text("\n".join([*both.splitlines()[:4], *order]))
    complete = met(asked(tmp_path), "20,000 codes")
    assert complete[1] == "yes" and "finish 1212 s" in complete[0]


def test_what_was_asked_is_met_of_those_that_can_be_compared(tmp_path):
    there = {"machine": MACHINE | {"processor": "Q"}}
    found = asked(tmp_path, result("slow", 0.6, 9.0))
    assert met(found, "emergency visits", "quality") == ("first in 3 of 3 columns", "yes")
    assert met(found, "emergency visits", "pairs") == ("1 of 1 took longer", "yes")
    found = asked(tmp_path, result("slow", 0.6, 9.0, **there))
    assert met(found, "emergency visits", "pairs")[1] == "yes, of those compared"
    late = result("late") | {"status": "over the limit", "reason": "more than 600 s"}
    found = asked(tmp_path, late, result("quick", 0.6, 1.0, **there))
    line = met(found, "emergency visits", "quality")
    assert line == ("first in 3 of 3 columns; not finished: 1", "yes, of those compared")
    assert met(found, "emergency visits", "pairs")[1] == "no: quick 0.50 × on another machine"


def everywhere(method, *aucs, label, **changes):
    """Runs of one method, in one setting, on so many problems of hospitals."""
    about = {"method": method} | changes
    return [
        result(label, auc, problem=problem, **about)
        for problem, auc in zip(page_races.HOSPITALS, aucs, strict=False)
    ]


def test_one_setting_for_all_hospitals(tmp_path):
    """Every setting of the peer wins somewhere, and none of them everywhere."""
    mine = everywhere("one-shot", *[0.8] * 5, label="Daniel, one shot", where="stay")
    narrow = everywhere("d-25", 0.9, 0.6, 0.6, 0.6, 0.9, label="peer", setting="d=25")
    wide = everywhere("d-50", 0.6, 0.9, 0.9, 0.9, 0.6, label="peer", setting="d=50")
    some = everywhere("slow", 0.95, 0.95, label="slow")
    races = [*mine, *narrow, *wide, *some]
    rows = page_races.fixed(races)
    assert [(row.run["label"], row.run["setting"]) for row in rows] == [
        ("Daniel, one shot", ""),
        ("peer", "d=50"),
    ]
    assert rows[1].mean == pytest.approx(0.78)
    found = "\n".join(page_races.one_setting(races))
    assert row(found, "peer")[1:] == ["d=50", "0.600", "0.900", "0.900", "0.900", "0.600", "0.780"]
    assert "On some of these problems no result in any one setting: slow." in found
    line = page_asked.together(races)
    assert line.met == "yes, of those that finished"
    assert line.found == "mean AUC 0.800 in one shot, peer 0.780"
    better = everywhere("good", *[0.85] * 5, label="good")
    assert page_asked.together([*races, *better]).met == "no, 0.050 behind"
    assert page_races.one_setting(some) == []


def test_growth_by_the_cost_model_stands_beside_what_was_measured():
    found = grown(PASSES)
    model = growth.cost_model(found["points"], PASSES)
    told = page_growth.of_model(model, found["points"])
    measured = growth.exponents(found["points"], SIZES)
    for step in ("sweep", "answer"):
        for size, fit in measured[step].items():
            assert told[step][size]["exponent"] == pytest.approx(fit["exponent"], abs=0.05)


def test_the_page_is_that_of_the_stored_results():
    """After a run: python -m benchmarks.page.  A core that has changed since is no fault."""
    text = page.PAGE.read_text("utf-8")
    assert text == page.page(page.RACES.parent, page.told_core(text))


def test_the_standard_error_is_that_of_linear_regression():
    from scipy.stats import linregress

    rng = np.random.default_rng(0)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    y = x**1.3 * np.exp(0.1 * rng.standard_normal(4))
    slope, error = growth.exponent(x, y)
    expected = linregress(np.log(x), np.log(y))
    assert (slope, error) == pytest.approx((expected.slope, expected.stderr))


def test_growth_records_have_the_codes_they_should():
    records = growth.make_records(500, 200, 0)
    assert (records.n, records.p) == (500, 200)
    assert 10 < records.indices.size / records.n <= growth.CODES_PER_RECORD
