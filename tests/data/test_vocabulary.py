"""Codes that are written in other ways, maps, parents, and what becomes a column."""

import duckdb
import pandas as pd
import pytest

from daniel.data.engine import Engine
from daniel.data.lookup import MACROS, WAYS, find
from daniel.errors import FormatError, InputError
from daniel.study import Study, load_maps

ICD9 = ["010.1", "101", "001.1", "011", "250.00", "E935.8", "V10.1", "008.5"]


def looked_up(vkey, reference, code):
    """(entry, way) of a code in a reference where every code has a value of its own."""
    engine = Engine(duckdb.connect(), None)
    engine.run(MACROS)
    values = ", ".join(f"('{vkey}', '{c}', {i})" for i, c in enumerate(reference))
    engine.run(f"CREATE TABLE reference AS FROM (VALUES {values}) t(vkey, code, value)")
    find(engine, f"SELECT '{vkey}' AS vkey, '{code}' AS code", "reference")
    rows = engine.rows("SELECT entry, way, agree FROM found")
    return (rows[0][0], WAYS[rows[0][1]]) if rows and rows[0][2] else None


@pytest.mark.parametrize(
    ("vkey", "reference", "code", "expected"),
    [
        ("ICD9CM", ICD9, "010.1", ("010.1", "as written")),
        ("ICD9CM", ICD9, "e935.8", ("E935.8", "letter case")),
        ("ICD9CM", ICD9, "10.1", ("010.1", "leading zeros")),
        ("ICD9CM", ICD9, "0101", ("010.1", "dots")),
        ("ICD9CM", ICD9, "101", ("101", "as written")),
        ("ICD9CM", ICD9, "25000", ("250.00", "dots")),
        ("ICD9CM", ICD9, "E93.58", ("E935.8", "dots")),
        ("ICD9CM", ICD9, "85", ("008.5", "dots and leading zeros")),
        ("ICD9CM", ICD9, "11", None),  # 011 or 001.1
        ("ICD9CM", ICD9, "250.0", None),
        ("ICD9PROC", ["0101", "101"], "1.01", ("0101", "dots")),
        ("ICD9PROC", ["0101", "101"], "10.1", ("101", "dots")),
        ("PHECODE", ["008.5", "850"], "8.50", None),
        ("PHECODE", ["008", "008.5"], "8", ("008", "dots and leading zeros")),
        ("CCS", ["1.11", "11.1"], "1.11", ("1.11", "as written")),
        ("CCS", ["1.11", "11.1"], "111", None),
        ("READ", ["G30..", "g30.."], "g30..", ("g30..", "as written")),
        ("NDC", ["00002143380"], "0002-1433-80", None),
        ("NDC", ["0002-1433-80"], "0002143380", ("0002-1433-80", "dots")),
    ],
)
def test_ways_of_writing(vkey, reference, code, expected):
    assert looked_up(vkey, reference, code) == expected


# --- maps -----------------------------------------------------------------------------------------

BASE = "version = 1\n[codes]\nminimum_patients = 1\n"
EVENTS = """patient,time,vocabulary,code
a,2020-01-01,ICD10CM,E11.9
a,2020-01-02,icd-10-cm,i10
b,2020-01-01,ICD10CM,Z99
b,2020-01-02,LOCAL,aspirin
c,2020-01-01,ICD9CM,250.00
"""
MAP = """
[[maps]]
source = ["ICD10CM", "ICD9CM"]
target = "PheCode"
file = "map.csv"
"""


def names(result):
    return {(p, c) for p, _, c in result.cells}


def write(tmp_path, name, text):
    (tmp_path / name).write_text(text)


