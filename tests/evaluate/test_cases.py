"""Which records are told apart, against a plain loop; and folds of whole patients."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.errors import InputError, ParameterError
from daniel.evaluate.cases import Cases, fold_of_patients, patients_of
from daniel.matrix import CodeMatrix

TARGET = "PheCode:290.1"
CODES = (TARGET, "PheCode:250", "CCS:1")


def records(seed=0, n_patients=60):
    """Patients with 1 to 8 windows, in random order; a third never has the target."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"p{k}", w) for k in range(n_patients) for w in np.sort(rng.choice(20, rng.integers(1, 9)))
    ]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    rows = list(dict.fromkeys(rows))
    Z = rng.random((len(rows), 3)) < 0.3
    Z[[int(p[1:]) % 3 == 0 for p, _ in rows], 0] = False
    patients, windows = (np.array(column) for column in zip(*rows, strict=True))
    return CodeMatrix(sp.csr_array(Z.astype(np.float32)), CODES, patients, windows)


def by_hand(matrix, first):
    """patient -> records before, and after, the first one with the target, by window."""
    present = matrix.Z.toarray()[:, 0] > 0
    out = {}
    for patient in np.unique(matrix.patients):
        own = sorted(np.flatnonzero(matrix.patients == patient), key=lambda i: matrix.windows[i])
        onset = next((k for k, i in enumerate(own) if present[i]), None)
        if onset is not None:
            out[patient] = own[:onset], own[onset if first else onset + 1 :]
    return out


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("per_patient", [1, 2, 50])
def test_onset_takes_the_earliest_and_as_many_later_ones(first, per_patient):
    matrix = records()
    chosen = Cases(per_patient=per_patient, first=first).choose(matrix, TARGET)
    assert chosen.rule == "onset"
    picked = {True: {}, False: {}}
    for row, positive in zip(chosen.rows, chosen.positive, strict=True):
        picked[positive].setdefault(matrix.patients[row], []).append(row)
    seen = 0
    for patient, (before, after) in by_hand(matrix, first).items():
        k = min(len(before), len(after), per_patient)
        assert sorted(picked[False].get(patient, [])) == sorted(before[:k])
        assert len(picked[True].get(patient, [])) == k
        assert set(picked[True].get(patient, [])) <= set(after)
        seen += 2 * k
    assert seen == chosen.rows.size > 20


