"""Growth and the cost model as tables, and what the model says of larger networks."""

from typing import Any

from benchmarks.growth import MODEL, predicted
from benchmarks.page_races import size

STEPS = ("sweep", "answer", "exchange")
SITES, RECORDS = 100, 10**9  # of the plan in docs/scale.md
PLANS = ((2_142, 200), (20_000, 100))  # codes and rank
SWEEPS = 60  # of a whole fit over the hub's records
EXPLANATION = """One size is varied at a time. *Sweep*: one gradient of the factored loss.
*Answer*: a site's derivative, intercepts included. *Exchange*: start, two answers and finish,
with a fixed number of iterations. Below, the exponent of the fitted power with its standard
error."""
PLAN = """What the cost model says of {sites} sites of {records:,} records each, on machines like
this one. It is an extrapolation of the measurements above, not a measurement. *Site*: one answer.
*Hub*: {sweeps} sweeps over its own records. *Answers*: all that the hub receives, in 32-bit
numbers; masked answers have twice as many bytes. *Sketch*: the same with 3 p d numbers instead of
p (p + 1)/2. *Masks*: random words that one site expands for a masked answer, 8 bytes each."""


def section(found: dict[str, Any]) -> list[str]:
    machine = found["machine"]
    lines = ["## Growth", "", "`python -m benchmarks.growth`", "", EXPLANATION, ""]
    where = f"Machine: {machine['processor']}, {machine['cores']} cores."
    lines += [f"{where} Commit {found['commit']}.", ""]
    lines += ["| n | p | d | sweep | answer | exchange |", "|---" * 6 + "|"]
    for row in found["points"]:
        cells = " | ".join(f"{row[step]:.3f} s" for step in STEPS)
        lines.append(f"| {row['n']:,} | {row['p']:,} | {row['d']} | {cells} |")
    lines += ["", "| | n | p | d |", "|---|---|---|---|"]
    for step in STEPS:
        fits = found["exponents"][step]
        cells = " | ".join(_power(fits[name]) for name in ("n", "p", "d"))
        lines.append(f"| {step} | {cells} |")
    return [*lines, "", *model(found["model"]), *plan(found["model"])]


def _power(fit: dict[str, Any]) -> str:
    return f"{fit['exponent']:.2f} ± {fit['error']:.2f}"


def model(fitted: dict[str, Any]) -> list[str]:
    """The fitted seconds of each unit of work."""
    lines = ["### Cost model", "", "| step | unit of work | fitted | worst relative error |"]
    lines.append("|---" * 4 + "|")
    for step in MODEL:
        for unit, value in fitted[step]["seconds"].items():
            said = f"{1e9 * value:.3g} ns"
            if "flop" in unit and value > 0:
                said = f"{1e-9 / value:,.0f} Gflop/s"
            lines.append(f"| {step} | {unit} | {said} | {fitted[step]['worst']:.0%} |")
    return [*lines, ""]


def plan(fitted: dict[str, Any]) -> list[str]:
    """The cost of a large network, by the model."""
    n = RECORDS // SITES
    lines = [
        "### A large network, by the model",
        "",
        PLAN.format(sites=SITES, records=n, sweeps=SWEEPS),
        "",
        "| codes | rank | site | hub | one answer | answers | sketch | masks | hub's p × p array |",
        "|---" * 9 + "|",
    ]
    for p, d in PLANS:
        answer, sketch = 4 * p * (p + 1) // 2, 4 * 3 * p * d
        cells = [
            f"{p:,}",
            str(d),
            duration(predicted(fitted, "answer", n, p, d)),
            duration(SWEEPS * predicted(fitted, "sweep", n, p, d)),
            size(answer),
            size(SITES * answer),
            size(SITES * sketch),
            size((SITES - 1) * 2 * answer),
            size(4 * p * p),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
