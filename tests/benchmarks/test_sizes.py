"""The benchmarks of large sizes run, at small ones, with commands in this process."""

import json
import sys

import pytest
from distributed import Client, LocalCluster
from typer.testing import CliRunner

from benchmarks import large, page_dask, papersize, race, source, tables, workers
from benchmarks.exchange import Cost
from daniel.cli import app
from daniel.core import natural, place, records
from daniel.federated import protocol

SMALL = ["--patients", "60", "--codes", "40", "--records-per-patient", "4"]


@pytest.fixture
def inside(monkeypatch):
    """`measured` without processes; the paper's cohort is a small one."""

    def measured(folder, *arguments):
        given = [x for word in arguments for x in (SMALL if word == "--paper" else [word])]
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            found = CliRunner().invoke(app, given)
        assert found.exit_code == 0, (arguments, found.output)
        return Cost(2.0, 3.0, 1024.0)

    for module in (large, papersize):
        monkeypatch.setattr(module, "measured", measured)


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmark", *map(str, arguments)])
    module.main()


def test_many_codes_and_one_more_run_adds_its_rows(inside, tmp_path, monkeypatch):
    out = tmp_path / "large.md"
    size = ("--p", 48, "--components", 3, "--out", out)
    run(large, monkeypatch, *size, "--records", 600)
    run(large, monkeypatch, *size, "--records", 110)
    found = list(large.runs(out.read_text("utf-8")))
    assert [made.size for made in found] == [large.Size(48, 110, 3), large.Size(48, 600, 3)]
    assert not found[0].fitted  # fewer than 2.5 records a code
    steps = {"start": 2.0, "answer": 2.0, "finish": 2.0}
    assert found[1].seconds == {"plain": steps, "sketched": steps}
    assert "at most 2.5 records a code, here 120" in out.read_text("utf-8")
    assert found[1].memory == {
        "plain": dict.fromkeys(steps, 1.0),
        "sketched": dict.fromkeys(steps, 1.0),
    }
    here = race.machine()["processor"]
    assert (found[1].processor, found[1].core) == (here, source.core())
    assert f"Last run: Machine: {here}, " in out.read_text("utf-8")
    assert source.told_processor(out.read_text("utf-8")) == here
    assert source.told_core(out.read_text("utf-8")) == source.core()
    assert large.others(out, large.Size(48, 110, 3)) == large.rows_of(out.read_text("utf-8"))[6:]
    assert large.others(out, large.Size(50, 110, 3)) == []  # of other codes


def test_a_table_of_one_run_keeps_its_rows(tmp_path):
    text = "20,000 codes, 50,000 records at each of two sites, 100 components\n\n" + tables.made(
        [{"answers": "plain", "step": "answer", "time": "25 s", "file": "801 MB"}]
    )
    (made,) = large.runs(text)
    took = {"plain": {"answer": 25.0}}
    assert made == large.Run(large.Size(20_000, 50_000, 100), False, took, {}, None, None)


def test_the_papers_size(inside, tmp_path, monkeypatch):
    monkeypatch.setattr(papersize, "COMPONENTS", 4)
    monkeypatch.setattr(papersize, "SLICE", 64)
    # What --converged changes, for the second run and for other tests.
    usual = {(natural, "GAIN"): natural.GAIN, (protocol, "options_of"): protocol.options_of}

    def as_usual():
        for (module, name), value in usual.items():
            monkeypatch.setattr(module, name, value)

    as_usual()
    out = tmp_path / "papersize.json"
    run(papersize, monkeypatch, "--folder", tmp_path / "kept", "--converged", "--out", out)
    found = json.loads(out.read_text())
    assert [row["step"] for row in found["steps"]] == ["start", "own answer", "answer", "finish"]
    unit = found["seconds of a bare sweep over the hub (unit)"]
    assert found["hub time in units (at most 60)"] == pytest.approx(6.0 / unit)
    assert found[papersize.FULL] > 0
    run_on = found[papersize.RUN_ON]
    assert run_on["loss"] == found["loss"] >= run_on["at its end"] - 1e-4
    monkeypatch.setattr(papersize, "make_sites", lambda folder: None)
    as_usual()
    run(papersize, monkeypatch, "--folder", tmp_path / "kept", "--out", out)
    again = json.loads(out.read_text())
    assert again[papersize.RUN_ON] == run_on
    assert again["machine"]["processor"] == race.machine()["processor"]
    monkeypatch.setattr(papersize, "core", lambda: "of other code")
    run(papersize, monkeypatch, "--folder", tmp_path / "kept", "--out", out)
    assert papersize.RUN_ON not in json.loads(out.read_text())


def test_workers(monkeypatch, capsys):
    monkeypatch.setattr(records, "SMALL_WORK", 0)  # few records go to the cluster too
    monkeypatch.setattr(place, "WORTH", 0)
    monkeypatch.setattr(place, "WORTH_ONCE", 0)
    made = workers.made_up(4000, 60)
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
    with LocalCluster(**options, processes=False) as cluster, Client(cluster) as client:
        workers.sweeps(client, made, 5, 1)
        workers.answers(client, made, made, 5, 1)
        _, wanted = workers.fits(client, made, 5, 1)
        said = capsys.readouterr().out
        assert "stays here" not in said
        with pytest.raises(AssertionError, match="without stages"):
            workers.staged(client, made, 5)
        monkeypatch.setattr(natural, "LARGE", 1)
        workers.staged(client, made, 5)
    stages = capsys.readouterr().out
    assert list(page_dask.ratios(stages)) == [f"fit by stages, {made.n:,} records"]
    assert max(page_dask.differences(stages).values()) < 1e-5
    assert {f"one sweep, {made.n:,} records", f"answer, {made.n:,} records"} <= {
        *page_dask.ratios(said)
    }
    assert f"fit, {wanted.solution.n_iter} steps" in said
    assert float(said.split("relative difference of Phi ")[1]) < 1e-5
