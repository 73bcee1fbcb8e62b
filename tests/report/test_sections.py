"""Evaluations in words and tables."""

from dataclasses import replace
from io import StringIO

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from made_up import make_parts
from rich.console import Console

from daniel import demo
from daniel.evaluate.clusters import Clusters
from daniel.evaluate.compare import FEDERATED, Comparison
from daniel.evaluate.phenotype import Phenotyping
from daniel.evaluate.relations import relation_auc
from daniel.report import page
from daniel.report.figures import auc_intervals
from daniel.report.followed import clusters_section
from daniel.report.parts import Section, Table
from daniel.report.records import Outcome
from daniel.report.sections import (
    COMPARISON,
    FALLBACK,
    comparison_section,
    graph_section,
    phenotype_section,
    relations_section,
)

NORTH_SOUTH = ("north", "south")
WORDS = {"PheCode:290.1": "dementia", "RxNorm:135447": "donepezil"}


def relation_table(shift=0.0):
    return pd.DataFrame(
        {
            "n_pairs": [1412, 96],
            "auc": [0.9 + shift, 0.8 + shift],
            "lo": [0.89 + shift, 0.75 + shift],
            "hi": [0.91 + shift, 0.85 + shift],
            "tpr_01": [0.41, 0.2],
            "tpr_05": [0.6, 0.3],
            "tpr_10": [0.704, 0.4],
        },
        index=pd.Index(["PheCode similar", "PheCode-$RxNorm$"], name="relation"),
    )


def phenotyping(sites=(), **changes):
    rows = [
        (method, train, test, auc, auc - 0.02, auc + 0.02, 120, 130, 10)
        for method, auc in (("unsupervised", 0.83), ("tree", 0.86), ("logistic", 0.88))
        for train in (("all",) if method == "unsupervised" else ("all", *sites))
        for test in ("all", *sites)
    ]
    columns = ["method", "site_train", "site_test", "auc", "lo", "hi", "n_pos", "n_neg", "folds"]
    table = pd.DataFrame(rows, columns=columns)
    facts = {"target": "PheCode:290.1", "rule": "onset", "score": "probability", "table": table}
    return Phenotyping(**(facts | changes))


def clusters():
    curves = pd.DataFrame(
        {
            "cluster": [1, 1, 2, 2],
            "time": [0.0, 360.0, 0.0, 360.0],
            "survival": [1.0, 0.8, 1.0, 0.45],
            "lo": [1.0, 0.7, 1.0, 0.4],
            "hi": [1.0, 0.85, 1.0, 0.52],
            "at_risk": [1200, 900, 300, 120],
            "events": [0, 240, 0, 135],
            "censored": [0, 60, 0, 45],
        }
    )
    return Clusters(
        target="PheCode:290.1",
        k=3,
        floor=11,
        sizes=pd.DataFrame(
            {"cluster": [1, 2, 3], "patients": [1200, 300, "<11"], "events": [240, ">289", "<11"]}
        ),
        curves=curves,
        medians=pd.DataFrame(
            {"cluster": [1, 2], "median": [np.inf, 360], "lo": [np.inf, 330], "hi": [np.inf, 390]}
        ),
        top_codes=pd.DataFrame(
            {
                "cluster": [1, 2],
                "code": ["RxNorm:135447", "CCS:47"],
                "inside": [0.5, 0.25],
                "inside_is": ["=", "="],
                "outside": [0.1, 0.5],
                "outside_is": ["=", "="],
                "difference": [0.4, -0.25],
            }
        ),
        silhouette=pd.DataFrame({"k": [2, 3], "silhouette": [0.1, 0.2], "enough": [True, True]}),
        chi2=88.0,
        p_value=3e-9,
        without_outcome="<11",
        labels=pd.Series([1, 2], index=[424242, 434343]),
    )


def graph():
    out = nx.Graph(quantile=0.95, quantile_of="model", threshold=0.123)
    places = {"PheCode:290.1": (0.0, 0.0), "RxNorm:135447": (1.0, 0.5), "CCS:47": (-1.0, 0.2)}
    for code, (x, y) in places.items():
        kind = code.partition(":")[0]
        out.add_node(code, label=WORDS.get(code, code), vocabulary=kind, prevalence=0.01, x=x, y=y)
    out.add_edge("PheCode:290.1", "CCS:47", weight=0.2)
    out.add_edge("PheCode:290.1", "RxNorm:135447", weight=0.7)
    return out


