"""The study: dataclass <-> commented file, its hash, and what it refuses."""

import dataclasses
import errno
import hashlib
import json
import os
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from daniel import Daniel
from daniel.cli import app
from daniel.errors import FormatError, InputError, ParameterError
from daniel.study import CodeMap, Codes, Disclosure, Model, Site, Study, Window

KEY = "ab" * 32
FULL = Study(
    name='a "quoted" \\ name, größer',
    epoch=3,
    rounds=2,
    codes=Codes(names=tuple(f"PheCode:{i}" for i in range(40)), minimum_patients=5),
    window=Window(months=12, start="calendar"),
    model=Model(n_components=50, penalty=0.5),
    disclosure=Disclosure(release="open", clip=2.0, epsilon=4, floor=3),
    maps=(
        CodeMap(("ICD9CM", "ICD10CM"), "PheCode", "m.csv", parents="up.csv", many="first"),
        CodeMap(("NDC",), "RxNorm", "d.csv", columns=("ndc", "rxcui"), sha256=KEY),
    ),
    sites=(Site("north", "hub", KEY, KEY), Site("south")),
)


def load(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text, "utf-8")
    return Study.load(path)


def test_new_writes_a_study_that_loads(tmp_path, monkeypatch):
    path = tmp_path / "study.toml"
    result = CliRunner().invoke(app, ["new", "--out", str(path)])
    assert result.exit_code == 0, result.output
    assert Study.load(path) == Study()
    comments = [line for line in path.read_text().splitlines() if line.startswith("# ")]
    assert len(comments) > 40
    events = [f"{i},2020-01-01,PheCode:8\n" for i in range(40)]
    (tmp_path / "events.csv").write_text("".join(["patient,date,code\n", *events]))
    *_, advice = result.stdout.strip().partition("daniel ")
    arguments = advice.replace("SOURCE", str(tmp_path / "events.csv")).split()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        advised = CliRunner().invoke(app, arguments)
    assert advised.exit_code == 0, advised.stderr
    assert (tmp_path / "NAME" / "summary.txt").is_file()
    again = CliRunner().invoke(app, ["new", "--out", str(path)])
    assert again.exit_code == 2
    assert "exists already" in again.stderr


@pytest.mark.parametrize("name", ["../evil", "a/b", ".north", "n\nx", "north\\"])
def test_a_site_has_the_name_of_a_file(tmp_path, name):
    """Its keys and its folder go by the same rule."""
    for command in (
        ["keys", name, "--out", str(tmp_path)],
        ["prepare", "events.csv", "--site", name, "--out", str(tmp_path / "out"), "--study"],
    ):
        if command[0] == "prepare":
            Study().write(tmp_path / "study.toml")
            command.append(str(tmp_path / "study.toml"))
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2
        assert "cannot be the name of a site: use letters" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"study.toml cannot be written \(No space left"):
        Study().write(tmp_path / "study.toml")
    assert list(tmp_path.iterdir()) == []


def test_every_commented_setting_can_be_switched_on(tmp_path):
    text = Study().to_toml().replace("…", KEY)
    text = re.sub(r"^#(?=[\[a-z])", "", text, flags=re.M)
    table = tomllib.loads(text)
    for cls, part in [
        (Codes, table["codes"]),
        (Disclosure, table["disclosure"]),
        (CodeMap, table["maps"][0]),
        (Site, table["sites"][0]),
    ]:
        assert set(part) == {f.name for f in dataclasses.fields(cls)}
    text = re.sub(r"^file = .codes.tsv.$", "", text, flags=re.M)
    with pytest.raises(ParameterError, match=r"disclosure\.sketch"):
        load(tmp_path, text)
    text = re.sub(r"^sketch = .*$", "", text, flags=re.M)  # not with noise
    with pytest.raises(ParameterError, match="hub"):  # a roster of one site needs a hub
        load(tmp_path, text)
    study = load(tmp_path, text.replace('role = "site"', 'role = "hub"'))
    assert study.maps[0].target == "PheCode"
    assert study.disclosure.epsilon == 4.0


def test_round_trip_of_everything(tmp_path):
    again = load(tmp_path, FULL.to_toml())
    assert again == FULL
    assert again.hash == FULL.hash
    assert isinstance(again.disclosure.epsilon, float)


@settings(max_examples=15, deadline=None)
@given(name=st.text(min_size=1).filter(str.strip), months=st.integers(1, 1200))
def test_round_trip_of_any_name(tmp_path_factory, name, months):
    study = Study(name=name, window=Window(months=months))
    path = tmp_path_factory.mktemp("study") / "study.toml"
    study.write(path)
    assert Study.load(path) == study


def test_the_hash_is_that_of_the_content(tmp_path):
    base = Study(codes=Codes(names=("A:1", "A:2")))
    content = json.loads(base.canonical)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert base.hash == hashlib.sha256(text.encode()).hexdigest()
    # A code file gives the same study as the list itself, wherever it is.
    (tmp_path / "list.tsv").write_text("code\tdescription\nA:1\tone\nA:2\t\n")
    from_file = load(tmp_path, 'version = 1\n[codes]\nfile = "list.tsv"\n')
    assert from_file.codes.names == ("A:1", "A:2")
    assert from_file.hash == base.hash
    assert Study.load(tmp_path / "study.toml").to_toml().count("A:1") == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("epoch", 2),
        ("codes.names", ("A:2", "A:1")),
        ("window.months", 7),
        ("model.penalty", 0.1),
        ("disclosure.floor", 12),
        ("maps.many", "all"),
        ("maps.parents", None),
        ("sites.signing_key", "cd" * 32),
    ],
)
def test_the_hash_sees_every_change(path, value):
    assert changed(FULL, path, value).hash != FULL.hash


