"""One code in several spellings."""

import pytest

from daniel.evaluate.spelling import spelled


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
