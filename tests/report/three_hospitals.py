"""Three made-up hospitals with masked answers: drugs that are rare at each, and a code's kin."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from daniel.core.sample import gibbs
from daniel.data.prepare import prepare
from daniel.federated import folder
from daniel.federated.keys import make_key
from daniel.study import Codes, Disclosure, Study

P, PATIENTS, VISITS = 20, 200, 3
PAIRS, RARE = 6, 8  # pairs of drugs, and the patients of a hospital who take each
NAMES = ("north", "south", "east")
DATES = np.array(["2019-02-01", "2019-09-01", "2020-03-01"])
TARGET, KIN = "PheCode:290.1", ("PheCode:290", "PheCode:290.11")
DISEASES = (TARGET, *(f"PheCode:{j}" for j in range(1, P)))
DRUGS = [(f"RxNorm:{2 * g}", f"RxNorm:{2 * g + 1}") for g in range(PAIRS)]


def make_masked_study(root: Path) -> SimpleNamespace:
    """Site folders, the model of all three, and pairs.tsv: drugs that are always given together."""
    rng = np.random.default_rng(1)
    keys = [make_key(name).public("hub" if name == "north" else "site") for name in NAMES]
    study = Study(
        name="masked",
        codes=Codes(names=(*DISEASES, *KIN, *(drug for pair in DRUGS for drug in pair))),
        sites=tuple(keys),
        disclosure=Disclosure(release="masked"),
    )
    for name in NAMES:
        pd.concat([_diseases(rng), _drugs(rng)]).to_csv(root / f"{name}.csv", index=False)
        prepare(str(root / f"{name}.csv"), study, name, root / name)
    sites = [root / name for name in NAMES]
    folder.fit(sites, study, root / "model")
    pairs = pd.DataFrame([(*pair, "drug pairs") for pair in DRUGS])
    pairs.columns = ["code1", "code2", "relation"]
    pairs.to_csv(root / "pairs.tsv", sep="\t", index=False)
    return SimpleNamespace(root=root, sites=sites)


def _diseases(rng: np.random.Generator) -> pd.DataFrame:
    """Groups of five codes; whoever has the target has the codes above and below it."""
    U = 0.5 * np.repeat(np.eye(P // 5), 5, axis=0)
    row, column = gibbs(U, np.full(P, -0.2), PATIENTS * VISITS, rng).nonzero()
    table = pd.DataFrame(
        {"patient": row // VISITS, "date": DATES[row % VISITS], "code": np.array(DISEASES)[column]}
    )
    own = table[table["code"] == TARGET]
    return pd.concat([table, *(own.assign(code=code) for code in KIN)])


def _drugs(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        (patient, date, drug)
        for pair in DRUGS
        for patient in rng.choice(PATIENTS, RARE, replace=False)
        for date in [rng.choice(DATES)]
        for drug in pair
    ]
    return pd.DataFrame(rows, columns=["patient", "date", "code"])
