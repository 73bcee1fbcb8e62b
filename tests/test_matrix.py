"""The vocabulary of a code, read from its name."""

import numpy as np

from daniel.matrix import codes_like, kinds


def test_kinds_are_numbered_by_vocabulary_and_unknown_without():
    names = ["RxNorm:1", "PheCode:290.1", "RxNorm:7", "age", "PheCode:250"]
    assert kinds(names, 5).tolist() == [1, 0, 1, -1, 0]
    assert kinds(np.array(names, dtype=object), 5).tolist() == [1, 0, 1, -1, 0]


def test_columns_without_names_are_of_no_known_kind():
    assert kinds(None, 3).tolist() == [-1, -1, -1]


def test_kinds_do_not_depend_on_the_order_of_columns():
    assert kinds(["b:1", "a:1"], 2).tolist() == [1, 0]
    assert kinds(["a:1", "b:1"], 2).tolist() == [0, 1]


def test_a_code_that_is_not_there_is_asked_back_with_what_may_have_been_meant():
    codes = ("CCS:47", "PheCode:290.1", "PheCode:250", "ICD10:290.1")
    assert codes_like("290.1", codes) == "'PheCode:290.1', 'ICD10:290.1'"
    assert codes_like("phecode:250", codes) == "'PheCode:250'"
    assert codes_like("PheCode:29.1", codes) == "'PheCode:290.1', 'PheCode:250'"
    assert codes_like("nothing", codes) == "'CCS:47', 'PheCode:290.1'"
    assert codes_like(250, codes) == "'PheCode:250'"
