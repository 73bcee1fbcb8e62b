"""The measured checks of the theory, as small tables with a paragraph each."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from daniel.simulation.write import markdown_line

LABEL = {"default": "default", "paper": "paper's recipe"}


def slope(values: pd.DataFrame) -> pd.DataFrame:
    """Slope on log-log axes of each column against the index, and its standard error.

    values: index (rep, n); a line is fitted to every repetition.  Repetitions without a complete
    line are left out.
    """
    found = {}
    for name in values.columns:
        lines = values[name].unstack("n").dropna()
        fits = np.polyfit(np.log(lines.columns.to_numpy(float)), np.log(lines.to_numpy().T), 1)[0]
        error = fits.std(ddof=1) / np.sqrt(fits.size) if fits.size > 1 else np.nan
        found[name] = (float(fits.mean()), float(error))
    return pd.DataFrame(found, index=["slope", "se"])


def lines_against_n(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """ "error" and "gap" -> index (rep, n), a column for each method and number of sites."""
    rate = results[results["check"] == "rate"]
    names = rate["method"].map(LABEL) + np.where(
        rate["x"] > 0, ", x = " + rate["x"].astype(str), ""
    )
    rate = rate.assign(line=names)
    error = rate.pivot_table(index=["rep", "n"], columns="line", values="error")
    split = rate[rate["x"] > 0]
    gap = split.pivot_table(index=["rep", "n"], columns="line", values="gap")
    return {"error": error, "gap": gap}


def theory_markdown(results: pd.DataFrame) -> str:
    """All tables."""
    parts = [_rate(results), _gap(results), _sites(results), _step(results), _symmetry(results)]
    return "\n\n".join([*parts, _start(results)]) + "\n"


def _rate(results: pd.DataFrame) -> str:
    text = (
        "## Error against n\n\nTheorem 1 promises an error of order √(d p log p / n): a slope of "
        "−1/2 on log-log axes. p = 20, d = 2; mean error, and the slope with its standard error."
    )
    return f"{text}\n\n{_by_n(lines_against_n(results)['error'])}"


def _gap(results: pd.DataFrame) -> str:
    text = (
        "## Gap to the pooled estimate\n\nTheorem 3: the distance between the one-shot estimate "
        "and the same recipe on pooled records is of lower order than the error, so its slope must "
        "be steeper than −1/2. The same fits as above; in brackets the gap as a share of the error."
    )
    lines = lines_against_n(results)
    share = lines["gap"] / lines["error"][lines["gap"].columns]
    return f"{text}\n\n{_by_n(lines['gap'], share)}"


def _by_n(values: pd.DataFrame, share: pd.DataFrame | None = None) -> str:
    rows = []
    means = values.groupby("n").mean()
    for n, row in means.iterrows():
        extra = None if share is None else share.groupby("n").mean().loc[n]
        cells = [
            f"{value:.4f}" + ("" if extra is None else f" ({extra[name]:.2f})")
            for name, value in row.items()
        ]
        rows.append([f"{n:,}", *cells])
    fitted = slope(values)
    ends = [f"{fitted.loc['slope', c]:.2f} ± {fitted.loc['se', c]:.2f}" for c in means.columns]
    return _table(["n", *means.columns], [*rows, ["slope", *ends]])


def _sites(results: pd.DataFrame) -> str:
    sites = results[results["check"] == "sites"]
    n = int(sites["n"].iloc[0])
    text = (
        f"## More sites than √n\n\nn = {n:,}, so √n = {np.sqrt(n):.0f} sites is x = 0.5; p = 20, "
        "d = 2. Mean error, and in brackets the gap to pooled records as a share of the pooled "
        "error. †k: k repetitions diverged and are not in the mean."
    )
    rows = []
    for (x, m), block in sites.groupby(["x", "m"]):
        hub = -(-n // m)
        rows.append([f"{x:g}", m, f"{hub:,}", *(_site_cell(sites, block, name) for name in LABEL)])
    return f"{text}\n\n" + _table(["x", "sites", "records at the hub", *LABEL.values()], rows)


def _site_cell(sites: pd.DataFrame, block: pd.DataFrame, name: str) -> str:
    own = block[block["method"] == name]
    base = sites[(sites["method"] == name) & (sites["x"] == 0)]["error"].mean()
    missing = int(own["error"].isna().sum())
    mark = f" †{missing}" if missing else ""
    if missing == len(own):
        return f"–{mark}"
    return f"{own['error'].mean():.4f} ({own['gap'].mean() / base:.2f}){mark}"


def _step(results: pd.DataFrame) -> str:
    steps = results[results["check"] == "step"]
    n, p = int(steps["n"].iloc[0]), int(steps["p"].iloc[0])
    text = (
        f"## The step bound\n\nThe largest step that eq. (eta_ineq) allows at the start, and the "
        f"largest with which 50 steps of the descent end below their start; n = {n:,}, p = {p}, "
        "medians. The bound is sufficient, not necessary."
    )
    rows = []
    for x, own in steps.groupby("x"):
        ratio = (own["limit"] / own["bound"]).median()
        hub = -(-n // int(own["m"].iloc[0]))
        bound, limit = own["bound"].median(), own["limit"].median()
        rows.append([f"{x:g}", f"{hub:,}", f"{bound:.4f}", f"{limit:.2f}", f"{ratio:.0f}"])
    head = ["x", "records at the hub", "bound", "largest that descends", "ratio"]
    return f"{text}\n\n{_table(head, rows)}"


def _symmetry(results: pd.DataFrame) -> str:
    own = results[(results["method"] == "paper") & results["asymmetry"].notna()]
    text = (
        "## Symmetry\n\nRemark 1: the descent keeps Θ symmetric. Largest |Θ − Θ'| as a share of "
        f"the largest |Θ|, over {len(own)} fits of the paper's recipe: "
        f"{own['asymmetry'].max():.1g}."
    )
    return text


def _start(results: pd.DataFrame) -> str:
    start = results[results["check"] == "start"]
    n = int(start["n"].iloc[0])
    text = (
        f"## The start at n = {n:,}\n\nThe rank-d SVD of a symmetric matrix keeps its largest "
        "eigenvalues of either sign. With few records some of these are negative, though Θ* has "
        "none. Median error of the paper's recipe at p = 50 from that start, as Algorithm 1 says, "
        "and from the d largest eigenvalues, after 10 and 50 steps."
    )
    table = start.pivot_table(
        index=["x", "method", "iterations"], columns="eta", values="error", aggfunc="median"
    )
    rows = [
        [f"{x:g}", name, int(steps), *(f"{value:.3f}" for value in row)]
        for (x, name, steps), row in table.iterrows()
    ]
    return f"{text}\n\n" + _table(["x", "start", "steps", *(f"η = {e:g}" for e in table)], rows)


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [markdown_line(*head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *(markdown_line(*row) for row in rows)])
