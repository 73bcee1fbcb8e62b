"""A report of a masked study: others see what the model saw, and kin of a target are hidden."""

import numpy as np
import pytest
from made_up import make_report
from three_hospitals import DRUGS, KIN, TARGET

from daniel.evaluate.phenotype import phenotype
from daniel.report.assemble import Choices, assemble
from daniel.report.graphs import graph_of
from daniel.report.records import open_model, read_sites, site_floor

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def records(masked):
    report, model = open_model(masked.root / "model")
    return model, read_sites(model, report, masked.sites, lambda *_: None)


def test_others_see_codes_that_are_rare_at_each_site(masked):
    """The masked sum has a floor on the total alone, so sites alone and rivals have none."""
    parts = assemble(
        masked.root / "model",
        masked.sites,
        pairs=masked.root / "pairs.tsv",
        choices=Choices(compare=True),
    )
    scores = parts.sections[-1].tables[0].frame["drug pairs"]
    assert len(scores) == 7 and scores["PPMI-SVD, pooled"] > 0.6  # 0.5: nobody saw a drug
    assert (scores.drop("PPMI-SVD, pooled") > 0.9).all()


def test_edges_of_codes_that_are_rare_at_each_site_come_back(masked):
    graph = graph_of(masked.root / "model", masked.sites, top=40, stability=2)
    found = [graph.edges[pair]["stability"] for pair in DRUGS if graph.has_edge(*pair)]
    assert len(found) == len(DRUGS) and np.mean(found) > 0.5


@pytest.mark.parametrize(
    ("release", "epsilon", "floor"), [("masked", None, 1), ("open", None, 11), ("open", 4.0, 1)]
)
def test_a_floor_at_each_site_is_that_of_the_protocol(records, release, epsilon, floor):
    told = site_floor(make_report(release=release, epsilon=epsilon))
    assert told == floor
    for matrix in records[1].fitting(11, told).values():
        drugs = [matrix.codes.index(drug) for pair in DRUGS for drug in pair]
        shown = np.asarray(matrix.Z.sum(axis=0)).ravel()[drugs] > 0
        assert (shown == (floor == 1)).all()


def test_kin_of_the_target_are_hidden_and_named(masked, records):
    model, every = records
    aucs = [
        phenotype(model, every.matrix, TARGET, classifiers={}, without=hidden).auc()
        for hidden in ((), KIN)
    ]
    assert aucs[0] > aucs[1] + 0.05
    parts = assemble(
        masked.root / "model", masked.sites, target=TARGET, choices=Choices(compare=True)
    )
    section, *_, comparison = parts.sections
    assert section.tables[0].frame["AUC"].iloc[0] == round(aucs[1], 3)
    told = comparison.tables[0].frame.loc["Daniel, federated", "unsupervised"]
    assert told == pytest.approx(aucs[1], abs=1e-6)
    assert f"which would tell it: {KIN[0]} and {KIN[1]}." in section.text
