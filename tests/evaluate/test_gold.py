"""Known pairs: every source against a plain loop over the same rules."""

from itertools import combinations

import pandas as pd
import pytest

from benchmarks import problems
from daniel.errors import FormatError, InputError, ParameterError
from daniel.evaluate.gold import (
    kin,
    phecode_pairs,
    read_pairs,
    rxnorm_atc_pairs,
    spelled,
    split_known,
    umls_pairs,
)

PAIRS = pd.DataFrame(
    [
        ("PheCode:290.1", "RXNORM:1", "treats"),
        ("RXNORM:1", "PheCode:290.1", "treats"),
        ("PheCode:290.1", "PheCode:290.1", "similar"),
        ("PheCode:290.1", "PheCode:250", "similar"),
    ],
    columns=["code1", "code2", "relation"],
)
PHECODES = ["008", "008.5", "008.51", "008.52", "008.6", "290", "290.1", "290.11", "290.3", "291.1"]
CODES = [f"PheCode:{number}" for number in PHECODES] + ["RXNORM:290.1", "CCS:8"]


def found(pairs):
    assert (pairs["code1"] < pairs["code2"]).all()
    assert not pairs.duplicated().any()
    return set(pairs.itertuples(index=False, name=None))


def write(table, path):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, sep="\t" if ".tsv" in path.name else ",", index=False)
    return path


@pytest.mark.parametrize("name", ["p.tsv", "p.csv", "p.csv.gz", "p.parquet"])
def test_a_pairs_file_is_read_without_order_repeats_and_self_pairs(tmp_path, name):
    table = PAIRS.assign(source="book")
    assert found(read_pairs(write(table, tmp_path / name))) == {
        ("PheCode:290.1", "RXNORM:1", "treats"),
        ("PheCode:250", "PheCode:290.1", "similar"),
    }


