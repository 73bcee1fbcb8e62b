"""Evaluations as sections: a paragraph, tables in words, figures; one function for each kind."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from daniel.data.summary import shown
from daniel.evaluate.compare import FEDERATED, POOLED, Comparison
from daniel.evaluate.phenotype import (
    ALL,
    FEW_CASES,
    FEWEST_PATIENTS,
    UNSUPERVISED,
    Phenotyping,
    auc_digits,
)
from daniel.evaluate.relations import FEWEST_PAIRS
from daniel.matrix import listed
from daniel.plots import code_network
from daniel.report import wording
from daniel.report.figures import auc_intervals, svg
from daniel.report.page import NOTHING, Folded
from daniel.report.parts import Figure, Section, Table
from daniel.report.wording import Descriptions

FALLBACK = "code, not onset"  # where onset was wanted, and gave too few

RULES = {
    "onset": "Positive records come after a patient's first diagnosis, negative ones are the same "
    "patients' earliest records.",
    "code": "Positive records hold the target, negative ones, as many at each site, do not.",
    FALLBACK: "Too few patients have records before and after the first with the target, so "
    "positive records are those that hold it, and negative ones, as many at each site, of any "
    "patients, do not.",
    "labels": "Positive and negative records are those that were labelled so.",
}
METHODS = {
    UNSUPERVISED: "unsupervised: the model alone",
    "tree": "decision tree on patient vectors",
    "logistic": "logistic regression on the model's score and patient vectors",
    "boosting": "gradient boosting on patient vectors",
}
COMPARISON = "Comparison"
AS_COMMON = "AUC, codes as common"
COMMONNESS = (
    " Known pairs are often of common codes: the last AUC, against random pairs of codes about as "
    "common, hardly counts how common codes are; a dash: there are no such pairs."
)
ALL_EQUAL = " Where all scores are equal they tell nothing, and there is no interval."
STRONGEST = 15  # edges in the table of a graph
MOST_NAMED = 5  # of the codes that are hidden beside a target


def relations_section(
    cosine: pd.DataFrame, theta: pd.DataFrame | None = None, left_out: str = ""
) -> Section:
    """Known relations: tables of `relation_auc` by cosine and by theta; left_out: a sentence.

    They may have a column auc_as_common, the AUC against random pairs of codes as common.
    """
    few = cosine["n_pairs"] < FEWEST_PAIRS
    notes = [left_out, *_relation_notes(cosine.index[few], cosine.attrs.get("left_out", ()))]
    scores = {
        name: table.assign(lo=table["lo"].mask(few), hi=table["hi"].mask(few))
        for name, table in (("similarity", cosine), ("coupling θ", theta))
        if table is not None
    }
    rows = [
        {
            "relation": relation,
            "scored by": name,
            "known pairs": int(row["n_pairs"]),
            "AUC": row["auc"],
            "95 % interval": wording.interval(row),
            "found at 1 % false alarms": wording.percent(row["tpr_01"]),
            "at 5 %": wording.percent(row["tpr_05"]),
            "at 10 %": wording.percent(row["tpr_10"]),
            **({AS_COMMON: row["auc_as_common"]} if "auc_as_common" in row else {}),
        }
        for relation in cosine.index
        for name, table in scores.items()
        for row in [table.loc[relation]]
    ]
    alike = any(table["lo"][~few].isna().any() for table in scores.values())
    drawn = {name: _drawable(table) for name, table in scores.items()}
    return Section(
        "Known relations",
        "Pairs of codes that were given as belonging together, and were not fitted to, are set "
        "against random pairs of the same vocabularies. " + " ".join(filter(None, notes)),
        [
            Table(
                pd.DataFrame(rows).set_index("relation"),
                "AUC is the chance that a known pair scores above a random one: 0.5 is a guess, 1 "
                "is perfect; the interval allows for pairs that share codes; the shares say how "
                "many known pairs are found while so few random pairs are mistaken for one."
                + (ALL_EQUAL if alike else "")
                + (COMMONNESS if "auc_as_common" in cosine else ""),
                "Known pairs against random pairs",
            )
        ],
        [
            Figure(
                svg(auc_intervals(drawn)),
                "AUC of each relation with its 95 % interval; dotted: chance.",
                f"AUC of {len(cosine)} relations{_best(cosine['auc'][~few])}.",
            )
        ],
    )


def _best(aucs: pd.Series) -> str:
    """The best relation of those that say something, if there are any."""
    if aucs.empty:
        return ""
    return f"; by similarity the best is {aucs.idxmax()} with {aucs.max():.2f}"


def _relation_notes(few: Sequence[str], without: Sequence[str]) -> Iterator[str]:
    """Sentences about relations with few known pairs, and about those without random pairs."""
    if len(few):
        yield f"Fewer than {FEWEST_PAIRS} pairs say nothing about a relation: {', '.join(few)}."
    if without:
        yield (
            "Left out, since nearly every pair of their vocabularies is known and no random pairs "
            f"can be drawn: {', '.join(without)}."
        )


def _drawable(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an interval of no width where there is none."""
    return table.assign(lo=table["lo"].fillna(table["auc"]), hi=table["hi"].fillna(table["auc"]))


