"""Growth and the cost model as tables, and what the model says of larger networks."""

from typing import Any

from benchmarks import page_commands
from benchmarks.growth import MODEL, cost_model, predicted
from benchmarks.page_commands import Stored
from benchmarks.page_races import size

STEPS = ("sweep", "answer", "exchange")
SITES, RECORDS = 100, 10**9  # of the plan in docs/scale.md
PLANS = ((2_142, 200), (20_000, 100))  # codes and rank
EXPLANATION = """One size is varied at a time. *Sweep*: one gradient of the factored loss.
*Answer*: a site's derivative, intercepts included. *Exchange*: start, two answers and finish,
with a fixed number of iterations. Below, the exponent of the fitted power with its standard
error."""
EXPECTED = {"n": (0.9, 1.1), "p": (1.0, 2.0), "d": (0.85, 1.15)}
WHY = """Not all of the work grows with each size: an answer ends in products with the present codes
of its records, as many at every p and whatever the rank, and an exchange has spectra at both ends,
whatever the records and the rank."""
PLAN = """What the cost model says of {sites} sites of {records:,} records each, on machines like
this one. It is an extrapolation of the measurements above, not a measurement. *Site*: one answer,
as a command. *Hub*: {hub}. *Answers*: all that the hub receives, in 32-bit
numbers; masked answers have twice as many bytes. *Sketch*: the same with 3 p d numbers instead of
p (p + 1)/2. *Masks*: random words that one site expands for a masked answer, 8 bytes each."""


def section(found: dict[str, Any], commands: Stored) -> list[str]:
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
    lines += ["", *verdict(found["exponents"])]
    fitted = cost_model(found["points"])
    fitted["command"] = page_commands.beside(fitted, commands.answers)
    lines += ["", *model(fitted), *page_commands.section(fitted, commands)]
    return [*lines, *plan(fitted, commands.units)]


def verdict(exponents: dict[str, dict[str, Any]]) -> list[str]:
    """Which exponents are as expected, and which are not."""
    outside = [
        f"{step} {name}^{exponents[step][name]['exponent']:.2f}"
        for step in STEPS
        for name, (low, high) in EXPECTED.items()
        if not low <= round(exponents[step][name]["exponent"], 2) <= high
    ]
    expected = ", ".join(f"{name}^{low} to {high}" for name, (low, high) in EXPECTED.items())
    said = f"outside are {', '.join(outside)}" if outside else "all are inside"
    return [f"Expected: {expected}; {said}. {WHY if outside else ''}".rstrip()]


def _power(fit: dict[str, Any]) -> str:
    return f"{fit['exponent']:.2f} ± {fit['error']:.2f}"


def model(fitted: dict[str, Any]) -> list[str]:
    """The fitted seconds of each unit of work."""
    lines = ["### Cost model", "", "| step | unit of work | fitted | worst relative error |"]
    lines.append("|---" * 4 + "|")
    for step in [name for name in (*MODEL, "command") if fitted[name] is not None]:
        for unit, value in fitted[step]["seconds"].items():
            worst = f"{fitted[step]['worst']:.0%}"
            lines.append(f"| {step} | {unit} | {_rate(unit, value)} | {worst} |")
    return [*lines, ""]


def _rate(unit: str, value: float) -> str:
    if value == 0:
        return "not told apart from the others"
    if "flop" in unit:
        return f"{1e-9 / value:,.0f} Gflop/s"
    for name, scale in (("s", 1.0), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{1e9 * value:.3g} ns"


def plan(fitted: dict[str, Any], units: float | None) -> list[str]:
    """The cost of a large network, by the model; units: sweeps of a whole fit at the hub."""
    n = RECORDS // SITES
    hub = "not known without `python -m benchmarks.papersize`"
    if units is not None:
        hub = f"{units:.0f} sweeps over its own records, as many as at the paper's size"
    lines = [
        "### A large network, by the model",
        "",
        PLAN.format(sites=SITES, records=n, hub=hub),
        "",
        "| codes | rank | site | hub | one answer | answers | sketch | masks | hub's p × p array |",
        "|---" * 9 + "|",
    ]
    at_site = page_commands.answer(fitted, fitted["command"])
    for p, d in PLANS:
        answer, sketch = 4 * p * (p + 1) // 2, 4 * 3 * p * d
        sweep = predicted(fitted, "sweep", n, p, d)
        cells = [
            f"{p:,}",
            str(d),
            duration(at_site(n, p, d)),
            "–" if units is None else duration(units * sweep),
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