def test_later_records_are_drawn_at_random_and_from_the_seed():
    matrix = records()
    draws = [Cases().choose(matrix, TARGET, random_state=s).rows.tolist() for s in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_records_without_time_are_told_by_the_code_and_labels_come_first():
    matrix = records()
    plain = CodeMatrix(matrix.Z, CODES)
    present = matrix.Z.toarray()[:, 0] > 0
    chosen = Cases().choose(plain, TARGET)
    assert chosen.rule == "code"
    assert np.array_equal(chosen.positive, present[chosen.rows])
    assert chosen.positive.sum() == (~chosen.positive).sum() == present.sum()
    whole = Cases(equal=False).choose(plain, TARGET)
    assert np.array_equal(whole.positive, present)
    labels = np.arange(len(present)) % 4 != 0
    chosen = Cases().choose(matrix, TARGET, labels=labels)
    assert chosen.rule == "labels"
    assert np.array_equal(chosen.positive, labels[chosen.rows])
    assert chosen.positive.sum() == (~chosen.positive).sum() == (~labels).sum()


def test_each_site_has_as_many_positives_as_negatives():
    rng = np.random.default_rng(0)
    sites = np.array(["rare"] * 400 + ["often"] * 400 + ["always"] * 50)
    present = rng.random(850) < np.repeat([0.1, 0.8, 1.0], [400, 400, 50])
    Z = sp.csr_array(np.c_[present, np.ones((850, 2))].astype(np.float32))
    chosen = Cases("code").choose(CodeMatrix(Z, CODES), TARGET, sites=sites)
    assert np.array_equal(chosen.positive, present[chosen.rows])
    for site in ("rare", "often"):
        here, own = sites[chosen.rows] == site, present[sites == site]
        assert chosen.positive[here].sum() == (~chosen.positive[here]).sum()
        assert here.sum() == 2 * min(own.sum(), (~own).sum())
    assert "always" not in sites[chosen.rows]


def test_a_site_s_cases_do_not_depend_on_the_other_sites():
    """A report leaves small sites out and chooses again: nobody else may become too small by it."""
    rng = np.random.default_rng(1)
    sites = rng.choice(["a", "b", "c"], 600)
    Z = sp.csr_array((rng.random((600, 3)) < 0.3).astype(np.float32))
    kept = np.flatnonzero(sites != "a")
    every = Cases("code").choose(CodeMatrix(Z, CODES), TARGET, sites=sites)
    some = Cases("code").choose(CodeMatrix(Z[kept], CODES), TARGET, sites=sites[kept])
    assert np.array_equal(kept[some.rows], every.rows[sites[every.rows] != "a"])


def test_wrong_requests_are_named():
    matrix = records()
    half = np.arange(matrix.shape[0]) % 2
    with pytest.raises(InputError, match="No site has records for and against"):
        Cases().choose(matrix, TARGET, labels=half, sites=half)
    with pytest.raises(InputError, match="give one label per record"):
        Cases("onset").choose(matrix, TARGET, sites=half[1:])
    with pytest.raises(InputError, match="stand for"):
        Cases().choose(CodeMatrix(sp.csr_array((0, 3), dtype=np.float32), CODES), TARGET)
    with pytest.raises(InputError, match=r"no code 'PheCode:1'.* 3 codes"):
        Cases().choose(matrix, "PheCode:1")
    with pytest.raises(InputError, match="needs the patient and the window"):
        Cases("onset").choose(CodeMatrix(matrix.Z, CODES), TARGET)
    with pytest.raises(ParameterError, match="no labels were given"):
        Cases("labels").choose(matrix, TARGET)
    with pytest.raises(ParameterError, match="would not use them"):
        Cases("code").choose(matrix, TARGET, labels=np.zeros(matrix.shape[0]))
    with pytest.raises(InputError, match="other values than yes and no"):
        Cases().choose(matrix, TARGET, labels=np.full(matrix.shape[0], 2))
    with pytest.raises(InputError, match="give one for each"):
        Cases().choose(matrix, TARGET, labels=[True])
    with pytest.raises(InputError, match="stand for"):
        Cases().choose(matrix, TARGET, labels=np.zeros(matrix.shape[0]))
    with pytest.raises(InputError, match="stand against"):
        Cases().choose(matrix, TARGET, labels=np.ones(matrix.shape[0]))
    always = CodeMatrix(sp.csr_array(np.ones_like(matrix.Z.toarray())), CODES)
    for with_time in (always, replace(always, patients=matrix.patients, windows=matrix.windows)):
        with pytest.raises(InputError, match="stand against"):
            Cases().choose(with_time, TARGET)
    last = matrix.Z.toarray()
    last[:, 0] = [
        w == matrix.windows[matrix.patients == p].max()
        for p, w in zip(matrix.patients, matrix.windows, strict=True)
    ]
    with pytest.raises(InputError, match="No patient has records for and against"):
        Cases("onset").choose(replace(matrix, Z=sp.csr_array(last)), TARGET)
    instead = Cases().choose(replace(matrix, Z=sp.csr_array(last)), TARGET)
    assert instead.rule == "code"
    assert np.array_equal(instead.positive, last[instead.rows, 0] > 0)
    with pytest.raises(ParameterError, match="rule is 'first'"):
        Cases("first").choose(matrix, TARGET)
    with pytest.raises(ParameterError, match="per_patient is 0"):
        Cases(per_patient=0).choose(matrix, TARGET)
    never = CodeMatrix(sp.csr_array(matrix.Z * [0, 1, 1]), CODES, absent=np.arange(3) == 0)
    with pytest.raises(InputError, match="not kept at this site"):
        Cases().choose(never, TARGET)


def test_folds_hold_whole_patients_and_share_every_stratum():
    rng = np.random.default_rng(0)
    patients = rng.integers(0, 103, 900)
    stratum = rng.integers(0, 3, 900) * (patients % 2)
    fold = fold_of_patients(patients, stratum, 10, 0)
    for patient in np.unique(patients):
        assert np.unique(fold[patients == patient]).size == 1
    largest = np.array([stratum[patients == k].max(initial=0) for k in range(103)])
    place = np.array([fold[patients == k][0] for k in range(103)])
    for kind in np.unique(largest):
        counts = np.bincount(place[largest == kind], minlength=10)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, fold_of_patients(patients, stratum, 10, 1))
    with pytest.raises(ParameterError, match="folds is 1"):
        fold_of_patients(patients, stratum, 1, 0)


def test_records_without_patients_are_patients_of_their_own():
    matrix = records()
    assert np.array_equal(patients_of(CodeMatrix(matrix.Z, CODES)), np.arange(matrix.shape[0]))
    numbers = patients_of(matrix)
    assert len(np.unique(numbers)) == numbers.max() + 1 == len(np.unique(matrix.patients))
