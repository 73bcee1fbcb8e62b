"""The race of the solvers: the paper's gradient descent against the natural recipe, no penalty.

    python -m benchmarks.solver

Both minimise the pseudo-likelihood of the emergency visits at rank 50 with the same kernels and
without penalty.  The descent takes 200 steps from its own start, with each of a few fixed steps;
the best of its losses is the mark.  The natural recipe is timed until its loss is below the mark.
"""

import time
from dataclasses import replace

import numpy as np

from benchmarks import problems
from benchmarks.source import made_by
from daniel.core import natural, paper
from daniel.core.records import Records, records_from
from daniel.errors import DivergenceError

RANK = 50
STEPS = (0.01, 0.003, 0.001)
ITERATIONS = 200


def descent(records: Records, step: float) -> tuple[float, float]:
    """Seconds and lowest loss of the paper's recipe, in single precision as the natural one."""
    begin = time.perf_counter()
    start = paper.make_start(records, RANK, step_size=step)
    start = replace(start, U=start.U.astype(np.float32), signs=start.signs.astype(np.float32))
    answers = [paper.answer(records, start)]
    fitted = paper.finish(records, start, answers, step_size=step, max_iter=ITERATIONS, tol=0.0)
    return time.perf_counter() - begin, min(fitted.solution.curve)


class _Reached(Exception):
    pass


def natural_until(records: Records, mark: float) -> tuple[float, float, int]:
    """Seconds, loss and iterations until the natural recipe without penalty is below the mark."""
    begin = time.perf_counter()
    found: list[tuple[float, float, int]] = []

    def watch(iteration: int, value: float, enough: float) -> None:
        if value < mark:
            found.append((time.perf_counter() - begin, value, iteration))
            raise _Reached

    options = natural.Options(n_components=RANK, penalty=0.0, progress=watch)
    try:
        natural.fit(records, options, np.random.default_rng(0))
    except _Reached:
        return found[0]
    raise SystemExit("The natural recipe did not reach the mark.")


def main() -> None:
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    problem = problems.load("visits")
    records = records_from(problem.Z)
    natural_until(records, np.inf)  # compiled
    print(made_by())
    print(f"emergency visits: {records.total:,.0f} records, {records.p} codes, rank {RANK}")
    finished = []
    for step in STEPS:
        try:
            seconds, loss = descent(records, step)
        except DivergenceError as error:
            print(f"  descent, eta={step:<6}  {error}")
            continue
        finished.append((loss, seconds))
        print(
            f"  descent, eta={step:<6}  loss {loss:.3f} after {ITERATIONS} steps, {seconds:.1f} s"
        )
    mark, seconds = min(finished)
    ours, loss, iterations = natural_until(records, mark)
    print(
        f"  natural recipe      loss {loss:.3f} after {iterations} steps, {ours:.2f} s: "
        f"1/{seconds / ours:.0f} of the descent's time"
    )


if __name__ == "__main__":
    main()
