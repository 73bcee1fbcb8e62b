"""A site with few patients of a target is in no number that is told about it."""

import networkx as nx
import pandas as pd
import pytest
from two_hospitals import TARGET, with_target
from typer.testing import CliRunner

from daniel.cli import app
from daniel.data.prepare import prepare
from daniel.errors import InputError
from daniel.report.assemble import Choices, assemble
from daniel.report.records import Outcome

pytestmark = pytest.mark.usefixtures("quick")

EVERYTHING = Choices(compare=True, clusters=2, stability=2)
LEFT_OUT = " Too few patients there, so left out of everything about the target: south."


def few_patients(events):
    return events[events["patient"] < 8]


def few_with_the_target(events):
    return events[(events["code"] != TARGET) | (events["patient"] < 7)]


def nobody_with_the_target(events):
    return events[events["code"] != TARGET]


def few_before_and_after(events):
    """All but seven lose their records before the first with the target."""
    first = events[events["code"] == TARGET].groupby("patient")["date"].min()
    onset = events["patient"].map(first)
    return events[(events["patient"] < 7) | onset.isna() | (events["date"] >= onset)]


def nobody_left_out(events):
    return events


def south(study, folder, kept, followed=slice(None)):
    """A site folder and an outcome file of some of the south's events and patients."""
    folder.mkdir(exist_ok=True)
    events = kept(study.events["south"])
    events.to_csv(folder / "south.csv", index=False)
    prepare(str(folder / "south.csv"), study.study, "south", folder / "south")
    follow = with_target(pd.read_csv(study.root / "south-outcome.csv"), events)[followed]
    follow.to_csv(folder / "south-outcome.csv", index=False)
    return folder / "south", folder / "south-outcome.csv"


def told(study, sites, outcomes):
    parts = assemble(
        study.root / "model",
        [study.root / "north", *sites],
        pairs=study.root / "pairs.tsv",
        target=TARGET,
        outcome=Outcome([study.root / "north-outcome.csv", *outcomes]),
        choices=EVERYTHING,
    )
    return parts.sections


@pytest.mark.parametrize(
    ("kept", "followed"),
    [
        (few_patients, slice(None)),
        (few_with_the_target, slice(None)),
        (nobody_with_the_target, slice(None)),
        (few_before_and_after, slice(None)),
        (nobody_left_out, slice(8)),
    ],
)
def test_a_small_site_is_in_no_section(study, tmp_path, kept, followed):
    """With it and without it the report is the same, but for its name."""
    folder, outcome = south(study, tmp_path, kept, followed)
    with_it, without = told(study, [folder], [outcome]), told(study, [], [])
    assert [section.title for section in with_it] == [
        "Known relations",
        f"Phenotyping: {TARGET}",
        f"Clusters: {TARGET}",
        "Knowledge graph",
        "Comparison",
    ]
    assert sum(LEFT_OUT in section.text for section in with_it) == 1
    assert with_it[1].tables[0].title == "The records of north"
    for one, two in zip(with_it, without, strict=True):
        assert one.text.replace(LEFT_OUT, "") == two.text
        assert list(one.figures) == list(two.figures)
        for mine, other in zip(one.tables, two.tables, strict=True):
            assert (mine.title, mine.meaning) == (other.title, other.meaning)
            pd.testing.assert_frame_equal(mine.frame, other.frame)


def test_a_graph_for_other_tools_leaves_it_out_too(study, tmp_path):
    folder, _ = south(study, tmp_path, few_with_the_target)
    files = []
    for name, sites in (("with", [folder]), ("without", [])):
        arguments = [study.root / "model", study.root / "north", *sites, "--around", TARGET]
        out = CliRunner().invoke(app, ["graph", *map(str, arguments), "--out", tmp_path / name])
        assert ("Too few patients there, so left out: south." in out.stderr) == bool(sites)
        files.append(nx.read_graphml(tmp_path / f"{name}.graphml"))
    assert files[0].graph.pop("left_out") == "south"
    assert nx.utils.graphs_equal(*files)


def test_sites_that_are_all_small_are_one_sentence(study, tmp_path):
    folder, _ = south(study, tmp_path, few_with_the_target)
    with pytest.raises(InputError, match=f"No site has 11 patients with {TARGET}, and 11 with"):
        assemble(study.root / "model", [folder], target=TARGET)
    folder, outcome = south(study, tmp_path / "more", nobody_left_out, slice(8))
    with pytest.raises(InputError, match=f"No site has 11 patients with {TARGET} and a survival"):
        assemble(study.root / "model", [folder], target=TARGET, outcome=Outcome([outcome]))


@pytest.mark.parametrize("landmark", [True, False])
def test_a_site_without_the_outcome_takes_part(study, tmp_path, landmark):
    folder, _ = south(study, tmp_path, lambda events: events[events["code"] != "PheCode:9"])
    followed = Outcome(
        [study.root / "north.csv", tmp_path / "south.csv"], "PheCode:9", landmark=landmark
    )
    sites = [study.root / "north", folder]
    parts = assemble(study.root / "model", sites, target=TARGET, outcome=followed)
    assert not any("left out of everything" in section.text for section in parts.sections)
    assert any(section.title.startswith("Clusters") for section in parts.sections)


def test_an_outcome_that_nobody_has_is_one_true_sentence(study):
    root = study.root
    followed = Outcome([root / "north.csv", root / "south.csv"], "PheCode:none")
    says = f"No patient with {TARGET} has the outcome 'PheCode:none' after time starts: check how"
    with pytest.raises(InputError, match=says):
        assemble(root / "model", [root / "north", root / "south"], target=TARGET, outcome=followed)
