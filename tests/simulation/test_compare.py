"""Tables: cells, the paper's published figures, and the claims, against figures by hand."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.published import parse, source
from daniel.simulation.claims import check_claims, claims_markdown
from daniel.simulation.compare import (
    BY_P,
    ERROR,
    TIME,
    make_cells,
    published,
    steps_table,
    table_markdown,
    with_published,
)


def made_up(rows: list[tuple]) -> pd.DataFrame:
    """Results from (n, p, x, method, rep, error, seconds)."""
    frame = pd.DataFrame(rows, columns=["n", "p", "x", "method", "rep", "error", "seconds"])
    m = np.floor(frame["n"] ** frame["x"]).astype(int)
    return frame.assign(d=frame["p"] // 10, m=m, eta=0.1, n_iter=50, reason="")


# --- cells ----------------------------------------------------------------------------------------


def test_cells_are_means_over_repetitions(results):
    cells = make_cells(results)
    row = cells[(cells["n"] == 200) & (cells["x"] == 0.5) & (cells["method"] == "SV-Topd")]
    own = results[(results["n"] == 200) & (results["x"] == 0.5) & (results["method"] == "SV-Topd")]
    assert len(row) == 1
    errors, seconds = own["error"].to_numpy(), own["seconds"].to_numpy()
    assert row["error"].item() == pytest.approx(errors.sum() / 3)
    assert row["error_sd"].item() == pytest.approx(errors.std(ddof=1))
    assert row["seconds_median"].item() == pytest.approx(sorted(seconds)[1])
    assert (row["reps"].item(), row["missing"].item()) == (3, 0)


def test_methods_without_sites_stand_at_every_x(results):
    cells = make_cells(results)
    for method in ("pooled", "zero"):
        own = cells[cells["method"] == method]
        assert sorted(zip(own["n"], own["x"], strict=True)) == [
            (100, 0.0),
            (100, 0.5),
            (200, 0.0),
            (200, 0.5),
        ]
        assert own.groupby("n")["error"].nunique().eq(1).all()


def test_diverged_fits_are_counted_and_enter_no_mean():
    rows = [(1000, 50, 0.5, "paper", rep, error, 1.0) for rep, error in enumerate([1.0, 3.0, None])]
    cells = make_cells(made_up(rows))
    assert (cells["reps"].item(), cells["missing"].item(), cells["error"].item()) == (3, 1, 2.0)
    text = table_markdown(with_published(cells, ERROR, "error"), "x")
    assert "2.00±1.41 (0.99) †1" in text  # published: 2.02
    assert "nan" not in text.lower()


def test_a_cell_where_all_diverged_has_no_mean_but_its_count():
    rows = [(1000, 50, 0.6, "paper", rep, None, 1.0) for rep in range(2)]
    text = table_markdown(with_published(make_cells(made_up(rows)), ERROR, "error"), "x")
    assert "–†2" in text
    assert "4.09±2.09" in text
    assert "nan" not in text.lower()


# --- the paper's figures --------------------------------------------------------------------------


def test_published_tables_are_complete():
    table = published()
    assert table.groupby("table").size().to_dict() == {ERROR: 140, TIME: 140, BY_P: 50}
    assert not table.duplicated(["table", "n", "p", "x", "method"]).any()
    figures = table.set_index(["table", "n", "p", "x", "method"])[["mean", "sd"]]
    # Read off the paper by eye.
    assert tuple(figures.loc[(ERROR, 1000, 50, 0.0, "DANIEL")]) == (0.83, 0.18)
    assert tuple(figures.loc[(ERROR, 20_000, 50, 0.6, "SV-Topd")]) == (7.99, 0.07)
    assert tuple(figures.loc[(BY_P, 10_000, 200, 0.3, "PSD-Cvx")]) == (4.22, 2.83)
    assert tuple(figures.loc[(TIME, 20_000, 50, 0.1, "PSD-Cvx")]) == (0.74, 0.11)


def test_published_tables_are_those_of_the_source():
    if not source().is_file():
        pytest.skip("the paper's source is not beside the data folder")
    pd.testing.assert_frame_equal(parse(source().read_text("utf-8")), published())


def test_every_daniel_stands_beside_the_papers():
    rows = [
        (5000, 50, 0.3, method, rep, error, 0.2)
        for method, error in (("paper", 0.35), ("default", 0.14), ("SV-Soft", 1.3), ("zero", 0.5))
        for rep in range(2)
    ]
    table = with_published(make_cells(made_up(rows)), ERROR, "error").set_index("method")
    assert table["ratio"].drop("zero").round(4).to_dict() == {
        "paper": 0.5,  # 0.35 / 0.70
        "default": 0.2,
        "SV-Soft": 0.5,  # 1.3 / 2.60
    }
    assert np.isnan(table.loc["zero", "ratio"])


def test_times_stand_beside_times():
    rows = [(1000, 50, 0.0, "default", 0, 0.4, 0.03)]
    table = with_published(make_cells(made_up(rows)), TIME, "seconds")
    assert table["ratio"].item() == pytest.approx(0.03 / 0.12)


def test_steps_table_shows_the_choice(results):
    table = steps_table(results).set_index("n")
    columns = [name for name in table.columns if name.startswith("eta=")]
    assert len(columns) == 5
    for n in (100, 200):
        best = table.loc[n, columns].astype(float).idxmin()
        assert table.loc[n, "chosen"] == float(best.removeprefix("eta="))


# --- claims ---------------------------------------------------------------------------------------


@pytest.fixture
def claimed():
    """Two cells at n = 5000 and the three x of flatness, one of the dimension design."""
    error = {  # (x, method) -> error; published DANIEL: 0.53, 1.38 and 3.79 at x = 0, 0.5, 0.6
        (0.0, "default"): 0.30,
        (0.5, "default"): 0.36,
        (0.6, "default"): 0.33,
        (0.0, "paper"): 0.60,
        (0.5, "paper"): 9.0,
        (0.0, "pooled"): 0.30,
        (0.0, "zero"): 0.35,
        **{(x, name): 1.0 for x in (0.0, 0.5, 0.6) for name in ("SV-Soft", "SV-Hard")},
    }
    seconds = {"default": 0.2, "SV-Soft": 0.1, "SV-Hard": 0.4}
    main = [
        (5000, 50, x, method, rep, value + 0.01 * (rep - 1), seconds.get(method, 1.0))
        for (x, method), value in error.items()
        for rep in range(3)
    ]
    dimension = [(10_000, 20, 0.3, "default", 0, 0.09, 0.1), (10_000, 20, 0.3, "paper", 0, 0.1, 1)]
    table = check_claims(make_cells(made_up(main)), make_cells(made_up(dimension)))
    return table.set_index("claim")


@pytest.mark.parametrize(
    ("claim", "cells", "hold", "worst", "where"),
    [
        # 0.30/0.53 = 0.566, 0.36/1.38, 0.33/3.79
        ("default / the paper's DANIEL, error table at p = 50", 3, 3, 0.30 / 0.53, "x = 0"),
        ("default / the paper's DANIEL, error against p", 1, 1, 0.09 / 0.12, "p = 20"),
        # pooled 0.30 at every x: 1.0, 1.2, 1.1
        ("default / pooled", 3, 2, 1.2, "x = 0.5"),
        ("default / zero", 3, 2, 0.36 / 0.35, "x = 0.5"),
        ("default at x = 0.5 / at x = 0, n >= 5,000", 1, 0, 1.2, "x = 0.5"),
        ("default at x = 0.6 / at x = 0, n >= 5,000", 1, 1, 1.1, "x = 0.6"),
        ("share of default fits without an answer", 4, 4, 0.0, ""),
        # 0.60/0.53 fails, 0.1/0.12 holds, x = 0.5 does not count
        ("paper's recipe / the paper's DANIEL, x <= 0.4", 2, 1, 0.60 / 0.53, "n = 5,000"),
        ("median time, default / SV-Soft", 3, 0, 2.0, ""),
        ("median time, default / SV-Hard", 3, 3, 0.5, ""),
        ("median time, default / SV-Topd", 0, 0, None, ""),
    ],
)
def test_claims(claimed, claim, cells, hold, worst, where):
    row = claimed.loc[claim]
    assert (row["cells"], row["hold"]) == (cells, hold)
    assert where in row["worst_cell"]
    if worst is None:
        assert np.isnan(row["worst"])
    else:
        assert row["worst"] == pytest.approx(worst)


def test_claims_that_nothing_was_measured_for_say_so(claimed):
    text = claims_markdown(check_claims(None, None))
    assert text.count("not measured") == len(claimed)
    assert "nan" not in text.lower()


def test_a_default_without_an_answer_is_a_broken_claim():
    rows = [(1000, 50, 0.6, "default", rep, [0.4, None][rep], 0.1) for rep in range(2)]
    table = check_claims(make_cells(made_up(rows)), None).set_index("claim")
    row = table.loc["share of default fits without an answer"]
    assert (row["cells"], row["hold"], row["worst"]) == (1, 0, 0.5)
