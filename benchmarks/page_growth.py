"""Growth and the cost model as tables, and what the model says of larger networks."""

from typing import Any

from benchmarks import page_commands
from benchmarks.growth import DENSE, MANY, POWERS, TIMED, cost_model, exponents, predicted
from benchmarks.page_commands import Stored
from benchmarks.page_races import size
from daniel.core.intercepts import LARGE
from daniel.core.spectrum import WHOLE

SITES, RECORDS = 100, 10**9  # of the plan in docs/scale.md
PLANS = ((2_142, 200), (20_000, 100))  # codes and rank
EXPLANATION = """One size is varied at a time. *Sweep*: one gradient of the factored loss
over sparse records; *dense*: over records with {dense:.0%} of all codes. {answer}
*Exchange*: start, two answers and finish, with a fixed number of iterations. Below, the exponent of
the fitted power with its standard error."""
ANSWER = """*Pass*: one step of the search for a site's intercepts. *Derivative*: a site's at its
intercepts. *Answer*: the passes that the intercepts take, which are counted, and the derivative, of
a site whose prevalences are not the hub's."""
OLD_ANSWER = """*Answer*: the hub's own derivative, whose intercepts take two passes. **Missing**: a
site with other prevalences takes more passes; the command now counts them, and times a pass and a
derivative by themselves."""
PASSES = """An answer is so many passes and a derivative. Passes, counted: {few:.1f} up to {large:,}
records × codes, the mean of the points; {many:.2f} above, where most passes are over a part of the
records and count as that part ({n:,} records, {p:,} codes, rank {d}; many more records ask for
intercepts that are surer, and may take one pass more); {independence:.2f} after a start at
independence. The answers of the points differ from this by at most {worst:.0%}."""
EXPECTED = {"n": (0.9, 1.1), "p": (1.0, 2.0), "d": (0.85, 1.15)}
WHY = """An exponent below what was asked is less time at large sizes. Logits and residuals of
sparse records are sums over their few codes, whatever the rank: it enters through Phi alone,
which is made once for all records. An exchange also has spectra at both ends, whatever the records
and the rank."""
PLAN = """What the cost model says of {sites} sites of {records:,} records each, on machines like
this one. It is an extrapolation of the measurements above, not a measurement. *Site*: one answer,
{site}. *Hub*: {hub}. *Answers*: all that the hub receives, in 32-bit
numbers; masked answers have twice as many bytes. *Sketch*: the same with 3 p d numbers instead of
p (p + 1)/2. *Masks*: random words that one site expands for a masked answer, 8 bytes each."""


def section(found: dict[str, Any], commands: Stored) -> list[str]:
    machine, counted = found["machine"], found.get("passes")
    told = OLD_ANSWER if counted is None else ANSWER
    explanation = EXPLANATION.format(dense=DENSE, answer=told)
    lines = ["## Growth", "", "`python -m benchmarks.growth`", "", explanation, ""]
    where = f"Machine: {machine['processor']}, {machine['cores']} cores."
    lines += [f"{where} Commit {found['commit']}.", "", *measurements(found["points"])]
    lines += ["", "| | n | p | d |", "|---|---|---|---|"]
    fitted = cost_model(found["points"], counted)
    modelled = of_model(fitted, found["points"])
    for step, fits in found["exponents"].items():
        lines.append(_powers(step, fits))
        if step in modelled:
            lines.append(_powers(f"{step}, by the cost model", modelled[step]))
    lines += ["", *verdict(found["exponents"])]
    processor = machine["processor"]
    variants = page_commands.beside(fitted, commands.on(processor).answers)
    lines += ["", *model(fitted, variants), *_passes(fitted, found["points"])]
    lines += page_commands.section(fitted, commands, processor)
    return [*lines, *plan(fitted, variants, commands, processor)]


