"""Figures tell what the tables say."""

import pandas as pd
from matplotlib.colors import to_hex

from daniel.plots import COLOURS, YEAR, survival_curves


def test_numbers_at_risk_stand_below_the_ticks():
    curves = pd.DataFrame(
        {
            "cluster": [1, 1, 1, 2, 2],
            "time": [0.0, 0.9 * YEAR, 2.2 * YEAR, 0.0, 4.1 * YEAR],
            "survival": [1.0, 0.8, 0.5, 1.0, 0.45],
            "lo": [1.0, 0.7, 0.4, 1.0, 0.4],
            "hi": [1.0, 0.85, 0.6, 1.0, 0.52],
            "at_risk": [1200, 900, 300, 440, 120],
            "events": [0, 240, 570, 0, 275],
            "censored": [0, 60, 30, 0, 45],
        }
    )
    _, below = survival_curves(curves).axes
    told = {
        (text.get_position()[0], -text.get_position()[1]): text.get_text() for text in below.texts
    }
    first = {0.0: "1,200", 0.5: "1,200", 1.0: "900", 1.5: "900", 2.0: "900"}
    second = {year / 2: "440" for year in range(9)}
    assert told == {(t, 0): n for t, n in first.items()} | {(t, 1): n for t, n in second.items()}
    assert {to_hex(text.get_color()) for text in below.texts} == {"#000000"}  # pale ones are hard
    ticks = [to_hex(tick.tick1line.get_markeredgecolor()) for tick in below.yaxis.get_major_ticks()]
    assert ticks == list(COLOURS[:2])
    assert set(first) <= set(below.get_xticks()) and max(below.get_xticks()) <= below.get_xlim()[1]


def test_an_outcome_may_have_dollar_signs():
    curves = pd.DataFrame({"cluster": [1, 1], "time": [0.0, 90.0], "survival": [1.0, 0.5]})
    curves = curves.assign(lo=0.4, hi=1.0, at_risk=50, events=[0, 25], censored=0)
    figure = survival_curves(curves, outcome="a $x__y$ b")
    figure.draw_without_rendering()
    assert figure.axes[0].get_ylabel() == r"without a \$x__y\$ b"
