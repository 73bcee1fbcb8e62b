"""The outcome has no part in the groups, however its code is spelled or translated."""

import json

import pandas as pd
import pytest
from two_hospitals import TARGET

from daniel.data.prepare import prepare
from daniel.errors import InputError
from daniel.report.assemble import Choices, assemble
from daniel.report.records import Outcome
from daniel.study import CodeMap

pytestmark = pytest.mark.usefixtures("quick")


def clusters(model, site, source, code, landmark=False):
    followed = Outcome([source], code, landmark=landmark)
    parts = assemble(model, [site], target=TARGET, outcome=followed, choices=Choices(clusters=2))
    (section,) = [part for part in parts.sections if part.title.startswith("Clusters")]
    return section


@pytest.mark.parametrize("code", ["phecode:9", "PHECODE//9", "PheCode//9"])
def test_another_spelling_gives_the_same_groups(study, code):
    north = study.root / "model", study.root / "north", study.root / "north.csv"
    one, two = (clusters(*north, written) for written in ("PheCode:9", code))
    assert one.text == two.text
    for mine, other in zip(one.tables, two.tables, strict=True):
        pd.testing.assert_frame_equal(mine.frame, other.frame)
    assert "PheCode:9" not in set(one.tables[1].frame.index)


@pytest.fixture
def mapped(study, tmp_path):
    """A site that writes PheCode:9 as LOCAL:nine, and has a map of its local codes."""
    events = study.events["north"].replace({"code": {"PheCode:9": "LOCAL:nine"}})
    events.to_csv(tmp_path / "north.csv", index=False)
    (tmp_path / "map.csv").write_text("code,target\nnine,9\n")
    own = CodeMap(source=("LOCAL",), target="PheCode", file=str(tmp_path / "map.csv"))
    prepare(tmp_path / "north.csv", study.study, "north", tmp_path / "north", maps=[own])
    return study.root / "model", tmp_path / "north", tmp_path / "north.csv"


def test_a_translated_outcome_needs_the_landmark(mapped):
    with pytest.raises(InputError, match="'LOCAL:nine' may be in the records under another code"):
        clusters(*mapped, "LOCAL:nine")
    assert clusters(*mapped, "LOCAL:nine", landmark=True).tables


def test_codes_that_no_map_reads_and_deaths_need_none(mapped):
    with pytest.raises(InputError, match=r"No patient with .* has the outcome 'OTHER:x'"):
        clusters(*mapped, "OTHER:x")
    with pytest.raises(InputError, match="knows no deaths"):
        clusters(*mapped, "death")


def test_a_folder_that_does_not_know_what_its_maps_read(mapped):
    about = mapped[1] / "site.json"
    info = json.loads(about.read_text())
    del info["facts"]["maps"][0]["source"]
    about.write_text(json.dumps(info))
    with pytest.raises(InputError, match="use the landmark"):
        clusters(*mapped, "OTHER:x")