def test_relations():
    section = relations_section(relation_table(), relation_table(-0.1), "12 pairs are left out.")
    (table,) = section.tables
    frame = table.frame.reset_index()
    assert frame["relation"].tolist() == 2 * ["PheCode similar"] + 2 * ["PheCode-$RxNorm$"]
    assert frame["scored by"].tolist() == 2 * ["similarity", "coupling θ"]
    assert frame["AUC"].round(3).tolist() == [0.9, 0.8, 0.8, 0.7]
    assert frame["95 % interval"][0] == "0.890 to 0.910"
    assert frame["at 10 %"].tolist()[0] == "70 %"
    assert "12 pairs are left out." in section.text
    assert "PheCode similar" in section.figures[0].alt and "0.90" in section.figures[0].alt
    assert section.figures == relations_section(relation_table(), relation_table(-0.1)).figures


def test_relations_without_how_common_codes_are():
    table = relation_table().assign(auc_as_common=[0.85, 0.75])
    section = relations_section(table)
    assert section.tables[0].frame["AUC, codes as common"].tolist() == [0.85, 0.75]
    assert "how common codes are" in section.tables[0].meaning
    plain = relations_section(relation_table()).tables[0]
    assert "AUC, codes as common" not in plain.frame
    assert "how common codes are" not in plain.meaning


def test_relations_by_similarity_alone():
    section = relations_section(relation_table())
    assert section.tables[0].frame["scored by"].tolist() == ["similarity", "similarity"]


def test_phenotype_of_one_site():
    section = phenotype_section(phenotyping(), WORDS, "north")
    assert section.tables[0].title == "The records of north"
    assert section.title == "Phenotyping: dementia (PheCode:290.1)"
    assert "earliest records" in section.text and "probability" in section.text
    assert "left out" not in section.text
    (table,) = section.tables
    assert table.frame["AUC"].tolist() == [0.83, 0.86, 0.88]
    assert table.frame["95 % interval"].tolist()[0] == "0.810 to 0.850"
    assert table.frame["positive records"].tolist() == ["120"] * 3


@pytest.mark.parametrize(
    ("kin", "told"),
    [
        (1, ": hidden (PheCode:0). "),
        (2, ": hidden (PheCode:0) and PheCode:1. "),
        (5, ", PheCode:3 and PheCode:4. "),
        (8, ", PheCode:3, PheCode:4 and 3 more. "),
    ],
)
def test_codes_that_are_hidden_beside_the_target_are_named(kin, told):
    codes = [f"PheCode:{j}" for j in range(kin)]
    text = phenotype_section(phenotyping(), {"PheCode:0": "hidden"}, "north", codes).text
    above = "hidden from every record, and so are the codes above and below it, which would tell it"
    assert above in text and told in text
    assert "above and below" not in phenotype_section(phenotyping(), WORDS).text


def test_phenotype_from_site_to_site():
    found = phenotyping(("north", "south"), left_out=("tiny",))
    table = found.table
    one = (table["method"] == "tree") & (table["site_train"] == "south")
    north = table["site_test"] == "north"
    table.loc[one & north, ["auc", "lo", "hi"]] = [0.61, 0.59, 0.63]
    section = phenotype_section(found, {})
    assert "left out of everything about the target: tiny" in section.text
    assert section.tables[0].title == "All sites together"
    grid = section.tables[1].frame
    assert grid.columns.tolist() == ["north", "south"]
    trained = ["north", "south", "all sites", "the model alone"]
    assert grid.index.tolist() == [*trained, "positive records", "negative records"]
    assert grid.loc["south"].tolist() == ["0.610 (0.590 to 0.630)", "0.860 (0.840 to 0.880)"]
    assert grid.loc["the model alone"].tolist() == ["0.830 (0.810 to 0.850)"] * 2
    assert grid.loc["positive records"].tolist() == ["120", "120"]


