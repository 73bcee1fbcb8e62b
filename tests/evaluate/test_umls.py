"""Known pairs of the UMLS: small files in its format."""

import pandas as pd
import pytest

from daniel.errors import FormatError, InputError, ParameterError
from daniel.evaluate.umls import umls_pairs


def found(pairs):
    return set(pairs.itertuples(index=False, name=None))


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