def phenotype_section(
    found: Phenotyping,
    descriptions: Descriptions,
    site: str | None = None,
    hidden: Sequence[str] = (),
) -> Section:
    """Phenotyping: all sites together, or the only one, and from site to site.

    hidden: codes that no record showed, beside the target.  The rule FALLBACK stands for "code"
    where "onset" gave too few.
    """
    name = wording.named(found.target, descriptions)
    table = _coarse(found.table)
    whole = table[(table["site_train"] == ALL) & (table["site_test"] == ALL)].set_index("method")
    whole = whole.rename(index=METHODS)
    digits = whole["digits"].min()
    tables = [
        Table(
            pd.DataFrame(
                {
                    "AUC": _column(whole["auc"], digits),
                    "95 % interval": [wording.interval(row, digits) for _, row in whole.iterrows()],
                    "positive records": [shown(n) for n in whole["n_pos"]],
                    "negative records": [shown(n) for n in whole["n_neg"]],
                }
            ).rename_axis("told by"),
            "AUC is the chance that a record with the diagnosis scores above one without; patient "
            "vectors were tested on patients whom the classifier had not seen, and the interval "
            f"resamples patients{_few(whole)}. Numbers of records are rounded down to tens"
            + (f"; of fewer than {FEW_CASES} an AUC has two digits." if digits == 2 else "."),
            "All sites together" if site is None else f"The records of {site}",
        ),
        *_between_sites(table),
    ]
    left = (
        " Too few patients there, so left out of everything about the target: "
        f"{', '.join(found.left_out)}."
    )
    return Section(
        f"Phenotyping: {name}",
        "Can records with this diagnosis be told by their other codes? The target itself is hidden "
        f"from every record{_hidden(hidden, descriptions)}. {RULES.get(found.rule, '')} The "
        "unsupervised score is the "
        f"{found.score}; the model may have learned from these very records."
        + (left if found.left_out else ""),
        tables,
        [
            Figure(
                svg(auc_intervals({site or "all sites": _drawable(whole)})),
                "AUC with its 95 % interval; dotted: chance.",
                "; ".join(f"{m}: {auc:.2f}" for m, auc in whole["auc"].dropna().items()),
            )
        ],
    )


def _coarse(table: pd.DataFrame) -> pd.DataFrame:
    """A phenotyping's table with the digits that may be seen, and how many these are."""
    digits = [auc_digits(n) for n in table[["n_pos", "n_neg"]].min(axis=1)]
    return table.assign(
        digits=digits,
        **{
            name: [round(v, d) for v, d in zip(table[name], digits, strict=True)]
            for name in ("auc", "lo", "hi")
        },
    )


def _column(aucs: pd.Series, digits: int) -> pd.Series:
    """AUCs as numbers, which a table shows with three digits, or as text with fewer."""
    return aucs if digits == 3 else aucs.map(lambda auc: wording.number(auc, digits))


def _hidden(codes: Sequence[str], descriptions: Descriptions) -> str:
    """Which codes are hidden beside the target, the first few by name."""
    if not codes:
        return ""
    names = [wording.named(code, descriptions) for code in codes[:MOST_NAMED]]
    if len(codes) > MOST_NAMED:
        names.append(f"{len(codes) - MOST_NAMED:,} more")
    told = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f", and so are the codes above and below it, which would tell it: {told}"


def _few(table: pd.DataFrame) -> str:
    """What is said where there is no interval, or no AUC."""
    nothing = table["auc"].isna()
    said = ""
    if (table["lo"].isna() & ~nothing).any():
        said = f"; fewer than {FEWEST_PATIENTS} of either kind are too few for one"
    if nothing.any():
        said += "; a dash stands where a classifier found nothing to go by"
    return said


def _between_sites(table: pd.DataFrame) -> list[Table]:
    """The decision tree by sites of training and of test, and the other classifiers, folded."""
    sites = [site for site in table["site_test"].unique() if site != ALL]
    if len(sites) < 2:
        return []
    at_sites = table[table["site_test"] != ALL].replace({"site_train": {ALL: "all sites"}})
    alone = at_sites[at_sites["method"] == UNSUPERVISED].assign(site_train="the model alone")
    tree = at_sites[at_sites["method"] == "tree"]
    cells = pd.DataFrame(NOTHING, index=[*sites, "all sites", "the model alone"], columns=sites)
    for _, row in pd.concat([tree, alone]).iterrows():
        cells.loc[row["site_train"], row["site_test"]] = _auc_and_interval(row)
    cases = alone.set_index("site_test").loc[sites]
    cells.loc["positive records"] = [shown(n) for n in cases["n_pos"]]
    cells.loc["negative records"] = [shown(n) for n in cases["n_neg"]]
    grid = Table(
        cells.rename_axis(index="trained at", columns=None),
        "AUC of the decision tree, and its 95 % interval, by the site that trained it (rows) and "
        "the site of the records it is tested on (columns); the model alone needs no training for "
        "the target. Below: the records of test, rounded down to tens.",
        "From site to site",
    )
    return [grid, *_other_classifiers(at_sites[~at_sites["method"].isin([UNSUPERVISED, "tree"])])]


