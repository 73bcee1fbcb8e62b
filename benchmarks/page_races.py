"""The races as tables and sentences.

A method with several settings stands with the best of them, by mean AUC.  Methods that pool records
are compared with Daniel pooled, methods whose records stay with Daniel in one shot.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks import race
from benchmarks.catalogue import FEDAVG, METHODS, OURS, PROBLEMS, raced

Run = dict[str, Any]
HOSPITALS = [name for name in PROBLEMS if not name.startswith("simulation")]
NEAR = 0.01  # of mean AUC below a method's best setting: still about as good
ONE_SETTING = """Mean AUC of each problem. Below, a method has on every problem the setting that its
known pairs like best. Who wants to learn relations has no such pairs to choose by: here a method
has one setting for all problems, still the best such one."""
EXPLANATION = """Every method ran in a process of its own, one after another. Times are compared on
one machine only: a method that ran on another than Daniel is named below its table, and has no
ratio; so is one that shared the machine, or whose Daniel did, with programs that used more than
{untimed:g} cores. What such a method took less of is told as a loss all the same.
*AUC*: known pairs of codes against random ones, mean over the relations; methods that give
couplings are scored by them as well as by cosines, and the better counts. A method with several
settings shows the one with the best mean AUC, which favours the rivals: Daniel runs with its
defaults, but on simulations ties intercepts to the diagonal, as they were drawn; so does FedAvg.
FedAvg has the components and penalties of Daniel's pooled fit, which its time does not count, a
random start, and no correlations beside the couplings in its vectors. "Daniel, correlations alone"
is Daniel without its fit: what of the correlations is above the noise, through its embedding step.
SV-Soft, SV-Hard, SV-Topd and PSD-Cvx run in double precision and have the paper's step, .01 (.1 on
simulations), or the one that is told. *Error*: distance of the couplings to those that the records
were drawn from.
*Time*: of the fit, all sites together, without reading and compiling; *ratio*: to Daniel in one
shot where records stay at their sites, to Daniel pooled where they do not. Each method uses the
threads that it uses by itself; word2vec has one, since its result would else depend on their
timing. Below a table every setting counts: a peer is named where any of its settings did better,
or where one that is at most {near:g} of mean AUC below its best took less time.
A run that passed its limit is told as such. Peers had {least:.0f} to {most:.0f} s, Daniel up to
{own:.0f} s (`limit` in results/races): a peer that did not finish may be faster, or better.
*Memory*: peak of the whole process. *Bytes*: what one site sends and receives; pooling sends
records."""


def section(races: list[Run]) -> list[str]:
    now = counted(races)
    explanation = EXPLANATION.format(near=NEAR, untimed=race.UNTIMED, **limits(now))
    lines = ["## Races", "", "`python -m benchmarks.race`", "", explanation, "", *setup(now)]
    lines += one_setting(now)
    for name in [n for n in PROBLEMS if any(r["problem"] == n for r in races)]:
        known = [r for r in races if r["problem"] == name]
        runs = [r for r in now if r["problem"] == name]
        facts = known[0]["facts"]
        lines += [
            f"### {PROBLEMS[name]}",
            "",
            f"{facts['records']:,} records, {facts['codes']:,} codes, {facts['sites']} sites, "
            f"{facts['codes_per_record']:.1f} codes in a record, {facts['pairs']:,} known pairs.",
            "",
            *(told(runs) if runs else []),
            *unrun(name, known, runs),
            "",
        ]
    absent = [name for name in PROBLEMS if all(r["problem"] != name for r in races)]
    if absent:
        lines += [f"Not raced yet: `python -m benchmarks.race --problems {' '.join(absent)}`.", ""]
    return lines


def told(runs: list[Run]) -> list[str]:
    """Tables and sentences of one problem."""
    more = (*rounds(runs), *sentences(runs), *disturbed(runs))
    return [*table(runs), "", *elsewhere(runs), *more]


def limits(races: list[Run]) -> dict[str, float]:
    """Seconds that peers had, the least and the most, and the most that Daniel had."""
    own = [r["limit"] for r in races if r["label"] in OURS.values()]
    others = [r["limit"] for r in races if r["label"] not in OURS.values()]
    return {
        "least": min(others, default=0),
        "most": max(others, default=0),
        "own": max(own, default=0),
    }


def setup(races: list[Run]) -> list[str]:
    """Machine and versions; all that occur, when they differ."""
    machines = dict.fromkeys(
        f"{r['machine']['processor']}, {r['machine']['cores']} cores, "
        f"{r['machine']['memory_gb']:.0f} GB" + _threads(r["machine"]["threads"])
        for r in races
    )
    packages: dict[str, set[str]] = {}
    for run in races:
        for name, version in run["versions"].items():
            packages.setdefault(name, set()).add(version)
    said = ", ".join(f"{name} {' / '.join(sorted(v))}" for name, v in packages.items())
    commits = ", ".join(dict.fromkeys(r["commit"] for r in races))
    return [f"Machine: {'; '.join(machines)}. Versions: {said}. Commit {commits}.", ""]


def unrun(problem: str, known: list[Run], runs: list[Run]) -> list[str]:
    """What of the catalogue has not been tried here, and what was before its method changed."""
    here = {r["method"] for r in runs}
    before = {r["method"] for r in known if outdated(r)}
    lines = []
    busy = {r["method"] for r in runs if race.untimed(r)}
    again = " --again-disturbed"
    for said, names, option in (
        ("Not raced yet", [n for n in raced(problem) if n not in here | before], ""),
        ("Raced before the method changed", [n for n in raced(problem) if n in before], ""),
        ("Raced on a busy machine", [n for n in raced(problem) if n in busy], again),
    ):
        if names:
            command = f"python -m benchmarks.race --problems {problem} --methods {' '.join(names)}"
            command += option
            lines += ["", f"{said}: `{command}`."]
    return lines


def elsewhere(runs: list[Run]) -> list[str]:
    """Methods whose times say nothing beside Daniel's; by their settings where some do."""
    done = [r for r in runs if r["status"] == "done" and ours(runs, r) is not None]
    away = [r for r in done if not _here(runs, r)]
    beside = {r["label"] for r in done if _here(runs, r)}
    names = dict.fromkeys(_named(r) if r["label"] in beside else r["label"] for r in away)
    if not names:
        return []
    said = "Timed on another machine than Daniel, and not compared in time"
    return [f"{said}: {'; '.join(names)}.", ""]