def test_other_classifiers_from_site_to_site_are_folded():
    found = phenotyping(("north", "south"))
    found.table.loc[found.table["site_test"] == "south", ["n_pos", "n_neg"]] = [37, 25]
    other = phenotype_section(found, {}).tables[2]
    assert isinstance(other, page.Folded) and "other classifiers" in other.title
    frame = other.frame.reset_index()
    assert set(frame["told by"]) == {"logistic regression on the model's score and patient vectors"}
    pairs = frame[["trained at", "tested at"]].itertuples(index=False, name=None)
    assert set(pairs) == {(a, b) for a in ("north", "south", "all sites") for b in NORTH_SOUTH}
    south = frame[frame["tested at"] == "south"].iloc[0]
    assert south["AUC":].tolist() == ["0.88", "0.86 to 0.90", "30", "20"]
    assert len(phenotype_section(phenotyping(), {}).tables) == 1


def test_few_patients_have_no_interval_and_no_pairs_a_dash():
    found = phenotyping(("north", "south"))
    found.table[["lo", "hi"]] = np.nan
    nothing = (found.table["method"] == "tree") & (found.table["site_test"] != "north")
    found.table.loc[nothing, "auc"] = np.nan
    section = phenotype_section(found, WORDS)
    assert section.tables[0].frame["95 % interval"].tolist() == ["–"] * 3
    assert "fewer than 20 of either kind are too few for one" in section.tables[0].meaning
    assert "too few for one" not in phenotype_section(phenotyping(), WORDS).tables[0].meaning
    shown = "".join([*map(page.table, section.tables), *map(page.figure, section.figures)])
    assert "nan" not in shown.lower() and ">–</td>" in shown


def test_a_classifier_that_learned_nothing_is_a_dash():
    found = phenotyping()
    found.table.loc[found.table["method"] == "tree", ["auc", "lo", "hi"]] = np.nan
    (table,) = phenotype_section(found, WORDS, "north").tables
    assert "a dash stands where a classifier found nothing to go by" in table.meaning
    assert "too few for one" not in table.meaning
    assert '<td class="number">–</td><td class="number">–</td>' in page.table(table)


def test_a_figure_has_no_more_digits_than_its_table():
    """From six of them the number of cases followed, which tables tell in tens."""
    exact, rounded = phenotyping(), phenotyping()
    exact.table[["auc", "lo", "hi"]] += 0.000417
    one, two = (phenotype_section(found, WORDS, "north") for found in (exact, rounded))
    assert one.figures == two.figures
    pd.testing.assert_frame_equal(one.tables[0].frame, two.tables[0].frame)
    exact, rounded = relation_table(0.000417), relation_table()
    assert relations_section(exact).figures == relations_section(rounded).figures


def test_few_cases_have_two_digits():
    """Three digits of several AUCs of 20 to 29 cases leave one number of them."""
    found, rounded = (phenotyping(("north", "south")) for _ in range(2))
    south = found.table["site_test"] == "south"
    for table in (found.table, rounded.table):
        table.loc[south, "n_neg"] = 25
    found.table.loc[south, "auc"] += 0.0042
    one, two = (phenotype_section(f, WORDS) for f in (found, rounded))
    grid = one.tables[1].frame
    pd.testing.assert_frame_equal(grid, two.tables[1].frame)
    two_digits = ["0.86 (0.84 to 0.88)"] * 3 + ["0.83 (0.81 to 0.85)"]
    assert grid["south"].tolist() == [*two_digits, "120", "20"]
    assert grid["north"].tolist()[2:] == [
        "0.860 (0.840 to 0.880)", "0.830 (0.810 to 0.850)", "120", "130"
    ]  # fmt: skip
    found.table["n_pos"], rounded.table["n_pos"] = 29, 29
    found.table[["auc", "lo", "hi"]] += 0.0007
    one, two = (phenotype_section(f, WORDS) for f in (found, rounded))
    assert one.figures == two.figures
    assert one.tables[0].frame["AUC"].tolist() == ["0.83", "0.86", "0.88"]
    assert one.tables[0].frame["95 % interval"].tolist()[0] == "0.81 to 0.85"
    assert "of fewer than 30 an AUC has two digits" in one.tables[0].meaning
    assert "two digits" not in phenotype_section(phenotyping(), WORDS).tables[0].meaning


