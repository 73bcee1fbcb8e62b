"""The demo: two synthetic hospitals, one round on files, and a report, held against the truth.

Everything that a network of hospitals does is done here in one folder: records are made from dated
events, the hub starts, both answer, the hub finishes, and the model is compared with what else the
hospitals could do.  The patients are drawn, so the truth is known; nothing here is a medical
finding.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from safetensors.numpy import load_file

from daniel.data.cohort import make_cohort, read_options
from daniel.data.prepare import prepare
from daniel.data.sitefolder import read_site
from daniel.errors import ParameterError
from daniel.evaluate.compare import FEDERATED
from daniel.evaluate.gold import read_pairs
from daniel.federated import folder
from daniel.federated.files import new_folder
from daniel.federated.folder import OWN as MODEL_FILES
from daniel.federated.keys import make_key, write_key
from daniel.report import build_report
from daniel.report.assemble import Choices, assemble
from daniel.report.page import shown
from daniel.report.parts import ReportParts
from daniel.report.records import Outcome
from daniel.report.sections import COMPARISON
from daniel.study import Codes, Disclosure, Study

HUB, PARTNER = "north", "south"
SITES = (HUB, PARTNER)
RECORDS_PER_PATIENT = 8
FEWEST_PATIENTS, FEWEST_CODES = 300, 60
TARGET = "PheCode:290.1"
OUTCOME, OUTCOME_NAME = "NURSING_HOME_ADMISSION", "admission to a nursing home"
REPORT = "report.html"
OWN = tuple(  # patterns of all paths that the demo writes
    f"{folder}{name}"
    for folder, names in {
        "": f"{REPORT} study.toml codes.tsv start.daniel",
        **{f"{site}.": "key daniel log" for site in SITES},
        **{f".{site}.log.": "lock" for site in SITES},
        **{
            f"{site}/": "codes.tsv codes.parquet patients.parquet records.safetensors site.json "
            "study.json summary.txt"
            for site in SITES
        },
        "model/": " ".join(MODEL_FILES),
        "cohort/": "cohort.json",
        "cohort/truth/": "codes.tsv embedding.safetensors pairs.tsv patients.parquet",
        "cohort/hospital-[12]/data/": "[0-9]*.parquet",
        "cohort/hospital-[12]/metadata/": "codes.parquet dataset.json",
    }.items()
    for name in names.split()
)


@dataclass(frozen=True)
class Place:
    """Where the files of the demo are."""

    root: Path

    def source(self, site: str) -> Path:
        return self.root / "cohort" / f"hospital-{SITES.index(site) + 1}"

    def records(self, site: str) -> Path:
        return self.root / site

    def key(self, site: str) -> Path:
        return self.root / f"{site}.key"

    def answer(self, site: str) -> Path:
        return self.root / f"{site}.daniel"

    @property
    def study(self) -> Path:
        return self.root / "study.toml"

    @property
    def start(self) -> Path:
        return self.root / "start.daniel"

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def truth(self) -> Path:
        return self.root / "cohort" / "truth"

    @property
    def pairs(self) -> Path:
        return self.truth / "pairs.tsv"


def run(
    out: Path = Path("demo"),
    *,
    patients: int = 3_000,
    codes: int = 400,
    seed: int = 0,
    console: Console | None = None,
) -> None:
    """Make the hospitals, run the round, compare, and write the report to the folder `out`."""
    if patients < FEWEST_PATIENTS or codes < FEWEST_CODES:
        raise ParameterError(
            f"the demo was asked for {patients:,} patients a hospital and {codes:,} codes: give it "
            f"at least {FEWEST_PATIENTS:,} and {FEWEST_CODES}, so that there is something to find."
        )
    console = console or Console(highlight=False)
    console.print(_title())
    with new_folder(out, REPORT, OWN) as part:
        place = Place(part)
        with _step(console, "drawing two hospitals"):
            _draw(place, patients, codes, seed)
        with _step(console, "agreeing on a study, making records"):
            study = _prepare(place, seed)
        console.print(_what_goes_in(place))
        with _step(console, "north starts"):
            folder.write_start(place.records(HUB), study, place.start, key=place.key(HUB))
        with _step(console, "both answer"):
            for site in SITES:
                _answer(place, study, site)
        with _step(console, "north finishes"):
            answers = [place.answer(site) for site in SITES]
            folder.write_model(place.records(HUB), study, place.start, answers, place.model)
        console.print(_what_crossed(place))
        with _step(console, "comparing with what else they could do"):
            parts = _evaluate(place)
        with _step(console, "writing the report"):
            build_report(parts, place.root / REPORT)
        console.print(_comparison(parts))
        console.print(_neighbours(place))
    console.print(_ending(out))


# --- the round ------------------------------------------------------------------------------------


def _draw(place: Place, patients: int, codes: int, seed: int) -> None:
    options = read_options(
        hospitals=2,
        patients=[patients],
        records_per_patient=RECORDS_PER_PATIENT,
        codes=codes,
        seed=seed,
    )
    make_cohort(options, place.root / "cohort")


def _prepare(place: Place, seed: int) -> Study:
    """Keys, a code list from the hub's own records, the study, and the records of both."""
    keys = {site: make_key(site) for site in SITES}
    for key in keys.values():
        write_key(key, place.root)
    roster = tuple(keys[site].public("hub" if site == HUB else "site") for site in SITES)
    study = Study(
        name="demo",
        codes=Codes(vocabularies=("PheCode", "CCS", "RXNORM")),  # and not what becomes of patients
        disclosure=Disclosure(release="open"),
        sites=roster,
    )
    draft = place.root / "draft"
    prepare(place.source(HUB), study, HUB, draft, random_state=seed)
    (draft / "codes.tsv").rename(place.root / "codes.tsv")
    shutil.rmtree(draft)
    replace(study, codes=Codes(file="codes.tsv")).write(place.study)
    agreed = Study.load(place.study)
    for site in SITES:
        prepare(place.source(site), agreed, site, place.records(site), random_state=seed)
    return agreed