def test_a_map_replaces_and_counts(run, tmp_path):
    write(tmp_path, "map.csv", "icd,phecode\nE119,250.2\nI10,401.1\n250.00,250.2\n")
    result = run(EVENTS, BASE + MAP)
    assert names(result) == {
        ("a", "PheCode:250.2"),
        ("a", "PheCode:401.1"),
        ("b", "LOCAL:aspirin"),
        ("c", "PheCode:250.2"),
    }
    rows = {r["vocabulary"]: r for r in result.info["facts"]["coverage"]}
    assert rows["ICD10CM"] == {
        "vocabulary": "ICD10CM",
        "codes": 3,
        "events": 3,
        "kept": 2,
        "unmapped": 1,
        "outside": 0,
    }
    report = result.info["facts"]["maps"][0]
    assert report["found"] == 3
    assert report["repaired"] == {"letter case": 1, "dots": 1}


def test_tabs_and_line_breaks_become_blanks(run, tmp_path):
    """In a code, in its vocabulary and in what a map writes: names stand in lines, between tabs."""
    write(tmp_path, "map.csv", 'icd,phecode\nI10,"401\t1"\nE11.9,"250\n2"\n')
    rows = '"LO\tCAL","5""\tpipe"', '"LO CAL","5""  pipe"', '"LO\nCAL","a,\r\nb"', "X,d'Arcy"
    odd = "".join(f"d,2020-01-01,{row}\n" for row in rows)
    result = run(EVENTS + odd, BASE + MAP)
    local = {'LO CAL:5" pipe', "LO CAL:a, b", "X:d'Arcy"}
    assert {c for p, c in names(result) if p == "d"} == local
    assert {c for p, c in names(result) if p == "a"} == {"PheCode:401 1", "PheCode:250 2"}


def test_a_code_list_with_a_tab_in_a_code_is_refused(run):
    toml = 'version = 1\n[codes]\nnames = ["X:a", "LOCAL:as\\tpirin"]\n'
    with pytest.raises(InputError, match=r"code 'LOCAL:as\\tpirin' has a tab, a line break or"):
        run(EVENTS, toml)


def test_only_the_vocabularies_that_are_asked_for(run, tmp_path):
    write(tmp_path, "map.csv", "icd,phecode\nE119,250.2\n")
    toml = BASE + 'vocabularies = ["PheCode", "ICD10-CM"]\n' + MAP
    result = run(EVENTS, toml)
    assert names(result) == {
        ("a", "PheCode:250.2"),
        ("a", "ICD10-CM:i10"),
        ("b", "ICD10-CM:Z99"),
    }
    rows = {r["vocabulary"]: r for r in result.info["facts"]["coverage"]}
    assert rows["LOCAL"]["outside"] == 1
    assert result.info["facts"]["codes"]["outside the study"] == 1


@pytest.mark.parametrize(("many", "kept"), [("all", {"1", "2"}), ("first", {"1"})])
def test_two_targets_follow_the_stated_rule_and_are_counted(run, tmp_path, many, kept):
    write(tmp_path, "map.csv", "icd,phecode\nE11.9,2\nE11.9,1\nE11.9,2\nI10,3\n")
    result = run(EVENTS, BASE + MAP + f'many = "{many}"\n')
    assert {c for p, c in names(result) if p == "a"} == {f"PheCode:{k}" for k in kept | {"3"}}
    report = result.info["facts"]["maps"][0]
    assert (report["codes"], report["several"], report["found_several"]) == (2, 1, 1)
    assert "with several targets" in result.summary


def test_coverage_knows_that_rare_codes_are_dropped(run):
    """Code x of two patients stays, y of one does not; its events are not counted as kept."""
    rows = "a,2020-01-01,x,V\nb,2020-01-01,x,V\na,2020-01-01,y,V\na,2020-02-01,y,V\n"
    toml = "version = 1\n[codes]\nminimum_patients = 2\n"
    result = run("patient,time,code,vocabulary\n" + rows, toml)
    assert result.matrix.codes == ("V:x",)
    (row,) = result.info["facts"]["coverage"]
    assert (row["events"], row["kept"], row["unmapped"], row["outside"]) == (4, 2, 0, 2)