def _other_classifiers(table: pd.DataFrame) -> list[Table]:
    """One row for a classifier, a site of training and one of test."""
    if table.empty:
        return []
    frame = pd.DataFrame(
        {
            "told by": [METHODS.get(method, method) for method in table["method"]],
            "trained at": table["site_train"].to_numpy(),
            "tested at": table["site_test"].to_numpy(),
            "AUC": [wording.number(row["auc"], row["digits"]) for _, row in table.iterrows()],
            "95 % interval": [wording.interval(row, row["digits"]) for _, row in table.iterrows()],
            "positive records": [shown(n) for n in table["n_pos"]],
            "negative records": [shown(n) for n in table["n_neg"]],
        }
    )
    meaning = "As above, for the other classifiers; numbers of records are rounded down to tens."
    return [Folded(frame.set_index("told by"), meaning, "From site to site, other classifiers")]


def _auc_and_interval(row: pd.Series) -> str:
    auc = wording.number(row["auc"], row["digits"])
    return auc if pd.isna(row["lo"]) else f"{auc} ({wording.interval(row, row['digits'])})"


def comparison_section(found: Comparison, sites: Sequence[str], phenotyped: bool) -> Section:
    """The model beside what else could be done with the records of the sites."""
    if len(sites) > 1:
        beside = (
            f"each of {listed(sites)} with its own records alone, and what could be fitted if "
            "their records were in one place (pooled)"
        )
    else:
        beside = f"fits to the records of {sites[0]} alone"
    wide, digits = found.coarse().wide(), found.digits()
    scores = pd.DataFrame({name: _column(wide[name], digits[name]) for name in wide})
    told = (
        " The target is told as in the section on phenotyping; every fit has seen the records that "
        "it is asked about, a site alone only its own."
        if phenotyped
        else ""
    )
    return Section(
        COMPARISON,
        f"The model beside {beside}. {found.statement(FEDERATED, aside=[POOLED])}{told}",
        [
            Table(
                scores.rename_axis(index="method", columns=None),
                "AUC of known relations, by similarity, and of records with the target; PPMI-SVD "
                "and correlations show the best of several dimensions in every column by itself, "
                "which favours them."
                + (f" Of fewer than {FEW_CASES} cases two digits." if digits.min() < 3 else ""),
                "Area under the ROC curve",
            )
        ],
    )


def graph_section(graph: Any, title: str, text: str) -> Section:
    """A knowledge graph of `code_graph`, and its strongest edges as a table."""
    edges = sorted(graph.edges(data=True), key=lambda edge: (-edge[2]["weight"], edge[:2]))
    label = {code: wording.joined(code, about["label"]) for code, about in graph.nodes(data=True)}
    refitted = any("stability" in about for *_, about in edges)
    rows = pd.DataFrame(
        [
            {"code": label[a], "and code": label[b], "θ": about["weight"]}
            | ({"in refits": wording.percent(about["stability"])} if refitted else {})
            for a, b, about in edges[:STRONGEST]
        ]
    )
    share = 100 * (1 - graph.graph["quantile"])
    whose = "all pairs of codes" if graph.graph["quantile_of"] == "model" else "the pairs drawn"
    tables = (
        []
        if rows.empty
        else [Table(rows, _THETA + (_refits(graph) if refitted else ""), "Strongest edges")]
    )
    above = f"above {graph.graph['threshold']:.2f}: the strongest {share:.3g} % of {whose}"
    if graph.graph["threshold"] == 0:
        above = "positive"
    return Section(
        title,
        f"{text} An edge stands between two codes whose coupling θ is {above}.",
        tables,
        [
            Figure(
                svg(code_network(graph)),
                "Wider line: larger θ. Larger mark: more frequent code. Colour and shape: "
                "vocabulary." + (" Dashed: in fewer than half of the refits." if refitted else ""),
                f"A graph of {graph.number_of_nodes()} codes and {graph.number_of_edges()} edges.",
                wide=True,
            )
        ],
    )


_THETA = (
    "θ says how much one code raises the odds of the other in the same record, all other codes "
    "being the same: they are multiplied by e to the power 4θ."
)


def _refits(graph: Any) -> str:
    """A sentence: how often what was drawn anew, and what the share means."""
    sites = " and ".join(graph.graph.get("sites", "").rsplit(", ", 1))
    drawn = {
        "patients": f"patients of {sites} drawn anew" if sites else "patients drawn anew",
        "sites": f"sites drawn anew among {sites}" if sites else "sites drawn anew",
    }[graph.graph["over"]]
    return (
        f" In refits: how often the edge came back in {graph.graph['refits']} refits to {drawn}; "
        "one that came back in fewer than half of them is no finding."
    )
