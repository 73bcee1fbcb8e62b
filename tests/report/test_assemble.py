"""From folders to a report, as the command does it."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from two_hospitals import CODES, TARGET, P, with_target
from typer.testing import CliRunner

from daniel.cli import app
from daniel.data.prepare import prepare
from daniel.data.sitefolder import _code_list, read_site
from daniel.errors import InputError, ParameterError
from daniel.evaluate.cases import Cases
from daniel.evaluate.compare import FEDERATED, Entry
from daniel.evaluate.phenotype import phenotype
from daniel.evaluate.relations import relation_auc
from daniel.federated import folder
from daniel.matrix import CodeMatrix
from daniel.report.assemble import Choices, Umls, assemble
from daniel.report.records import Outcome, read_descriptions, read_sites
from daniel.study import Codes, Window

pytestmark = pytest.mark.usefixtures("quick")


def run(*arguments, command="report", code=0):
    result = CliRunner().invoke(app, [command, *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout if code == 0 else result.stderr


def test_the_command_writes_everything(study, tmp_path):
    root, out = study.root, tmp_path / "report.html"
    text = run(
        root / "model", root / "north", root / "south",
        "--pairs", root / "pairs.tsv", "--target", TARGET, "--descriptions", root / "words.tsv",
        "--outcome", root / "north-outcome.csv", "--outcome", root / "south-outcome.csv",
        "--outcome-name", "admission", "--out", out,
    )  # fmt: skip
    assert text.startswith(f"Wrote {out} (0.")
    html = out.read_text("utf-8")
    for words in (
        "<h1>trial</h1>",
        "Known relations",
        "1 of 41 known pairs are left out",
        "PheCode:999",
        "Phenotyping: dementia (PheCode:3)",
        "From site to site",
        "Clusters: dementia (PheCode:3)",
        "with admission",
        "Knowledge graph",
    ):
        assert words in html
    assert "RxNorm:rare" not in html


def test_a_model_alone_has_no_evaluation(study, tmp_path):
    run(study.root / "model", "--out", tmp_path / "r.html")
    parts = assemble(study.root / "model")
    assert parts.sections == []
    assert parts.codes == CODES[:P]  # the rare code was dropped by the floor
    events = pd.concat(study.events, names=["site"]).reset_index("site")
    records = events.groupby(["site", "patient", "date"]).ngroups
    share = events["code"].value_counts().reindex(parts.codes).to_numpy() / records
    assert np.allclose(parts.prevalence, share, rtol=0.06)
    assert [f"{v:.2g}" for v in parts.prevalence] == [f"{v:.3g}" for v in parts.prevalence]


def test_a_target_without_sites_gives_its_graph(study):
    parts = assemble(study.root / "model", target=TARGET)
    assert [s.title for s in parts.sections] == ["Knowledge graph"]
    assert parts.focus == TARGET


def test_relations_are_those_of_relation_auc(study):
    parts = assemble(study.root / "model", pairs=study.root / "pairs.tsv")
    model = folder.read_model(study.root / "model")
    pairs = pd.read_csv(study.root / "pairs.tsv", sep="\t").iloc[:-1]
    expected = relation_auc(model.embedding_, parts.codes, pairs)["auc"].item()
    frame = parts.sections[0].tables[0].frame
    assert frame["AUC"].iloc[0] == expected > 0.9
    shares = parts.prevalence
    common = relation_auc(model.embedding_, parts.codes, pairs, counts=shares)["auc"].item()
    assert frame["AUC, codes as common"].iloc[0] == common


def test_a_relation_that_lost_all_of_its_pairs_is_named(study, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text((study.root / "pairs.tsv").read_text() + "PheCode:0\tRxNorm:8\ttreats\n")
    (section,) = assemble(study.root / "model", pairs=path).sections
    assert "codes: PheCode:999, RxNorm:8; no pair is left of treats." in section.text


@pytest.fixture
def umls(tmp_path):
    """A release that knows three of the codes by their own vocabulary, and two relations."""
    known = {"C1": "0", "C2": "1", "C3": "5"}
    conso = [f"{cui}|ENG|P|L1|PF|S1|Y|A1||||PHECODE|PT|{n}|x|0|N|256|" for cui, n in known.items()]
    rel = [
        f"{a}|A1|AUI|RO|{b}|A2|AUI|{rela}|R1||PheCode|PheCode|||N||"
        for a, b, rela in (("C1", "C2", "related_to"), ("C2", "C3", "mapped_to"))
    ]
    (tmp_path / "MRCONSO.RRF").write_text("\n".join(conso) + "\n")
    (tmp_path / "MRREL.RRF").write_text("\n".join(rel) + "\n")
    return tmp_path


def test_relations_of_the_umls_stand_beside_those_of_a_file(study, umls):
    choices = Choices(umls=Umls(umls))
    parts = assemble(study.root / "model", pairs=study.root / "pairs.tsv", choices=choices)
    frame = parts.sections[0].tables[0].frame
    assert list(frame.index.unique()) == ["one group", "mapped to", "related to"]
    assert list(frame["known pairs"].iloc[::2]) == [40, 1, 1]
    text = parts.sections[0].text
    assert "1 of 41 known pairs are left out" in text
    assert "have a UMLS concept: PheCode 3 of 20; the others are in no pair of the UMLS." in text


def test_a_release_without_relations_says_what_it_covers(study, umls):
    (umls / "MRREL.RRF").write_text("C1|A1|AUI|RO|C2|A2|AUI|isa|R1||PheCode|PheCode|||N||\n")
    with pytest.raises(InputError, match=r"relates no two codes of the study\. .* PheCode 3 of 20"):
        assemble(study.root / "model", choices=Choices(umls=Umls(umls)))


def test_hierarchies_give_known_pairs(study, tmp_path):
    table = tmp_path / "atc.csv"
    table.write_text("atc_code,atc_name\nN06DA02,donepezil\nN06DA03,Rivastigmine\n")
    codes = ("PheCode:290", "PheCode:290.1", "RxNorm:135447", "RxNorm:183379", "CCS:47")
    words = {"RxNorm:135447": "Donepezil", "RxNorm:183379": "rivastigmine"}
    choices = Choices(phecodes=True, atc=table)
    found = [pairs.to_numpy().tolist() for _, pairs in choices.pairs(codes, words)]
    assert found == [
        [["PheCode:290", "PheCode:290.1", "PheCode similar"]],
        [["RxNorm:135447", "RxNorm:183379", "RxNorm similar"]],
    ]
    with pytest.raises(InputError, match=r"fewer than two drugs .* have a name: .*--descriptions"):
        list(choices.pairs(codes, {}))
    with pytest.raises(InputError, match=r"atc.csv relates no two codes of the study"):
        assemble(study.root / "model", choices=Choices(atc=table))


def test_a_comparison_has_sites_alone_and_rivals(study):
    root = study.root
    sites = [root / "north", root / "south"]
    choices = Choices(compare=True)
    parts = assemble(root / "model", sites, pairs=root / "pairs.tsv", choices=choices)
    assert [s.title for s in parts.sections] == ["Known relations", "Comparison"]
    (table,) = parts.sections[-1].tables
    assert list(table.frame.index) == [
        "Daniel, federated",
        "Daniel, north alone",
        "Daniel, south alone",
        "Daniel, pooled",
        "PPMI-SVD, pooled",
        "correlations, pooled",
    ]
    relations = parts.sections[0].tables[0].frame  # the same random pairs in both
    assert table.frame.loc["Daniel, federated"].item() == relations["AUC"].iloc[0]
    north = folder.read_model(root / "model")
    alone = relation_auc(
        clone(north).fit(align_columns(root / "north", parts.codes)).embedding_,
        parts.codes,
        pd.read_csv(root / "pairs.tsv", sep="\t").iloc[:-1],
    )["auc"].item()
    assert table.frame.loc["Daniel, north alone"].item() == pytest.approx(alone, abs=1e-6)
    text = parts.sections[-1].text
    assert "Daniel, federated is first in" in text


def test_a_comparison_has_the_folds_of_phenotyping(study, monkeypatch):
    """North has few cases, so folds are few; those of all sites together would be ten."""
    monkeypatch.setattr("daniel.report.assemble.phenotype", phenotype)
    monkeypatch.setattr(
        "daniel.report.assemble.usual_entries", lambda model, *_: [Entry(FEDERATED, model)]
    )
    root, real = study.root, Cases.choose

    def some(self, matrix, target, **options):
        """Cases of 25 patients of the north, whose 260 are numbered first, and of all others."""
        chosen = real(self, matrix, target, **options)
        patients = np.asarray(matrix.patients)[chosen.rows]
        few = np.unique(patients[patients < 260])[:25]
        kept = np.isin(patients, few) | (patients >= 260)
        return replace(chosen, rows=chosen.rows[kept], positive=chosen.positive[kept])

    monkeypatch.setattr(Cases, "choose", some)
    sites = [root / "north", root / "south"]
    parts = assemble(root / "model", sites, target=TARGET, choices=Choices(compare=True))
    told = parts.sections[0].tables[0].frame["AUC"].astype(float)
    compared = parts.sections[-1].tables[0].frame.loc[FEDERATED].astype(float).round(3)
    assert compared["tree"] == told["decision tree on patient vectors"]
    assert (
        compared["logistic"] == told["logistic regression on the model's score and patient vectors"]
    )


def one_window_each(events):
    """Each patient has one record."""
    return events[events["date"] == "2020-03-01"]


def few_before(events):
    """Five patients may have the target later than in the first window, the others have not."""
    later = (events["patient"] >= 5) & (events["code"] == TARGET) & (events["date"] > "2019-03")
    return events[~later]


@pytest.mark.parametrize("kept", [one_window_each, few_before])
def test_a_target_without_records_before_and_after_still_has_a_report(study, tmp_path, kept):
    root, sites, outcomes = study.root, [], []
    for name in ("north", "south"):
        events = kept(study.events[name])
        events.to_csv(tmp_path / f"{name}.csv", index=False)
        prepare(str(tmp_path / f"{name}.csv"), study.study, name, tmp_path / name)
        sites.append(tmp_path / name)
        outcomes.append(tmp_path / f"{name}-outcome.csv")
        follow = pd.read_csv(root / f"{name}-outcome.csv")
        with_target(follow, events).to_csv(outcomes[-1], index=False)
    parts = assemble(
        root / "model",
        sites,
        target=TARGET,
        outcome=Outcome(outcomes),
        choices=Choices(compare=True, clusters=2),
    )
    titles = [section.title.partition(":")[0] for section in parts.sections]
    assert titles == ["Phenotyping", "Clusters", "Knowledge graph", "Comparison"]
    text = parts.sections[0].text
    assert "Too few patients have records before and after the first with the target" in text
    assert "earliest" not in text
    told = parts.sections[0].tables[0].frame["AUC"].astype(float)
    compared = parts.sections[-1].tables[0].frame.loc[FEDERATED].astype(float)
    assert compared["tree"] == pytest.approx(told["decision tree on patient vectors"], abs=6e-4)


def test_a_comparison_at_one_site_calls_nothing_pooled(study):
    root = study.root
    parts = assemble(
        root / "model", [root / "north"], pairs=root / "pairs.tsv", choices=Choices(compare=True)
    )
    section = parts.sections[-1]
    assert list(section.tables[0].frame.index) == [
        "Daniel, federated",
        "Daniel, north alone",
        "PPMI-SVD, north alone",
        "correlations, north alone",
    ]
    assert "pooled" not in section.text and "fits to the records of north alone" in section.text


def align_columns(site, codes):
    matrix = read_site(site)
    return CodeMatrix(matrix.Z[:, [matrix.codes.index(code) for code in codes]], codes)


def test_clusters_graph_and_landmark_as_chosen(study):
    root = study.root
    sites = [root / "north", root / "south"]
    sources = [root / "north.csv", root / "south.csv"]
    found = {
        landmark: assemble(
            root / "model",
            sites,
            target=TARGET,
            outcome=Outcome(sources, "PheCode:9", "asthma", landmark=landmark),
            choices=Choices(clusters=2, quantile=0.8),
        ).sections
        for landmark in (False, True)
    }
    for sections in found.values():
        clusters, graph = sections[1:]
        assert len(clusters.tables[0].frame) == 2
        assert "the strongest 20 % of all pairs" in graph.text
    assert not found[True][1].tables[0].frame.equals(found[False][1].tables[0].frame)


def test_records_of_all_sites_with_patients_kept_apart(study):
    root = study.root
    model, report = folder.read_model(root / "model"), folder.read_report(root / "model")
    folders = [root / "north", root / "south"]
    records = read_sites(model, report, folders, lambda *_: None)
    frame = pd.concat(study.events, names=["site"]).reset_index("site")
    frame = frame[frame["code"].isin(CODES[:P])]
    counts = frame.groupby("code").size().reindex(records.matrix.codes)
    assert np.array_equal(np.asarray(records.matrix.Z.sum(axis=0)).ravel(), counts)
    assert np.unique(records.matrix.patients).size == frame.groupby(["site", "patient"]).ngroups
    assert pd.Series(records.site).value_counts().to_dict() == {
        name: records.site.size - (records.site != name).sum() for name in ("north", "south")
    }

    outcome = Outcome([root / "north-outcome.csv", root / "south-outcome.csv"])
    survival = records.survival(folders, outcome, TARGET).set_index("patient")
    first = 0
    for path, known in zip(folders, records.pseudonyms, strict=True):
        people = pq.read_table(path / "patients.parquet").to_pandas()
        truth = pd.read_csv(root / f"{path.name}-outcome.csv").set_index("patient")
        people = people[people["patient"].astype(int).isin(truth.index)]
        for _, who in people.iloc[::40].iterrows():
            number = first + int(np.flatnonzero(known == who["pseudonym"])[0])
            assert survival.loc[number, "time"] == truth.loc[int(who["patient"]), "time"]
        first += known.size


def test_words_of_a_site_stand_where_the_file_has_none(study, tmp_path):
    table = pq.read_table(study.root / "north" / "codes.parquet")
    assert "description" in table.column_names
    words = tmp_path / "words.csv"
    words.write_text('code,description\nPheCode:5,"asthma, severe"\nPheCode:6,\n')
    parts = assemble(study.root / "model", descriptions=words)
    assert dict(parts.descriptions) == {"PheCode:5": "asthma, severe"}


def test_words_between_tabs_may_hold_quotes(study, tmp_path):
    """A quote that is never closed must not take the rows after it."""
    words = tmp_path / "words.tsv"
    words.write_text('code\tdescription\nPheCode:5\t"severe asthma\nPheCode:6\t5" cut\n')
    expected = {"PheCode:5": '"severe asthma', "PheCode:6": '5" cut'}
    assert read_descriptions(words) == expected
    words.write_text('"code"\t"description"\n"PheCode:5"\t"asthma"\n')  # as R writes it
    assert read_descriptions(words) == {"PheCode:5": "asthma"}
    codes = pa.table({"code": list(expected), "description": list(expected.values())})
    words.write_text(_code_list(codes))
    assert read_descriptions(words) == expected


@pytest.fixture
def other_study(study, tmp_path):
    """A folder of another study, with some of the codes."""
    other = replace(study.study, name="another", codes=Codes(names=CODES[:7]))
    prepare(str(study.root / "north.csv"), other, "north", tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def one_sentence(text, *words):
    assert text.startswith("daniel: ") and text.count("\n") == 1
    assert all(word in text for word in words), text
    return text


def test_a_folder_of_another_study(study, other_study):
    text = run(study.root / "model", other_study, "--target", TARGET, code=2)
    one_sentence(text, "elsewhere", "'another'", "'trial'")


def test_another_study_of_the_same_name_is_told_by_its_codes(study, tmp_path):
    other = replace(study.study, sites=(), codes=Codes(names=CODES[:7]))
    prepare(str(study.root / "north.csv"), other, "north", tmp_path / "namesake")
    text = run(study.root / "model", tmp_path / "namesake", code=2)
    one_sentence(text, "namesake", "'trial'", "of whose codes it lacks", "8 more")


def test_the_same_study_with_a_new_roster_is_no_other(study, tmp_path):
    later = replace(study.study, epoch=2)
    prepare(str(study.root / "north.csv"), later, "north", tmp_path / "later")
    model, report = (f(study.root / "model") for f in (folder.read_model, folder.read_report))
    records = read_sites(model, report, [tmp_path / "later"], lambda *_: None)
    assert set(records.site) == {"north"}


def test_a_folder_with_other_windows_is_refused(study, tmp_path):
    """Its study has the same name and the same codes."""
    months = replace(study.study, sites=(), window=Window(months=12))
    prepare(str(study.root / "south.csv"), months, "west", tmp_path / "west")
    text = run(study.root / "model", tmp_path / "west", code=2)
    one_sentence(text, "other windows (12 months, start patient)", "(6 months, start patient)")


def test_a_folder_without_records_is_no_other_site(study, east):
    model, report = (
        folder.read_model(study.root / "model"),
        folder.read_report(study.root / "model"),
    )
    empty = read_site(east)
    nothing = CodeMatrix(empty.Z[:0], empty.codes, empty.patients[:0], empty.windows[:0])
    reader = {east: nothing, study.root / "north": read_site(study.root / "north")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daniel.report.records.read_site", reader.get)
        records = read_sites(model, report, list(reader), lambda *_: None)
    assert set(records.site) == {"north"}


def test_bad_input_is_one_sentence(study, tmp_path):
    root = study.root
    model, north = root / "model", root / "north"
    one_sentence(run(model, "--target", "PheCode:777", code=2), "PheCode:777", "20 codes")
    one_sentence(run(north, code=2), "no model folder")
    one_sentence(run(model, model, code=2), "no site folder")
    one_sentence(run(model, north, north, "--target", TARGET, code=2), "same site")
    one_sentence(run(model, "--pairs", tmp_path / "no.tsv", code=2), "no.tsv")
    one_sentence(run(model, "--descriptions", tmp_path / "no.tsv", code=2), "no.tsv")
    (tmp_path / "words.csv").write_text("code,words\na,b\n")
    one_sentence(run(model, "--descriptions", tmp_path / "words.csv", code=2), "description")
    (tmp_path / "pairs.csv").write_text("code1,code2,relation\nX:1,X:2,far\n")
    text = run(model, "--pairs", tmp_path / "pairs.csv", code=2)
    one_sentence(text, "No pair of pairs.csv", "X:1, X:2")
    outcome = root / "north-outcome.csv"
    one_sentence(run(model, north, "--outcome", outcome, code=2), "needs a target")
    two = run(model, north, root / "south", "--target", TARGET, "--outcome", outcome, code=2)
    one_sentence(two, "2 sites and 1 outcomes")
    nobody = pd.read_csv(outcome).assign(event=0)
    nobody.to_csv(tmp_path / "nobody.csv", index=False)
    text = run(model, north, "--target", TARGET, "--outcome", tmp_path / "nobody.csv", code=2)
    one_sentence(text, "has the outcome")
    swapped = ("--outcome", root / "south-outcome.csv", "--outcome", outcome)
    text = run(model, north, root / "south", "--target", TARGET, *swapped, code=2)
    one_sentence(text, "south-outcome.csv is not of this site (north)", "more than a tenth")
    one_sentence(run(model, "--compare", code=2), "give site folders")
    one_sentence(run(model, "--outcome-code", "death", code=2), "give both, or neither")
    one_sentence(run(model, "--no-landmark", code=2), "give both, or neither")
    one_sentence(run(model, "--clusters", 3, code=2), "give both, or neither")
    one_sentence(run(model, "--umls-through", tmp_path / "t.tsv", code=2), "give both, or neither")
    one_sentence(run(model, "--umls", tmp_path, code=2), "MRCONSO.RRF")
    assert not Path("report.html").exists()


@pytest.mark.parametrize(("command", "name"), [("report", "r.html"), ("graph", "g")])
def test_what_cannot_be_written_is_said_before_the_model_is_read(tmp_path, command, name):
    missing, taken = tmp_path / "no" / name, tmp_path / name
    taken.with_name(name if command == "report" else f"{name}.graphml").mkdir()
    for out, says in ((missing, "does not exist"), (taken, "is a folder")):
        one_sentence(run(tmp_path / "nowhere", "--out", out, command=command, code=2), says)


@pytest.mark.parametrize(
    ("command", "name"),
    [("report", "r.html"), ("report", "r.csv"), ("graph", "r.png"), ("graph", "r.graphml")],
)
def test_a_file_of_others_is_not_written_over(tmp_path, command, name):
    precious = tmp_path / name
    precious.write_text("<!doctype html>\n<title>thesis</title>\npatient,age\n")
    before = precious.read_bytes()
    out = precious if command == "report" else precious.with_suffix("")
    what = (tmp_path / "nowhere", *(("--around", TARGET) if command == "graph" else ()))
    said = run(*what, "--out", out, command=command, code=2)
    one_sentence(said, f"{precious} exists already and is something else: choose another name.")
    assert precious.read_bytes() == before
    precious.write_text("")  # an empty file is nobody's
    said = run(*what, "--out", out, command=command, code=2)
    one_sentence(said, "no model folder")


@pytest.mark.parametrize("out", ["", ".", "./", "..", "sub/.."])
def test_a_graph_needs_a_name_for_its_files(tmp_path, out):
    text = run(tmp_path / "nowhere", "--around", TARGET, "--out", out, command="graph", code=2)
    one_sentence(text, "is a folder, and no name for the files: give one such as", "graph.")


@pytest.mark.parametrize("ending", ["", ".svg", ".PNG", ".graphml", ".cyjs"])
def test_a_graph_s_name_may_have_an_ending(study, tmp_path, ending):
    run(
        study.root / "model", "--around", TARGET, "--out", tmp_path / f"a.b{ending}",
        command="graph",
    )  # fmt: skip
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.b.cyjs", "a.b.graphml", "a.b.png", "a.b.svg"]


@pytest.mark.parametrize("command", ["report", "graph"])
def test_an_earlier_file_of_the_same_kind_is_replaced(study, tmp_path, command):
    options = (study.root / "model", "--out", tmp_path / "r.html")
    options += ("--around", TARGET) if command == "graph" else ()
    for _ in range(2):
        assert "Wrote" in run(*options, command=command)


def test_what_is_wrong_is_said_before_the_long_work(study, tmp_path, monkeypatch):
    monkeypatch.setattr("daniel.report.assemble.phenotype", None)  # not to be called
    root = study.root
    follow = pd.read_csv(root / "north-outcome.csv")
    follow.assign(time=follow["time"] - 5).to_csv(tmp_path / "early.csv", index=False)
    site = (root / "model", root / "north", "--target", TARGET)
    text = run(*site, "--outcome", tmp_path / "early.csv", code=2)
    one_sentence(text, "not above 0 days")
    good = ("--outcome", root / "north-outcome.csv")
    one_sentence(run(*site, *good, "--clusters", 90, code=2), "daniel: --clusters is 90: expected")
    one_sentence(run(*site, "--stability", 1, code=2), "1 refits: expected 2 or more")


def test_refits_say_how_sure_an_edge_is(study, tmp_path):
    sites = [study.root / "north", study.root / "south"]
    parts = assemble(
        study.root / "model", sites, target=TARGET, choices=Choices(quantile=0.8, stability=3)
    )
    [table] = parts.sections[-1].tables
    assert set(table.frame["in refits"]) <= {"0 %", "33 %", "67 %", "100 %"}
    assert table.frame["in refits"].iloc[0] == "100 %"  # five codes of one group, and many records
    assert "in 3 refits to patients of north and south drawn anew" in table.meaning
    with pytest.raises(ParameterError, match="give site folders and a target"):
        assemble(study.root / "model", choices=Choices(stability=3))


def test_the_command_writes_a_graph_for_other_tools(study, tmp_path):
    root, out = study.root, tmp_path / "dementia"
    text = run(
        root / "model", root / "north", root / "south", "--around", TARGET, "--top", 12,
        "--descriptions", root / "words.tsv", "--stability", 2, "--out", out,
        command="graph",
    )  # fmt: skip
    assert text.count("Wrote") == 4
    assert (tmp_path / "dementia.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "dementia.svg").read_text("utf-8")
    assert "elements" in json.loads((tmp_path / "dementia.cyjs").read_text("utf-8"))
    graph = nx.read_graphml(tmp_path / "dementia.graphml")
    assert graph.number_of_nodes() == 12
    assert graph.nodes[TARGET]["label"] == "dementia"
    assert {about["stability"] for *_, about in graph.edges(data=True)} <= {0.0, 0.5, 1.0}


def test_a_graph_needs_codes_and_refits_need_records(study, tmp_path):
    model, out = study.root / "model", tmp_path / "g"
    run(model, "--around", TARGET, "--out", out, command="graph")  # the neighbours, from the model
    said = run(model, "--out", out, command="graph", code=2)
    one_sentence(said, "name one with --around, or give site folders")
    said = run(model, "--around", TARGET, "--stability", 5, "--out", out, command="graph", code=2)
    assert "give their folders" in said
    for options, says in (
        (("--stability", 5, "--over", "sites"), "three or more: draw patients instead."),
        (("--stability", 1), "expected 2 or more"),
        (("--over", "moon"), "daniel: --over is 'moon'"),
        (("--top", 5000), "daniel: --top is 5,000: expected 1 to 500"),
    ):
        said = run(model, study.root / "north", *options, "--out", out, command="graph", code=2)
        one_sentence(said, says)
    north = study.root / "north"
    both = run(north, code=2), run(north, "--around", TARGET, code=2, command="graph")
    assert both[0] == one_sentence(both[1], "no model folder")
    for about in nx.read_graphml(tmp_path / "g.graphml").nodes.values():
        assert f"{about['prevalence']:.2g}" == f"{about['prevalence']:.6g}"  # as the report has it


@pytest.fixture(scope="module")
def east(study):
    """A third site, which has joined later: its study has another roster."""
    events = pd.concat(study.events.values()).query("patient % 2 == 0 and code != 'PheCode:7'")
    events.to_csv(study.root / "east.csv", index=False)
    later = replace(study.study, sites=())
    prepare(str(study.root / "east.csv"), later, "east", study.root / "east")
    return study.root / "east"


@pytest.mark.parametrize(
    ("names", "over"), [(("north", "south", "east"), "sites"), (("south",), "patients")]
)
def test_refits_over_sites_and_of_some_sites(study, east, tmp_path, names, over):
    """Sites are drawn as a whole; one of two sites can be refitted by itself."""
    sites = [study.root / name for name in names]
    run(
        study.root / "model", *sites, "--around", TARGET, "--stability", 3, "--over", over,
        "--out", tmp_path / "g", command="graph",
    )  # fmt: skip
    graph = nx.read_graphml(tmp_path / "g.graphml")
    told = {"refits": 3, "over": over, "sites": ", ".join(names)}
    assert told.items() <= graph.graph.items()
    shares = {round(3 * about["stability"], 9) for *_, about in graph.edges(data=True)}
    assert shares <= {0, 1, 2, 3} and max(shares) > 0