def test_few_cases_have_two_digits_in_the_comparison_too():
    columns = ["method", "kind", "column", "auc"]
    rows = [
        (FEDERATED, "relation", "similar", 0.8004),
        (FEDERATED, "target", "tree", 0.8351),
        ("rival", "relation", "similar", 0.8214),
        ("rival", "target", "tree", 0.8764),
        ("idle", "relation", "similar", 0.5),
        ("idle", "target", "tree", np.nan),
    ]
    table = pd.DataFrame(rows, columns=columns).assign(setting="", n=25, lo=0.1, hi=0.9)
    section = comparison_section(Comparison(table), ["north"], True)
    frame = section.tables[0].frame
    assert frame["tree"].tolist() == ["0.84", "0.88", "–"]
    assert frame["similar"].tolist() == [0.8004, 0.8214, 0.5]
    assert "similar (0.800, 0.021 behind rival), tree (0.84, 0.04 behind rival)" in section.text
    assert "0.84 |" in Comparison(table).markdown()


def test_a_comparison_does_not_count_relations_of_few_pairs():
    columns = ["method", "kind", "column", "n", "auc"]
    rows = [
        (method, "relation", column, n, auc)
        for method, auc in ((FEDERATED, 0.8), ("rival", 0.7))
        for column, n in (("similar", 9), ("treats", 10))
    ]
    table = pd.DataFrame(rows, columns=columns).assign(setting="", lo=0.1, hi=0.9)
    section = comparison_section(Comparison(table), ["north"], False)
    assert "is first in 1 of 1 columns; not counted, since fewer than 10 pairs" in section.text
    assert list(section.tables[0].frame.columns) == ["similar", "treats"]


def test_a_rule_that_stands_in_for_onset_says_so():
    section = phenotype_section(phenotyping(rule=FALLBACK), WORDS)
    assert "Too few patients have records before and after the first with the target" in (
        section.text
    )


def test_clusters():
    section = clusters_section(clusters(), WORDS, outcome="admission")
    sizes, codes, _ = (table.frame for table in section.tables)
    assert sizes["patients"].tolist() == ["1,200", "300", "<11"]
    assert sizes["with admission"].tolist() == ["240", ">289", "<11"]
    assert sizes["median, days"].tolist() == ["not reached", "360", "not shown"]
    assert sizes["95 % interval"].tolist() == ["not reached", "330 to 390", "not shown"]
    assert codes.index.tolist() == ["donepezil (RxNorm:135447)"]  # of two clusters, each code once
    assert codes.to_numpy().tolist() == [["50 %", "10 %"]]
    assert codes.columns.tolist() == ["in cluster 1", "in cluster 2"]
    assert "no time to the outcome: <11 patients" in section.text
    assert "from counts of at least 11 patients" in section.figures[0].caption
    assert "the 2 clusters of 3 that have 11 patients or more: p < 0.0001" in section.text
    assert "silhouette" in section.text
    everything = repr(section) + section.figures[0].svg
    assert "424242" not in everything  # no patient


def test_a_cluster_without_a_curve_is_named_and_not_drawn():
    found = clusters()
    section = clusters_section(replace(found, curves=found.curves.head(3)), WORDS, outcome="falls")
    assert "Too few patients with falls can be counted for a curve of cluster 2." in section.text
    (figure,) = section.figures
    assert "cluster 1" in figure.svg and "cluster 2" not in figure.svg
    assert "cluster 2" not in figure.alt


def test_without_curves_and_codes_there_is_no_figure_and_no_empty_table():
    found = clusters()
    curves, codes = found.curves.iloc[[0, 2]], found.top_codes.head(0)
    section = clusters_section(replace(found, curves=curves, top_codes=codes), WORDS)
    assert section.figures == [] and len(section.tables) == 1
    assert "for a curve of cluster 1, cluster 2." in section.text
    assert "No code of enough patients sets the clusters apart." in section.text


def test_bounds_are_explained():
    meaning = clusters_section(clusters(), WORDS).tables[0].meaning
    assert "<, > and ≥ stand where the number itself would tell of fewer than 11" in meaning
    assert "the day on which the curve comes down to one half; “not shown” means that it" in meaning
    assert "Patients are rounded down to tens." in meaning