def disturbed(runs: list[Run]) -> list[str]:
    """Runs that had to share the machine; older results do not tell."""
    shared = [f"{_named(r)} ({r['other_cores']:.1f})" for r in runs if race.disturbed(r)]
    unknown = sum("other_cores" not in r for r in runs)
    lines = []
    if shared:
        said = "The machine was not idle; in brackets the cores that other programs used"
        lines += ["", f"{said}: {'; '.join(shared)}."]
    if any(race.untimed(r) for r in runs):
        said = (
            f"Above {race.UNTIMED:g} cores a time is not compared, and a limit that passed is not"
        )
        lines += ["", f"{said} told."]
    if unknown:
        lines += ["", f"How busy the machine was is not stored for {unknown} of {len(runs)} runs."]
    return lines


def _threads(threads: dict[str, str | None]) -> str:
    set_ = [f"{name}={value}" for name, value in threads.items() if value]
    return f" ({', '.join(set_)})" if set_ else ""


# --- which runs count -----------------------------------------------------------------------------


def counted(races: list[Run]) -> list[Run]:
    """Runs of methods as they are now.

    One that was spared for its time on a smaller problem counts while that still is too long.
    """
    now = [r for r in races if not outdated(r)]
    known = {(r["problem"], r["method"]): r for r in now}

    def find(problem: str, name: str) -> Run | None:
        return known.get((problem, name))

    def spared(run: Run) -> bool:
        return race.too_slow(find, run["problem"], run["method"], run["limit"]) is not None

    return [r for r in now if not race.inherited(r) or spared(r)]


def outdated(run: Run) -> bool:
    """Whether a method has changed since."""
    entry = METHODS.get(run["method"])
    return entry is not None and run.get("config", {}).get("edition", 1) < entry.edition


