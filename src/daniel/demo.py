"""The demo: a simulated study of two hospitals, fitted three ways and held against its truth.

150 codes in 15 fields of two conditions each. The hospitals share how codes depend on each other
(Θ off its diagonal) and differ in how common each code is. The names are labels for planted
relations: nothing here is a medical finding.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from scipy.special import logit

from daniel.core.natural import Answer, Options, Start, make_start
from daniel.core.natural import answer as make_answer
from daniel.core.records import records_from
from daniel.core.sample import gibbs
from daniel.errors import ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.relations import cosine_pairs, rank_auc
from daniel.evaluate.rivals import PPMISVD

# Field -> its two conditions, five codes each. Codes of one condition are strongly related,
# codes of the two conditions of a field weakly, all others not at all.
FIELDS = {
    "diabetes": (
        "type 2 diabetes|metformin|insulin glargine|HbA1c test|glucose monitor",
        "diabetic retinopathy|diabetic neuropathy|foot ulcer|eye injection|vitreous haemorrhage",
    ),
    "kidney": (
        "chronic kidney disease|epoetin|creatinine test|sevelamer|proteinuria",
        "kidney transplant|tacrolimus|mycophenolate|dialysis|hyperkalaemia",
    ),
    "heart": (
        "heart failure|furosemide|carvedilol|BNP test|sacubitril",
        "coronary disease|nitroglycerin|troponin test|coronary stent|clopidogrel",
    ),
    "brain vessels": (
        "ischaemic stroke|hemiplegia|aphasia|alteplase|speech therapy",
        "atrial fibrillation|apixaban|warfarin|INR test|amiodarone",
    ),
    "memory": (
        "Alzheimer's disease|donepezil|memantine|memory loss|cognitive test",
        "delirium|haloperidol|wandering|quetiapine|nursing home care",
    ),
    "lung": (
        "COPD|tiotropium|spirometry|emphysema|home oxygen",
        "asthma|salbutamol|montelukast|budesonide|allergic rhinitis",
    ),
    "infection": (
        "pneumonia|azithromycin|chest X-ray|productive cough|sputum culture",
        "sepsis|vancomycin|blood culture|lactate test|piperacillin",
    ),
    "mood": (
        "major depression|sertraline|escitalopram|psychotherapy|bupropion",
        "anxiety disorder|panic attack|insomnia|lorazepam|trazodone",
    ),
    "pain": (
        "low back pain|sciatica|lumbar MRI|gabapentin|epidural injection",
        "opioid dependence|methadone|naloxone|overdose|buprenorphine",
    ),
    "joints": (
        "rheumatoid arthritis|methotrexate|folic acid|adalimumab|CRP test",
        "osteoporosis|alendronate|hip fracture|bone density scan|vitamin D",
    ),
    "nerves": (
        "epilepsy|levetiracetam|lamotrigine|EEG|seizure",
        "migraine|sumatriptan|topiramate|aura|propranolol",
    ),
    "liver": (
        "cirrhosis|lactulose|ascites|paracentesis|varices",
        "hepatitis C|sofosbuvir|viral load test|liver enzymes test|liver biopsy",
    ),
    "cancer": (
        "breast cancer|tamoxifen|mammogram|breast biopsy|lymphoedema",
        "chemotherapy|ondansetron|neutropenia|filgrastim|infusion port",
    ),
    "thyroid": (
        "hypothyroidism|levothyroxine|TSH test|fatigue|goitre",
        "Graves' disease|methimazole|hyperthyroidism|thyroid scan|thyroidectomy",
    ),
    "pregnancy": (
        "pregnancy|prenatal vitamins|obstetric ultrasound|delivery|nausea",
        "pre-eclampsia|labetalol|magnesium sulfate|caesarean section|preterm birth",
    ),
}
PLACE = [  # (field, condition, code), one per column
    (field, 2 * f + c, code)
    for f, (field, conditions) in enumerate(FIELDS.items())
    for c, codes in enumerate(conditions)
    for code in codes.split("|")
]
CODES = [code for _, _, code in PLACE]
FIELD = np.array([field for field, _, _ in PLACE])
CONDITION = np.array([condition for _, condition, _ in PLACE])

HUB, PARTNER = "hub", "partner"
HUB_ALONE, ONE_ROUND, POOLED = "hub alone", "both sites, one round", "all records pooled"
RIVAL = "PPMI-SVD, pooled"
RIVAL_DIMENSIONS = (10, 15, 20, 30, 45, 60)
MEASURES = {
    "condition": "same condition",
    "field": "same field",
    "theta": "match with Θ",
}
EXAMPLE = "diabetic retinopathy"
FEWEST = 1_000


@dataclass(frozen=True)
class Simulated:
    """A study whose truth is known: records X (n, p), their sites, and Θ* off its diagonal."""

    X: pd.DataFrame
    sites: np.ndarray
    theta: np.ndarray


def plant(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the truth: embedding U (p, d) in ±1 coordinates and the prevalence μ (p,) of each code.

    Two axes per field, so d = 30; the two conditions of a field lie at a cosine of 0.3. Loadings
    grow as codes get rarer, as lifts do in real records; codes of one condition come out with
    correlations near 0.06, so that hundreds of records do not show what thousands do.
    """
    mu = np.exp(rng.uniform(np.log(0.004), np.log(0.06), len(CODES)))
    U = np.zeros((len(CODES), 2 * len(FIELDS)))
    columns = np.arange(len(CODES))
    U[columns, CONDITION] = np.where(CONDITION % 2, np.sqrt(1 - 0.3**2), 1.0)
    U[columns, CONDITION - 1] += np.where(CONDITION % 2, 0.3, 0.0)
    strength = rng.uniform(0.20, 0.32, len(CODES))
    return 0.5 * np.sqrt(-strength * logit(mu))[:, None] * U, mu