def test_deaths_before_the_outcome_are_spoken_of():
    """Whoever died without it was silently taken as last seen."""
    for outcome in ("admission", "outcome"):
        text = clusters_section(clusters(), WORDS, outcome=outcome).text
        assert "patients who died without it count as last seen then" in text
        assert "what would be seen if nobody died of anything else. Log-rank" in text
    assert "died" not in clusters_section(clusters(), WORDS, outcome="death").text


def test_curves_stand_in_a_table_too():
    found = clusters()
    found.curves.loc[1, "time"] = 900.0
    section = clusters_section(found, WORDS, outcome="falls")
    table = section.tables[-1]
    assert isinstance(table, page.Folded) and table.title in section.figures[0].alt
    assert table.title in section.figures[0].caption
    frame = table.frame.reset_index()
    assert frame["cluster"].tolist() == [1, 1, 1, 2]
    assert frame["years"].tolist() == ["1", "2", "2.46", "0.99"]
    assert frame["without falls"].tolist() == ["92 %", "84 %", "80 %", "45 %"]
    assert frame["95 % band"].tolist()[2:] == ["70 % to 85 %", "40 % to 52 %"]
    assert frame["still followed"].tolist() == ["1,200", "1,200", "900", "120"]
    shown = page._section("s", section)
    assert "<details><summary>Survival by year</summary>" in shown
    assert shown.count("Survival by year</caption>") == 0


def test_of_three_clusters_each_has_its_own_codes():
    found = clusters()
    medians = pd.concat([found.medians, found.medians.tail(1).assign(cluster=3)])
    found.sizes.loc[2, "patients"] = 22
    found = replace(found, medians=medians, without_outcome=0)
    section = clusters_section(found, WORDS)
    codes = section.tables[1].frame
    assert "Left out" not in section.tables[1].meaning
    assert codes.index.tolist() == [1, 2] and codes["in the others"].tolist() == ["10 %", "50 %"]
    assert "no time to the outcome" not in section.text
    found.sizes.loc[2, "patients"] = 21
    codes = clusters_section(found, WORDS).tables[1]
    assert codes.frame.columns.tolist() == ["in cluster 1", "in cluster 2"]
    assert codes.meaning.endswith(" Left out, as too small: cluster 3.")


def test_shares_of_few_patients_are_bounds_in_words_and_on_the_right():
    """4 of 235 have the code here, and 3 of 120 lack it there."""
    found = clusters()
    found.top_codes.loc[0, ["inside", "outside"]] = [10 / 235, 110 / 120]
    found.top_codes.loc[0, ["inside_is", "outside_is"]] = ["≤", "≥"]
    codes = clusters_section(found, WORDS).tables[1]
    assert codes.frame.to_numpy().tolist() == [["<5 %", ">91 %"]]
    assert "fewer than 11 have the code, or lack it" in codes.meaning
    assert page.table(codes).count('<td class="number">') == 2


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome((), "death"), "from the end of that record's window."),
        (Outcome((), "death", landmark=False), "the window's codes may come after the outcome"),
        (Outcome(()), "the record's codes may come after the outcome"),
    ],
)
def test_clusters_say_where_time_starts(outcome, says):
    assert says in clusters_section(clusters(), WORDS, zero=outcome.zero).text


def test_few_pairs_have_no_interval_and_are_said_to_say_nothing():
    table = relation_table()
    table.loc["PheCode-$RxNorm$", ["n_pairs", "auc", "lo", "hi"]] = [9, 1.0, 0.0, 1.0]
    section = relations_section(table, table)
    frame = section.tables[0].frame.reset_index()
    assert frame["95 % interval"].tolist()[2:] == ["–", "–"]
    assert "Fewer than 10 pairs say nothing about a relation: PheCode-$RxNorm$." in section.text
    assert "the best is PheCode similar with 0.90" in section.figures[0].alt
    assert "say nothing" not in relations_section(relation_table()).text


def test_scores_that_are_all_equal_have_a_dash_for_an_interval():
    codes = [f"A:{k}" for k in range(40)]
    pairs = pd.DataFrame({"code1": codes[:20], "code2": codes[20:], "relation": "r"})
    section = relations_section(relation_auc(np.zeros((40, 2)), codes, pairs))
    assert section.tables[0].frame["95 % interval"].tolist() == ["–"]
    assert "Where all scores are equal" in section.tables[0].meaning
    assert "nan" not in section.figures[0].svg.lower()
    assert "scores are equal" not in relations_section(relation_table()).tables[0].meaning