def one_machine(run: Run, other: Run) -> bool:
    return all(run["machine"][key] == other["machine"][key] for key in ("processor", "cores"))


def best(runs: Iterable[Run]) -> list[Run]:
    """One run of each method: done before others, the highest mean AUC, the least error."""
    found: dict[str, Run] = {}
    for run in runs:
        old = found.get(run["label"])
        if old is None or _merit(run) > _merit(old):
            found[run["label"]] = run
    return sorted(found.values(), key=_merit, reverse=True)


def _merit(run: Run) -> tuple[bool, float, float]:
    if run["status"] != "done":
        return False, 0.0, 0.0
    return True, run["auc"], -run.get("error", 0.0)


def ours(runs: Iterable[Run], run: Run) -> Run | None:
    """The run of Daniel that another is compared with."""
    label = OURS["stay" if run["where"] == "stay" else "pooled"]
    return next((r for r in runs if r["label"] == label and r["status"] == "done"), None)


# --- tables ---------------------------------------------------------------------------------------


def table(runs: list[Run]) -> list[str]:
    done = [r for r in runs if r["status"] == "done"]
    relations = list(dict.fromkeys(name for r in done for name in r["relations"]))
    relations = relations if len(relations) > 1 else []
    errors = any("error" in r for r in done)
    heads = ["method", "setting", "AUC", *relations, *(["error"] if errors else [])]
    heads += ["time", "ratio", "memory", "bytes", "rounds"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for run in best(runs):
        cells = _quality(run, relations, errors=errors) + _cost(run, timed_beside(runs, run))
        lines.append(f"| {run['label']} | {run['setting']} | " + " | ".join(cells) + " |")
    return lines


def _quality(run: Run, relations: list[str], *, errors: bool) -> list[str]:
    if run["status"] != "done":
        return ["–"] * (1 + len(relations) + errors)
    cells = [f"{run['auc']:.3f}", *(f"{run['relations'][r]['auc']:.3f}" for r in relations)]
    if errors:
        cells.append(f"{run['error']:.3f}" if "error" in run else "–")
    return cells


def _cost(run: Run, mine: Run | None) -> list[str]:
    if run["status"] != "done":
        return [reason(run), "–", "–", "–", "–"]
    ratio = "–" if mine is None else times(run["seconds"] / mine["seconds"])
    sent = "–" if run["where"] == "hub" else size(run["bytes_sent"])
    if run["where"] == "pooled":
        sent = f"records, {sent}"
    trips = str(run["rounds"]) if run["where"] == "stay" else "–"
    return [seconds(run["seconds"]), ratio, f"{run['memory_mb']:,} MB", sent, trips]


def reason(run: Run) -> str:
    """Why a run has no result; a limit that passed on a busy machine says nothing."""
    busy = run["status"] == race.OVER and race.untimed(run)
    return "stopped on a busy machine" if busy else str(run["reason"])


def rounds(runs: list[Run]) -> list[str]:
    """What more rounds bring: of averaging, and of Daniel."""
    averaged = [r for r in runs if r["label"] == FEDAVG and r["status"] == "done"]
    own = [r for r in runs if r["label"] in (OURS["stay"], OURS["rounds"])]
    own = [r for r in own if r["status"] == "done"]
    if not averaged or not own:
        return []
    lines = ["| federated fit | rounds | bytes of a site | time | AUC | error |", "|---" * 6 + "|"]
    for run in sorted(own, key=_trips) + sorted(averaged, key=_trips):
        error = f"{run['error']:.3f}" if "error" in run else "–"
        lines.append(
            f"| {_named(run)} | {run['rounds']} | {size(run['bytes_sent'])} | "
            f"{seconds(run['seconds'])} | {run['auc']:.3f} | {error} |"
        )
    return [*lines, ""]


def _trips(run: Run) -> tuple[int, str]:
    return run["rounds"], run["setting"]


# --- all problems together ------------------------------------------------------------------------


@dataclass(frozen=True)
class Fixed:
    """A method in one setting on all HOSPITALS: its AUC on each of them, and their mean."""

    run: Run
    aucs: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.aucs) / len(self.aucs)