def _answer(place: Place, study: Study, site: str) -> None:
    folder.write_answer(
        place.records(site),
        study,
        place.start,
        place.answer(site),
        approved_by="the demo",
        key=place.key(site),
    )


def _evaluate(place: Place) -> ReportParts:
    return assemble(
        place.model,
        [place.records(site) for site in SITES],
        pairs=place.pairs,
        target=TARGET,
        outcome=Outcome([place.source(site) for site in SITES], OUTCOME, OUTCOME_NAME),
        choices=Choices(compare=True),
    )


# --- what the reader sees -------------------------------------------------------------------------


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    begin = monotonic()
    with console.status(what):
        yield
    console.print(Text.assemble(("✓ ", "green"), f"{what:38}", (_seconds(begin), "dim")))


def _seconds(begin: float) -> str:
    return f"{monotonic() - begin:6.1f} s"


def _title() -> Panel:
    text = Text.assemble(
        ("Two hospitals, one round trip, no record leaves.\n", "bold"),
        "The patients are drawn from a known law, so that what comes out\n"
        "can be held against the truth. Files as between real hospitals.",
    )
    return Panel(text, title="daniel demo", title_align="left", border_style="cyan", expand=False)


def _table(title: str, caption: str | None = None) -> Table:
    return Table(
        title=title,
        title_style="bold",
        title_justify="left",
        caption=caption,
        caption_justify="left",
        caption_style="dim",
        box=box.SIMPLE_HEAD,
        header_style="cyan",
    )


def _what_goes_in(place: Place) -> Table:
    table = _table("What goes in", "A record is a patient's half-year.")
    table.add_column("hospital")
    for heading in ("patients", "records", "codes", "codes a record"):
        table.add_column(heading, justify="right")
    for site in SITES:
        matrix = read_site(place.records(site))
        n, p = matrix.shape
        patients = np.unique(matrix.patients).size  # type: ignore[arg-type]
        each = matrix.Z.nnz / n
        table.add_row(site, f"{patients:,}", f"{n:,}", f"{p}", f"{each:.1f}")
    return table


def _what_crossed(place: Place) -> Table:
    table = _table(
        "What crosses",
        "Signed files. `daniel inspect FILE` explains each in words. The gradient is open: two "
        "hospitals cannot mask each other. From three on, masks hide each one.",
    )
    for heading in ("from → to", "file", "what it holds"):
        table.add_column(heading)
    table.add_column("bytes", justify="right")
    rows = [
        (f"{HUB} → {PARTNER}", place.start, "vectors, prevalences of codes"),
        (f"{PARTNER} → {HUB}", place.answer(PARTNER), "gradient, counts of codes"),
    ]
    for way, path, words in rows:
        table.add_row(way, path.name, words, f"{path.stat().st_size:,}")
    return table


def _comparison(parts: ReportParts) -> Table:
    (found,) = (s for s in parts.sections if s.title == COMPARISON)
    scores = found.tables[0].frame
    table = _table(
        "What comes out",
        "Area under the ROC curve, Daniel first, then its rivals: planted pairs against random "
        f"pairs of the same kinds; below, records after the first {TARGET} against the same "
        "patients' earliest, by the model alone, by a tree on patient vectors and by logistic "
        "regression on them and the model's score; the models have seen the very records they "
        "are asked about, a hospital alone only its own. pooled: all records in one place, which "
        "hospitals may not do; PPMI-SVD and correlations have the best of their dimensions in "
        "every row by itself.",
    )
    table.pad_edge = False
    table.add_column("", no_wrap=True)
    for name in scores.index:  # in lines, so that all fit on 80 columns
        style = "bold green" if name == FEDERATED else ""
        heading = str(name).removeprefix("Daniel, ").replace(", ", " ").replace(" ", "\n")
        table.add_column(heading, justify="right", no_wrap=True, style=style)
    for name, row in scores.T.iterrows():
        table.add_row(str(name), *map(shown, row))
    return table


def _neighbours(place: Place) -> Table:
    """The nearest codes to the target, and whether they are planted with it."""
    model = folder.read_model(place.model)
    truth = pd.read_csv(place.truth / "codes.tsv", sep="\t", index_col="code")
    lift = load_file(place.truth / "embedding.safetensors")["lift"]
    follows = set(truth.index[lift > 0])
    pairs = read_pairs(place.pairs)
    ends = pairs[(pairs[["code1", "code2"]] == TARGET).any(axis=1)][["code1", "code2"]]
    related = set(ends.to_numpy().ravel())
    words = truth["description"]
    table = _table(
        f"Nearest to {TARGET}, {words[TARGET]}",
        "● planted as its relation   ◆ planted to follow its onset   · neither",
    )
    for heading in ("code", "what it is", "similarity"):
        table.add_column(heading, justify="right" if heading == "similarity" else "left")
    if TARGET in model.feature_names_in_:
        for row in model.similar(TARGET, n=8).itertuples():
            mark = "●" if row.code in related else "◆" if row.code in follows else "·"
            code = Text(f"{mark} {row.code}", "" if mark == "·" else "green")
            table.add_row(code, str(words[row.code]), f"{row.similarity:.2f}")
    return table


def _ending(out: Path) -> Text:
    return Text.assemble(
        "The report, one file that needs no network: ",
        (str(out / REPORT), "bold"),
        "\nEverything else is beside it: study, messages, model, truth.\n",
        ("Next: docs/tutorial.md, from your own tables to such a report.", "dim"),
    )