def test_where_all_relations_have_few_pairs_none_is_the_best():
    section = relations_section(relation_table().assign(n_pairs=9))
    assert section.figures[0].alt == "AUC of 2 relations."


def test_relations_without_random_pairs_are_named():
    codes = ["A:0", "A:1", *(f"B:{k}" for k in range(6))]
    pairs = pd.DataFrame(
        {"code1": ["A:0", "B:0"], "code2": ["A:1", "B:1"], "relation": ["full", "open"]}
    )
    section = relations_section(relation_auc(np.eye(8), codes, pairs), None, "None is unknown.")
    assert list(section.tables[0].frame.index) == ["open"]
    assert "None is unknown. Fewer than 10 pairs" in section.text
    assert "about a relation: open. Left out" in section.text
    assert section.text.endswith("no random pairs can be drawn: full.")


def test_refits_in_words():
    refitted = graph()
    refitted.graph |= {"refits": 20, "over": "patients", "sites": "north, east, south"}
    for *_, about in refitted.edges(data=True):
        about["stability"] = 0.5
    section = graph_section(refitted, "Knowledge graph", "")
    meaning = section.tables[0].meaning
    assert "in 20 refits to patients of north, east and south drawn anew" in meaning
    for words in (meaning, section.figures[0].caption):
        assert "in fewer than half of" in words
    refitted.graph["over"] = "sites"
    meaning = graph_section(refitted, "", "").tables[0].meaning
    assert "to sites drawn anew among north, east and south" in meaning


def test_graph():
    section = graph_section(graph(), "Knowledge graph", "Around dementia.")
    (table,) = section.tables
    assert table.frame.to_numpy().tolist() == [
        ["dementia (PheCode:290.1)", "donepezil (RxNorm:135447)", 0.7],
        ["dementia (PheCode:290.1)", "CCS:47", 0.2],
    ]
    assert "above 0.12: the strongest 5 % of all pairs of codes" in section.text
    assert section.figures[0].alt == "A graph of 3 codes and 2 edges."


def test_a_graph_without_edges_has_no_table():
    empty = graph()
    empty.remove_edges_from(list(empty.edges))
    assert graph_section(empty, "Knowledge graph", "").tables == []


def test_the_demos_table_fits_a_terminal_and_says_what_the_models_have_seen():
    methods = ("Daniel, federated", "Daniel, north alone", "Daniel, south alone", "Daniel, pooled")
    rows = [*methods, "PPMI-SVD, pooled", "correlations, pooled"]
    columns = ["PheCode-PheCode", "RxNorm similar", "unsupervised"]
    frame = pd.DataFrame(0.5, index=rows, columns=columns)
    frame.loc["Daniel, south alone", "unsupervised"] = np.nan
    scores = Table(frame, "")
    parts = make_parts(sections=[Section(COMPARISON, "", [scores])])
    console = Console(width=80, record=True, file=StringIO())
    console.print(demo._comparison(parts))
    text = console.export_text()
    assert "…" not in text and "PheCode-PheCode" in text and "correlations" in text
    assert "nan" not in text and "–" in text
    caption = text[text.index("Area under") :].strip()
    assert all(len(line.split()) > 3 for line in caption.splitlines()[:-1])  # no word stands alone
    assert "the very records they are asked about" in " ".join(caption.split())


@pytest.mark.parametrize("lo", [0.49, 0.46, 0.3, 0.0])
def test_chance_has_a_tick(lo):
    table = pd.DataFrame({"auc": [0.7], "lo": [lo], "hi": [0.9]}, index=["gradient boosting"])
    figure = auc_intervals({"all": table})
    (axes,) = figure.axes
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert np.isclose(ticks, 0.5).any() and 4 <= len(ticks) <= 8


def test_figures_are_the_same_every_time():
    for make in (
        lambda: clusters_section(clusters(), WORDS),
        lambda: graph_section(graph(), "", ""),
    ):
        assert make().figures[0].svg == make().figures[0].svg
