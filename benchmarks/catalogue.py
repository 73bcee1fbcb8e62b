"""The races there are: problems, methods, and which methods are compared with which.

Standard library alone: the runner imports this, and must stay small (see `benchmarks.race`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

PROBLEMS = {
    "visits": "emergency visits (real)",
    "medicare": "Medicare windows (synthetic claims)",
    "cohort-50th": "synthetic hospitals, 1/50 of the paper's patients",
    "cohort-20th": "synthetic hospitals, 1/20 of the paper's patients",
    "cohort-5th": "synthetic hospitals, 1/5 of the paper's patients",
    "simulation-50": "the paper's simulation, p = 50",
    "simulation-200": "the paper's simulation, p = 200",
}
# A method that passes the limit on the smaller problem is not tried on the larger one.
SMALLER = {"cohort-20th": "cohort-50th", "cohort-5th": "cohort-20th"}

Where = Literal["pooled", "stay", "hub"]


@dataclass(frozen=True)
class Entry:
    """One method with its options.

    module : has ``run(problem, rng, **options) -> Result``.
    label : the row in the tables; entries with one label are settings of one method.
    where : records are pooled in one place, stay at the sites, or are the hub's alone.
    pairs : whether a model of pairs is fitted; a matrix of counts and its decomposition is none.
    edition : of the module, or of the core under it; results of another one are raced again.
    simulated : whether it is raced where the truth is known; there the paper tells the step.
    """

    module: str
    label: str
    where: Where = "pooled"
    pairs: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    edition: int = 1
    simulated: bool = True

    @property
    def setting(self) -> str:
        # Labels tell what is true or false.
        told = {k: v for k, v in self.options.items() if not isinstance(v, bool)}
        return ", ".join(f"{name}={value}" for name, value in told.items())


OURS = {
    "pooled": "Daniel, pooled",
    "stay": "Daniel, one shot",
    "hub": "Daniel, hub alone",
    "rounds": "Daniel, more rounds",
    "unfitted": "Daniel, correlations alone",
}
DIMENSIONS = (25, 50, 100)
MANY = (*DIMENSIONS, 200, 400)  # of methods to which they cost little
ROUNDS = (1, 5, 20, 50)
LOCAL_STEPS = (1, 5)  # many make the most of a round, and lead the sites apart
FEDAVG = "FedAvg on the same loss"
LONG_STEP = 0.1  # on real records more than the paper's .01 finds, and more than .3
NODEWISE = "node-wise logistic regression (scikit-learn)"
CONVEX = {"sv-soft": "SV-Soft", "sv-hard": "SV-Hard", "sv-topd": "SV-Topd", "psd-cvx": "PSD-Cvx"}


def _entry(
    module: str,
    label: str,
    where: Where = "pooled",
    pairs: bool = True,
    edition: int = 1,
    **options: Any,
) -> Entry:
    path, simulated = f"benchmarks.methods.{module}", "step" not in options
    return Entry(path, label, where, pairs, options, edition, simulated)


def _each(name: str, option: str, values: tuple[int, ...], *about: Any) -> dict[str, Entry]:
    options: list[dict[str, Any]] = [{option: value} for value in values]
    module = name.replace("-", "_")
    return {f"{name}-{o[option]}": _entry(module, *about, **o) for o in options}


def _convex(**options: Any) -> dict[str, Entry]:
    """The paper's convex baselines, where records stay and pooled; names tell the step."""
    end = f"-{options['step']}" if options else ""
    found = {}
    for name, label in CONVEX.items():
        module = name.replace("-", "_")
        found[f"{name}{end}"] = _entry(module, label, "stay", **options)
        found[f"{name}-pooled{end}"] = _entry(module, f"{label}, pooled", pooled=True, **options)
    return found


METHODS: dict[str, Entry] = {
    "daniel-pooled": _entry("daniel_pooled", OURS["pooled"], edition=3),
    "daniel-one-shot": _entry("daniel_one_shot", OURS["stay"], "stay", edition=4),
    "daniel-hub": _entry("daniel_hub", OURS["hub"], "hub", edition=3),
    "daniel-unfitted": replace(
        _entry("daniel_unfitted", OURS["unfitted"], "pooled", False), simulated=False
    ),
    **_each("daniel-rounds", "rounds", (2, 3, 5), OURS["rounds"], "stay", True, 5),
    **_each("correlation", "d", MANY, "correlation SVT", "pooled", False),
    **_each("ppmi", "d", MANY, "PPMI-SVD", "pooled", False),
    **_each("ppmi-tuned", "d", (50, 200), "PPMI-SVD, options tuned", "pooled", False),
    **_each("als", "d", DIMENSIONS, "ALS (implicit)", "pooled", True, 2),
    **_each("word2vec", "d", DIMENSIONS, "word2vec (gensim)"),
    **_each("rbm", "d", (25, 50), "BernoulliRBM (scikit-learn)"),
    **_each("logistic-pca", "d", (25, 50), "logistic PCA, sparse"),
    "logisticpca-50": _entry("logisticpca_package", "logistic PCA (logisticpca)", d=50),
    "nodewise-l1": _entry("nodewise", NODEWISE, edition=2, penalty="l1"),
    "nodewise-l2": _entry("nodewise", NODEWISE, penalty="l2"),
    "paper": _entry("paper", "the paper's recipe, plain NumPy", "stay", edition=2),
    **_convex(),
    **_convex(step=LONG_STEP),
    **{
        f"fedavg-{rounds}x{steps}": _entry(
            "fedavg", FEDAVG, "stay", edition=3, rounds=rounds, local_steps=steps
        )
        for rounds in ROUNDS
        for steps in LOCAL_STEPS
    },
}


def raced(problem: str, names: Iterable[str] = METHODS) -> list[str]:
    """Of these methods, those that are raced on a problem."""
    simulation = problem.startswith("simulation")
    return [name for name in names if METHODS[name].simulated or not simulation]