def of_model(fitted: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """step -> size -> exponent of the seconds that the cost model has for these points."""
    steps = [step for step in POWERS if step in fitted]
    steps += ["answer"] if fitted["passes"] is not None else []
    sizes = {name: tuple(sorted({row[name] for row in rows})) for name in EXPECTED}
    told = [
        row | {s: predicted(fitted, s, *(row[k] for k in sizes)) for s in steps} for row in rows
    ]
    found = exponents(told, sizes)
    return {step: found[step] for step in steps}


def measurements(rows: list[dict[str, Any]]) -> list[str]:
    """What was timed at each point, and the passes where they were counted."""
    names = [name for name in TIMED if name in rows[0]]
    heads = ["n", "p", "d", *names, *(["passes"] if "passes" in rows[0] else [])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [f"{row['n']:,}", f"{row['p']:,}", str(row["d"])]
        cells += [f"{row[name]:.3f} s" for name in names]
        cells += [f"{row['passes']:.0f}"] if "passes" in row else []
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _passes(fitted: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """What the model takes an answer for."""
    counted = fitted["passes"]
    if counted is None:
        return []
    worst = max(
        abs(predicted(fitted, "answer", r["n"], r["p"], r["d"]) / r["answer"] - 1) for r in rows
    )
    size_of = counted.get("size of many", MANY)
    numbers = {k: v for k, v in counted.items() if k != "size of many"}
    return [PASSES.format(large=LARGE, worst=worst, **numbers, **size_of), ""]


def verdict(exponents: dict[str, dict[str, Any]]) -> list[str]:
    """Which exponents are as expected, and which are not."""
    outside = [
        f"{step} {name}^{fits[name]['exponent']:.2f}"
        for step, fits in exponents.items()
        for name, (low, high) in EXPECTED.items()
        if not low <= round(fits[name]["exponent"], 2) <= high
    ]
    expected = ", ".join(f"{name}^{low} to {high}" for name, (low, high) in EXPECTED.items())
    said = f"outside are {', '.join(outside)}" if outside else "all are inside"
    return [f"Expected: {expected}; {said}. {WHY if outside else ''}".rstrip()]


def _powers(name: str, fits: dict[str, Any]) -> str:
    return f"| {name} | {' | '.join(_power(fits[size]) for size in EXPECTED)} |"


def _power(fit: dict[str, Any]) -> str:
    return f"{fit['exponent']:.2f} ± {fit['error']:.2f}"


def model(fitted: dict[str, Any], variants: list[page_commands.Variant]) -> list[str]:
    """The fitted seconds of each unit of work."""
    lines = ["### Cost model", "", "| step | unit of work | fitted | worst relative error |"]
    lines.append("|---" * 4 + "|")
    steps = {step: found for step, found in fitted.items() if step != "passes"}
    ways = ("by the record", "by the record and code")
    steps |= {f"command, {way}": v[1] for way, v in zip(ways, variants, strict=False)}
    for step, found in steps.items():
        for unit, value in found["seconds"].items():
            lines.append(f"| {step} | {unit} | {_rate(unit, value)} | {found['worst']:.0%} |")
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


def refused(commands: Stored, processor: str) -> str | None:
    """Why growth and the run at the paper's size cannot be put together, if they cannot."""
    if not commands.hubs or commands.processor == processor:
        return None
    where = commands.processor or "a processor that is not stored"
    return (
        f"not told, since growth was measured on {processor} and the paper's size on {where}: run "
        "`python -m benchmarks.growth` and `python -m benchmarks.papersize` on one machine"
    )


def _at_site(
    fitted: dict[str, Any], variants: list[page_commands.Variant], why: str | None
) -> tuple[str, bool]:
    """What the plan's seconds of a site are, and whether there are any."""
    if fitted["passes"] is None:
        return "not told without the passes of a site: `python -m benchmarks.growth`", False
    if why is not None:
        return why, False
    if not variants:
        return "the step alone, without what a command costs beside it", True
    return "as a command; where the stored commands do not tell its terms apart, a range", True


def _at_hub(sweeps: float | None, commands: Stored, why: str | None) -> tuple[str, bool]:
    """What the plan's seconds of the hub are, and whether there are any."""
    if why is not None:
        return why, False
    if sweeps is None:
        missing = "the seconds of a full sweep, which are not stored" if commands.hubs else "a run"
        return f"not told without {missing}: `python -m benchmarks.papersize`", False
    return (
        f"{sweeps:.0f} full sweeps over its own records, as many as at the paper's size; above "
        f"{WHOLE:,} codes the solver has one stage less, this number is not known, and no figure "
        "is given",
        True,
    )


def plan(
    fitted: dict[str, Any],
    variants: list[page_commands.Variant],
    commands: Stored,
    processor: str,
) -> list[str]:
    """The cost of a large network, by the model, as far as it is of one processor."""
    n, why = RECORDS // SITES, refused(commands, processor)
    site, site_told = _at_site(fitted, variants, why)
    hub, hub_told = _at_hub(commands.sweeps, commands, why)
    lines = [
        "### A large network, by the model",
        "",
        PLAN.format(sites=SITES, records=n, site=site, hub=hub),
        "",
        "| codes | rank | site | hub | one answer | answers | sketch | masks | hub's p × p array |",
        "|---" * 9 + "|",
    ]
    for p, d in PLANS:
        answer, sketch = 4 * p * (p + 1) // 2, 4 * 3 * p * d
        whole = (commands.sweeps or 0) * predicted(fitted, "sweep", n, p, d)
        cells = [
            f"{p:,}",
            str(d),
            _site_cell(fitted, variants, (n, p, d)) if site_told else "–",
            duration(whole) if hub_told and p <= WHOLE else "–",
            size(answer),
            size(SITES * answer),
            size(SITES * sketch),
            size((SITES - 1) * 2 * answer),
            size(4 * p * p),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _site_cell(
    fitted: dict[str, Any], variants: list[page_commands.Variant], at: tuple[int, int, int]
) -> str:
    said = between(page_commands.answer(fitted, variants)(*at))
    return said if variants else f"more than {said}"


def between(seconds: list[float]) -> str:
    """Least and most, or one where they are alike."""
    return " to ".join(dict.fromkeys(map(duration, seconds)))


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
