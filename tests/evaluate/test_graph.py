"""Graphs of codes: which nodes and edges, against plain NumPy; files that other readers open."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from daniel import plots
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate import graph as graphs
from daniel.evaluate.graph import code_graph, edge_stability, write_graph
from daniel.federated import protocol
from daniel.matrix import CodeMatrix
from daniel.study import Codes, Disclosure, Site, Study

P = 24
CODES = tuple(f"{'PheCode' if j % 2 else 'RxNorm'}:{j}" for j in range(P))


def records(seed, n=1500):
    """Six groups of four codes that come together; two records a patient."""
    rng = np.random.default_rng(seed)
    group = rng.random((n, 6)) < 0.12
    Z = (rng.random((n, P)) < 0.55) & np.repeat(group, 4, axis=1) | (rng.random((n, P)) < 0.03)
    return CodeMatrix(sp.csr_array(Z.astype(np.float32)), CODES, np.repeat(np.arange(n // 2), 2))


@pytest.fixture(scope="module")
def sites():
    return [records(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def model(sites):
    Z = sp.csr_array(sp.vstack([site.Z for site in sites]))
    label = np.repeat([0, 1, 2], [site.shape[0] for site in sites])
    return Daniel(random_state=0).fit(CodeMatrix(Z, CODES), sites=label)


def off_diagonal(model):
    theta = np.array(model.theta_, dtype=float)
    return (theta + theta.T) / 2


def test_around_a_code_stand_those_of_largest_theta(model):
    graph = code_graph(model, around=CODES[5], top=6, quantile=0.8)
    theta = off_diagonal(model)
    row = theta[5].copy()
    row[5] = -np.inf
    nearest = np.argsort(-row)[:6]
    assert list(graph) == [CODES[5], *(CODES[j] for j in nearest)]
    assert {CODES[4], CODES[6], CODES[7]} < set(graph)  # its group
    limit = np.quantile(theta[np.triu_indices(P, 1)], 0.8)
    inside = [5, *nearest]
    expected = {
        frozenset((CODES[j], CODES[k])): theta[j, k]
        for j in inside
        for k in inside
        if j < k and theta[j, k] > limit
    }
    found = {frozenset(edge[:2]): edge[2]["weight"] for edge in graph.edges(data=True)}
    assert found.keys() == expected.keys() and len(found) >= 6
    for pair, weight in expected.items():
        assert found[pair] == pytest.approx(weight, abs=2e-6)
    assert graph.graph["threshold"] == pytest.approx(limit, abs=1e-6)


def test_a_cohort_shows_its_commonest_codes(model, sites):
    cohort, of = sites[0], CODES[8]
    Z = cohort.Z.toarray() > 0
    ever = np.array([Z[2 * i : 2 * i + 2].any(axis=0) for i in range(Z.shape[0] // 2)])
    share = ever[ever[:, 8]].mean(axis=0)
    graph = code_graph(model, around=of, cohort=cohort, top=5, quantile_of="graph", quantile=0.5)
    assert list(graph) == [CODES[j] for j in np.argsort(-share, kind="stable")[:5]]
    for code, about in graph.nodes(data=True):
        assert about["prevalence"] == pytest.approx(share[CODES.index(code)], abs=0.025)
        assert about["vocabulary"] == code.split(":")[0] and about["label"] == code
    theta = off_diagonal(model)
    chosen = [CODES.index(code) for code in graph]
    values = theta[np.ix_(chosen, chosen)][np.triu_indices(5, 1)]
    assert graph.number_of_edges() == (values > max(0, np.quantile(values, 0.5))).sum() > 0
    everyone = code_graph(model, cohort=cohort, top=3)
    assert list(everyone) == [CODES[j] for j in np.argsort(-ever.mean(axis=0), kind="stable")[:3]]


def test_codes_of_few_patients_are_not_drawn(model):
    Z = np.zeros((60, P), dtype=np.float32)
    Z[:40, 0] = Z[:11, 1] = Z[:10, 2] = 1
    Z[:, 3] = 1
    Z[0, 3] = 0  # one patient lacks it
    graph = code_graph(model, cohort=CodeMatrix(sp.csr_array(Z), CODES))
    assert list(graph) == [CODES[3], CODES[0], CODES[1]]
    assert graph.nodes[CODES[3]]["prevalence"] == 0.85  # 50 of 60: nor is it told that few lack it
    few = code_graph(model, cohort=CodeMatrix(sp.csr_array(Z[:21]), CODES))
    assert all("prevalence" not in about for _, about in few.nodes(data=True))


@pytest.mark.parametrize("n", [33, 99, 100, 104, 189, 191, 1009])
def test_marks_do_not_tell_how_many_patients_were_counted(model, n):
    """A reader who knows all but 1 to 10 of the patients learns nothing of these few."""
    rng = np.random.default_rng(n)
    Z = rng.random((n, P)) < rng.uniform(0.2, 0.9, P)
    Z[:, 5] = True
    cohort = CodeMatrix(sp.csr_array(Z.astype(np.float32)), CODES)
    graph = code_graph(model, around=CODES[5], cohort=cohort, top=P)
    marks = plots.code_network(graph).axes[0].collections[1:]
    shares = (np.concatenate([mark.get_sizes() for mark in marks]) - 30) / 370
    assert len(shares) > 15 and shares.max() == 1
    for few in range(1, 11):
        for total in range(n - few + 1, n - few + 11):
            possible = graphs._coarse(np.arange(1, total + 1) / total)
            assert np.isclose(shares[:, None], possible, atol=1e-6).any(axis=1).all()


def test_small_shares_keep_a_digit():
    shares = np.array([0.0, 0.0123, 0.058, 0.097, 0.13, 0.98, 1])
    assert graphs._coarse(shares) == pytest.approx([0, 0.01, 0.06, 0.1, 0.15, 1, 1])


def test_where_codes_are_many_random_pairs_stand_for_all(model, monkeypatch):
    exact = code_graph(model, around=CODES[5]).graph["threshold"]
    monkeypatch.setattr(graphs, "SAMPLED_ABOVE", 10)
    monkeypatch.setattr(graphs, "SAMPLED_PAIRS", 100_000)
    sampled = code_graph(model, around=CODES[5]).graph["threshold"]
    assert sampled == pytest.approx(exact, rel=0.1)
    theta = SimpleNamespace(theta_=model.theta_, feature_names_in_=model.feature_names_in_)
    assert code_graph(theta, around=CODES[5]).graph["threshold"] == pytest.approx(sampled, rel=1e-4)


def test_a_model_with_theta_alone_gives_the_same_edges(model):
    bare = SimpleNamespace(theta_=model.theta_, feature_names_in_=model.feature_names_in_)
    one, two = (code_graph(m, around=CODES[5], top=8) for m in (model, bare))
    assert set(one.edges) == set(two.edges)
    assert "prevalence" not in two.nodes[CODES[5]] and "prevalence" in one.nodes[CODES[5]]
    plots.code_network(two)


def test_the_layout_is_the_same_again_and_keeps_nodes_apart(model):
    one, two = (code_graph(model, around=CODES[5], top=10) for _ in range(2))
    places = [[(a["x"], a["y"]) for a in g.nodes.values()] for g in (one, two)]
    assert places[0] == places[1]
    xy = np.array(places[0])
    gaps = np.linalg.norm(xy[:, None] - xy[None], axis=-1)[np.triu_indices(len(xy), 1)]
    assert np.isfinite(xy).all() and gaps.min() > 0.05


def test_planted_edges_are_stable_and_noise_is_not(model, sites):
    graph = code_graph(model, around=CODES[5], top=10, quantile=0.5)
    shown = edge_stability(graph, model, sites, n_boot=6, max_iter=20)
    assert "stability" not in next(iter(graph.edges(data=True)))[2]
    of_group = {
        frozenset(edge[:2]): edge[2]["stability"]
        for edge in shown.edges(data=True)
        if {CODES.index(code) // 4 for code in edge[:2]} == {1}
    }
    others = [
        about["stability"]
        for a, b, about in shown.edges(data=True)
        if CODES.index(a) // 4 != CODES.index(b) // 4
    ]
    assert len(of_group) == 6 and min(of_group.values()) == 1
    assert others and min(others) < 1
    assert all(6 * value == round(6 * value) for value in others)


def test_sites_are_drawn_as_a_whole(model, sites, tmp_path, monkeypatch):
    """Each drawn combination of sites is fitted once; counts add up to n_boot."""
    seen = []

    def remember(model, records, rows, *_):
        every = zip(rows, records.values(), strict=True)
        seen.append([r.size // one.shape[0] for r, one in every])
        return model

    monkeypatch.setattr(graphs, "_refit", remember)
    graph = code_graph(model, around=CODES[5], top=5, quantile=0.5)
    shown = edge_stability(graph, model, sites, over="sites", n_boot=30)
    assert all(sum(times) == 3 for times in seen)
    assert len({tuple(times) for times in seen}) == len(seen) <= 10
    assert {about["stability"] for *_, about in shown.edges(data=True)} == {1.0}
    with pytest.raises(InputError, match="three or more"):
        edge_stability(graph, model, sites[:2], over="sites")
    with pytest.raises(ParameterError, match="1 refits: expected 2 or more"):
        edge_stability(graph, model, sites, n_boot=1)


def couplings(model):
    theta = np.array(model.U_ @ model.V_.T)
    return theta[np.triu_indices(P, 1)]


def everything(sites):
    return [np.arange(one.shape[0]) for one in sites.values()]


def test_a_refit_leaves_sites_without_a_code_out_of_its_pairs(sites):
    """As the protocol does; `Daniel.fit` takes their zeros for data."""
    named = {"a": sites[0]}
    for name, one in zip("bc", sites[1:], strict=True):
        Z = one.Z.toarray()
        Z[:, [4, 6]] = 0
        named[name] = CodeMatrix(sp.csr_array(Z), CODES, one.patients)
    free = Disclosure(release="open", floor=1, minimum_patients=1, minimum_records=1)
    roster = (Site("a", "hub"), Site("b"), Site("c"))
    study = Study(codes=Codes(names=CODES), disclosure=free, sites=roster)
    model, _ = protocol.fit(named, study)
    Z = sp.csr_array(sp.vstack([one.Z for one in named.values()]))
    label = np.repeat(list(named), [one.shape[0] for one in named.values()])
    zeros = Daniel(random_state=0).fit(CodeMatrix(Z, CODES), sites=label, hub="a")
    refit = graphs._refit(model, named, everything(named), None, 1, 0)
    wanted = couplings(model)
    gaps = [np.linalg.norm(couplings(m) - wanted) for m in (refit, zeros)]
    assert gaps[0] < 0.015 * np.linalg.norm(wanted) < 0.03 * np.linalg.norm(wanted) < gaps[1]


def test_the_models_hub_is_that_of_its_refits(model, sites, monkeypatch):
    starts = []
    first = graphs.natural.make_start

    def remember(records, *rest):
        starts.append(records.total)
        return first(records, *rest)

    monkeypatch.setattr(graphs.natural, "make_start", remember)
    small = records(9, n=600)
    named = {"large": sites[0], "small": small}
    for hub in ("small", "elsewhere"):
        known = clone(model).fit(sites[0])
        known.hub_ = hub
        graphs._refit(known, named, everything(named), 5, 1, 0)
    assert starts == [600, 1500]


def test_a_graph_tells_its_refits_and_so_do_its_files(model, sites, tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "_refit", lambda model, *_: model)
    graph = code_graph(model, around=CODES[5], top=5)
    named = dict(zip(("north", "south"), sites, strict=False))
    told = {"refits": 4, "over": "patients", "sites": "north, south"}
    out = edge_stability(graph, model, named, n_boot=4)
    assert told.items() <= out.graph.items() and "refits" not in graph.graph
    assert "sites" not in edge_stability(graph, model, sites, n_boot=2).graph
    graphml, cyjs = write_graph(out, tmp_path / "net")
    assert told.items() <= nx.read_graphml(graphml).graph.items()
    assert told.items() <= json.loads(cyjs.read_text("utf-8"))["data"].items()


def test_an_edge_of_fewer_than_half_of_the_refits_is_dashed(model):
    graph = code_graph(model, around=CODES[5], top=3, quantile=0.5)
    shares = [0.5, 0.499, 1.0]
    for edge, share in zip(graph.edges, shares, strict=False):
        graph.edges[edge]["stability"] = share
    (lines,) = plots.code_network(graph).axes[0].collections[:1]
    dashed = [pattern is not None for _, pattern in lines.get_linestyle()]
    by_weight = sorted(graph.edges(data=True), key=lambda edge: edge[2]["weight"])
    assert dashed == [about.get("stability", 1.0) == 0.499 for *_, about in by_weight]
    assert sum(dashed) == 1


def test_rare_codes_have_a_prevalence():
    rare = records(0)
    Z = rare.Z.toarray()
    Z[:, 3] = 0
    Z[:1, 3] = 1
    model = Daniel(random_state=0).fit(CodeMatrix(sp.csr_array(np.tile(Z, (3, 1))), CODES))
    graph = code_graph(model, around=CODES[3], top=3)
    share = model._coords.center[3]
    assert share < 0.0009 and graph.nodes[CODES[3]]["prevalence"] == pytest.approx(share, rel=0.01)


def test_patients_are_drawn_with_all_their_records():
    matrix = records(0, n=200)
    rows = graphs._patients_anew(matrix, np.random.default_rng(0))
    drawn = matrix.patients[rows]
    assert rows.size == 200 and 40 < np.unique(drawn).size < 85
    times = np.bincount(rows, minlength=200).reshape(-1, 2)
    assert (times[:, 0] == times[:, 1]).all()


def test_files_open_elsewhere(model, tmp_path):
    labels = {CODES[5]: "dementia & \x00 <b>$x$"}
    graph = code_graph(model, around=CODES[5], top=6, descriptions=labels)
    for *_, about in graph.edges(data=True):
        about["stability"] = 0.25
    written = write_graph(graph, tmp_path / "net")
    assert [path.name for path in written] == ["net.graphml", "net.cyjs"]
    again = nx.read_graphml(written[0])
    assert set(again.nodes) == set(graph.nodes) and set(again.edges) == set(graph.edges)
    assert again.nodes[CODES[5]]["label"] == "dementia &   <b>$x$"
    assert again.graph["quantile"] == 0.95
    view = json.loads(written[1].read_text("utf-8"))
    back = nx.cytoscape_graph(view)
    assert {frozenset(e) for e in back.edges} == {frozenset(e) for e in graph.edges}
    node = view["elements"]["nodes"][0]
    assert node["data"]["name"] == "dementia &   <b>$x$" and set(node["position"]) == {"x", "y"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.cyjs", "net.graphml"]
    figures = [plots.save(plots.code_network(graph), tmp_path / name) for name in ("a", "b")]
    assert figures[0][1].read_bytes() == figures[1][1].read_bytes()
    drawn = figures[0][1].read_text("utf-8")
    assert "RxNorm" in drawn and "$x$" in drawn


def test_control_characters_in_a_code_leave_its_files_readable(model, tmp_path):
    strange = ["Loc\x01al:\x005", *CODES[1:]]
    theta = SimpleNamespace(theta_=model.theta_, feature_names_in_=strange)
    graph = code_graph(theta, around=strange[0], top=4, quantile=0.5)
    again = nx.read_graphml(write_graph(graph, tmp_path / "net")[0])
    assert again.nodes["Loc al: 5"]["vocabulary"] == "Loc al"
    assert again.number_of_edges() == graph.number_of_edges() > 0
    ElementTree.parse(plots.save(plots.code_network(graph), tmp_path / "net")[1])


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, ParameterError, "give `around`, `cohort` or both"),
        ({"around": "PheCode:9999"}, InputError, "no code 'PheCode:9999'"),
        ({"around": CODES[0], "quantile": 1.0}, ParameterError, "quantile"),
        ({"around": CODES[0], "quantile": "x"}, ParameterError, "quantile is 'x'"),
        ({"around": CODES[0], "top": 0}, ParameterError, "top is 0"),
        ({"around": CODES[0], "top": 2.5}, ParameterError, "top is 2.5"),
        ({"around": CODES[0], "top": 5000}, ParameterError, "top is 5,000: expected 1 to 500"),
        ({"around": CODES[0], "quantile_of": "moon"}, ParameterError, "quantile_of"),
        ({"cohort": records(0, n=10)}, InputError, "larger one"),
    ],
)
def test_bad_input_is_one_sentence(model, options, error, says):
    with pytest.raises(error, match=says):
        code_graph(model, **options)


def test_colours_follow_the_size_of_vocabularies_in_the_model():
    """As in the report's explorer, whichever of them a graph happens to hold."""
    graph = nx.Graph(vocabularies="RxNorm, PheCode, CCS")
    for place, code in enumerate(("CCS:1", "PheCode:1")):
        vocabulary = code.partition(":")[0]
        graph.add_node(code, label=code, vocabulary=vocabulary, x=place, y=0.0)
    labels = plots.code_network(graph).legends[0].legend_handles
    colours = {line.get_label(): line.get_color() for line in labels}
    assert colours == {"PheCode": plots.COLOURS[1], "CCS": plots.COLOURS[2]}
