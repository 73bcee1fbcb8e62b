"""Clusters of patients as a section: sizes, survival curves with a table, codes that differ."""

import numpy as np
import pandas as pd

from daniel.data.outcomes import is_death
from daniel.evaluate.clusters import Clusters, too_small
from daniel.evaluate.survival import GRID_DAYS, step_of
from daniel.plots import YEAR, p_text, survival_curves
from daniel.report import wording
from daniel.report.figures import svg
from daniel.report.page import Folded
from daniel.report.parts import Figure, Section, Table
from daniel.report.wording import Descriptions


def clusters_section(
    found: Clusters,
    descriptions: Descriptions,
    *,
    outcome: str = "outcome",
    zero: str = "",
) -> Section:
    """Clusters of patients: survival curves, sizes and medians, and what sets each apart.

    zero: a sentence that says where time starts.
    """
    name = wording.named(found.target, descriptions)
    chosen = "" if found.silhouette.empty else " Their number was chosen by the silhouette."
    medians = found.medians.set_index("cluster")
    tested = f"{len(medians)} clusters"
    if len(medians) < found.k:
        tested = f"the {tested} of {found.k} that have {found.floor} patients or more"
    sizes = found.sizes.set_index("cluster").join(medians)
    sizes = pd.DataFrame(
        {
            "patients": [wording.count(n) for n in sizes["patients"]],
            f"with {outcome}": [wording.count(n) for n in sizes["events"]],
            "median, days": [wording.days(v) for v in sizes["median"]],
            "95 % interval": [
                wording.span(*v) for v in sizes[["lo", "hi"]].itertuples(index=False)
            ],
        },
        index=sizes.index,
    )
    codes, figures = _codes_apart(found, descriptions), _curves(found, outcome)
    return Section(
        f"Clusters: {name}",
        "Patients are grouped by the other codes of their first record with this diagnosis; the "
        f"outcome has no part in the grouping.{chosen} {zero}{_deaths(outcome)} Log-rank test "
        f"among {tested}: {p_text(found.p_value)}. "
        f"Nothing is shown of fewer than {found.floor} patients"
        + (", so curves end early and are straight between counts." if figures else ".")
        + f"{_without_curve(found, outcome)}{_left_out(found)}"
        + ("" if codes else " No code of enough patients sets the clusters apart."),
        [
            Table(
                sizes,
                f"Patients are rounded down to {_steps(found)}. The median is the day on which the "
                "curve comes down to one half; “not shown” means that it ends before, “not "
                "reached” that also nobody had the outcome after its end. <, > and ≥ stand where "
                f"the number itself would tell of fewer than {found.floor} patients.",
                "Size and outcome",
            ),
            *codes,
            *_by_year(found, outcome),
        ],
        figures,
    )


def _steps(found: Clusters) -> str:
    step = step_of(found.floor)
    return "tens" if step == 10 else f"multiples of {step}"


def _deaths(outcome: str) -> str:
    """A sentence: what the curves make of deaths, where the outcome is not death itself."""
    if is_death(outcome):
        return ""
    return (
        " Where the outcome is not death, patients who died without it count as last seen "
        "then, if their deaths are known: the curve tells what would be seen if nobody died of "
        "anything else."
    )


def _by_year(found: Clusters, outcome: str) -> list[Table]:
    """The drawn curves as a table: a row for each year of each of them, and for its end."""
    rows = []
    for cluster, curve in _drawn(found).groupby("cluster"):
        times = curve["time"].to_numpy()
        end = times[-1] / YEAR
        for year in [*range(1, int(end) + 1), *([end] if end % 1 else [])]:
            share, lo, hi = (
                np.interp(year * YEAR, times, curve[name]) for name in ("survival", "lo", "hi")
            )
            at = np.searchsorted(times, year * YEAR, side="right") - 1
            rows.append(
                {
                    "cluster": cluster,
                    "years": str(year) if isinstance(year, int) else f"{year:.2f}",
                    f"without {outcome}": wording.percent(share),
                    "95 % band": f"{wording.percent(lo)} to {wording.percent(hi)}",
                    "still followed": wording.count(int(curve["at_risk"].iloc[at])),
                }
            )
    if not rows:
        return []
    return [
        Folded(
            pd.DataFrame(rows).set_index("cluster"),
            "What the figure shows, after each year and at the end of a curve.",
            "Survival by year",
        )
    ]


