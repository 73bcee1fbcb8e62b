"""Clusters of patients: planted groups come back, chance does not, and few are never described."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import kstest

from daniel.data.outcomes import first_records
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate import clusters
from daniel.evaluate.clusters import (
    _group,
    _in_steps,
    _medians,
    _share,
    _sizes,
    _top_codes,
    cluster_patients,
    records_for,
)
from daniel.evaluate.survival import kaplan_meier, logrank, median_on_lines, released
from daniel.matrix import CodeMatrix

TARGET = "PheCode:290.1"
CODES = (TARGET, *(f"PheCode:{100 + j}" for j in range(10)), *(f"RxNorm:{j}" for j in range(10)))
PATIENTS = 400


def records(rng, groups):
    """Two records a patient, the target in the second; group g has the codes of its vocabulary."""
    n = groups.size
    rates = np.full((2, 21), 0.1)
    rates[0, 1:11] = rates[1, 11:] = 0.7
    Z = rng.random((2 * n, 21)) < rates[np.repeat(groups, 2)]
    Z[:, 0] = np.tile([False, True], n)
    return CodeMatrix(
        sp.csr_array(Z.astype(np.float32)),
        CODES,
        np.repeat(rng.permutation(10**6)[:n], 2),
        np.tile([3, 4], n),
    )


def follow_up(rng, hazard, patients):
    time = np.ceil(rng.exponential(700 / hazard))
    last = np.ceil(rng.uniform(100, 2000, time.size))
    event = (time <= last).astype(int)
    return pd.DataFrame({"patient": patients, "time": np.minimum(time, last), "event": event})


@pytest.fixture(scope="module")
def cohort():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], [250, 150])
    matrix = records(rng, groups)
    model = Daniel(random_state=0).fit(matrix)
    patients = matrix.patients[::2]
    return model, matrix, pd.Series(groups, index=patients)


def planted(cohort, seed=0, ratio=3.0):
    groups = cohort[2]
    rng = np.random.default_rng(seed)
    return follow_up(rng, np.where(groups == 1, ratio, 1.0), groups.index.to_numpy())


@pytest.fixture(scope="module")
def found(cohort):
    return cluster_patients(cohort[0], cohort[1], TARGET, planted(cohort))


def test_planted_groups_come_back(cohort, found):
    truth = cohort[2].loc[found.labels.index]
    assert found.k == 2
    assert (found.labels == truth + 1).mean() > 0.97  # the larger one is number 1
    assert found.p_value < 1e-4
    assert found.silhouette["k"].tolist() == list(range(2, 9))
    assert found.silhouette["silhouette"].idxmax() == 0


def test_every_number_agrees_with_the_labels(cohort, found):
    table = planted(cohort).set_index("patient").loc[found.labels.index]
    test = logrank(table["time"], table["event"], found.labels)
    assert (found.chi2, found.p_value) == (test.chi2, test.p_value)
    for c in (1, 2):
        own = table[found.labels == c]
        size = found.sizes.set_index("cluster").loc[c]
        assert size["patients"] == len(own) // 10 * 10
        assert size["events"] == own["event"].sum()
        curve = found.curves[found.curves["cluster"] == c].drop(columns="cluster")
        expected = released(kaplan_meier(own["time"], own["event"]))
        pd.testing.assert_frame_equal(curve.reset_index(drop=True), expected)
        median = found.medians.set_index("cluster").loc[c, "median"]
        assert median == median_on_lines(expected)[0]


def test_top_codes_are_shares_of_patients(cohort, found):
    matrix = cohort[1]
    Z = pd.DataFrame(matrix.Z.toarray()[1::2], index=matrix.patients[::2], columns=CODES)
    Z = Z.loc[found.labels.index]
    for c in (1, 2):
        top = found.top_codes[found.top_codes["cluster"] == c]
        assert len(top) == 10 and TARGET not in set(top["code"])
        assert (top["difference"].abs().diff().dropna() <= 0).all()
        for row in top.itertuples():
            inside, outside = found.labels == c, found.labels != c
            for told, sign, own in (
                (row.inside, row.inside_is, inside),
                (row.outside, row.outside_is, outside),
            ):
                share = Z.loc[own, row.code].mean()
                expected = round(share, 2) if sign == "=" else 10 / (own.sum() // 10 * 10)
                assert told == pytest.approx(expected, abs=1e-6)
                assert sign == "=" or (sign == "≤" and told >= share)
    own = found.top_codes[(found.top_codes["cluster"] == 2) & (found.top_codes["difference"] > 0)]
    assert own["code"].str.startswith("RxNorm").all() and len(own) >= 3


def test_an_independent_outcome_gives_uniform_p(cohort):
    model, matrix, _ = cohort
    p = [
        cluster_patients(model, matrix, TARGET, planted(cohort, seed, ratio=1.0), k=2).p_value
        for seed in range(40)
    ]
    assert kstest(p, "uniform").pvalue > 0.01
    assert min(p) > 1e-4


def test_the_targets_own_value_and_the_outcome_have_no_part(cohort, found):
    """A column blanked for everyone changes no distance between patients."""
    model, matrix, _ = cohort
    again = cluster_patients(model, matrix, TARGET, planted(cohort, 1), k=2)
    pd.testing.assert_series_equal(again.labels, found.labels)
    leaky = matrix.Z.toarray()
    leaky[1::2, 20] = planted(cohort)["event"]  # RxNorm:9 now tells the outcome
    told = replace(matrix, Z=sp.csr_array(leaky))
    kept = cluster_patients(model, told, TARGET, planted(cohort), k=2, without=["RxNorm:9"])
    clean = cluster_patients(model, matrix, TARGET, planted(cohort), k=2, without=["RxNorm:9"])
    pd.testing.assert_series_equal(kept.labels, clean.labels)
    assert "RxNorm:9" not in set(kept.top_codes["code"])


def test_the_same_seed_gives_the_same_answer_in_any_order(cohort, found):
    model, matrix, _ = cohort
    order = np.random.default_rng(5).permutation(matrix.shape[0])
    shuffled = CodeMatrix(matrix.Z[order], CODES, matrix.patients[order], matrix.windows[order])
    again = cluster_patients(
        model, shuffled, TARGET, planted(cohort).sample(frac=1, random_state=1)
    )
    for field in fields(found):
        one, two = getattr(found, field.name), getattr(again, field.name)
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, two)
        elif isinstance(one, pd.Series):
            pd.testing.assert_series_equal(one, two)
        else:
            assert one == two, field.name


def test_a_cluster_of_few_is_not_described(cohort, monkeypatch):
    """Seven patients stand apart: their number, curve, codes and outcome are nowhere."""
    drawn = np.repeat([3, 1, 2], [7, 240, PATIENTS - 247])
    monkeypatch.setattr(clusters, "_k_means", lambda *_: drawn)
    found = cluster_patients(cohort[0], cohort[1], TARGET, planted(cohort), k=3)
    assert found.sizes["patients"].tolist()[2:] == ["<11"]
    assert found.sizes["events"].tolist()[2:] == ["<11"]
    for table in (found.curves, found.medians, found.top_codes):
        assert set(table["cluster"]) == {1, 2}
    large = found.labels[found.labels < 3].index
    table = planted(cohort).set_index("patient").loc[large]
    assert found.p_value == logrank(table["time"], table["event"], found.labels[large]).p_value
    assert "7" not in found.sizes.iloc[2].astype(str).tolist()


def test_shares_tell_no_small_number(cohort):
    """A code of three patients here, or one that three lack, is told as of ten, as a bound."""
    model, matrix, groups = cohort
    Z = matrix.Z.toarray()
    second = Z[1::2]
    second[:, 20] = groups == 1
    second[np.flatnonzero(groups == 0)[:3], 20] = 1
    second[np.flatnonzero(groups == 1)[:3], 20] = 0
    found = cluster_patients(
        model, replace(matrix, Z=sp.csr_array(Z)), TARGET, planted(cohort), k=2
    )
    n = found.sizes.set_index("cluster")["patients"]
    row = found.top_codes.set_index(["cluster", "code"]).loc[(1, "RxNorm:9")]
    assert row["inside"] == pytest.approx(10 / n[1])
    assert row["outside"] == pytest.approx(1 - 10 / n[2])
    assert (row["inside_is"], row["outside_is"]) == ("≤", "≥")


def test_two_outcomes_do_not_tell_by_how_few_patients_they_differ(cohort):
    """Sizes of 201 and 207, and 40 and 30 left out, told the ten who had one outcome before."""
    model, matrix, _ = cohort
    table = planted(cohort)
    for missing in (30, 33, 36, 39):
        found = cluster_patients(model, matrix, TARGET, table.iloc[missing:], k=2)
        assert found.without_outcome == 30
        assert all(n % 10 == 0 for n in found.sizes["patients"])
        begin = found.curves[found.curves["time"] == 0]
        assert begin["at_risk"].tolist() == found.sizes["patients"].tolist()


def test_shares_of_codes_do_not_tell_a_size():
    """Bounds are of 10 in the told size; of every size some number of patients fits each share."""
    for least in (30, 40, 90, 100, 240):
        sizes = range(least, least + 10)
        told = []
        for n in sizes:
            share, sign = _share(np.arange(n + 1), n, 11)
            assert set(share[sign == "≤"]) == {10 / least}
            exact = _in_steps(share, sign, n, 11)[sign == "="]
            told.append({round(v, 4) for v in exact if 20 / least < v < 1 - 20 / least})
        assert all(one == told[0] for one in told)


def test_whether_outcomes_are_told_says_no_more_about_the_size():
    """The same outcomes of 40 to 49 patients are told in the same words."""
    for had in range(49):
        time = np.full(had, 20.0)
        rows = []
        for n in range(max(40, had), 50):
            event = np.arange(n) < had
            curve = released(kaplan_meier(np.r_[time, np.full(n - had, 900.0)], event))
            rows.append(_sizes(np.ones(n, int), event, {1: curve}, 11).iloc[0].tolist())
        assert all(row == rows[0] for row in rows)


@pytest.mark.parametrize("n", [11, 15, 19, 20, 21, 22, 40, 235])
def test_bounds_of_shares_are_true(n):
    count = np.arange(n + 1)
    told, sign = _share(count, n, 11)
    assert (told[sign == "≤"] >= (count / n)[sign == "≤"]).all()
    assert (told[sign == "≥"] <= (count / n)[sign == "≥"]).all()
    exact = count[sign == "="]
    assert (told[sign == "="] == exact / n).all()
    assert (np.minimum(exact, n - exact) >= 11).all()


def test_patients_without_a_time_are_counted_and_guarded(cohort):
    model, matrix, _ = cohort
    table = planted(cohort)
    for missing, told in ((5, "<11"), (40, 40)):
        found = cluster_patients(model, matrix, TARGET, table.iloc[missing:], k=2)
        assert found.without_outcome == told
        assert len(found.labels) == PATIENTS - missing


def test_nearly_everyone_with_the_outcome_is_told_as_a_bound(cohort):
    table = planted(cohort).assign(event=1)
    table.loc[table.index[:3], "event"] = 0  # three of the larger group
    found = cluster_patients(cohort[0], cohort[1], TARGET, table, k=2)
    curve = found.curves[found.curves["cluster"] == 1]
    assert found.sizes["events"][0] == f"≥{curve['events'].sum()}"
    bare = {1: curve.head(1)}
    assert _sizes(np.ones(40, int), np.arange(40) > 2, bare, 11)["events"].item() == ">29"


def test_the_first_record_with_the_target_counts():
    Z = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1], [1, 0]], dtype=np.float32))
    matrix = CodeMatrix(Z, ("a", "b"), np.array([9, 9, 9, 4]), np.array([5, 1, 2, 0]))
    patients, rows = first_records(matrix, "a")
    assert (patients.tolist(), rows.tolist()) == ([4, 9], [3, 2])


def test_a_model_may_have_dropped_codes(cohort):
    model, matrix, _ = cohort
    wider = CodeMatrix(
        sp.hstack([matrix.Z, matrix.Z[:, [3]]], format="csr"), (*CODES, "CCS:1"), matrix.patients
    )
    same = records_for(model, wider)
    assert same.codes == CODES and (same.Z != matrix.Z).nnz == 0


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"target": "PheCode:9"}, InputError, "no code 'PheCode:9'"),
        ({"k": 1}, ParameterError, "k is 1"),
        ({"k": 50}, ParameterError, "k is 50"),
        ({"k": 2.0}, ParameterError, "k is 2.0: expected a whole number"),
        ({"k": True}, ParameterError, "k is True"),
        ({"floor": 0}, ParameterError, "floor is 0: expected a whole number"),
        ({"floor": 5.5}, ParameterError, "floor is 5.5"),
        ({"survival": lambda t: t.assign(event=0)}, InputError, "Nobody with the target"),
        ({"survival": lambda t: t.assign(patient=t["patient"] + 10**7)}, InputError, "pseudonyms"),
        ({"survival": lambda t: t.head(15)}, InputError, "Fewer than 22"),
        ({"matrix": lambda m: replace(m, patients=None)}, InputError, "no patients and windows"),
        ({"matrix": lambda m: replace(m, codes=(*CODES[:20], "X:1"))}, InputError, "another study"),
        ({"matrix": lambda m: replace(m, Z=m.Z * 0 + twins(m))}, InputError, "only 2 of 3"),
        ({"matrix": lambda m: replace(m, Z=all_alike(m))}, InputError, "the same vector"),
        (
            {"matrix": lambda m: replace(m, Z=all_alike(m)), "k": None},
            InputError,
            "the same vector",
        ),
    ],
)
def test_bad_input_is_one_sentence(cohort, change, error, says):
    model, matrix, _ = cohort
    call = {"target": TARGET, "survival": planted(cohort), "matrix": matrix, "k": 2} | {
        name: value for name, value in change.items() if not callable(value)
    }
    for name, value in change.items():
        if callable(value):
            call[name] = value(call[name])
    if "only 2" in says:
        call["k"] = 3
    with pytest.raises(error, match=says) as raised:
        cluster_patients(model, **call)
    assert str(raised.value).count(". ") == 0


def all_alike(matrix):
    """One record with the target, again and again."""
    Z = np.zeros(matrix.shape, dtype=np.float32)
    Z[1::2, :6] = 1
    return sp.csr_array(Z)


def twins(matrix):
    """Only two different records with the target."""
    Z = np.zeros(matrix.shape, dtype=np.float32)
    Z[1::2, 0] = 1
    Z[1::4, 1:6] = 1
    return sp.csr_array(Z)


def test_totals_do_not_tell_the_few_outcomes_after_the_last_row_of_a_curve():
    """events - events up to the last row, and the same of the censored, are none or many."""
    rng = np.random.default_rng(0)
    exact = 0
    for n in rng.integers(30, 400, 60):
        time, end = np.ceil(rng.exponential(1500, n)), rng.uniform(500, 4000, n)
        event = (time <= end).astype(int)
        curve = released(kaplan_meier(np.minimum(time, end), event))
        sizes = _sizes(np.ones(n, int), event, {1: curve}, 11)
        told = sizes["events"].item()
        if isinstance(told, int):
            exact += 1
            lost = curve["censored"].sum()
            later = told - curve["events"].sum()
            assert later == told or not 0 < later < 11
            assert later == told or not 0 < n - told - lost < 11
    assert 0 < exact < 60


def test_shares_of_three_clusters_do_not_tell_a_small_number():
    """40 of 60, 12 of 60 and 3 of 60: two shares and their outsides would give the 3."""
    Z = np.zeros((180, 2))
    Z[:40, 0] = Z[60:72, 0] = Z[120:123, 0] = 1
    Z[:45, 1] = Z[60:80, 1] = Z[120:140, 1] = 1
    labels = np.repeat([1, 2, 3], 60)
    found = _top_codes(sp.csr_array(Z), labels, ("few", "many"), 11)
    assert set(found["code"]) == {"many"}


def test_a_small_cluster_leaves_the_codes_of_the_others():
    """Of 15 patients few have a code, or few lack it: no code of any cluster was told."""
    Z = np.zeros((135, 2))
    Z[:40, 0] = Z[60:80, 0] = Z[120:128, 0] = 1
    Z[:15, 1] = Z[60:100, 1] = Z[120:130, 1] = 1
    labels = np.repeat([1, 2, 3], [60, 60, 15])
    found = _top_codes(sp.csr_array(Z), labels, ("one", "two"), 11)
    pd.testing.assert_frame_equal(
        found, _top_codes(sp.csr_array(Z[:120]), labels[:120], ("one", "two"), 11)
    )
    assert set(found["cluster"]) == {1, 2} and set(found["code"]) == {"one", "two"}
    alone = _top_codes(sp.csr_array(Z[45:]), labels[45:] % 3, ("one", "two"), 11)
    assert alone.empty and list(alone.columns) == list(found.columns)


def test_a_median_is_said_not_to_be_reached_only_where_nothing_is_hidden():
    """A curve that ends early for want of eleven outcomes does not say so."""

    def medians(events, later):
        time = np.repeat([100.0, 500.0, 900.0], [events, later, 100 - events - later])
        event = np.repeat([1, 1, 0], [events, later, 100 - events - later])
        curve = released(kaplan_meier(time, event))
        total = _sizes(np.ones(100, int), event, {1: curve}, 11)["events"].item()
        return _medians(curve, total)

    assert np.isinf(medians(30, 0)).all()
    assert np.isnan(medians(30, 5)).all()
    assert medians(60, 5)[0] == 115


@pytest.mark.parametrize("n", [29, 39, 59, 100, 108, 109, 209])
def test_outcomes_of_all_patients_do_not_tell_how_many_these_are(n):
    curve = released(kaplan_meier(np.arange(1.0, n + 1), np.ones(n, bool)))
    row = _sizes(np.ones(n, int), np.ones(n, bool), {1: curve}, 11).iloc[0]
    assert row["events"] != n and str(row["events"])[0] in "≥>"


def test_steps_of_shares_neither_turn_nor_make_a_difference():
    """Two clusters of 90: 11 and 10 patients with one code, 46 and 45 with another, 60 and 20."""
    labels = np.repeat([1, 2], 90)
    Z = np.zeros((180, 3))
    for j, counts in enumerate([(11, 10), (46, 45), (60, 20)]):
        for first, count in zip((0, 90), counts, strict=True):
            Z[first : first + count, j] = 1
    found = _top_codes(sp.csr_array(Z), labels, ("few", "like", "apart"), 11)
    assert set(found["code"]) == {"apart"}
    assert found["difference"].tolist() == pytest.approx([0.45, -0.45])


@pytest.mark.parametrize("n", [3, 4, 8])
def test_few_patients_have_a_silhouette_of_fewer_clusters_than_patients(n):
    Y = np.random.default_rng(0).standard_normal((n, 3))
    labels, table = _group(Y, None, 1, 0)
    assert table["k"].tolist() == list(range(2, n))
    assert np.unique(labels).size == table.loc[table["silhouette"].idxmax(), "k"]


def test_two_patients_have_no_silhouette():
    with pytest.raises(InputError, match="by the silhouette: give k"):
        _group(np.eye(2), None, 1, 0)
    assert sorted(_group(np.eye(2), 2, 1, 0)[0]) == [1, 2]


def test_a_sample_that_misses_a_tiny_cluster_has_no_silhouette_of_that_k(monkeypatch):
    """Of 60 patients 20 are looked at: one is far off, and not among them."""
    monkeypatch.setattr(clusters, "SILHOUETTE_PATIENTS", 20)
    Y = np.random.default_rng(0).standard_normal((60, 2))
    Y[np.random.RandomState(0).permutation(60)[-1]] = 1000
    labels, table = _group(Y, None, 1, 0)
    assert table["k"].tolist() == list(range(3, 9))
    assert np.unique(labels).size > 2
    monkeypatch.setattr(clusters, "MOST_CLUSTERS", 2)
    with pytest.raises(InputError, match="give k"):
        _group(Y, None, 11, 0)


def test_outcomes_in_small_clusters_alone_are_told_as_such(cohort, monkeypatch):
    """The message said that nobody had the outcome."""
    model, matrix, _ = cohort
    few = matrix.patients[::2][:5]
    table = planted(cohort)
    table["event"] = table["patient"].isin(few).astype(int)
    order = np.isin(np.sort(matrix.patients[::2]), few)
    labels = np.where(order, 3, 1 + np.arange(order.size) % 2)
    monkeypatch.setattr(clusters, "_group", lambda *_: (labels, pd.DataFrame()))
    with pytest.raises(InputError, match="No cluster of 11 patients or more has the outcome"):
        cluster_patients(model, matrix, TARGET, table)
