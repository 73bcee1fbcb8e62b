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
    split_known,
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
    assert "no pair is left" not in str(unknown)
    _, nothing = split_known(PAIRS, ["PheCode:290.1", "PheCode:250", "RXNORM:1"])
    assert not nothing
    assert "Every known pair" in str(nothing)


def test_relations_that_lost_all_of_their_pairs_are_named():
    rows = [("A", "X:1", "isa"), ("A", "X:2", "treats"), ("A", "B", "like"), ("A", "X:2", "like")]
    _, unknown = split_known(pd.DataFrame(rows, columns=PAIRS.columns), ["A", "B"])
    assert unknown.lost == ("isa", "treats")
    assert str(unknown) == (
        "3 of 4 known pairs are left out, since the study does not have 2 of their codes: X:1, "
        "X:2; no pair is left of isa, treats."
    )


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
    for few in ({}, {"RxNorm:1": "pindolol", "PheCode:1": "x"}):
        with pytest.raises(InputError, match=r"fewer than two .*--descriptions.* column code"):
            rxnorm_atc_pairs(codes, ATC, few)
    assert rxnorm_atc_pairs(["PheCode:1", "RxNorm:4"], ATC, {}).empty
    with pytest.raises(ParameterError, match="level"):
        rxnorm_atc_pairs(codes, ATC, DRUGS, level=5)


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


def test_kin_are_above_and_below_and_not_beside():
    codes = ["PheCode:290", "PheCode:290.1", "PheCode:290.11", "PheCode:290.2", "PheCode:29"]
    codes += ["RxNorm:290", "phecode:290.16", "PheCode:1290.1"]
    assert kin(codes, "PheCode:290.1") == ("PheCode:290", "PheCode:290.11", "phecode:290.16")
    assert kin(codes, "PheCode:290.11") == ("PheCode:290", "PheCode:290.1")
    assert kin(codes, "RxNorm:290") == kin(codes, "FLAG:x") == ()