def test_a_wrong_pairs_file_is_named(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        read_pairs(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"^a.csv has no column 'relation'.*code1"):
        read_pairs(write(PAIRS.drop(columns="relation"), tmp_path / "a.csv"))
    with pytest.raises(InputError, match="rows without a code"):
        read_pairs(write(PAIRS.assign(code2=[None, "a", "b", "c"]), tmp_path / "b.parquet"))
    with pytest.raises(InputError, match="no pair of two different"):
        read_pairs(write(PAIRS.iloc[2:3], tmp_path / "c.tsv"))
    with pytest.raises(InputError, match=r"expected .tsv"):
        read_pairs(tmp_path / "pairs.xlsx")
    (tmp_path / "d.parquet").write_text("not parquet")
    with pytest.raises(FormatError, match="cannot be read"):
        read_pairs(tmp_path / "d.parquet")


@pytest.mark.parametrize("name", ["p.tsv", "p.tsv.gz", "p.csv", "p.parquet"])
def test_words_that_look_like_nothing_are_words(tmp_path, name):
    rows = [("NA", "X:1", "None"), ("X:1", "null", "nan")]
    pairs = read_pairs(write(pd.DataFrame(rows, columns=PAIRS.columns), tmp_path / name))
    assert found(pairs) == {("NA", "X:1", "None"), ("X:1", "null", "nan")}
    for empty in ("", "  "):
        rows[1] = ("X:1", "X:2", empty)
        with pytest.raises(InputError, match="rows without a code"):
            read_pairs(write(pd.DataFrame(rows, columns=PAIRS.columns), tmp_path / name))


def test_between_tabs_a_quote_is_part_of_a_code(tmp_path):
    """One that is never closed must not take the rows after it."""
    path = tmp_path / "p.tsv"
    path.write_text('code1\tcode2\trelation\n"X:1\tX:2\tr\nX:3\tX:5" y\tr\nX:3\tX:4\t"r"\n')
    assert found(read_pairs(path)) == {
        ('"X:1', "X:2", "r"),
        ("X:3", 'X:5" y', "r"),
        ("X:3", "X:4", '"r"'),
    }
    path.write_text('"code1"\t"code2"\t"relation"\n"X:1"\t"X:2"\t"r"\n')  # as R writes it
    assert found(read_pairs(path)) == {("X:1", "X:2", "r")}
    path.write_text("")
    with pytest.raises(FormatError, match="cannot be read"):
        read_pairs(path)


def test_unknown_codes_are_counted_and_ten_are_named():
    many = [(f"X:{k:02d}", "PheCode:290.1", "similar") for k in range(15)]
    pairs = pd.concat([PAIRS[3:], pd.DataFrame(many, columns=PAIRS.columns)])
    inside, unknown = split_known(pairs, ["PheCode:290.1", "PheCode:250"])
    assert found(inside.iloc[:, [1, 0, 2]].set_axis(PAIRS.columns, axis=1)) == {
        ("PheCode:250", "PheCode:290.1", "similar")
    }
    assert (unknown.pairs, len(unknown)) == (15, 15)
    assert "15 of 16 known pairs" in str(unknown)
    assert "X:09 and 5 more" in str(unknown)
    assert "X:10" not in str(unknown)
    _, nothing = split_known(PAIRS, ["PheCode:290.1", "PheCode:250", "RXNORM:1"])
    assert not nothing
    assert "Every known pair" in str(nothing)


def test_vocabularies_may_be_spelled_otherwise():
    pairs = pd.DataFrame(
        {"code1": ["A:x", "B:y"], "code2": ["RXNORM:1", "rx-norm:1"], "relation": "r"}
    )
    inside, unknown = split_known(pairs, ["A:x", "B:Y", "RxNorm:1"])
    assert inside[["code1", "code2"]].to_numpy().tolist() == [["A:x", "RxNorm:1"]]
    assert unknown.codes == ("B:y",)  # codes themselves are as they are


def test_hierarchies_know_a_vocabulary_in_any_spelling():
    assert len(phecode_pairs(["Phe-Code:290", "Phe-Code:290.1"])) == 1
    by_code = pd.DataFrame({"code": ["RXNORM:1", "RXNORM:2"], "atc_code": ["C07AA03", "C07AA05"]})
    assert len(rxnorm_atc_pairs(["RX_NORM:1", "RX_NORM:2"], by_code)) == 1


def test_phecodes_pair_with_parent_and_siblings():
    numbers = set(PHECODES)

    def parent(number):
        whole, _, rest = number.partition(".")
        return None if not rest else f"{whole}.{rest[:-1]}" if rest[:-1] else whole

    expected = {
        tuple(sorted((f"PheCode:{a}", f"PheCode:{b}")))
        for a, b in combinations(numbers, 2)
        if parent(a) == b or parent(b) == a or (parent(a) and parent(a) == parent(b))
    }
    assert {pair[:2] for pair in found(phecode_pairs(CODES))} == expected
    assert ("PheCode:008.51", "PheCode:008.52") in expected
    assert ("PheCode:008", "PheCode:008.51") not in expected


def test_a_parent_that_the_table_lacks_is_passed_over():
    table = pd.DataFrame({"phecode": ["290", "290.11", "290.3", "8", "008.51"]})
    codes = ["PheCode:290.11", "PheCode:290.3", "PheCode:8.51", "PheCode:008"]
    assert {pair[:2] for pair in found(phecode_pairs(codes, table))} == {
        ("PheCode:290.11", "PheCode:290.3"),  # 290.1 is missing: both are sons of 290
        ("PheCode:008", "PheCode:8.51"),
    }


@pytest.mark.parametrize("kind", ["float64", "float32", str])
def test_a_table_of_numbers_knows_the_parents_without_a_dot(tmp_path, kind):
    table = pd.DataFrame({"phecode": pd.Series([290.0, 290.1, 8.5, None]).dropna().astype(kind)})
    codes = ["PheCode:290", "PheCode:290.1", "PheCode:290.11"]
    pairs = phecode_pairs(codes, write(table, tmp_path / "definitions.parquet"))
    assert {pair[:2] for pair in found(pairs)} == {
        ("PheCode:290", "PheCode:290.1"),
        ("PheCode:290.1", "PheCode:290.11"),
    }


def test_a_family_is_all_codes_of_one_number():
    family = {pair[:2] for pair in found(phecode_pairs(CODES, family=True))}
    expected = {
        tuple(sorted((f"PheCode:{a}", f"PheCode:{b}")))
        for a, b in combinations(PHECODES, 2)
        if a.partition(".")[0] == b.partition(".")[0]
    }
    assert family == expected


ATC = pd.DataFrame(
    {
        "atc_code": ["C07", "C07AA", "C07AA03", "C07AA05", "C07AB02", "S01ED51", "S01ED05"],
        "atc_name": ["beta", "beta", "Pindolol", "propranolol", "metoprolol", "pindolol", "x"],
    }
)
DRUGS = {"RxNorm:1": "pindolol", "RxNorm:2": "Propranolol", "RxNorm:3": "metoprolol"}


def test_drugs_of_one_atc_class_pair():
    codes = [*DRUGS, "RxNorm:4", "PheCode:1"]
    one = {("RxNorm:1", "RxNorm:2", "RxNorm similar")}
    assert found(rxnorm_atc_pairs(codes, ATC, DRUGS)) == one
    assert len(found(rxnorm_atc_pairs(codes, ATC, DRUGS, level=3))) == 3
    by_code = pd.DataFrame({"code": list(DRUGS), "atc_code": ["C07AA03", "C07AA05", "C07AB02"]})
    assert found(rxnorm_atc_pairs(codes, by_code)) == one
    elsewhere = by_code.assign(code=by_code["code"].str.replace("RxNorm", "RXNORM"))
    assert found(rxnorm_atc_pairs(codes, elsewhere)) == one
    with pytest.raises(InputError, match="names"):
        rxnorm_atc_pairs(codes, ATC)
    with pytest.raises(ParameterError, match="level"):
        rxnorm_atc_pairs(codes, ATC, DRUGS, level=5)


def rrf(path, width, rows):
    """A file of the Rich Release Format from {position: value} rows."""
    lines = ("|".join(row.get(k, "") for k in range(width)) + "|\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def relation(one, rela, two, suppress="N"):
    return {0: one, 3: "RO", 4: two, 7: rela, 10: "SRC", 14: suppress}


@pytest.fixture
def umls(tmp_path):
    """Made-up concepts C1 to C6 and their relations; a quotation mark must not eat a line."""
    atoms = [
        ("C1", "RXNORM", "11", 'a "drug'),
        ("C2", "RXNORM", "12", "b"),
        ("C3", "ICD10CM", "F00", "c"),
        ("C3", "SNOMEDCT_US", "77", "c"),
        ("C4", "ICD10CM", "F01", "d"),
        ("C5", "RXNORM", "13", "old"),
    ]
    rows = [
        {0: cui, 11: sab, 13: code, 14: name, 16: "O" if name == "old" else "N"}
        for cui, sab, code, name in atoms
    ]
    relations = [
        relation("C1", "related_to", "C2"),
        relation("C2", "related_to", "C1"),
        relation("C1", "classifies", "C3"),
        relation("C4", "mapped_from", "C3"),
        relation("C1", "isa", "C2"),
        relation("C1", "mapped_to", "C2", suppress="Y"),
        relation("C5", "related_to", "C1"),
        relation("C9", "related_to", "C1"),
        relation("C6", "related_to", "C2"),
    ]
    return rrf(tmp_path / "MRREL.RRF", 16, relations), rrf(tmp_path / "MRCONSO.RRF", 18, rows)


def test_umls_relations_come_to_codes(umls):
    mrrel, mrconso = umls
    codes = ["RxNorm:11", "RxNorm:12", "RxNorm:13", "PheCode:290.1", "PheCode:290.2", "CCS:9"]
    drugs = {("RxNorm:11", "RxNorm:12", "related to")}
    assert found(umls_pairs(codes, mrrel, mrconso)) == drugs
    omop = ["RxNorm:11", "SNOMED:77"]  # SNOMEDCT_US there
    assert found(umls_pairs(omop, mrrel, mrconso)) == {("RxNorm:11", "SNOMED:77", "classifies")}
    through = pd.DataFrame(
        {
            "source": ["ICD10CM:F00", "ICD10CM:F01", "ICD10CM:F01"],
            "target": ["PheCode:290.1", "PheCode:290.2", "PheCode:999"],
        }
    )
    assert found(umls_pairs(codes, mrrel, mrconso, through=through)) == drugs | {
        ("PheCode:290.1", "RxNorm:11", "classifies"),
        ("PheCode:290.1", "PheCode:290.2", "mapped to"),
    }
    cuis = pd.DataFrame({"code": ["CCS:9", "RxNorm:12"], "cui": ["C6", "C2"]})
    assert found(umls_pairs(codes, mrrel, cuis=cuis)) == {("CCS:9", "RxNorm:12", "related to")}
    only = {"is a": ("isa",)}
    assert found(umls_pairs(codes, mrrel, mrconso, relations=only)) == {
        ("RxNorm:11", "RxNorm:12", "is a")
    }


def test_codes_without_a_concept_are_counted_by_vocabulary(umls):
    codes = ["RxNorm:11", "RxNorm:12", "RxNorm:13", "PheCode:290.1", "local"]
    coverage = umls_pairs(codes, *umls).attrs["coverage"]
    assert coverage.found == {"RxNorm": 2}
    assert coverage.total == {"": 1, "PheCode": 1, "RxNorm": 3}
    assert not coverage.complete
    assert ": no vocabulary 0 of 1, PheCode 0 of 1, RxNorm 2 of 3; the others" in str(coverage)
    whole = umls_pairs(codes[:2], *umls).attrs["coverage"]
    assert whole.complete and "Every code" in str(whole)


@pytest.mark.parametrize(
    ("ours", "sab"),
    [
        ("MeSH", "MSH"),
        ("MedDRA", "MDR"),
        ("ICD9Proc", "ICD9CM"),
        ("NCIt", "NCI"),
        ("LOINC", "LNC"),
        ("CPT4", "CPT"),
    ],
)
def test_omop_s_names_find_those_of_the_umls(tmp_path, ours, sab):
    atoms = [{0: "C1", 11: sab, 13: "1", 16: "N"}, {0: "C2", 11: sab, 13: "2", 16: "N"}]
    mrrel = rrf(tmp_path / "MRREL.RRF", 16, [relation("C1", "related_to", "C2")])
    mrconso = rrf(tmp_path / "MRCONSO.RRF", 18, atoms)
    pairs = umls_pairs([f"{ours}:1", f"{ours}:2"], mrrel, mrconso)
    assert found(pairs) == {(f"{ours}:1", f"{ours}:2", "related to")}


def test_umls_tables_may_spell_vocabularies_otherwise(umls):
    mrrel, mrconso = umls
    codes = ["Rx-Norm:11", "PheCode:290.1"]
    expected = {("PheCode:290.1", "Rx-Norm:11", "classifies")}
    through = pd.DataFrame({"source": ["ICD-10-CM:F00", None], "target": "PHECODE:290.1"})
    assert found(umls_pairs(codes, mrrel, mrconso, through=through)) == expected
    cuis = pd.DataFrame({"code": ["RXNORM:11", "PHECODE:290.1"], "cui": ["C1", "C3"]})
    assert found(umls_pairs(codes, mrrel, cuis=cuis)) == expected
    own = ["RxNorm:11", "SNOMEDCT_US:77"]
    assert found(umls_pairs(own, mrrel, mrconso)) == {("RxNorm:11", "SNOMEDCT_US:77", "classifies")}


def test_wrong_umls_input_is_named(umls, tmp_path):
    mrrel, mrconso = umls
    with pytest.raises(ParameterError, match="Neither mrconso nor cuis"):
        umls_pairs(["RxNorm:11"], mrrel)
    with pytest.raises(InputError, match="No code of the study"):
        umls_pairs(["PheCode:290.1"], mrrel, mrconso)
    with pytest.raises(InputError, match="There is no file"):
        umls_pairs(["RxNorm:11"], tmp_path / "none.RRF", mrconso)
    with pytest.raises(FormatError, match="16 fields"):
        umls_pairs(["RxNorm:11"], mrconso, mrconso)
    mrconso.write_text("\n\n")
    with pytest.raises(FormatError, match="18 fields"):
        umls_pairs(["RxNorm:11"], mrrel, mrconso)


@pytest.mark.skipif(not problems.available(), reason="the data folder is not there")
def test_hierarchies_hold_the_reference_pairs_of_the_paper_s_authors():
    root = problems.data_root()
    known = pd.read_csv(root / "gold/keser/known_pairs.csv.gz", usecols=[0, 1, 6, 7])
    known = known[known["type"] == "similarity"]

    def reference(kind):
        rows = known[known["pair"] == kind]
        return {tuple(sorted(pair)) for pair in zip(rows["code1"], rows["code2"], strict=True)}

    theirs = reference("PheCode-PheCode")
    codes = sorted({code for pair in theirs for code in pair})
    table = root / "vocab/phecode/phecode_definitions1.2.csv"
    ours = {pair[:2] for pair in found(phecode_pairs(codes, table, family=True))}
    assert theirs <= ours
    near = {pair[:2] for pair in found(phecode_pairs(codes, table))}
    assert 0.5 < len(near & theirs) / len(theirs) < 1

    theirs = reference("RXNORM-RXNORM")
    codes = sorted({code for pair in theirs for code in pair})
    names = pd.read_csv(root / "gold/keser/OurDict.csv.gz").set_index("code")["desc"].to_dict()
    atc = root / "vocab/rxnorm_atc/WHO_ATC-DDD_2026-04-25.csv"
    ours = {pair[:2] for pair in found(rxnorm_atc_pairs(codes, atc, names))}
    assert len(ours & theirs) / len(theirs) > 0.6  # chance: 0.006


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("phecode:9", ["PheCode:9"]),
        ("PHECODE//10.1", ["PheCode:10.1"]),
        ("icd10cm/e119", ["ICD-10-CM:E11.9"]),
        ("PheCode:8.5", ["PheCode:008.5"]),
        ("DIAGNOSIS//ICD//9//4019", ["DIAGNOSIS//ICD//9:401.9"]),
        ("PheCode:1", []),
        ("9", []),
    ],
)
def test_a_code_is_found_as_prepare_finds_it(code, found):
    own = ["PheCode:9", "PheCode:10.1", "PheCode:101", "ICD-10-CM:E11.9", "PheCode:008.5"]
    assert spelled(code, [*own, "DIAGNOSIS//ICD//9:401.9"]) == found


def test_kin_are_above_and_below_and_not_beside():
    codes = ["PheCode:290", "PheCode:290.1", "PheCode:290.11", "PheCode:290.2", "PheCode:29"]
    codes += ["RxNorm:290", "phecode:290.16", "PheCode:1290.1"]
    assert kin(codes, "PheCode:290.1") == ("PheCode:290", "PheCode:290.11", "phecode:290.16")
    assert kin(codes, "PheCode:290.11") == ("PheCode:290", "PheCode:290.1")
    assert kin(codes, "RxNorm:290") == kin(codes, "FLAG:x") == ()