@pytest.mark.parametrize(
    ("path", "value"),
    [("maps.file", "elsewhere/m.csv"), ("maps.parents", "x/y.csv"), ("maps.columns", ("a", "b"))],
)
def test_the_hash_does_not_see_where_a_site_keeps_its_files(path, value):
    assert changed(FULL, path, value).hash == FULL.hash


def changed(study, path, value):
    """The study with one value replaced; of a list of tables, in its first one."""
    table, _, name = path.partition(".")
    if not name:
        return dataclasses.replace(study, **{table: value})
    part = getattr(study, table)
    first = part[0] if isinstance(part, tuple) else part
    new = dataclasses.replace(first, **{name: value})
    return dataclasses.replace(study, **{table: (new, *part[1:]) if part != first else new})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 1\nepoc = 2\n", ["'epoc'", "did you mean 'epoch'"]),
        ("version = 1\n[window]\nmonth = 6\n", ["'window.month'", "did you mean 'months'"]),
        ("version = 1\n[[maps]]\nfrom = ['A']\n", ["'maps.from'", "source"]),
        ("version = 1\n[window]\nmonths = 'six'\n", ["'window.months'", "a whole number"]),
        ("version = 1\n[window]\nmonths = true\n", ["'window.months'", "a whole number"]),
        ("version = 1\n[window]\nstart = 'birth'\n", ["'window.start'", "'patient' or 'calendar'"]),
        ("version = 1\nname = 3\n", ["'name'", "text"]),
        ("version = 1\nwindow = 3\n", ["'window'", "a table"]),
        ("version = 1\n[codes]\nnames = 'A'\n", ["'codes.names'", "a list of text"]),
        ("version = 1\n[codes]\nnames = [1]\n", ["'codes.names'", "text"]),
        ("version = 1\n[model]\npenalty = 'big'\n", ["'model.penalty'", "a number or 'auto'"]),
        ("version = 1\n[disclosure]\nclip = nan\n", ["'disclosure.clip'", "a number"]),
        ("version = 2\n", ["version 2", "reads version 1"]),
        ("version = '1'\n", ["version '1'", "reads version 1"]),
        ("name = 'x'\n", ["has no version", "reads version 1"]),
        ("version = \n", ["not TOML"]),
        ("version = 1\n[codes]\nfile = 'none.tsv'\n", ["no code file", "none.tsv"]),
        ("version = 1\n[codes]\nfile = 'a'\nnames = ['b']\n", ["codes.file and codes.names"]),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, text, words):
    with pytest.raises(FormatError) as error:
        load(tmp_path, text)
    for word in words:
        assert word in str(error.value)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(FormatError, match="daniel new"):
        Study.load(tmp_path / "none.toml")
    (tmp_path / "study.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="cannot be read"):
        Study.load(tmp_path / "study.toml")
    (tmp_path / "codes.tsv").write_text("code\tname\r\nA:1\tx\u2028y\r\nA:2\t\r\n", "utf-8")
    study = load(tmp_path, 'version = 1\n[codes]\nfile = "codes.tsv"\n')
    assert study.codes.names == ("A:1", "A:2")
    (tmp_path / "empty.tsv").write_text("code\n# nothing\n")
    with pytest.raises(FormatError, match="no code"):
        load(tmp_path, 'version = 1\n[codes]\nfile = "empty.tsv"\n')


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"epoch": 0}, "epoch"),
        ({"rounds": 0}, "rounds"),
        ({"name": " "}, "name"),
        ({"window": Window(months=0)}, "window.months"),
        ({"codes": Codes(names=("A", "A"))}, "more than once"),
        ({"codes": Codes(names=(" A",))}, "outer blanks"),
        ({"codes": Codes(minimum_patients=0)}, "codes.minimum_patients"),
        ({"maps": (CodeMap(("A",), "B"),)}, "source, target and file"),
        ({"maps": (CodeMap(("A",), "B", "f", ("x",)),)}, "two columns"),
        ({"disclosure": Disclosure(floor=0)}, "disclosure.floor"),
        ({"disclosure": Disclosure(epsilon=1.0)}, "needs disclosure.clip"),
        ({"disclosure": Disclosure(delta=1.0)}, "disclosure.delta"),
        ({"sites": (Site("a", "hub"), Site("a"))}, "same name"),
        ({"sites": (Site("a"), Site("b"), Site("c"))}, "found 0"),
        ({"sites": (Site("a", "hub"), Site("b"))}, "three sites"),
        ({"sites": (Site("a", "hub", "12"),)}, "64 hexadecimal"),
    ],
)
def test_values_that_cannot_work(parts, words):
    with pytest.raises(ParameterError, match=words):
        Study(**parts)


def test_the_roster_knows_its_sites():
    assert FULL.site("north").role == "hub"
    assert Study().site("anyone").name == "anyone"
    with pytest.raises(InputError, match="did you mean 'north'"):
        FULL.site("nort")
    with pytest.raises(InputError, match="no name"):
        Study().site(" ")


def test_the_model_is_that_of_the_estimator():
    ours, theirs = dataclasses.asdict(Model()), Daniel().get_params()
    assert set(ours) == set(theirs)
    assert ours | {"random_state": None} == theirs
    assert Daniel(**ours).get_params() == ours