def fixed(races: list[Run]) -> list[Fixed]:
    """Of each method that finished all HOSPITALS in one setting the best such setting."""
    done = {(r["problem"], r["method"]): r for r in races if r["status"] == "done"}
    found: dict[str, Fixed] = {}
    for name in dict.fromkeys(r["method"] for r in races):
        runs = [done[problem, name] for problem in HOSPITALS if (problem, name) in done]
        if len(runs) < len(HOSPITALS):
            continue
        own = Fixed(runs[0], tuple(r["auc"] for r in runs))
        label = own.run["label"]
        if label not in found or own.mean > found[label].mean:
            found[label] = own
    return sorted(found.values(), key=lambda one: -one.mean)


def one_setting(races: list[Run]) -> list[str]:
    """What a user gets who has no known pairs to choose a setting by."""
    rows = fixed(races)
    if not rows:
        return []
    heads = ["method", "setting", *(PROBLEMS[name] for name in HOSPITALS), "mean"]
    lines = ["### One setting for all hospitals", "", ONE_SETTING, ""]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [row.run["label"], row.run["setting"], *(f"{x:.3f}" for x in row.aucs)]
        lines.append(f"| {' | '.join(cells)} | {row.mean:.3f} |")
    here = {row.run["label"] for row in rows}
    absent = [label for label in dict.fromkeys(r["label"] for r in races) if label not in here]
    if absent:
        lines += [
            "",
            f"On some of these problems no result in any one setting: {', '.join(absent)}.",
        ]
    return [*lines, ""]


# --- sentences ------------------------------------------------------------------------------------


def sentences(runs: list[Run]) -> list[str]:
    """Where Daniel is first, and where it is not."""
    alone = [r["label"] for r in best(runs) if ours(runs, r) is None]
    if alone:
        return [f"There is no result of Daniel to compare with {', '.join(alone)}."]
    quality, slower = quality_losses(runs), time_losses(runs)
    away = [r for r in best(runs) if r["status"] != "done"]
    finished = " of the methods that finished" if away else ""
    first = f"Daniel is first in quality{finished}."
    lines = ["Where Daniel is not first:" if quality else first]
    lines += [f"- {loss.text}" for loss in quality]
    if slower:
        lines += ["", "Where Daniel is not the fastest:", *(f"- {loss.text}" for loss in slower)]
    elif any(r["pairs"] and timed_beside(runs, r) for r in peers(runs)):
        here = "" if all_compared(runs) else " and whose times can be compared"
        lines += ["", f"Of the methods that fit a model of pairs{here} Daniel is the fastest."]
    factors = decompositions(runs)
    if factors:
        lines += ["", f"Against decompositions of a matrix of counts: {'; '.join(factors)}."]
    if away:
        said = "; ".join(f"{r['label']} ({reason(r)})" for r in away)
        lines += ["", f"Not finished, and so not compared: {said}."]
        sooner = [r["label"] for r in away if r["limit"] < (ours(runs, r) or r)["seconds"]]
        if sooner:
            lines += ["", f"Stopped sooner than Daniel ended: {', '.join(sooner)}."]
    nothing = next((r["error_of_none"] for r in runs if "error_of_none" in r), None)
    if nothing is not None:
        lines += ["", f"A model without couplings has the error {nothing:.3f}."]
    return lines


def _named(run: Run) -> str:
    return f"{run['label']}, {run['setting']}".removesuffix(", ")


def peers(runs: Iterable[Run]) -> list[Run]:
    return [r for r in runs if r["status"] == "done" and r["label"] not in OURS.values()]


def timed_beside(runs: Iterable[Run], run: Run) -> Run | None:
    """The run of Daniel whose time another may be held against."""
    mine = ours(runs, run)
    if mine is None or race.untimed(mine) or race.untimed(run):
        return None
    return mine if one_machine(run, mine) else None


def _here(runs: Iterable[Run], run: Run) -> bool:
    """Whether a run was on the machine of the Daniel that it is compared with."""
    mine = ours(runs, run)
    return mine is not None and one_machine(run, mine)


def all_compared(runs: list[Run]) -> bool:
    """Whether the time of every model of pairs that ended can be held against Daniel's."""
    return all(timed_beside(runs, r) for r in peers(runs) if r["pairs"])


