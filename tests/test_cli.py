"""The command `daniel`, run as a user runs it."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import daniel
from daniel.cli import app
from daniel.demo import OWN, REPORT
from daniel.errors import InputError
from daniel.federated.files import check_folder

COMMAND = Path(sys.executable).with_name("daniel")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"daniel {daniel.__version__}\n")


def test_unknown_command_is_refused():
    result = run("embed-the-moon")
    assert result.returncode == 2
    assert "embed-the-moon" in result.stderr


def test_demo_ends_with_a_comparison_and_a_report(tmp_path):
    out = tmp_path / "demo"
    result = run("demo", "--out", str(out), "--patients", "600", "--codes", "60")
    assert result.returncode == 0, result.stderr
    for name in ("north", "federated", "pooled", "PPMI-SVD", "unsupervised"):
        assert name in result.stdout
    assert "nan" not in result.stdout.lower()
    html = (out / "report.html").read_text("utf-8")
    assert "Phenotyping" in html and "Log-rank" in html
    assert {path.name for path in out.iterdir()} >= {
        "study.toml",
        "start.daniel",
        "model",
        "cohort",
    }
    check_folder(out, REPORT, OWN)  # a second demo may replace it
    (out / "cohort" / "mine.csv").write_text("mine")
    again = run("demo", "--out", str(out), "--patients", "600", "--codes", "60")
    assert again.returncode == 2 and "Traceback" not in again.stderr
    assert "holds cohort/mine.csv, which would be lost" in " ".join(again.stderr.split())
    assert (out / "cohort" / "mine.csv").is_file() and (out / "model").is_dir()


def test_a_wrong_option_gives_one_sentence(tmp_path):
    result = run("demo", "--out", str(tmp_path / "demo"), "--patients", "10")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("daniel: ")
    assert result.stderr.count("\n") == 1
    assert "10 patients" in result.stderr and "300" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("message", ["bad codes.", "bad\n  codes."])
def test_errors_of_daniel_become_one_line(monkeypatch, message):
    def fail(*args, **options):
        raise InputError(message)

    monkeypatch.setattr("daniel.demo.run", fail)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stderr) == (2, "daniel: bad codes.\n")


def test_other_errors_are_not_hidden(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("a defect")

    monkeypatch.setattr("daniel.demo.run", fail)
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, RuntimeError)


@pytest.mark.parametrize(
    ("error", "says"),
    [(OSError(errno.ENOSPC, "No space left on device"), "make room"), (MemoryError(), "memory")],
)
def test_a_machine_without_room_is_one_sentence(error, says, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("typer.core.TyperGroup.invoke", fail)
    result = CliRunner().invoke(app, ["new"])
    assert result.exit_code == 2
    assert result.stderr.startswith("daniel: ") and says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_error_that_nobody_foresaw_is_not_hidden(monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("typer.core.TyperGroup.invoke", fail)
    assert isinstance(CliRunner().invoke(app, ["new"]).exception, OSError)
