"""Records: compressed rows, weights and sites; merging changes nothing that anyone can compute."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.core import records as records_module
from daniel.core.coordinates import natural_coordinates
from daniel.core.ising import sweep
from daniel.core.records import records_from, refuse_cut
from daniel.errors import InputError


@pytest.fixture
def few_codes(rng):
    """2000 records of 6 codes at 3 sites: 64 possible records, so most rows repeat."""
    Z = (rng.random((2000, 6)) < [0.5, 0.3, 0.1, 0.2, 0.05, 0.4]).astype(float)
    return Z, rng.integers(0, 3, 2000)


def distinct_rows(Z, site):
    """Plain grouping: {(site, row): number of times}, in order of first appearance."""
    groups: dict[tuple, int] = {}
    for s, row in zip(site, Z, strict=True):
        key = (int(s), *row.astype(int).tolist())
        groups[key] = groups.get(key, 0) + 1
    return groups


def test_merging_groups_equal_rows_of_a_site_in_order_of_appearance(few_codes):
    Z, site = few_codes
    merged = records_from(Z, site=site, n_sites=3)
    groups = distinct_rows(Z, site)
    found = [(s, *row) for s, row in zip(merged.site, merged.csr(int).toarray(), strict=True)]
    assert [tuple(map(int, key)) for key in found] == list(groups)
    assert merged.weight.tolist() == list(groups.values())
    assert merged.n < 200 < Z.shape[0]


def test_merging_keeps_totals_counts_and_site_counts(few_codes):
    Z, site = few_codes
    for merge in (True, False):
        records = records_from(Z, site=site, n_sites=3, merge=merge)
        assert records.total == 2000
        np.testing.assert_array_equal(records.counts(), Z.sum(axis=0))
        np.testing.assert_array_equal(records.site_totals(), np.bincount(site))
        np.testing.assert_array_equal(
            records.site_counts(), [Z[site == s].sum(axis=0) for s in range(3)]
        )
    assert records.n == 2000  # not merged


def test_merging_keeps_loss_and_gradients(few_codes, rng):
    Z, site = few_codes
    U, V, b = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), rng.normal(size=(3, 6))
    coords = natural_coordinates(Z.sum(axis=0), 2000.0)
    merged, single = (
        sweep(records_from(Z, site=site, n_sites=3, merge=merge), coords, U, V, b)
        for merge in (True, False)
    )
    np.testing.assert_allclose(merged.loss, single.loss, rtol=1e-13)
    for name in ("U", "V", "b"):
        np.testing.assert_allclose(getattr(merged, name), getattr(single, name), atol=1e-13)


def test_empty_rows_merge_with_each_other_only():
    """First, last, adjacent and scattered empty rows, at two sites."""
    Z = np.array([[0, 0], [1, 0], [0, 0], [0, 0], [0, 1], [1, 1], [0, 0]], dtype=float)
    site = np.array([0, 0, 0, 1, 1, 1, 1])
    records = records_from(Z, site=site, n_sites=2)
    assert records.csr(int).toarray().tolist() == [[0, 0], [1, 0], [0, 0], [0, 1], [1, 1]]
    assert records.weight.tolist() == [2, 1, 2, 1, 1]
    assert records.site.tolist() == [0, 0, 1, 1, 1]


def test_only_empty_rows():
    records = records_from(np.zeros((5, 3)))
    assert (records.n, records.total, records.density) == (1, 5.0, 0.0)
    assert records.counts().tolist() == [0, 0, 0]


def test_rows_of_which_one_holds_the_other_stay_apart():
    Z = np.tril(np.ones((50, 50)))
    records = records_from(np.vstack([Z, Z[::-1]]))
    np.testing.assert_array_equal(records.csr().toarray(), Z)
    assert set(records.weight) == {2.0}


def test_many_random_rows_are_grouped_as_numpy_groups_them(rng):
    Z = (rng.random((5000, 12)) < 0.25).astype(float)
    rows, times = np.unique(Z, axis=0, return_counts=True)
    records = records_from(sp.csr_array(Z))
    order = np.lexsort(records.csr().toarray().T[::-1])
    np.testing.assert_array_equal(records.csr().toarray()[order], rows)
    np.testing.assert_array_equal(records.weight[order], times)


def test_grouping_by_blocks_of_rows_changes_nothing(rng, monkeypatch):
    Z = sp.csr_array((rng.random((1000, 9)) < 0.25).astype(float))
    whole = records_from(Z)
    monkeypatch.setattr(records_module, "MERGE_ROWS", 7)
    blocks = records_from(Z)
    for name in ("indptr", "indices", "weight"):
        np.testing.assert_array_equal(getattr(blocks, name), getattr(whole, name))


def test_very_many_rows_of_which_hardly_any_are_alike_are_not_copied(rng, monkeypatch):
    Z = sp.csr_array((rng.random((400, 60)) < 0.5).astype(np.float32))
    Z = sp.vstack([Z, Z[:4]]).tocsr()
    Z.indices, Z.indptr = Z.indices.astype(np.int32), Z.indptr.astype(np.int32)
    assert records_from(Z).n == 400
    monkeypatch.setattr(records_module, "MANY", 1000)
    records = records_from(Z)
    assert records.n == 404
    assert np.shares_memory(records.indices, Z.indices)
    assert records_from(sp.vstack([Z, Z[:40]])).n < 444


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_every_input_form_gives_the_same_records(make, dtype, rng):
    Z = rng.random((30, 8)) < 0.4
    records = records_from(make(Z.astype(dtype)), merge=False)
    np.testing.assert_array_equal(records.csr().toarray(), Z)


def test_stored_zeros_and_unsorted_rows_are_read_right_and_left_alone():
    data, indices, indptr = np.array([1.0, 0, 1, 1]), np.array([2, 1, 0, 1]), np.array([0, 3, 4])
    Z = sp.csr_array((data.copy(), indices.copy(), indptr.copy()), shape=(2, 3))
    records = records_from(Z)
    assert records.csr(int).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert records.indices.size == 3
    # The caller's matrix is the caller's.
    np.testing.assert_array_equal(Z.data, data)
    np.testing.assert_array_equal(Z.indices, indices)
    np.testing.assert_array_equal(Z.indptr, indptr)


def test_a_read_only_matrix_can_be_read():
    """Memory-mapped inputs, and those that joblib hands to its workers, are read-only."""
    Z = sp.csr_array((np.ones(3), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    for array in (Z.data, Z.indices, Z.indptr):
        array.flags.writeable = False
    assert records_from(Z).csr(int).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_a_code_stored_twice_in_a_row_is_present_once():
    Z = sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert records_from(Z).csr(int).toarray().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_matrix_of_the_records_shares_their_codes(rng):
    records = records_from(rng.random((50, 9)) < 0.3, merge=False)
    assert np.shares_memory(records.csr().indices, records.indices)


def test_density_is_the_share_of_present_codes():
    assert records_from(np.eye(4)).density == 0.25


def test_take_keeps_weights_and_sites_of_the_rows_asked_for(few_codes):
    Z, site = few_codes
    records = records_from(Z, site=site, n_sites=3)
    rows = np.array([17, 3, 3, 60])
    part = records.take(rows)
    np.testing.assert_array_equal(part.csr().toarray(), records.csr().toarray()[rows])
    np.testing.assert_array_equal(part.weight, records.weight[rows])
    np.testing.assert_array_equal(part.site, records.site[rows])
    assert (part.n, part.p, part.n_sites) == (4, 6, 3)


def test_take_nothing():
    part = records_from(np.eye(3)).take(np.array([], dtype=int))
    assert (part.n, part.p, part.total) == (0, 3, 0.0)
    assert part.counts().tolist() == [0, 0, 0]


def test_of_site_is_the_site_alone(few_codes):
    Z, site = few_codes
    records = records_from(Z, site=site, n_sites=3)
    for s in range(3):
        own = records.of_site(s)
        assert (own.n_sites, set(own.site.tolist())) == (1, {0})
        assert own.total == (site == s).sum()
        np.testing.assert_array_equal(own.counts(), Z[site == s].sum(axis=0))
        alone = records_from(Z[site == s])
        np.testing.assert_array_equal(own.csr().toarray(), alone.csr().toarray())
        np.testing.assert_array_equal(own.weight, alone.weight)


@pytest.mark.parametrize(
    "view",
    [
        lambda codes: codes,
        lambda codes: codes[2:],
        lambda codes: codes[2:][1:4],
        lambda codes: np.asarray(codes)[2:],
        lambda codes: np.asarray(codes[2:])[1:4],
        lambda codes: np.asarray(codes[2:]).view(np.memmap),
    ],
)
def test_codes_of_a_file_that_was_cut_are_refused_in_every_view(tmp_path, view):
    path = tmp_path / "codes"
    np.arange(8, dtype=np.int32).tofile(path)
    codes = view(np.memmap(path, np.int32, "c", offset=8, shape=(6,)))
    copy = codes.copy()
    refuse_cut(codes)
    os.truncate(path, 28)
    with pytest.raises(InputError, match="became shorter"):
        refuse_cut(codes)
    refuse_cut(copy)  # is in memory


def test_a_part_is_drawn_of_the_original_records_not_of_merged_rows():
    """A row that stands for most records is neither whole in a part nor missing from it."""
    Z = np.vstack([np.tile([1, 0, 0, 0], (9000, 1)), np.eye(4)[np.arange(1000) % 3 + 1]])
    merged = records_from(Z)
    assert merged.n == 4
    for seed in range(5):
        part = merged.drawn(0.25, np.random.default_rng(seed))
        assert abs(part.total - 2500) < 200
        np.testing.assert_allclose(part.counts() / part.total, Z.mean(axis=0), atol=0.03)
    apart = records_from(Z, merge=False).drawn(0.25, np.random.default_rng(0))
    assert apart.n == apart.total == 2500


def test_codes_are_counted_block_by_block(rng, monkeypatch):
    Z = (rng.random((500, 9)) < 0.3).astype(float)
    monkeypatch.setattr("daniel.core.records.COUNT_ROWS", 33)
    np.testing.assert_array_equal(records_from(Z).counts(), Z.sum(axis=0))