def test_a_vocabulary_column_keeps_code_spaces_apart(run, tmp_path):
    write(tmp_path, "map.csv", "v,icd,name,phecode\nICD9CM,E119,n,9\nicd-10-cm,E119,d,10\n")
    toml = BASE + MAP + 'columns = ["icd", "phecode"]\nvocabulary = "v"\n'
    result = run(EVENTS, toml)
    assert {c for p, c in names(result) if p == "a"} == {"PheCode:10"}


def test_parents_of_parents(run, tmp_path):
    write(tmp_path, "map.csv", "icd,phecode\nE11.9,250.21\nI10,401\n")
    write(tmp_path, "up.csv", "code,parent\n250.21,250.2\n250.2,250\n250,250\n")
    result = run(EVENTS, BASE + MAP + 'parents = "up.csv"\n')
    assert {c for p, c in names(result) if p == "a"} == {
        "PheCode:250.21",
        "PheCode:250.2",
        "PheCode:250",
        "PheCode:401",
    }


def test_maps_in_a_row(run, tmp_path):
    """Local name -> product -> ingredients; what is an ingredient stays."""
    write(tmp_path, "local.csv", "name,rxcui\ncaduet,404013\nlipitor,83367\n")
    write(tmp_path, "products.csv", "rxcui,ingredient\n404013,17767\n404013,83367\n")
    toml = (
        BASE
        + '[[maps]]\nsource = ["LOCAL"]\ntarget = "RxNorm"\nfile = "local.csv"\n'
        + '[[maps]]\nsource = ["RxNorm"]\ntarget = "RxNorm"\nfile = "products.csv"\n'
    )
    result = run(
        "patient,time,vocabulary,code\na,2020-01-01,LOCAL,Caduet\nb,2020-01-01,LOCAL,LIPITOR\n"
        "c,2020-01-01,RXNORM,17767\nd,2020-01-01,RxNorm,999\n",
        toml,
    )
    assert names(result) == {
        ("a", "RxNorm:17767"),
        ("a", "RxNorm:83367"),
        ("b", "RxNorm:83367"),
        ("c", "RxNorm:17767"),
    }
    rows = {r["vocabulary"]: r["unmapped"] for r in result.info["facts"]["coverage"]}
    assert rows == {"LOCAL": 0, "RxNorm": 1}  # as the study spells it


def test_a_sites_own_maps_come_first_and_are_not_in_the_hash(run, tmp_path):
    (tmp_path / "here").mkdir()
    write(tmp_path / "here", "local.csv", "name,icd\naspirin,Z79\n")
    write(
        tmp_path / "here",
        "maps.toml",
        '[[maps]]\nsource = ["LOCAL"]\ntarget = "ICD10CM"\nfile = "local.csv"\n',
    )
    write(tmp_path, "map.csv", "icd,phecode\nZ79,1\n")
    own = load_maps(tmp_path / "here" / "maps.toml")
    result = run(EVENTS, BASE + MAP, maps=own)
    assert names(result) == {("b", "PheCode:1")}
    assert [m["file"] for m in result.info["facts"]["maps"]] == ["local.csv", "map.csv"]
    assert result.info["study"] == Study.load(tmp_path / "study.toml").hash
    write(tmp_path / "here", "maps.toml", '[[maps]]\nsourc = ["LOCAL"]\n')
    with pytest.raises(FormatError, match="did you mean 'source'"):
        load_maps(tmp_path / "here" / "maps.toml")


def test_a_map_can_be_pinned(run, tmp_path):
    write(tmp_path, "map.csv", "icd,phecode\nE11.9,1\nI10,2\n")
    first = run(EVENTS, BASE + MAP).info["facts"]["maps"][0]["sha256"]
    pinned = BASE + MAP + f'sha256 = "{first}"\n'
    # Order, quotes and line ends are not content ...
    write(tmp_path, "map.csv", '"icd","phecode"\r\n"I10","2"\r\n"E11.9","1"\r\n')
    assert run(EVENTS, pinned).info["facts"]["maps"][0]["sha256"] == first
    # ... a target is.
    write(tmp_path, "map.csv", "icd,phecode\nE11.9,1\nI10,3\n")
    with pytest.raises(InputError, match="not the one that the study pins"):
        run(EVENTS, pinned)


