"""The races: every method on every problem, each in a process of its own.

    python -m benchmarks.race                                    everything that is not there yet
    python -m benchmarks.race --problems visits --methods daniel-pooled ppmi-50 --limit 300

For each run results/races/ holds one JSON: time, peak memory, bytes sent, known-pair AUC and error
to the truth, with configuration, machine, its load, versions and commit.  A run that passes the
limit stands there as such, and so does one that fails.  Results with the same configuration are
kept, so that an interrupted race goes on where it stopped; failures are tried again, and so is what
passed the limit while other programs used the machine.  What ended while they did, or before this
was stored, is raced again with --again-disturbed, once for each call, and replaced by what was
disturbed less.  `python -m benchmarks.page` makes the page.

The standard library alone is imported here: a process counts the memory of the one that started it
in its own peak.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.catalogue import METHODS, PROBLEMS, SMALLER, Entry, raced

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "races"
PROBLEM_FILES = ROOT / "build" / "problems"
FORMAT = 1
LIMIT, MEMORY = 600.0, 12.0  # seconds, GB
PACKAGES = (
    *("daniel", "numpy", "scipy", "scikit-learn", "numba"),
    *("gensim", "implicit", "logisticpca"),
)
OVER = "over the limit"
SMALLER_TOLD = " on a smaller problem"
DISTURBED = 0.1  # cores that other programs used during a run
UNTIMED = 0.3  # of them, above which the time of a run says nothing
Result = dict[str, Any]
Find = Callable[[str, str], Result | None]  # problem, method -> its result, if there is one


def prepare(name: str, folder: Path) -> dict[str, Any] | None:
    """What a problem's file holds; it is made if it is not there.  None when it cannot be made."""
    about = folder / f"{name}.json"
    if not about.exists():
        command = [sys.executable, "-m", "benchmarks.problems_file", name, str(folder)]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if made.returncode:
            lines = made.stderr.strip().splitlines() or ["no reason given"]
            print(f"{name} is left out: {lines[-1]}")
            return None
    return dict(json.loads(about.read_text()))


def machine() -> dict[str, Any]:
    """Processor, cores, memory, and the threads that were allowed."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "DANIEL_NUM_THREADS")}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": model, "cores": cores, "memory_gb": round(memory, 1), "threads": threads}


def busy() -> float | None:
    """Processor seconds that all programs of this machine have used since it was started."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
        user, nice, system, _idle, _wait, *interrupts = map(int, line.split()[1:9])
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Load:
    """How busy the machine is: the load average at the start of a run, and what others used.

    The load average still holds the run before; the cores that other programs used meanwhile tell
    whether a run had the machine to itself.
    """

    def __init__(self) -> None:
        self.average = os.getloadavg()[0]
        self.busy, self.begin = busy(), time.perf_counter()

    def until_now(self, own: float) -> dict[str, float]:
        """Told at the end of a run that used so many processor seconds itself."""
        found, now = {"load_average": round(self.average, 2)}, busy()
        if self.busy is not None and now is not None:
            others = (now - self.busy - own) / (time.perf_counter() - self.begin)
            found["other_cores"] = round(max(others, 0.0), 2)
        return found


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of the code, with + when files differ from it."""
    call = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*call, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run([*call, "status", "--porcelain"], capture_output=True, text=True)
    except OSError:
        return ""
    return head.stdout.strip()[:12] + ("+" if changed.stdout.strip() else "")


def config(problem: str, facts: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """What makes two runs the same; a first edition is not told."""
    return {
        "format": FORMAT,
        "problem": problem,
        "sha256": facts["sha256"],
        "module": entry.module,
        "options": dict(entry.options),
        **({"edition": entry.edition} if entry.edition > 1 else {}),
    }


def stored(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def kept(
    old: Result | None,
    wanted: dict[str, Any],
    limit: float,
    slow: str | None = None,
    *,
    again_disturbed: bool = False,
) -> bool:
    """Whether a stored result answers: same configuration, not failed, limit not raised.

    One over its limit must have had the machine to itself; slow: what `too_slow` says now.
    again_disturbed: so must every other one.
    """
    if old is None or old.get("config") != wanted or old["status"] == "failed":
        return False
    if again_disturbed and not inherited(old) and unsure(old):
        return False
    if old["status"] == "done":
        return True
    return old["limit"] >= limit and not disturbed(old) and (slow is not None or not inherited(old))


def disturbed(result: Result) -> bool:
    return bool(result.get("other_cores", 0) > DISTURBED)


def unsure(result: Result) -> bool:
    """Whether a run was disturbed, or may have been: older results do not tell."""
    return bool(result.get("other_cores", float("inf")) > DISTURBED)


def untimed(result: Result) -> bool:
    """Whether a run was disturbed so much that its time says nothing."""
    return bool(result.get("other_cores", 0) > UNTIMED)


def worse(new: Result, old: Result | None, wanted: dict[str, Any]) -> bool:
    """Whether a result that stands is to be kept after all: done, and disturbed less."""
    if old is None or old.get("config") != wanted or old["status"] != "done":
        return False
    most = float("inf")
    return new["status"] != "done" or new.get("other_cores", most) > old.get("other_cores", most)


def inherited(result: Result) -> bool:
    """Whether a method was not tried, because it was too slow for a smaller problem."""
    return result["status"] == OVER and result["reason"].endswith(SMALLER_TOLD)


def too_slow(find: Find, problem: str, name: str, limit: float) -> str | None:
    """Why a method need not be tried: it passed the limit on a smaller problem, undisturbed."""
    smaller = find(SMALLER.get(problem, ""), name)
    if smaller is None or smaller["status"] != OVER or smaller["limit"] < limit:
        return None
    if inherited(smaller):
        return too_slow(find, SMALLER[problem], name, limit)
    return None if disturbed(smaller) else smaller["reason"] + SMALLER_TOLD


def stored_in(out: Path, wanted: dict[str, Any]) -> Find:
    """Finds results of the method of a configuration: same options, same edition."""

    def method(config: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in config.items() if k not in ("problem", "sha256")}

    def find(problem: str, name: str) -> Result | None:
        found = stored(out / f"{problem}.{name}.json")
        same = found is not None and method(found.get("config", {})) == method(wanted)
        return found if same else None

    return find


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def measure(file: Path, entry: Entry, limit: float, memory: float) -> dict[str, Any]:
    """Run one method on the file of a problem: what it found, with the peak memory of wait4."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        options = json.dumps(dict(entry.options))
        load = Load()
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.race_one", file, entry.module, options, out),
                *("--limit", str(limit), "--memory", str(memory)),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stderr is not None
            said = child.stderr.read().strip().splitlines()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if child.returncode is None:  # interrupted
                child.kill()
        found: dict[str, Any] = {"memory_mb": round(used.ru_maxrss / 1024)}
        found |= load.until_now(used.ru_utime + used.ru_stime)
        if child.returncode == -signal.SIGALRM:
            return found | {"status": OVER, "reason": f"more than {limit:g} s"}
        if child.returncode < 0:
            name = signal.Signals(-child.returncode).name
            return found | {"status": "failed", "reason": f"the process ended by {name}"}
        if child.returncode:
            reason = said[-1][:300] if said else f"exit code {child.returncode}"
            return found | {"status": "failed", "reason": reason}
        return found | dict(json.loads(out.read_text()))


