"""Tables and figures of a folder, and the command."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from daniel import simulation
from daniel.cli import app


def simulate(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def test_tables_of_a_folder(folder):
    written = {path.name for path in simulation.tables(folder)}
    assert {"table_error.md", "table_error.csv", "table_time.md", "claims.md"} <= written
    for name in written:
        assert (folder / name).stat().st_size > 0
    text = (folder / "claims.md").read_text("utf-8")
    assert "daniel simulate --design main --seed 0" in text
    assert "3 repetitions" in text
    assert not list(folder.glob("*.part")) and not list(folder.glob(".*.part"))


def test_figures_of_a_folder(folder):
    written = simulation.figures(folder)
    assert {path.name for path in written} == {
        *("figure_n100.png", "figure_n100.svg"),
        *("figure_n200.png", "figure_n200.svg"),
    }
    before = [path.read_bytes() for path in written]
    for path in written:
        if path.suffix == ".png":
            image = imread(path)
            assert image.shape[0] > 400 and image.std() > 0.01  # not an empty page
        else:
            text = " ".join(ElementTree.parse(path).getroot().itertext())
            assert "DANIEL, default" in text and "p = 10" in text
    again = simulation.figures(folder)
    assert [path.read_bytes() for path in again] == before  # the same every time


def test_the_command_runs_a_design(tmp_path):
    result = simulate(
        *("--design", "dimension", "--p", "20", "--reps", "1", "--methods", "default,Zero,pooled"),
        *("--out", tmp_path / "new" / "folder"),
    )
    assert result.exit_code == 0, result.stderr
    files = [Path(line) for line in result.stdout.split()]
    assert all(path.is_file() for path in files)
    assert {"dimension.csv", "table_dimension.md", "figure_dimension.svg"} <= {
        path.name for path in files
    }
    results = simulation.read_results(tmp_path / "new" / "folder" / "dimension.csv")
    assert sorted(results["method"]) == ["default", "pooled", "zero"]
    assert set(results["m"]) == {1, 15}  # pooled and zero do not know the sites


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "default,lasso"], ["'lasso'", "SV-Soft"]),
        (["--x", "0.3,1"], ["x is 1", "0 <= x < 1"]),
        (["--x", "0.3,much"], ["'0.3,much'"]),
        (["--p", "45", "--d", "5"], ["p is 45", "d is 5"]),
        (["--design", "mane"], ["'mane'", "dimension"]),
        (["--design", "theory", "--reps", "0"], ["reps is 0"]),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, arguments, words):
    result = simulate(*arguments, "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("daniel: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "out").exists()


def test_results_of_another_design_are_refused_before_anything_runs(folder, tmp_path):
    path = tmp_path / "dimension.csv"  # the second part of all
    path.write_bytes((folder / "main.csv").read_bytes().replace(b'"main"', b'"dimension"'))
    before = path.read_bytes()
    result = simulate("--seed", 5, "--reps", 1, "--out", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "seed is 0 there and 5 now" in result.stderr
    assert result.stderr.count("\n") == 1
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