@dataclass(frozen=True)
class Loss:
    """Where a peer did better: in which column, by how much, and a sentence.

    by: a difference in quality, a ratio in time; None where times cannot be compared.
    """

    column: str
    label: str
    by: float | None
    text: str


def quality_losses(runs: list[Run]) -> list[Loss]:
    """Columns in which a peer did better than the Daniel it is compared with.

    Any setting of a peer counts, in mean AUC, in a relation, in error; the best one is named.
    """
    found: dict[tuple[str, str], Loss] = {}
    for run in peers(runs):
        mine = ours(runs, run)
        assert mine is not None
        for column, theirs, own, gap in _columns(run, mine):
            key = (column, run["label"])
            if gap > (found[key].by if key in found else 0.0):
                said = f"{column}: {_named(run)} {theirs:.3f}, {mine['label']} {own:.3f}"
                found[key] = Loss(*key, gap, said)
    order = {column: i for i, column in enumerate(dict.fromkeys(column for column, _ in found))}
    return sorted(found.values(), key=lambda loss: (order[loss.column], -loss.by))


def columns(mine: Run) -> list[str]:
    """What quality is told by."""
    return [column for column, *_ in _columns(mine, mine)]


def _columns(run: Run, mine: Run) -> Iterable[tuple[str, float, float, float]]:
    """(column, theirs, ours, by how much theirs is better)."""
    yield "mean AUC", run["auc"], mine["auc"], run["auc"] - mine["auc"]
    if len(mine["relations"]) > 1:
        for name in [r for r in mine["relations"] if r in run["relations"]]:
            theirs, own = run["relations"][name]["auc"], mine["relations"][name]["auc"]
            yield name, theirs, own, theirs - own
    if "error" in run and "error" in mine:
        yield "error", run["error"], mine["error"], mine["error"] - run["error"]


def time_losses(runs: list[Run]) -> list[Loss]:
    """Methods that fit a model of pairs and took less time, each in its fastest setting: of those
    about as good as its best, for no method has the time of one and the quality of another.

    Those whose times cannot be compared stand by themselves.
    """
    most: dict[str, float] = {}
    for run in peers(runs):
        most[run["label"]] = max(run["auc"], most.get(run["label"], 0.0))
    fastest: dict[tuple[str, str], Run] = {}
    for run in sorted(peers(runs), key=lambda r: r["seconds"]):
        if run["pairs"] and run["auc"] >= most[run["label"]] - NEAR:
            fastest.setdefault((run["label"], _apart(runs, run)), run)
    out = []
    for (label, apart), run in fastest.items():
        mine = ours(runs, run)
        assert mine is not None
        if run["seconds"] >= mine["seconds"]:
            continue
        ratio = None if "busy" in apart else run["seconds"] / mine["seconds"]
        aucs = f"AUC {run['auc']:.3f}, ours {mine['auc']:.3f}"
        said = f"{_named(run)} takes {times(ratio or 0)} the time of {mine['label']} ({aucs})"
        if apart:
            told = "" if ratio is None else f": {times(ratio)}"
            said = f"{_named(run)}: less time, {apart}{told} ({aucs})"
        out.append(Loss(apart, label, ratio, said))
    return out


def _apart(runs: list[Run], run: Run) -> str:
    """Why a time cannot be held against Daniel's; empty where it can."""
    mine = ours(runs, run)
    assert mine is not None
    said = [] if one_machine(run, mine) else ["on another machine"]
    said += ["on a busy machine"] if race.untimed(run) or race.untimed(mine) else []
    return ", ".join(said)


def decompositions(runs: list[Run]) -> list[str]:
    """The factor in time between Daniel and methods that fit no model of pairs."""
    out = []
    for run in best(peers(runs)):
        mine = timed_beside(runs, run)
        if run["pairs"] or mine is None or run["status"] != "done":
            continue
        factor = times(mine["seconds"] / run["seconds"])
        out.append(f"{mine['label']} takes {factor} the time of {run['label']}")
    return out


# --- numbers --------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def times(value: float) -> str:
    return f"{value:.2f} ×" if value < 10 else f"{value:,.0f} ×"


def size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"
