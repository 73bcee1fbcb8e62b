"""The hyperparameters of the paper: appendices app:hyperparam_sim and the one on EHR data."""

from dataclasses import dataclass

from benchmarks.problems import Problem


@dataclass(frozen=True)
class Settings:
    """Rank d, steps eta to try (the first that does not diverge counts), iterations, threshold."""

    rank: int
    steps: tuple[float, ...]
    iterations: int
    threshold: float


def papers(problem: Problem) -> Settings:
    """Those of the simulation where the truth is known, else those of the EHR study.

    The EHR study's step of .01 diverges on real records; smaller ones are then tried.
    """
    p = problem.Z.shape[1]
    if problem.theta is not None:
        return Settings(max(1, p // 10), (0.1,), 50, 1e-3)
    return Settings(min(200, p), (0.01, 0.003, 0.001), 200, 1e-4)