def race(
    problem: str,
    names: Sequence[str],
    *,
    methods: dict[str, Entry] = METHODS,
    out: Path = OUT,
    files: Path = PROBLEM_FILES,
    limit: float = LIMIT,
    memory: float = MEMORY,
    again: bool = False,
    again_disturbed: bool = False,
) -> None:
    """All named methods on one problem; one file each."""
    facts = prepare(problem, files)
    if facts is None:
        return
    about = {"machine": machine(), "versions": versions(), "commit": commit()}
    for name in names:
        entry = methods[name]
        path = out / f"{problem}.{name}.json"
        wanted = config(problem, facts, entry)
        slow = too_slow(stored_in(out, wanted), problem, name, limit)
        old = stored(path)
        if not again and kept(old, wanted, limit, slow, again_disturbed=again_disturbed):
            continue
        if slow is not None:
            found: Result = {"status": OVER, "reason": slow}
        else:
            found = measure(files / f"{problem}.npz", entry, limit, memory)
        if again_disturbed and not again and worse(found, old, wanted):
            print(f"{problem:15s} {name:18s} keeps what was disturbed less", flush=True)
            continue
        result = {
            "problem": problem,
            "facts": facts,
            "method": name,
            "label": entry.label,
            "setting": entry.setting,
            "where": entry.where,
            "pairs": entry.pairs,
            **found,
            "limit": limit,
            "config": wanted,
            **about,
        }
        write(path, result)
        print(line(result), flush=True)


def line(result: dict[str, Any]) -> str:
    """A result in one line."""
    head = f"{result['problem']:15s} {result['method']:18s} "
    if result["status"] != "done":
        return head + f"{result['status']}: {result['reason']}"
    error = f", error {result['error']:.3f}" if "error" in result else ""
    return head + (
        f"{result['seconds']:8.2f} s {result['memory_mb']:6,} MB, AUC {result['auc']:.3f}{error}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one run")
    parser.add_argument("--memory", type=float, default=MEMORY, help="GB of one run")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument(
        "--again-disturbed",
        action="store_true",
        help="also what other programs may have disturbed, once",
    )
    arguments = parser.parse_args()
    for problem in arguments.problems:
        race(
            problem,
            raced(problem, arguments.methods),
            out=arguments.out,
            limit=arguments.limit,
            memory=arguments.memory,
            again=arguments.again,
            again_disturbed=arguments.again_disturbed,
        )


if __name__ == "__main__":
    main()
