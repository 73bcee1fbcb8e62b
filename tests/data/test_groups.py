"""Wider code groups: rare codes under their parents, and the map that a study takes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from daniel.cli import app
from daniel.data import read_site
from daniel.data.groups import _read_parents, grouped, wider
from daniel.data.prepare import prepare
from daniel.errors import InputError
from daniel.matrix import CodeMatrix
from daniel.study import CodeMap, Codes, Study

PARENTS = {"290.11": "290.1", "290.12": "290.1", "290.1": "290", "250.2": "250"}
CODES = ("250.2", "290", "290.11", "290.12", "401")
#        patient: 0 0 1 2 3, one record a row
Z = [[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]]
PATIENTS = np.array([0, 0, 1, 2, 3])


@pytest.fixture
def matrix():
    return CodeMatrix(sp.csr_array(np.array(Z, np.float32)), CODES, patients=PATIENTS)


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (1, CODES),
        (3, ("250.2", "290", "290.1", "290.1", "401")),  # both have 2 patients, together 3
        (4, ("250", "290", "290", "290", "401")),  # 250 has no parent, 401 neither
    ],
)
def test_codes_go_up_until_there_are_enough_patients(matrix, least, expected):
    assert tuple(wider(matrix, PARENTS, least)) == expected


def test_a_group_is_present_where_one_of_its_codes_is(matrix):
    out = grouped(matrix, wider(matrix, PARENTS, 3))
    assert out.codes == ("250.2", "290", "290.1", "401")
    expected = [[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert out.Z.toarray().tolist() == expected
    np.testing.assert_array_equal(out.patients, PATIENTS)


def test_parents_in_a_circle_are_refused(matrix):
    with pytest.raises(InputError, match="lead back"):
        wider(matrix, {"401": "402", "402": "401"}, 3)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["widen", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout if code == 0 else result.stderr


def test_the_map_gives_records_of_groups(tmp_path, monkeypatch):
    """prepare, widen, and prepare again with the map that it wrote."""
    monkeypatch.chdir(tmp_path)
    rows, columns = np.nonzero(np.tile(Z, (10, 1)))
    patient = np.concatenate([PATIENTS + 4 * i for i in range(10)])
    names = np.array([f"PheCode:{code}" for code in CODES])
    months = np.array(["2020-01-01", "2020-09-01", "2020-01-01", "2020-01-01", "2020-01-01"])
    pd.DataFrame(
        {"patient": patient[rows], "date": months[rows % 5], "code": names[columns]}
    ).to_csv("events.csv", index=False)
    parents = PARENTS | {"250.29": "250.2", "707": "700"}  # codes that only other sites have
    pd.DataFrame(parents.items()).to_csv("up.csv", index=False, header=["code", "parent"])
    every_code = Study(codes=Codes(minimum_patients=1))
    prepare("events.csv", every_code, "north", tmp_path / "draft")
    text = run("draft", "--parents", "up.csv", "--vocabulary", "PheCode", "--least", 30)
    assert "5 groups" in text and 'target = "PheCode"' in text
    groups = pd.read_csv("groups.csv", dtype=str).set_index("code")["target"]
    assert (groups["250.29"], groups["707"]) == ("250.2", "700")
    (tmp_path / "study.toml").write_text(f"version = 1\n{text}\n")
    study = Study.load("study.toml")
    assert study.maps == (CodeMap(source=("PheCode",), target="PheCode", file="groups.csv"),)
    prepare("events.csv", study, "north", tmp_path / "north")
    out = read_site(tmp_path / "north")
    counts = dict(zip(out.codes, out.Z.sum(axis=0).tolist(), strict=True))
    # 290 and 401 have 10 patients each, fewer than the rule's 11, and fall out of the list.
    assert counts == {"PheCode:250.2": 40, "PheCode:290.1": 40}


def test_parents_may_have_quotes_between_tabs(tmp_path):
    path = tmp_path / "up.tsv"
    path.write_text('code\tparent\na"b\t10"\nNA\tc\n')
    assert _read_parents(path) == {'a"b': '10"', "NA": "c"}


def test_wrong_files_and_vocabularies_give_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients = np.arange(20)
    table = pd.DataFrame({"patient": patients, "date": "2020-01-01", "code": "CCS:1"})
    pd.concat([table, table.assign(code="CCS:2")]).to_csv("events.csv", index=False)
    prepare("events.csv", Study(), "north", tmp_path / "draft")
    (tmp_path / "bad.csv").write_text("one\n1\n")
    (tmp_path / "strange.csv").write_text("code,parent\nCCS:1,CCS:0\n")
    text = run("draft", "--parents", "none.csv", "--vocabulary", "CCS", code=2)
    assert "There is no file none.csv" in text
    for arguments in (
        ("draft", "--parents", "none.csv", "--vocabulary", "CCS"),
        ("draft", "--parents", "bad.csv", "--vocabulary", "CCS"),
        ("draft", "--parents", "bad.csv", "--vocabulary", "PheCode"),
        ("draft", "--parents", "strange.csv", "--vocabulary", "CCS"),
    ):
        text = run(*arguments, code=2)
        assert text.startswith("daniel: ") and text.count("\n") == 1
    assert not (tmp_path / "groups.csv").exists()