@pytest.mark.parametrize(
    ("text", "extra", "error", "words"),
    [
        ("a,b,c\n1,2,3\n", "", InputError, "3 columns"),
        ("a,b\n1,2\n", 'columns = ["a", "z"]\n', InputError, "no column z; it has a, b"),
        ("a,b\n1,2\n", 'vocabulary = "v"\n', InputError, "no column v"),
        ("a,b\n", "", FormatError, "no pair"),
        ("", "", FormatError, "is empty"),
        ("a,b\n1,2\n", 'parents = "none.csv"\n', InputError, "none.csv"),
        (None, "", InputError, "map.csv"),
    ],
)
def test_a_map_that_cannot_be_used(run, tmp_path, text, extra, error, words):
    if text is not None:
        write(tmp_path, "map.csv", text)
    with pytest.raises(error, match=words):
        run(EVENTS, BASE + MAP + extra)


# --- the study's list -----------------------------------------------------------------------------


def test_a_list_fixes_columns_and_their_order(run):
    toml = 'version = 1\n[codes]\nnames = ["RXNORM:7", "PheCode:008.5", "PheCode:9", "x"]\n'
    result = run(
        "patient,time,vocabulary,code\na,2020-01-01,phecode,8.5\nb,2020-01-01,RxNorm,7\n"
        "b,2020-01-01,,x\nb,2020-01-01,RxNorm,8\nb,2020-01-02,CCS,1\n",
        toml,
    )
    assert result.matrix.codes == ("RXNORM:7", "PheCode:008.5", "PheCode:9", "x")
    assert names(result) == {("a", "PheCode:008.5"), ("b", "RXNORM:7"), ("b", "x")}
    assert result.matrix.absent.tolist() == [False, False, True, False]
    codes = result.info["facts"]["codes"]
    assert codes == {"kept": 3, "absent": 1, "outside the study": 2}


def test_a_site_with_all_codes_has_none_absent(run):
    toml = 'version = 1\n[codes]\nnames = ["x"]\n'
    assert run("patient,time,code\na,2020-01-01,x\n", toml).matrix.absent is None


def test_the_rule_makes_a_list_that_the_study_adopts(run, tmp_path):
    rows = [
        f"p{i},2020-01-{d:02d},V,{c}"
        for c, n in [("x", 5), ("y", 4), ("z", 3)]
        for i in range(n)
        for d in (1, 2)
    ]
    rows += [f"p0,20{y}-01-01,V,z" for y in range(10, 20)]  # many records, three patients
    events = "patient,time,vocabulary,code\n" + "\n".join(rows) + "\n"
    first = run(events, "version = 1\n[codes]\nminimum_patients = 4\n")
    assert first.matrix.codes == ("V:x", "V:y")
    assert first.info["facts"]["codes"]["of too few patients"] == 1
    assert first.matrix.Z.sum(axis=1).min() == 1  # records of z alone are gone
    (tmp_path / "adopted.tsv").write_bytes((first.folder / "codes.tsv").read_bytes())
    second = run(events, 'version = 1\n[codes]\nfile = "adopted.tsv"\n')
    assert second.matrix.codes == first.matrix.codes
    assert second.cells == first.cells
    assert second.study.hash != first.study.hash


def test_a_hundred_thousand_codes(run, tmp_path):
    n = 100_000
    frame = pd.DataFrame(
        {
            "patient": [i % 1000 for i in range(n)],
            "time": pd.Timestamp("2020-01-01"),
            "code": [f"LOCAL//c{i:06d}" for i in range(n)],
        }
    )
    frame.to_parquet(tmp_path / "many.parquet")
    result = run(tmp_path / "many.parquet")
    assert result.matrix.shape == (1000, n)
    assert result.matrix.codes[:2] == ("LOCAL:c000000", "LOCAL:c000001")
    assert (result.matrix.Z.sum(axis=0) == 1).all()