def simulate(records: int, rng: np.random.Generator) -> Simulated:
    """Draw the records of both sites: one Θ, two sets of prevalences."""
    U, mu = plant(rng)
    theta = U @ U.T
    np.fill_diagonal(theta, 0)
    n_hub = round(0.6 * records)
    blocks = []
    for n in (n_hub, records - n_hub):
        mu_site = mu * np.exp(rng.normal(0, 0.5, len(CODES)))
        b = logit(mu_site) / 2 + theta @ (1 - 2 * mu_site)  # natural -> ±1 intercepts
        blocks.append(gibbs(U, b, n, rng))
    X = pd.DataFrame(np.vstack(blocks).astype(np.int8), columns=CODES)
    return Simulated(X, np.repeat([HUB, PARTNER], [n_hub, records - n_hub]), theta)


def fit_all(study: Simulated, progress: Progress) -> dict[str, Any]:
    """Fit the study as each party could: method -> fitted model, in the order of the table."""
    hub = study.sites == HUB
    fits: dict[str, Callable[[], Any]] = {
        HUB_ALONE: lambda: Daniel(random_state=0).fit(study.X[hub]),
        ONE_ROUND: lambda: Daniel(random_state=0).fit(study.X, sites=study.sites, hub=HUB),
        POOLED: lambda: Daniel(random_state=0).fit(study.X),
        RIVAL: lambda: fit_rival(study),
    }
    models = {}
    for name, fit in fits.items():
        task = progress.add_task(name, total=1)
        models[name] = fit()
        progress.advance(task)
    return models


def exchange(study: Simulated) -> tuple[Start, Answer]:
    """The two messages of the round, made by the functions that `Daniel.fit` calls."""
    Z, hub, options = study.X.to_numpy(), study.sites == HUB, Options()
    start = make_start(records_from(Z[hub]), options, np.random.default_rng(0))
    return start, make_answer(records_from(Z[~hub]), start, options)


def fit_rival(study: Simulated) -> PPMISVD:
    """PPMI-SVD at the dimension that suits it best, chosen by the truth itself."""
    X = study.X.to_numpy()
    fits = [PPMISVD(n_components=d).fit(X) for d in RIVAL_DIMENSIONS]
    return max(fits, key=lambda model: measure(model, study)["condition"])


def measure(model: Any, study: Simulated) -> dict[str, float]:
    """AUC of the cosine for planted pairs against unrelated ones, and the correlation with Θ*."""
    i, j = np.triu_indices(len(CODES), k=1)
    cosine = cosine_pairs(model.embedding_, i, j)
    condition = CONDITION[i] == CONDITION[j]
    field = FIELD[i] == FIELD[j]
    scores = {
        "condition": rank_auc(cosine[condition], cosine[~field]),
        "field": rank_auc(cosine[field & ~condition], cosine[~field]),
    }
    if hasattr(model, "theta_"):
        scores["theta"] = float(np.corrcoef(model.theta_[i, j], study.theta[i, j])[0, 1])
    return scores


# --- what the reader sees -------------------------------------------------------------------------


