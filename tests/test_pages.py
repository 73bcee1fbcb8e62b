"""docs/tutorial.md and docs/api.md run as written, on small OMOP tables; what they name exists."""

import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from daniel.cli import app

DOCS = Path(__file__).parents[1] / "docs"
DEMENTIA = ("PheCode:290.1", "SNOMED", "52448006")
TABLES = {  # vocabulary, as the cohort spells it -> OMOP table, its column prefix, its date column
    "PheCode": ("condition_occurrence", "condition", "condition_start_date"),
    "CCS": ("procedure_occurrence", "procedure", "procedure_date"),
    "RXNORM": ("drug_exposure", "drug", "drug_exposure_start_date"),
}


def blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text("utf-8")
    return re.findall(r"^```(sh|python)\n(.*?)^```$", text, flags=re.M | re.S)


def concepts(codes: list[str]) -> pd.DataFrame:
    """A concept for each code of a synthetic cohort."""
    rows = []
    for number, code in enumerate(codes, 1_000_001):
        kind, _, short = code.partition(":")
        vocabulary = "RxNorm" if kind == "RXNORM" else "SNOMED"
        short = DEMENTIA[2] if code == DEMENTIA[0] else f"9{number}"
        role = "Ingredient" if kind == "RXNORM" else "Disorder"
        rows.append((number, f"words for {code}", vocabulary, short, role, code))
    names = "concept_id concept_name vocabulary_id concept_code concept_class_id code"
    return pd.DataFrame(rows, columns=names.split())


def write_omop(source: Path, concept: pd.DataFrame, out: Path) -> None:
    """The events of a MEDS folder as OMOP tables."""
    out.mkdir()
    events = pd.read_parquet(source / "data").rename(columns={"subject_id": "person_id"})
    deaths = events[events["code"] == "MEDS_DEATH"]
    dead = pd.DataFrame({"person_id": deaths["person_id"], "death_date": deaths["time"].dt.date})
    dead.to_csv(out / "death.csv", index=False)
    events = events.merge(concept[["code", "concept_id"]], on="code")
    events["date"] = events["time"].dt.date
    kind = events["code"].str.partition(":")[0]
    for vocabulary, (table, prefix, date) in TABLES.items():
        own = events[kind == vocabulary]
        pd.DataFrame(
            {
                "person_id": own["person_id"],
                f"{prefix}_concept_id": own["concept_id"],
                date: own["date"],
                f"{prefix}_source_value": own["code"],
                f"{prefix}_source_concept_id": 0,
            }
        ).to_csv(out / f"{table}.csv", index=False)
    concept.drop(columns="code").to_csv(out / "concept.csv", index=False)
    own = concept["concept_id"]
    pd.DataFrame({"ancestor_concept_id": own, "descendant_concept_id": own}).to_csv(
        out / "concept_ancestor.csv", index=False
    )


def make_hospitals(folder: Path) -> None:
    from daniel.data.cohort import make_cohort, read_options

    options = read_options(patients=[900, 700], records_per_patient=5, codes=100)
    make_cohort(options, folder / "cohort")
    truth = folder / "cohort" / "truth"
    concept = concepts(pd.read_csv(truth / "codes.tsv", sep="\t")["code"].tolist())
    for number, name in enumerate(("north", "south"), 1):
        write_omop(folder / "cohort" / f"hospital-{number}", concept, folder / f"omop-{name}")
    name = dict(
        zip(concept["code"], concept["vocabulary_id"] + ":" + concept["concept_code"], strict=True)
    )
    pairs = pd.read_csv(truth / "pairs.tsv", sep="\t")
    pairs[["code1", "code2"]] = pairs[["code1", "code2"]].map(name.get)
    pairs.to_csv(folder / "pairs.tsv", sep="\t", index=False)


def run(line: str) -> None:
    words = shlex.split(line)
    if words[0] != "daniel":
        subprocess.run(line, shell=True, check=True)
        return
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}{result.stderr}"


def test_the_tutorial_and_then_the_api_page_run_as_written(tmp_path, monkeypatch, capsys):
    make_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    for language, block in [*blocks("tutorial.md"), *blocks("api.md")]:
        if language == "python":
            exec(compile(block, "page", "exec"), {"__name__": "__main__"})
        else:
            for line in block.splitlines():
                run(line)
    out = capsys.readouterr().out
    assert "similarity" in out and "log_likelihood" in out
    html = Path("report.html").read_text("utf-8")
    for words in ("Phenotyping", "Log-rank", "Knowledge graph", "words for PheCode:290.1"):
        assert words in html
    assert "Time runs from the end of that record&#x27;s window." in html
    assert "Known relations" in Path("relations.html").read_text("utf-8")
    assert "without admission to a nursing home" in Path("made.html").read_text("utf-8")
    for table, *_ in TABLES.values():
        assert len(pd.read_csv(f"omop-north/{table}.csv")) > 1_000, table
    codes = Path("model/codes.tsv").read_text("utf-8").splitlines()
    assert sum(code.startswith("RxNorm:") for code in codes) > 10
    vectors = np.loadtxt("vectors/vectors.tsv", delimiter="\t")
    assert np.isfinite(vectors).all() and len(vectors) > 25


def test_every_name_of_the_api_page_exists():
    text = (DOCS / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| `(daniel[\w.]*)(?:\([^`]*\))?` \| (.*?) \|$", text, flags=re.M)
    assert len(rows) > 15
    for name, about in rows:
        head, _, last = name.rpartition(".")
        try:
            home = import_module(name)
        except ModuleNotFoundError:
            home = getattr(import_module(head), last)
        if last.islower() and last != "diagnose":
            for part in re.findall(r"`([A-Za-z]\w*[a-zA-Z])`", about.split("(extra")[0]):
                assert hasattr(home, part), f"api.md: {name} has no {part}"


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_of_the_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text("utf-8")):
        assert (DOCS / target).exists(), f"{page} links to {target}, which does not exist"
