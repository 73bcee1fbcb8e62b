"""The report with 20,000 codes: its size, the time to build it, and how it feels in a browser.

    python -m benchmarks.report [--codes 20000] [--shots FOLDER]

The bounds: under 10 MB, first paint under 2 s, a search answered under 100 ms.  Times in the
browser are medians and maxima over several runs; one above its bound ends with exit code 1.
"""

import argparse
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.chromium import Browser, chromium
from daniel.federated.report import Contribution, Report
from daniel.report import ReportParts, build_report
from daniel.report.parts import shown_prevalence

WORDS = [
    *(
        "acute",
        "chronic",
        "benign",
        "malignant",
        "secondary",
        "recurrent",
        "severe",
        "mild",
        "left",
    ),
    *(
        "right",
        "upper",
        "lower",
        "heart",
        "lung",
        "kidney",
        "liver",
        "brain",
        "bone",
        "skin",
        "nerve",
    ),
    *("joint", "artery", "vein", "stomach", "bowel", "eye", "ear", "thyroid", "bladder", "spine"),
    *("disease", "failure", "infection", "fracture", "neoplasm", "stenosis", "disorder", "injury"),
    *("ulcer", "oedema", "tablet", "injection", "solution", "biopsy", "repair", "imaging", "test"),
]
KINDS = ("PheCode", "RxNorm", "LOINC", "CCS", "SNOMED")
QUERIES = (
    "a",
    "he",
    "heart",
    "chronic heart fail",
    "1234",
    "RxNorm:1500",
    "no such words",
    "injection left lung mild",
)
RUNS = 5


def make_parts(p: int, groups: int = 400, d: int = 60, seed: int = 0) -> ReportParts:
    """Codes in groups of related ones, with words and prevalences; nothing of it is real."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, d))
    E = centres[rng.integers(groups, size=p)] + 0.7 * rng.normal(size=(p, d))
    kinds = rng.choice(KINDS, p=(0.4, 0.25, 0.2, 0.05, 0.1), size=p)
    codes = tuple(f"{kind}:{1000 + j}" for j, kind in enumerate(kinds))
    words = {code: " ".join(rng.choice(WORDS, size=rng.integers(3, 9))) for code in codes}
    report = Report(
        study="0" * 64, study_name=f"{p:,} made-up codes", epoch=1, round=1, start="1" * 64,
        release="masked", floor=11, epsilon=None, delta=None, clip=None, records=2_000_000, codes=p,
        codes_dropped=0, rank=d, penalty=0.01, converged=True, daniel=version("daniel"),
        sites=[Contribution(f"site {i}", "site", "used") for i in range(1, 9)],
    )  # fmt: skip
    share = shown_prevalence(10 ** rng.uniform(-5, -0.6, p), report)
    U = 0.2 * E
    return ReportParts(report, codes, E.astype(np.float32), (U, U), share, words)


def paint(browser: Browser, path: Path) -> tuple[float, float]:
    """Milliseconds from the start of loading to the first paint, and until the explorer answers."""
    browser.open(path)
    first = browser.run(
        "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    ready = browser.run("return performance.getEntriesByName('explorer ready')[0].startTime")
    return float(first), float(ready)


def search(browser: Browser, query: str) -> float:
    """Milliseconds from a keystroke to the list of hits, laid out."""
    script = """
      const box = document.getElementById('query'), list = document.getElementById('hits');
      box.value = arguments[0];
      const before = performance.now();
      box.dispatchEvent(new Event('input', { bubbles: true }));
      list.getBoundingClientRect();
      return performance.now() - before;
    """
    return float(browser.run(script, query))


def click(browser: Browser, selector: str) -> float:
    """Milliseconds from a click to the end of the frame that shows what it did."""
    script = """
      const done = arguments[arguments.length - 1], before = performance.now();
      document.querySelector(arguments[0]).click();
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - before)));
    """
    return float(browser.driver.execute_async_script(script, selector))


def measure(browser: Browser, path: Path) -> dict[str, list[float]]:
    """Name of a thing -> milliseconds, one for each run."""
    paints = [paint(browser, path) for _ in range(RUNS)]
    times = {"first paint": [p[0] for p in paints], "explorer ready": [p[1] for p in paints]}
    for query in QUERIES:
        times[f"search {query!r}"] = [search(browser, query) for _ in range(RUNS)]
    search(browser, "")
    times["open a code"] = [click(browser, "#nearest tr:nth-child(2) .go") for _ in range(RUNS)]
    browser.run("document.getElementById('atlas').scrollIntoView()")
    browser.wait("Number(document.getElementById('map').dataset.shown) > 0")
    times["zoom the map"] = [click(browser, "#zoom-in") for _ in range(RUNS)]
    browser.find("#zoom-reset").click()
    return times


BOUNDS = {"first paint": 2000.0, "search": 100.0}  # milliseconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--codes", type=int, default=20_000)
    parser.add_argument("--shots", type=Path, help="folder for screenshots at 1440 and 390 px")
    options = parser.parse_args()
    parts = make_parts(options.codes)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        path = build_report(parts, Path(folder) / "report.html")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size = path.stat().st_size
        browser = chromium(Path(folder) / "profile")
        try:
            times = measure(browser, path)
            if options.shots:
                screenshots(browser, path, options.shots)
            agent = browser.driver.capabilities["browserVersion"]
        finally:
            browser.quit()
    print(f"daniel {version('daniel')}, {options.codes:,} codes, Chromium {agent}, random_state 0")
    print(f"size {size / 1e6:.1f} MB; built in {wall:.0f} s ({cpu:.0f} s of processor)\n")
    print(f"{'milliseconds':40s} {'median':>8s} {'max':>8s} {'bound':>8s}")
    late = [] if size < 10e6 else ["size"]
    for name, values in times.items():
        bound = BOUNDS.get(name) or BOUNDS.get(name.split()[0])
        if bound and np.median(values) > bound:
            late.append(name)
        print(f"{name:40s} {np.median(values):8.1f} {max(values):8.1f} {bound or '–':>8}")
    if late:
        print(f"\nAbove the bound: {', '.join(late)}")
    return int(bool(late))


def screenshots(browser: Browser, path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    browser.shots = folder
    for width in (1440, 390):
        browser.open(path, width)
        browser.run("document.getElementById('atlas').scrollIntoView()")
        browser.wait("Number(document.getElementById('map').dataset.shown) > 0")
        browser.shot(f"codes-{width}")


if __name__ == "__main__":
    sys.exit(main())