def run(*, records: int = 20_000, seed: int = 0, console: Console | None = None) -> None:
    """Simulate, fit, compare and print. Takes well under a minute at its default size."""
    if records < FEWEST:
        raise ParameterError(
            f"the demo was asked for {records:,} records: give it at least {FEWEST:,}, "
            "because rare codes hardly meet in fewer."
        )
    console = console or Console(highlight=False)
    console.print(_title())
    with console.status(f"drawing {records:,} records"):
        study = simulate(records, np.random.default_rng(seed))
    console.print(_what_goes_in(study))
    with console.status("asking the partner"):
        messages = exchange(study)
    console.print(_what_crossed(*messages))
    with _progress(console) as progress:
        models = fit_all(study, progress)
    console.print()
    console.print(_comparison({name: measure(model, study) for name, model in models.items()}))
    console.print(_neighbours(models))
    console.print(Text("Next: the ten-line example in README.md, then your own records.", "dim"))


def _title() -> Panel:
    text = Text.assemble(
        ("Two hospitals, one round trip, no record leaves.\n", "bold"),
        "The study is simulated, so its truth is known: ",
        f"{len(CODES)} codes in {len(FIELDS)} fields.\n"
        "A field has two conditions. Codes of one condition are strongly related,\n"
        "codes of the two conditions of a field weakly, all others not at all.",
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


def _what_goes_in(study: Simulated) -> Table:
    table = _table("What goes in")
    table.add_column("site")
    for heading in ("records", "codes", "codes a record", "prevalence of a code"):
        table.add_column(heading, justify="right")
    for site in (HUB, PARTNER):
        Z = study.X.to_numpy()[study.sites == site]
        share = Z.mean(axis=0)
        table.add_row(
            site,
            f"{len(Z):,}",
            f"{Z.shape[1]}",
            f"{Z.sum(axis=1).mean():.1f}",
            f"{share.min():.2%} to {share.max():.1%}",
        )
    return table


def _what_crossed(start: Start, answer: Answer) -> Table:
    p, d = start.U.shape
    table = _table("What crosses", "One round. Site intercepts and records stay where they are.")
    table.add_column("from → to")
    table.add_column("message")
    table.add_column("bytes", justify="right")
    table.add_row(
        f"{HUB} → {PARTNER}",
        f"start: {p} × {d} vectors, scales and intercepts",
        f"{_bytes(start):,}",
    )
    table.add_row(
        f"{PARTNER} → {HUB}",
        f"answer: {p} × {p} gradient, {p} code counts, n",
        f"{_bytes(answer):,}",
    )
    return table


def _bytes(message: Any) -> int:
    """Size of every array and number in a message, nested ones included."""
    if is_dataclass(message):
        return sum(_bytes(getattr(message, field.name)) for field in fields(message))
    return 0 if message is None else np.asarray(message).nbytes


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("fitting {task.description}"),
        TimeElapsedColumn(),
        console=console,
    )


def _comparison(scores: dict[str, dict[str, float]]) -> Table:
    table = _table(
        "What comes out",
        "same condition, same field: AUC of such pairs against unrelated ones\n"
        "match with Θ: correlation of fitted and true couplings\n"
        "pooled: sees every record, but not which hospital it is from\n"
        "PPMI-SVD: at the dimension with its best AUC",
    )
    table.add_column("fit")
    for heading in MEASURES.values():
        table.add_column(heading, justify="right")
    for name, score in scores.items():
        cells = [f"{score[key]:.3f}" if key in score else "–" for key in MEASURES]
        table.add_row(name, *cells, style="bold green" if name == ONE_ROUND else "")
    return table


def _neighbours(models: dict[str, Any]) -> Table:
    field, condition = FIELD[CODES.index(EXAMPLE)], CONDITION[CODES.index(EXAMPLE)]
    table = _table(
        f"Nearest to “{EXAMPLE}”",
        f"● same condition   ○ same field ({field})   · unrelated",
    )
    shown = (HUB_ALONE, ONE_ROUND, POOLED)
    for name in shown:
        table.add_column(name)
    lists = [[_mark(code, field, condition) for code in _nearest(models[name])] for name in shown]
    for row in zip(*lists, strict=True):
        table.add_row(*row)
    return table


def _nearest(model: Daniel) -> list[str]:
    return list(model.similar(EXAMPLE, n=6)["code"])


def _mark(code: str, field: str, condition: int) -> Text:
    j = CODES.index(code)
    if CONDITION[j] == condition:
        return Text(f"● {code}", "green")
    return Text(f"○ {code}", "yellow") if FIELD[j] == field else Text(f"· {code}", "dim")
