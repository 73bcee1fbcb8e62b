"""docs/three-hospitals.md: every command on the page runs, in its order."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from daniel import Daniel
from daniel.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "three-hospitals.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.M | re.S)


def run(line: str) -> str:
    """A line of the page: daniel in this process, anything else in a shell."""
    command, _, target = line.partition(" >> ")
    words = shlex.split(command)
    if words[0] != "daniel":
        return subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}{result.stderr}"
    if target:
        with open(target, "a") as file:
            file.write(result.stdout)
    return result.stdout


def test_the_page_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "three-hospitals.md", "exec"), {"__name__": "__main__"})
            continue
        for line in block.splitlines():
            said.setdefault(line, []).append(run(line))
    assert "similarity" in capsys.readouterr().out
    waiting, done = said["daniel status . --study study.toml"]
    assert waiting.count(" valid ") == 3 and done.count(" used ") == 3
    assert "Nothing was written" in said["daniel answer south start.daniel"][0]
    assert "valid: it is from 'north'" in said["daniel inspect start.daniel --study study.toml"][0]
    models = [Daniel.load(f"{name}/model.safetensors") for name in ("model", "model-here")]
    np.testing.assert_array_equal(models[0].theta_, models[1].theta_)
    assert models[0].rank_ >= 1


def test_the_page_shows_every_command_of_the_exchange():
    shown = set(re.findall(r"^daniel ([a-z]+)", "\n".join(b for _, b in BLOCKS), flags=re.M))
    wanted = {"new", "prepare", "keys", "start", "answer", "finish", "fit", "status", "validate"}
    assert wanted | {"inspect", "cohort"} <= shown


@pytest.mark.parametrize("page", ["three-hospitals.md", "privacy.md", "format.md"])
def test_links_lead_somewhere(page):
    path = PAGE.with_name(page)
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), f"{page} links to {target}, which does not exist"
