"""The house's import rules: data flow one way, and a heavy library lives in one place."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

# From the bottom up: a module may import what stands earlier; names in one set are strangers.
LAYERS: list[set[str]] = [
    {"errors"},
    {"checks", "fingerprint", "leftovers"},
    {"studyfile"},
    {"study"},
    {"matrix"},
    {"core", "data"},
    {"worker"},
    {"cluster"},
    {"modelfile", "axes"},
    {"estimator"},
    {"baselines"},
    {"diagnosis"},
    {"federated"},
    {"evaluate"},
    {"plots"},
    {"simulation", "report"},
    {"demo"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

# Heavy library -> the modules (or packages) that may import it.
HOMES = {
    "numba": ["core.kernels"],
    "llvmlite": ["core.kernels"],
    "duckdb": ["data"],
    "polars": ["data"],
    "nvflare": ["federated.flare"],
    "distributed": ["cluster"],
    "dask": ["cluster"],
    "matplotlib": ["plots", "report"],
    "plotly": ["plots", "report"],
    "typer": ["cli"],
    "click": ["cli"],
    "rich": ["cli", "demo"],
    "gensim": ["evaluate.rivals"],
    "psycopg": ["data.postgres"],
    "anndata": ["data.export", "evaluate.exports"],
    "lifelines": ["evaluate.survival"],
    "networkx": ["evaluate.graph"],
    "torch": ["evaluate.text"],
    "transformers": ["evaluate.text"],
    "tokenizers": ["evaluate.text"],
    "cryptography": ["federated"],
    "dp_accounting": ["federated.release"],
}
# Optional: their modules must import without them.
ONLY_INSIDE_FUNCTIONS = {
    "anndata",
    "dask",
    "distributed",
    "gensim",
    "psycopg",
    "dp_accounting",
    "tokenizers",
    "torch",
    "transformers",
}


def module_name(path: Path) -> str:
    """src/daniel/core/ising.py -> core.ising; a package's __init__ is the package."""
    parts = path.relative_to(SRC / "daniel").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {
    module_name(path): path.read_text("utf-8") for path in sorted(SRC.glob("daniel/**/*.py"))
}


def imports(module: str, source: str) -> Iterator[tuple[str, bool]]:
    """(full dotted name, inside a function) of what the source imports, for more than types."""
    tree = ast.parse(source)
    only_types = {
        id(x)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for x in ast.walk(block)
    }
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inner = {id(x) for f in ast.walk(tree) if isinstance(f, functions) for x in ast.walk(f)}
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"daniel.{module} has a relative import: write the full name"
            yield from ((f"{node.module}.{alias.name}", id(node) in inner) for alias in node.names)


def violations(module: str, source: str) -> list[str]:
    """What the source of one module breaks; empty when it keeps the rules."""
    top = module.split(".")[0]
    if top not in RANK:
        return [f"daniel.{top} has no place in LAYERS"]
    found = []
    for name, inside in imports(module, source):
        library, *rest = name.split(".")
        if library != "daniel":
            homes = HOMES.get(library, [module])
            if not any(f"{module}.".startswith(f"{home}.") for home in homes):
                found.append(f"{library} belongs in {' or '.join(homes)}")
            if library in ONLY_INSIDE_FUNCTIONS and not inside:
                found.append(f"{library} is optional: import it inside a function")
        elif not rest or rest[0] not in RANK:
            if rest != ["__version__"]:
                found.append(f"import from the module that defines it, not {name}")
        elif top == "core" and rest[0] not in {"core", "errors"}:
            found.append(f"core knows only arrays, not daniel.{rest[0]}")
        elif rest[0] != top and RANK[rest[0]] >= RANK[top]:
            found.append(f"daniel.{top} may not import daniel.{rest[0]}: imports go down only")
    return found


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_module_keeps_the_rules(module):
    assert violations(module, MODULES[module]) == []


def test_no_import_cycles():
    graph = {
        module: {
            target
            for name, _ in imports(module, source)
            for target in (
                name.removeprefix("daniel."),
                name.removeprefix("daniel.").rpartition(".")[0],
            )
            if name.startswith("daniel.") and target in MODULES and target not in {module, ""}
        }
        for module, source in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.ising", "from daniel.matrix import CodeMatrix"),
        ("core.ising", "import daniel.estimator"),
        ("core.ising", "import numba"),
        ("core.kernelsmith", "import numba"),
        ("core.ising", "def f():\n    from numba import njit"),
        ("data.omop", "from daniel.core import ising"),
        ("estimator", "import polars as pl"),
        ("estimator", "from daniel.evaluate.relations import auc"),
        ("estimator", "from daniel import Daniel"),
        ("simulation", "from daniel.report import write"),
        ("federated.folder", "import nvflare.client"),
        ("evaluate.rivals", "from gensim.models import Word2Vec"),
        ("simulation", "import rich.table"),
        ("helpers", "import numpy"),
    ],
)
def test_the_rules_can_be_broken(module, source):
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.kernels", "import numba"),
        ("core.solve", "from daniel.core.ising import loss\nfrom daniel.errors import InputError"),
        ("data.omop", "import duckdb\nfrom daniel.matrix import CodeMatrix"),
        ("federated.flare", "import nvflare.client"),
        ("evaluate.rivals", "def f():\n    from gensim.models import Word2Vec"),
        ("cli", "import typer\nfrom daniel import __version__\nfrom daniel.demo import run"),
    ],
)
def test_the_rules_allow_what_the_house_needs(module, source):
    assert violations(module, source) == []


def test_importing_daniel_stays_light():
    heavy = {"pandas", "duckdb", "typer", "rich", "numba", "sklearn", "scipy"}
    code = f"import sys, daniel; print(*sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
