"""The command `daniel`, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import daniel
from daniel.cli import app
from daniel.errors import InputError

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


def test_demo_prints_the_comparison():
    result = run("demo", "--records", "3000")
    assert result.returncode == 0, result.stderr
    for name in ("hub alone", "one round", "pooled", "PPMI-SVD"):
        assert name in result.stdout
    assert "nan" not in result.stdout.lower()


def test_a_wrong_option_gives_one_sentence():
    result = run("demo", "--records", "10")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("daniel: ")
    assert result.stderr.count("\n") == 1
    assert "10" in result.stderr and "1,000" in result.stderr


@pytest.mark.parametrize("message", ["bad codes.", "bad\n  codes."])
def test_errors_of_daniel_become_one_line(monkeypatch, message):
    def fail(**options):
        raise InputError(message)

    monkeypatch.setattr("daniel.demo.run", fail)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stderr) == (2, "daniel: bad codes.\n")


def test_other_errors_are_not_hidden(monkeypatch):
    def fail(**options):
        raise RuntimeError("a defect")

    monkeypatch.setattr("daniel.demo.run", fail)
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, RuntimeError)
