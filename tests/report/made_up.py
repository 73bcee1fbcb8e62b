"""A made-up study with planted groups of codes."""

import numpy as np
import pandas as pd

from daniel.federated.report import Contribution, Report
from daniel.report import Figure, ReportParts, Section, Table

GROUPS = (
    "memory|dementia|donepezil|cognitive assessment",
    "heart|heart failure|furosemide|echocardiogram",
    "lung|asthma|salbutamol|spirometry",
    "kidney|chronic kidney disease|epoetin|dialysis",
    "mood|depression|sertraline|psychotherapy",
    "bone|osteoporosis|alendronate|bone density scan",
    "sugar|type 2 diabetes|metformin|HbA1c test",
    "skin|psoriasis|methotrexate|phototherapy",
)
KINDS = ("PheCode", "RxNorm", "CCS")
VARIANTS = 14
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><b>bold</b> & 'quotes'"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 120" width="600" height="240">'
    "<style>rect{fill:#0072b2}</style><script>document.title='taken'</script>"
    '<rect x="20" y="20" width="200" height="24" style="opacity:.8"/>'
    '<rect x="20" y="60" width="260" height="24"/></svg>'
)


def make_report(**changes) -> Report:
    """The facts of a made-up study of three sites."""
    facts = {
        "study": "7d1f" * 16,
        "study_name": "Memory & heart, three hospitals",
        "epoch": 1,
        "round": 1,
        "start": "a03b" * 16,
        "release": "masked",
        "floor": 11,
        "epsilon": None,
        "delta": None,
        "clip": None,
        "records": 48_000,
        "codes": len(GROUPS) * len(KINDS) * VARIANTS,
        "codes_dropped": 41,
        "rank": 24,
        "penalty": 0.0183,
        "converged": True,
        "daniel": "0.1.0",
        "sites": [
            Contribution("north", "hub", "used", None, "2025-03-02T09:10:00+00:00", "11" * 32),
            Contribution("south", "site", "used", None, "2025-03-03T11:40:00+00:00", "22" * 32),
            Contribution("east", "site", "used", None, "2025-03-05T08:05:00+00:00", "33" * 32),
        ],
    }
    return Report(**(facts | changes))


def make_sections() -> list[Section]:
    relations = pd.DataFrame(
        {"n_pairs": [412, 96], "auc": [0.9123, 0.8341], "lo": [0.897, 0.79], "hi": [0.925, 0.872]},
        index=pd.Index(["PheCode similar", "PheCode-RxNorm"], name="relation"),
    )
    return [
        Section(
            "Known relations",
            "Pairs of codes that are known to belong together, against random pairs.",
            tables=[Table(relations, "An AUC of 1 would mean a perfect order.", "By relation")],
            figures=[
                Figure(SVG, "Two bars.", "A shorter bar above a longer one."),
                Figure(SVG, "Two bars with many words.", "The same bars.", wide=True),
            ],
        )
    ]


def make_parts(p_seed: int = 0, **changes) -> ReportParts:
    """Codes in groups: every group has one direction of its own, shared by its vocabularies."""
    rng = np.random.default_rng(p_seed)
    codes, descriptions, group = [], {}, []
    for g, line in enumerate(GROUPS):
        _, *names = line.split("|")
        for kind, name in zip(KINDS, names, strict=True):
            for v in range(VARIANTS):
                code = f"{kind}:{100 * (g + 1) + v}" + (".1" if kind == "PheCode" else "")
                codes.append(code)
                descriptions[code] = name if v == 0 else f"{name}, form {v}"
                group.append(g)
    p = len(codes)
    embedding = np.eye(len(GROUPS), 24)[group] + 0.22 * rng.normal(size=(p, 24))
    U = 0.4 * embedding
    defaults = {
        "report": make_report(codes=p),
        "codes": tuple(codes),
        "embedding": embedding.astype(np.float32),
        "couplings": (U, U),
        "prevalence": np.round(10 ** rng.uniform(-3.4, -0.7, p), 4),
        "descriptions": descriptions,
        "sections": make_sections(),
    }
    return ReportParts(**(defaults | changes))
