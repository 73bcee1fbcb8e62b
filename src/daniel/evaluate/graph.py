"""Knowledge graphs: the codes of a cohort or around one code, joined where theta is large.

An edge stands where theta_jk is above a quantile of all off-diagonal entries of Theta, as in the
paper's section on knowledge graphs.  theta is a quarter of the log-odds ratio of two codes given
all others, which is large for rare codes; among the most common codes few pairs are then above the
quantile of all, and ``quantile_of="graph"`` compares with the pairs of the graph alone.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from daniel.checks import check_choice, is_real, is_whole, shown
from daniel.core import natural
from daniel.core.records import records_from
from daniel.data.sitefolder import read_site
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.clusters import records_for
from daniel.evaluate.survival import FLOOR
from daniel.federated import totals
from daniel.federated.files import write_file
from daniel.federated.sums import site_sums
from daniel.matrix import CodeMatrix, codes_like, kinds, vocabulary_of

SAMPLED_ABOVE = 3_000  # codes; beyond, the quantile is that of random pairs
SAMPLED_PAIRS = 2_000_000
MOST_CODES = 500  # of a graph: more take minutes to lay out, and nobody can read them
OVER = ("patients", "sites")
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def code_graph(
    model: Any,
    *,
    around: str | None = None,
    cohort: CodeMatrix | None = None,
    top: int = 30,
    quantile: float = 0.95,
    quantile_of: str = "model",
    descriptions: Mapping[str, str] | None = None,
    floor: int = FLOOR,
    random_state: int = 0,
) -> nx.Graph:
    """A graph of `top` codes, with edges where theta is above the quantile.

    Parameters
    ----------
    model : with `feature_names_in_`, and `U_` and `V_` or `theta_`.
    around : a code; with it alone, the nodes are the code and the `top` codes of largest theta.
    cohort : records; the nodes are the codes that most of its patients have, among those patients
        who have `around` if it is given, and of at least `floor` patients.
    quantile_of : "model", all pairs of codes, as in the paper; "graph", pairs of the nodes.
    descriptions : code -> label.
    random_state : of the layout, and of the pairs that stand for all where codes are many.

    Returns
    -------
    Graph: quantile, threshold, vocabularies (of the model, the largest first).
    Nodes: label, vocabulary, prevalence (about the share of the cohort's patients, else that of the
    study's records, and left out where the model does not know it), x, y.  Edges: weight = theta.
    """
    names = _names(model)
    if around is None and cohort is None:
        raise ParameterError("Nothing says which codes to draw: give `around`, `cohort` or both.")
    if around is not None and around not in names:
        raise InputError(
            f"The model has no code {around!r}; it knows {len(names):,} codes, such as "
            f"{codes_like(around, names)}."
        )
    check_top(top)
    if not is_real(quantile) or not 0 <= quantile < 1:
        raise ParameterError(f"quantile is {shown(quantile)}: expected at least 0 and below 1.")
    check_choice("quantile_of", quantile_of, ("model", "graph"))
    if cohort is None:
        chosen = _neighbours(model, names.index(str(around)), top)
        prevalence = _model_prevalence(model)
    else:
        chosen, prevalence = _common(records_for(model, cohort), around, top, floor)
    graph = nx.Graph(quantile=quantile, quantile_of=quantile_of, vocabularies=_kinds(names))
    for j in chosen:
        share = {} if prevalence is None else {"prevalence": float(f"{prevalence[j]:.3g}")}
        label = (descriptions or {}).get(names[j]) or names[j]
        graph.add_node(
            names[j], label=_printed(label), vocabulary=vocabulary_of(_printed(names[j])), **share
        )
    theta = _theta(model, chosen)
    threshold = _threshold(model, theta, quantile, quantile_of, random_state)
    graph.graph["threshold"] = threshold
    for a, b in _above(theta, threshold):
        graph.add_edge(names[chosen[a]], names[chosen[b]], weight=round(float(theta[a, b]), 6))
    _place(graph, random_state)
    return graph


def edge_stability(
    graph: nx.Graph,
    model: Daniel,
    sites: Mapping[str, CodeMatrix | str | Path] | Sequence[CodeMatrix | str | Path],
    *,
    over: str = "patients",
    n_boot: int = 20,
    max_iter: int | None = None,
    floor: int = 1,
    random_state: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> nx.Graph:
    """The graph with `stability` on every edge: the share of refits in which it is an edge again.

    sites: records, or site folders, of every site; by name, the model's hub is that of the refits,
    else the site with most records.  over: "patients" are drawn anew within each site, with all
    their records (records, where there are no patients); "sites" are drawn anew as a whole, which
    needs at least three.  Each refit has its own quantile, which is higher where patients who come
    twice spread the couplings: edges just above the model's threshold seldom come back.  The graph
    tells `refits`, `over` and, by name, `sites`.

    A refit is one exchange: pairs of a code count at the sites that record it (`totals.presence`).
    Unlike the protocol it has no masks, sketches, noise or later rounds, and `sites` may be some of
    the model's only.  floor: codes of fewer patients of a site are left out of `sites` already.

    The cost is that of `n_boot` fits, one after the other; draws of the same sites are fitted once.
    max_iter: most iterations of a refit, those of the model unless given.  Fewer are cheaper, but a
    refit that has not settled has other edges, and stability then mixes the two.  progress: gets
    the share of the work that is done.
    """
    check_refits(n_boot, over, len(sites))
    named = sites if isinstance(sites, Mapping) else dict(enumerate(sites))
    records = {
        name: records_for(model, s if isinstance(s, CodeMatrix) else read_site(s))
        for name, s in named.items()
    }
    rng = np.random.default_rng(random_state)
    names = _names(model)
    chosen = np.array([names.index(code) for code in graph.nodes])
    quantile, of = graph.graph["quantile"], graph.graph["quantile_of"]
    seen: Counter[tuple[int, int]] = Counter()
    done = 0
    progress(0.0)
    for rows, times in _draws(list(records.values()), over, n_boot, rng):
        refit = _refit(model, records, rows, max_iter, floor, random_state)
        theta = _theta(refit, chosen)
        threshold = _threshold(refit, theta, quantile, of, random_state)
        seen.update({pair: times for pair in _above(theta, threshold)})
        done += times
        progress(done / n_boot)
    out = graph.copy()
    out.graph |= {"refits": n_boot, "over": over}
    if isinstance(sites, Mapping):
        out.graph["sites"] = ", ".join(sites)
    position = {code: i for i, code in enumerate(graph.nodes)}
    for a, b, about in out.edges(data=True):
        pair = sorted((position[a], position[b]))
        about["stability"] = seen[pair[0], pair[1]] / n_boot
    return out


def check_top(top: int) -> None:
    if not is_whole(top) or not 1 <= top <= MOST_CODES:
        found = f"{top:,}" if is_whole(top) else shown(top)
        raise ParameterError(f"top is {found}: expected 1 to {MOST_CODES} codes in a graph.")


def check_refits(n_boot: int, over: str, n_sites: int) -> None:
    """Whether so many sites can be refitted so often."""
    check_choice("over", over, OVER)
    if not is_whole(n_boot) or n_boot < 2:
        raise ParameterError(
            f"Stability was asked for with {shown(n_boot)} refits: expected 2 or more, better 20."
        )
    if over == "sites" and n_sites < 3:
        raise InputError(
            "Sites can be drawn anew only where there are three or more: draw patients instead."
        )


def write_graph(graph: nx.Graph, stem: str | Path) -> list[Path]:
    """Write stem.graphml (yEd, Gephi, igraph) and stem.cyjs (Cytoscape)."""
    stem = Path(stem)
    plain = graph.copy()
    view = nx.cytoscape_data(plain)
    view["data"] = dict(view["data"])  # as Cytoscape's own files have it
    for node in view["elements"]["nodes"]:
        about = node["data"]
        about["name"] = about["label"]
        node["position"] = {"x": 500 * about["x"], "y": -500 * about["y"]}  # their y points down
    written = []
    for suffix, content in (
        (".graphml", _printed("\n".join(nx.generate_graphml(plain)) + "\n")),
        (".cyjs", json.dumps(view, indent=1, ensure_ascii=False) + "\n"),
    ):
        target = stem.with_name(stem.name + suffix)
        write_file(target, content.encode())
        written.append(target)
    return written


# --- which codes ----------------------------------------------------------------------------------


def _names(model: Any) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError("The model does not know the names of its codes: fit it to a CodeMatrix.")
    return [str(name) for name in names]


def _printed(text: str) -> str:
    """Text with a blank for each control character, which no XML file may hold."""
    return NOT_XML.sub(" ", text)


def _kinds(names: Sequence[str]) -> str:
    """The vocabularies of a model, the largest first: the order of their colours."""
    counts = Counter(vocabulary_of(_printed(name)) for name in names)
    return ", ".join(sorted(counts, key=lambda kind: (-counts[kind], kind)))


def _neighbours(model: Any, column: int, top: int) -> np.ndarray:
    """The code, and those of largest positive theta with it, largest first."""
    p = len(_names(model))
    row = _block(model, np.array([column]), np.arange(p))[0]
    row[column] = -np.inf
    order = np.argsort(-row, kind="stable")[:top]
    return np.array([column, *order[row[order] > 0]])


def _common(
    cohort: CodeMatrix, around: str | None, top: int, floor: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The commonest codes among the cohort's patients, and about the share of patients with each.

    Of fewer than twice `floor` patients a share would tell how few have a code, or lack it.
    """
    n = cohort.shape[0]
    whose = np.arange(n) if cohort.patients is None else cohort.patients
    _, owner = np.unique(whose, return_inverse=True)
    n_patients = int(owner.max()) + 1
    member = sp.csr_array((np.ones(n, np.float32), (owner, np.arange(n))), shape=(n_patients, n))
    ever = sp.csr_array(member @ cohort.Z)
    ever.data[:] = 1
    if around is not None:
        ever = ever[np.flatnonzero(ever[:, [cohort.codes.index(around)]].toarray().ravel())]
    counts = np.asarray(ever.sum(axis=0)).ravel()
    order = np.argsort(-counts, kind="stable")[:top]
    order = order[counts[order] >= floor]
    if order.size < 2:
        raise InputError(
            f"Fewer than two codes have {floor} patients in the cohort: give a larger one."
        )
    n_patients = ever.shape[0]
    if n_patients < 2 * floor:
        return order, None
    few = n_patients - floor + 1  # nearly everyone: not told exactly
    told = np.minimum(counts, np.where(counts == n_patients, counts, few))
    return order, _coarse(told / n_patients)


def _coarse(share: np.ndarray) -> np.ndarray:
    """Shares in steps of .05, and below .1 with one digit.

    An exact share fits few totals.  All of them together would tell the number of patients, and
    beside the sizes of clusters how few are in none of these.  One patient of a total near the true
    one is less than a step, if eleven patients or more have the code.
    """
    step = np.minimum(0.05, 10.0 ** np.floor(np.log10(np.maximum(share, 1e-9))))
    return np.round(share / step) * step


def _model_prevalence(model: Any) -> np.ndarray | None:
    """Share of records with each code, which natural coordinates are centred on."""
    coords = getattr(model, "_coords", None)
    return None if coords is None or coords.tied else coords.center


# --- theta ----------------------------------------------------------------------------------------


def _block(model: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """theta of rows × columns, made symmetric; entries of a code with itself mean nothing."""
    if hasattr(model, "U_"):
        U, V = (np.asarray(F, dtype=np.float64) for F in (model.U_, model.V_))
        return (U[rows] @ V[columns].T + V[rows] @ U[columns].T) / 2
    theta = np.asarray(model.theta_, dtype=np.float64)
    return (theta[np.ix_(rows, columns)] + theta[np.ix_(columns, rows)].T) / 2


def _theta(model: Any, chosen: np.ndarray) -> np.ndarray:
    return _block(model, chosen, chosen)


def _threshold(
    model: Any, theta: np.ndarray, quantile: float, quantile_of: str, random_state: int
) -> float:
    """The quantile of off-diagonal theta, of all codes or of those in `theta`; at least 0."""
    p = len(_names(model))
    if quantile_of == "graph":
        values = theta[np.triu_indices(len(theta), 1)]
    elif p <= SAMPLED_ABOVE:
        values = _theta(model, np.arange(p))[np.triu_indices(p, 1)]
    else:
        values = _sampled(model, p, np.random.default_rng(random_state))
    return max(0.0, float(np.quantile(values, quantile))) if values.size else 0.0


def _sampled(model: Any, p: int, rng: np.random.Generator) -> np.ndarray:
    """theta of random pairs of different codes."""
    j = rng.integers(p, size=SAMPLED_PAIRS)
    k = (j + rng.integers(1, p, size=j.size)) % p
    if not hasattr(model, "U_"):
        theta: np.ndarray = np.asarray(model.theta_)
        return (theta[j, k] + theta[k, j]) / 2
    U, V = model.U_, model.V_
    parts = [
        (np.einsum("jc,jc->j", U[a], V[b]) + np.einsum("jc,jc->j", U[b], V[a])) / 2
        for a, b in zip(np.array_split(j, 64), np.array_split(k, 64), strict=True)
    ]
    return np.concatenate(parts)


def _above(theta: np.ndarray, threshold: float) -> Iterator[tuple[int, int]]:
    """Pairs (a < b) of positions with theta above the threshold."""
    a, b = np.triu_indices(len(theta), 1)
    there = theta[a, b] > threshold
    yield from zip(a[there].tolist(), b[there].tolist(), strict=True)


def _place(graph: nx.Graph, random_state: int) -> None:
    """x, y of every node in about [-1, 1]; the same for the same graph and seed.

    Springs give a first layout, which Kamada and Kawai's then spreads by the number of steps
    between nodes; parts without a path between them stand one step further than the longest.
    """
    steps = dict(nx.all_pairs_shortest_path_length(graph))
    far = 1 + max(max(row.values()) for row in steps.values())
    distance = {a: {b: steps[a].get(b, far) for b in graph} for a in graph}
    first = nx.spring_layout(graph, seed=random_state)
    for code, (x, y) in nx.kamada_kawai_layout(graph, dist=distance, pos=first).items():
        graph.nodes[code].update(x=round(float(x), 4), y=round(float(y), 4))


# --- refits ---------------------------------------------------------------------------------------


def _draws(
    records: Sequence[CodeMatrix], over: str, n_boot: int, rng: np.random.Generator
) -> Iterator[tuple[list[np.ndarray], int]]:
    """Rows of every site in a draw, and how often the draw came."""
    if over == "patients":
        for _ in range(n_boot):
            yield [_patients_anew(one, rng) for one in records], 1
        return
    m = len(records)
    drawn = Counter(tuple(sorted(rng.integers(m, size=m).tolist())) for _ in range(n_boot))
    for combination, times in drawn.items():
        often = np.bincount(combination, minlength=m)
        rows = [np.tile(np.arange(one.shape[0]), k) for one, k in zip(records, often, strict=True)]
        yield rows, times


def _patients_anew(matrix: CodeMatrix, rng: np.random.Generator) -> np.ndarray:
    """Rows of as many patients as there are, drawn with replacement."""
    n = matrix.shape[0]
    _, owner = np.unique(
        np.arange(n) if matrix.patients is None else matrix.patients, return_inverse=True
    )
    rows = np.argsort(owner, kind="stable")
    edges = np.searchsorted(owner[rows], np.arange(owner.max() + 2))
    drawn = rng.integers(edges.size - 1, size=edges.size - 1)
    return np.concatenate([rows[edges[i] : edges[i + 1]] for i in drawn])


def _refit(
    model: Daniel,
    records: Mapping[Any, CodeMatrix],
    rows: Sequence[np.ndarray],
    max_iter: int | None,
    floor: int,
    random_state: int,
) -> Daniel:
    """The same model, fitted to these rows in one exchange between the sites that have some."""
    fresh = clone(model).set_params(max_iter=max_iter or model.max_iter, random_state=random_state)
    drawn = {
        name: CodeMatrix(sp.csr_array(one.Z[r]), one.codes)
        for (name, one), r in zip(records.items(), rows, strict=True)
        if r.size
    }
    hub = getattr(model, "hub_", None)
    if hub not in drawn:
        hub = max(drawn, key=lambda name: drawn[name].shape[0])
    if len(drawn) > 1 and model.recipe == "natural":
        return _exchanged(fresh, drawn, hub, floor)
    Z = sp.csr_array(sp.vstack([one.Z for one in drawn.values()], format="csr"))
    label = np.repeat(list(drawn), [one.shape[0] for one in drawn.values()])
    whole = CodeMatrix(Z, drawn[hub].codes)
    return fresh.fit(whole, sites=label, hub=hub) if len(drawn) > 1 else fresh.fit(whole)


def _exchanged(fresh: Daniel, drawn: Mapping[Any, CodeMatrix], hub: Any, floor: int) -> Daniel:
    """`Daniel.fit` with sites, but a site that does not record a code has no say in its pairs."""
    options, codes = fresh._options(), drawn[hub].codes
    rng = np.random.default_rng(fresh.random_state)
    own = records_from(drawn[hub].Z)
    start = natural.make_start(own, options, rng)
    sums = [site_sums(one, start, options) for one in drawn.values()]
    mean = totals.mean_answer(
        totals.sum_of(sums),
        [totals.Site(float(s.totals[0]), s.counts == 0) for s in sums],
        start.coords.scale,
        np.arange(len(codes)),
        floor,
        tied=start.coords.tied,
    )
    fitted = natural.finish(own, start, mean, options, rng)
    fresh._adopt(fitted, kinds(codes, len(codes)))
    fresh.feature_names_in_ = np.array(codes, dtype=object)
    return fresh
