"""What `daniel.diagnose` says of one-shot fits, beside how good they are.

    python -m benchmarks.diagnose             the table
    python -m benchmarks.diagnose example     writes the output of the example in docs/diagnose.md

The truth is known, so each one-shot fit has an error, and the pooled fit of the same records too:
their ratio is what the diagnosis should tell without knowing the truth.
"""

import contextlib
import io
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np

from daniel import Daniel, DivergenceError, diagnose
from daniel.core.sample import gibbs

P, RANK = 50, 5
SEEDS = range(3)
EXPONENTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
RECIPES = {
    "natural": Daniel(random_state=0),
    "paper": Daniel(RANK, recipe="paper", step_size=0.1, max_iter=3000),
}
REASONS = {
    "more than √n": "many sites",
    "for each code": "small hub",
    "nearly flat": "flat loss",
    "start was far": "far start",
    "before it converged": "not converged",
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "diagnose.md"
BLOCKS = re.compile(r"(?s)```python\n(?P<code>.*?)```\n.*?```text\n(?P<output>.*?)```")


def weak(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The paper's design: Theta* = U*U*' with U* ~ N(0, 1/(dp)), and n records of it."""
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(P, RANK)) / np.sqrt(RANK * P)
    theta = U @ U.T
    return theta, gibbs(U, np.diag(theta).copy(), n, rng)


def strong(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten groups of five codes that go together, far from independence."""
    U = 0.6 * np.repeat(np.eye(P // 5), 5, axis=0)
    theta = U @ U.T
    np.fill_diagonal(theta, -0.6)
    return theta, gibbs(U, np.diag(theta), n, np.random.default_rng(seed))


DESIGNS = (
    (weak, "paper", 5000),
    (weak, "paper", 20_000),
    (weak, "natural", 5000),
    (weak, "natural", 20_000),
    (strong, "natural", 5000),
)


def row(model: Daniel, theta: np.ndarray, Z: np.ndarray, x: float) -> str:
    """Ratio of the errors, what the diagnosis measured, and what it says."""
    m = int(len(Z) ** x)
    sites = np.arange(len(Z)) % m
    try:
        model.fit(Z, sites=sites, hub=0)
    except DivergenceError:
        return f"{m:>4}    diverged"
    error = np.linalg.norm(model.theta_ - theta)
    found = diagnose(model, Z, sites=sites)
    ratio = error / np.linalg.norm(model.fit(Z).theta_ - theta)
    told = " ".join(found.warnings)
    reasons = ", ".join(word for text, word in REASONS.items() if text in told)
    curvature = found.values["kappa_min"] / found.values["kappa_max"]
    return (
        f"{m:>4} {len(Z) / m / P:>9.1f} {ratio:>6.2f} {curvature:>7.3f} "
        f"{found.values['start_ratio']:>6.2f}  {reasons or 'trusted'}"
    )


def example() -> tuple[str, str]:
    """The page as it stands, and with the output that its example prints now."""
    text = PAGE.read_text("utf-8")
    match = BLOCKS.search(text)
    assert match, f"{PAGE.name} has no python block with a text block after it"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(match["code"], PAGE.name, "exec"), {"__name__": "__main__"})
    return text, text[: match.start("output")] + out.getvalue() + text[match.end("output") :]


def main() -> None:
    if sys.argv[1:] == ["example"]:
        PAGE.write_text(example()[1], "utf-8")
        return
    print(
        f"p = {P}; ratio: error of the one-shot fit / error of the pooled fit of the same records"
    )
    print("rec/code: records of the hub for each code; κ: κ_min/κ_max; start: ‖Θ0 - Θ‖/‖Θ‖")
    print("design  recipe        n seed    m  rec/code  ratio       κ  start  diagnosis")
    for design, recipe, n in DESIGNS:
        for x, seed in product(EXPONENTS, SEEDS):
            theta, Z = design(n, seed)
            line = row(RECIPES[recipe], theta, Z, x)
            print(f"{design.__name__:<7} {recipe:<8} {n:>6} {seed:>4} {line}", flush=True)


if __name__ == "__main__":
    main()
