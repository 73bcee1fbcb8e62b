"""Sums that are made elsewhere: parts of records give what the whole gives."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from daniel import CodeMatrix
from daniel.core import couplings, natural, place
from daniel.core.coordinates import natural_coordinates, paper_coordinates
from daniel.core.ising import full_sweep, logit_moments, sweep
from daniel.core.records import records_from
from daniel.core.start import correlation
from daniel.federated.sums import site_sums


class Parts:
    """A place that sums over so many parts, here, last part first."""

    def __init__(self, number):
        self.number = number
        self.calls = 0

    def sums(self, work, records, shared, items):
        edges = np.linspace(0, len(records.chunks), self.number + 1).astype(int)
        parts = [records.part(slice(*pair)) for pair in pairwise(edges)][::-1]
        assert sum(part.n for part in parts) == records.n
        for item in items:
            self.calls += 1
            found = [work(part, shared, item) for part in parts]
            yield tuple(sum(values[1:], values[0]) for values in zip(*found, strict=True))


@pytest.fixture(params=[np.float32, np.float64], ids=["single", "double"])
def problem(request, Z):
    rng = np.random.default_rng(1)
    records = records_from(Z, site=rng.integers(0, 3, Z.shape[0]), n_sites=3)
    U, V = (rng.normal(size=(2, 30, 4)) / 4).astype(request.param)
    coords = natural_coordinates(Z.sum(axis=0), float(Z.shape[0]))
    return records, coords, U, V, rng.normal(size=(3, 30)) - 1


def relative(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("codes_per_column", [0.0, 1e9], ids=["products", "sums"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_every_sum_over_parts_is_that_over_the_whole(
    number, codes_per_column, problem, monkeypatch
):
    monkeypatch.setattr(couplings, "CODES_PER_COLUMN", codes_per_column)
    monkeypatch.setattr(couplings, "CODES_AS_RECORDS", 0.0)
    records, coords, U, V, b = problem
    exact = U.dtype == np.float64
    moments = np.stack(logit_moments(records, coords, U, V, b))
    once, full = sweep(records, coords, U, V, b), full_sweep(records, coords, (U, V), b)
    whole = full_sweep(records, coords, U @ V.T, b)
    linear = correlation(records, coords)
    parts = Parts(number)
    with place.at(parts):
        again = sweep(records, coords, U, V, b)
        # Chunks are summed alike wherever they are; only sums in float64 are in another order.
        for name in ("loss", "U", "V", "b"):
            assert relative(getattr(again, name), getattr(once, name)) < 1e-8, name
        assert relative(np.stack(logit_moments(records, coords, U, V, b)), moments) < 1e-8
        for phi, wanted in (((U, V), full), (U @ V.T, whole)):
            found = full_sweep(records, coords, phi, b)
            assert relative(found.G, wanted.G) < (1e-12 if exact else 1e-6)
            assert relative(found.b, wanted.b) < (1e-12 if exact else 1e-6)
            assert found.loss == pytest.approx(wanted.loss, rel=1e-12 if exact else 1e-6)
        np.testing.assert_array_equal(correlation(records, coords), linear)  # whole numbers
    assert parts.calls >= 5


def test_subtracting_and_ties_work_elsewhere(Z):
    records, coords = records_from(Z), paper_coordinates(30)
    U = np.random.default_rng(0).normal(size=(30, 3)) / 5
    G = np.random.default_rng(1).normal(size=(30, 30))
    wanted = G - full_sweep(records, coords, (U, U), None).G
    with place.at(Parts(3)):
        found = full_sweep(records, coords, (U, U), None, subtract_from=G)
    assert found.G is G
    np.testing.assert_allclose(G, wanted, rtol=1e-12)


def test_few_records_stay_here(Z, monkeypatch):
    records = records_from(Z)
    coords = natural_coordinates(records.counts(), records.total)
    assert len(records.chunks) > 1
    calls = []
    for least in (records.n * records.p, records.n * records.p + 1):
        monkeypatch.setattr(place, "WORTH", least)
        with place.at(parts := Parts(2)):
            correlation(records, coords)
        calls.append(parts.calls)
    assert calls == [1, 0]


OPTIONS = natural.Options(n_components=2, max_iter=2)
ANSWERS = {
    "the core's": lambda Z, start: natural.answer(records_from(Z), start, OPTIONS),
    "a site's": lambda Z, start: site_sums(
        CodeMatrix(Z, tuple(map(str, range(30)))), start, OPTIONS
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_made_here_where_a_fit_goes_elsewhere(answer, Z, monkeypatch):
    Z = sparse.csr_array(Z.astype(np.float32))
    records = records_from(Z)
    start = natural.make_start(records, OPTIONS, np.random.default_rng(0))
    numbers, calls = records.n * records.p, []
    for least in (numbers, numbers + 1):
        monkeypatch.setattr(place, "WORTH_ONCE", least)
        with place.at(parts := Parts(2)):
            answer(Z, start)
            assert place.elsewhere(records) is parts
        calls.append(parts.calls)
    assert calls[0] > 2 and calls[1] == 0


@pytest.mark.parametrize("codes_per_column", [0.0, 1e9], ids=["products", "sums"])
def test_a_trip_brings_neighbouring_stripes_up_to_its_load(codes_per_column, sparse_Z, monkeypatch):
    by = {"STRIPE": 5, "WIDE": 5, "LANES": 1, "STRIPES": 1, "CODES_PER_COLUMN": codes_per_column}
    for name, value in (by | {"CODES_AS_RECORDS": 0.0}).items():
        monkeypatch.setattr(couplings, name, value)
    records, coords = records_from(sparse_Z[:, :30]), paper_coordinates(30)
    U = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32) / 5
    wanted = full_sweep(records, coords, (U, U), None)
    for load, trips in ((0, 6), (8 * 30 * 10, 3), (8 * 30 * 14, 3), (8 * 30 * 25, 2), (1 << 20, 1)):
        monkeypatch.setattr(couplings, "LOAD", load)
        with place.at(parts := Parts(2)):
            found = full_sweep(records, coords, (U, U), None)
        assert parts.calls == trips
        assert relative(found.G, wanted.G) < 1e-6
        assert found.loss == pytest.approx(wanted.loss, rel=1e-6)


def test_the_place_is_left_after_an_error(Z):
    records = records_from(Z)
    with pytest.raises(RuntimeError), place.at(Parts(2)):
        assert place.elsewhere(records) is not None
        raise RuntimeError
    assert place.elsewhere(records) is None


def test_chunks_cover_the_rows_once_and_depend_on_the_shape_alone(Z, monkeypatch):
    monkeypatch.undo()
    for n, p in ((1, 1), (3, 5), (1500, 30), (5_000, 100), (40_000, 100), (100_000, 100)):
        indptr = np.zeros(n + 1, dtype=np.int64)
        records = records_from(np.zeros((1, p)))
        chunks = type(records)(indptr, indptr[:0], p, np.ones(n), indptr[1:]).chunks
        assert [s.start for s in chunks[1:]] == [s.stop for s in chunks[:-1]]
        assert (chunks[0].start, chunks[-1].stop) == (0, n)
        sizes = [s.stop - s.start for s in chunks]
        assert max(sizes) - min(sizes) <= 1
        assert (len(chunks) > 1) == (n * p > 1 << 18)
        assert max(sizes) <= 16384
