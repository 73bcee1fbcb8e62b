"""Two made-up hospitals: their events, site folders, outcomes and model."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from daniel.core.sample import gibbs
from daniel.data.prepare import prepare
from daniel.federated import folder
from daniel.federated.keys import make_key
from daniel.study import Codes, Disclosure, Study

P, PATIENTS, VISITS = 20, 260, 4
TARGET = "PheCode:3"
CODES = (*(f"PheCode:{j}" for j in range(P)), "RxNorm:rare")


def with_target(follow: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The rows of an outcome file whose patients have the target: its time starts there."""
    return follow[follow["patient"].isin(events.loc[events["code"] == TARGET, "patient"])]


def make_study(root: Path) -> SimpleNamespace:
    """Two site folders whose sources use the same patient numbers, and the model of both."""
    rng = np.random.default_rng(1)
    U = 0.5 * np.repeat(np.eye(P // 5), 5, axis=0)
    keys = [
        make_key(name).public("hub" if name == "north" else "site") for name in ("north", "south")
    ]
    agreed = Study(
        name="trial",
        codes=Codes(names=CODES),
        sites=tuple(keys),
        disclosure=Disclosure(release="open", minimum_patients=20, minimum_records=20),
    )
    events = {}
    for name in ("north", "south"):
        Z = gibbs(U, np.full(P, -0.2), PATIENTS * VISITS, rng)
        row, column = Z.nonzero()
        table = pd.DataFrame(
            {
                "patient": row // VISITS,
                "date": np.array(["2019-02-01", "2019-09-01", "2020-03-01", "2020-10-01"])[
                    row % VISITS
                ],
                "code": np.array(CODES)[column],
            }
        )
        rare = pd.DataFrame({"patient": [1, 2], "date": "2020-03-01", "code": "RxNorm:rare"})
        events[name] = pd.concat([table, rare], ignore_index=True)
        events[name].to_csv(root / f"{name}.csv", index=False)
        prepare(str(root / f"{name}.csv"), agreed, name, root / name)
        follow = pd.DataFrame({"patient": np.arange(PATIENTS)})
        sick = events[name].query("code == 'PheCode:4'")["patient"].value_counts()
        rate = 0.0004 * (1 + 4 * follow["patient"].map(sick).fillna(0))
        follow["time"] = np.ceil(rng.exponential(1 / rate)).clip(1, 1500)
        follow["event"] = (follow["time"] < 1500).astype(int)
        with_target(follow, events[name]).to_csv(root / f"{name}-outcome.csv", index=False)
    folder.fit([root / "north", root / "south"], agreed, root / "model")
    pd.DataFrame(
        [
            (f"PheCode:{5 * g + i}", f"PheCode:{5 * g + j}", "one group")
            for g in range(4)
            for i in range(5)
            for j in range(i)
        ]
        + [("PheCode:1", "PheCode:999", "one group")],
        columns=["code1", "code2", "relation"],
    ).to_csv(root / "pairs.tsv", sep="\t", index=False)
    pd.DataFrame({"code": [TARGET, "PheCode:5"], "description": ["dementia", "asthma"]}).to_csv(
        root / "words.tsv", sep="\t", index=False
    )
    return SimpleNamespace(root=root, study=agreed, events=events)
