"""What README and docs tell a newcomer is so."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_first_example_runs(tmp_path, monkeypatch, capsys):
    block = re.search(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
    assert block, "README.md has no python example"
    monkeypatch.chdir(tmp_path)  # the example saves a model
    exec(compile(block[1], "README.md", "exec"), {"__name__": "__main__"})
    assert "similarity" in capsys.readouterr().out
    assert list(tmp_path.iterdir()), "the example should have saved a model"


def test_its_commands_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", README, flags=re.M))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), f"README.md links to {target}, which does not exist"


def test_notation_names_functions_that_exist():
    text = (ROOT / "docs" / "notation.md").read_text("utf-8")
    named = re.findall(r"`([a-z/]+\.py): ([^`]+)`", text)
    assert named
    for file, functions in named:
        tree = ast.parse((ROOT / "src" / "daniel" / file).read_text("utf-8"))
        defined = {node.name for node in ast.walk(tree) if getattr(node, "name", None)}
        for function in functions.split(", "):
            pattern = re.compile(function.replace("*", ".*"))
            assert any(map(pattern.fullmatch, defined)), f"{file} has no {function}"