def _drawn(found: Clusters) -> pd.DataFrame:
    """The curves that are more than a beginning."""
    curves = found.curves
    return curves[curves.groupby("cluster")["time"].transform("size") > 1]


def _curves(found: Clusters, outcome: str) -> list[Figure]:
    """The survival curves, if there are any."""
    drawn = _drawn(found)
    if drawn.empty:
        return []
    medians = found.medians[found.medians["cluster"].isin(drawn["cluster"])]
    return [
        Figure(
            svg(survival_curves(drawn, p_value=found.p_value, outcome=outcome)),
            f"Share of patients without {outcome} over time, from counts of at least "
            f"{found.floor} patients, with 95 % bands; a tick stands where {found.floor} or "
            "more had been last seen since the tick before. Below: patients still followed, "
            f"counted every {GRID_DAYS} days, at most {found.floor - 1} too many or "
            f"{found.floor + step_of(found.floor) - 2} too few. In numbers: “Survival by year”, "
            "below.",
            f"Survival curves of {', '.join(f'cluster {c}' for c in medians['cluster'])}; medians "
            f"in days: {', '.join(wording.days(v) for v in medians['median'])}; "
            f"log-rank {p_text(found.p_value)}. The table “Survival by year” has its numbers.",
        )
    ]


def _without_curve(found: Clusters, outcome: str) -> str:
    """A sentence about clusters of which no curve may be shown."""
    drawn = set(_drawn(found)["cluster"])
    bare = [f"cluster {c}" for c in found.medians["cluster"] if c not in drawn]
    if not bare:
        return ""
    return f" Too few patients with {outcome} can be counted for a curve of {', '.join(bare)}."


def _left_out(found: Clusters) -> str:
    """A sentence about the patients whose outcome is not followed."""
    if found.without_outcome == 0:
        return ""
    n = wording.count(found.without_outcome)
    return (
        f" Left out, with the diagnosis but no time to the outcome: {n} patients, who had it "
        "before time starts, were not seen later, or are not in the outcome's files."
    )


def _codes_apart(found: Clusters, descriptions: Descriptions) -> list[Table]:
    """Codes and their shares, if there are any; of two clusters each code once, for the second
    mirrors the first.
    """
    codes = found.top_codes
    if codes.empty:
        return []
    left_out = _without_codes(found)
    small = [f"cluster {c}" for c in left_out]
    one, *others = (c for c in found.medians["cluster"] if c not in left_out)
    inside, outside = "in the cluster", "in the others"
    if len(others) == 1:
        codes = codes[codes["cluster"] == one]
        inside, outside = f"in cluster {one}", f"in cluster {others[0]}"
    table = pd.DataFrame(
        {
            "code": [wording.named(code, descriptions) for code in codes["code"]],
            inside: [
                wording.bound(*v) for v in zip(codes["inside"], codes["inside_is"], strict=True)
            ],
            outside: [
                wording.bound(*v) for v in zip(codes["outside"], codes["outside_is"], strict=True)
            ],
        },
        index=pd.Index(codes["cluster"], name="cluster"),
    )
    return [
        Table(
            table.set_index("code") if len(others) == 1 else table,
            "Shares of patients with a code in their first record with the diagnosis, for the "
            "codes whose share differs most between a cluster and the rest; in steps of 5 % where "
            f"they are of fewer than 100 patients. < and > stand where fewer than {found.floor} "
            "have the code, or lack it."
            + (f" Left out, as too small: {', '.join(small)}." if small else ""),
            "What sets the clusters apart",
        )
    ]


def _without_codes(found: Clusters) -> list[int]:
    """Clusters that are described, but too small for shares of their patients."""
    sizes = found.sizes.set_index("cluster")["patients"]
    described = found.medians["cluster"]
    return [int(c) for c in described if too_small(sizes[c], len(described), found.floor)]
