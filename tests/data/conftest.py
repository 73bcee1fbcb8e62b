"""Small sources, and the same counts by plain pandas: nothing here uses the package's SQL."""

from bisect import bisect_right
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from dateutil.relativedelta import relativedelta

from benchmarks.problems import data_root
from daniel.data import read_site
from daniel.data.prepare import prepare
from daniel.data.sitefolder import read_info
from daniel.study import Study

ANY = "version = 1\nname = 'test'\n[codes]\nminimum_patients = 1\n"


@cache
def starts_by_hand(first, months, until):
    """first, first + months, first + 2·months ...: the first days of a patient's windows."""
    starts = [first]
    while starts[-1] <= until:
        starts.append(first + relativedelta(months=months * len(starts)))
    return starts


def cells_by_hand(events, months=6):
    """{(patient, window, code)} of a frame with patient, date, code; windows from every dated row.

    code: a name, a list of names (one event may have several), or None.
    """
    events = events.dropna(subset=["patient", "date"])
    dates = pd.to_datetime(events["date"], format="ISO8601").dt.date
    first = dates.groupby(events["patient"]).transform("min")
    cells, until = set(), dates.max()
    for patient, f, d, code in zip(events["patient"], first, dates, events["code"], strict=True):
        if code is None or code != code:
            continue
        names = [code] if isinstance(code, str) else code
        window = bisect_right(starts_by_hand(f, months, until), d) - 1
        cells |= {(str(patient), window, name) for name in names}
    return cells


def cells_of(folder):
    """{(patient, window, code)} of a site folder, with the patients' own ids."""
    matrix = read_site(folder)
    patients = pd.read_parquet(Path(folder) / "patients.parquet")
    own = dict(zip(patients["pseudonym"], patients["patient"], strict=True))
    rows, columns = matrix.Z.nonzero()
    return {
        (own[matrix.patients[i]], int(matrix.windows[i]), matrix.codes[j])
        for i, j in zip(rows, columns, strict=True)
    }


@pytest.fixture
def by_hand():
    return SimpleNamespace(cells=cells_by_hand, cells_of=cells_of)


@pytest.fixture
def run(tmp_path):
    """Prepare a source (a path, or the text of a CSV file) with a study (its TOML text)."""

    def prepared(source, toml=ANY, site="north", **options):
        if isinstance(source, str) and "\n" in source:
            path = tmp_path / "events.csv"
            path.write_text(source)
            source = path
        (tmp_path / "study.toml").write_text(toml)
        out = tmp_path / "site"
        for i in range(100):
            if not out.exists():
                break
            out = tmp_path / f"site{i}"
        study = Study.load(tmp_path / "study.toml")
        text = prepare(source, study, site, out, **options)
        return SimpleNamespace(
            folder=out,
            summary=text,
            info=read_info(out),
            matrix=read_site(out),
            cells=cells_of(out),
            study=study,
        )

    return prepared


@pytest.fixture
def shared():
    """A folder of the shared data, or a skip with a reason."""

    def folder(name):
        path = data_root() / name
        if not path.exists():
            pytest.skip(f"the data folder has no {name} (set DANIEL_DATA)")
        return path

    return folder
