"""The numbers behind the explorer, against plain NumPy."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from made_up import HOSTILE, make_parts, make_report

from daniel.errors import InputError
from daniel.report import layout
from daniel.report.explorer import COLOURS, LEVELS, all_pairs, blocks, nearest
from daniel.report.layout import map_coordinates
from daniel.report.parts import shown_prevalence

pytestmark = pytest.mark.usefixtures("quick_map")


def decoded(parts) -> dict:
    out = {}
    for block in blocks(parts):
        raw = block.text
        out[block.name] = (
            json.loads(raw)
            if block.type == "json"
            else np.frombuffer(base64.b64decode(raw), dtype=f"<{block.type}")
        )
    return out


def cosines(E):
    E = np.asarray(E, dtype=float)
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    return unit @ unit.T


def test_nearest_codes_are_those_of_all_cosines(parts, monkeypatch):
    monkeypatch.setattr("daniel.report.explorer.CELLS", 5000)  # several blocks of rows
    found = nearest(parts, 7)
    C = cosines(parts.embedding)
    np.fill_diagonal(C, -np.inf)
    expected = np.argsort(-C, axis=1)[:, :7]
    assert np.array_equal(found.index, expected)
    assert np.allclose(found.cosine, np.take_along_axis(C, expected, axis=1), atol=1e-6)


def test_theta_is_that_of_both_directions(parts):
    rng = np.random.default_rng(3)
    U, V = rng.normal(size=(2, len(parts.codes), 5))
    found = nearest(replace(parts, couplings=(U, V)), 4)
    theta = U @ V.T
    expected = np.take_along_axis((theta + theta.T) / 2, found.index, axis=1)
    assert np.allclose(found.theta, expected, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_a_handful_of_codes(p, tmp_path):
    E = np.random.default_rng(0).normal(size=(p, 1))
    parts = make_parts(
        codes=tuple(f"A:{j}" for j in range(p)),
        embedding=E,
        couplings=None,
        prevalence=None,
        report=make_report(codes=p),
    )
    data = decoded(parts)
    k = p - 1
    assert data["facts"]["neighbours"] == k
    index = data["index"].reshape(p, k)
    assert all(sorted([j, *row]) == list(range(p)) for j, row in enumerate(index))
    assert "theta" not in data and "prevalence" not in data
    assert np.isfinite(map_coordinates(E)).all()


def test_packed_numbers_are_the_numbers(parts):
    data, found = decoded(parts), nearest(parts, 30)
    facts, p = data["facts"], len(parts.codes)
    assert (facts["codes"], facts["neighbours"]) == (p, 30)
    assert np.array_equal(data["index"].reshape(p, 30), found.index)
    assert np.abs(data["cosine"].reshape(p, 30) / 32767 - found.cosine).max() < 2e-5
    largest = np.abs(found.theta).max()
    theta = data["theta"].reshape(p, 30) * facts["thetaScale"]
    assert np.abs(theta - found.theta).max() < largest / 32767
    assert np.allclose(data["prevalence"], parts.prevalence, rtol=1e-6)
    assert data["names"]["codes"] == list(parts.codes)
    assert data["names"]["texts"] == [parts.descriptions[code] for code in parts.codes]
    kinds = [facts["vocabularies"][k] for k in data["vocabulary"]]
    assert kinds == [code.partition(":")[0] for code in parts.codes]
    assert facts["focus"] == int(np.argmax(parts.prevalence))


def test_quantiles_of_all_pairs(parts):
    cosine, theta = all_pairs(parts)
    U, V = parts.couplings
    upper = np.triu_indices(len(parts.codes), 1)
    for found, every in ((cosine, cosines(parts.embedding)), (theta, (U @ V.T + V @ U.T) / 2)):
        for i in (0, LEVELS // 5, LEVELS // 2):
            share = 10 ** (-5 * i / (LEVELS - 1))
            assert np.mean(every[upper] >= found[i]) == pytest.approx(share, abs=1e-3)


def test_quantiles_of_sampled_pairs_are_close(parts, monkeypatch):
    exact = all_pairs(parts)[0]
    monkeypatch.setattr("daniel.report.explorer.PAIRS", 40_000)
    sampled = all_pairs(parts)[0]
    assert not np.array_equal(sampled, exact)
    assert np.abs(sampled - exact)[:48].max() < 0.03  # up to the 99th of 100


def test_many_vocabularies_share_the_last_colour(parts):
    codes = tuple(f"v{min(j % 23, j % 12)}:{j}" for j in range(len(parts.codes)))
    data = decoded(replace(parts, codes=codes, descriptions={}))
    assert len(data["facts"]["vocabularies"]) == COLOURS + 1
    assert data["facts"]["vocabularies"][-1] == "5 other vocabularies"
    assert data["vocabulary"].max() == COLOURS


@pytest.mark.parametrize("landmarks", [1000, 100])
def test_the_map_keeps_groups_together_and_is_reproducible(parts, landmarks, monkeypatch):
    monkeypatch.setattr(layout, "LANDMARKS", landmarks)
    E = parts.embedding[::2]
    position = map_coordinates(E)
    assert np.array_equal(position, map_coordinates(E))
    assert np.abs(position).max() == pytest.approx(1)
    group = np.arange(len(parts.codes))[::2] // 42
    distance = np.linalg.norm(position[:, None] - position[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    closest = np.argsort(distance, axis=1)[:, :5]
    assert np.mean(group[closest] == group[:, None]) > 0.9


def test_a_code_without_a_vector_has_a_place(parts):
    E = parts.embedding.copy()
    E[5] = 0
    assert np.isfinite(map_coordinates(E[:40])).all()
    assert (nearest(replace(parts, embedding=E), 3).cosine[5] == 0).all()


@pytest.mark.parametrize("columns", [0, 1])
def test_a_model_that_found_nothing_has_a_map(columns):
    """Of weak records the rank is 0: the report ended in a traceback."""
    position = map_coordinates(np.zeros((40, columns)))
    assert position.shape == (40, 2) and np.isfinite(position).all()


def test_prevalences_are_rounded_and_stop_at_the_floor():
    report = make_report(records=10_000, floor=11)
    share = np.array([1e-6, 0.00109, 0.0011, 0.012345, 0.5678, 0.9999])
    expected = [0.0011, 0.0011, 0.0011, 0.012, 0.57, 0.9989]
    assert np.allclose(shown_prevalence(share, report), expected)


@pytest.mark.parametrize(("floor", "least"), [(1, 0.0011), (11, 0.0011), (30, 0.003)])
def test_a_low_floor_of_the_study_does_not_tell_of_few_records(floor, least):
    """Sites may agree to tell each other small numbers; a report goes further than they."""
    report = make_report(records=10_000, floor=floor)
    share = np.array([1, 3, 10, 9_990, 9_999]) / 10_000
    assert np.allclose(shown_prevalence(share, report), [least] * 3 + [1 - least] * 2)
    facts = decoded(make_parts(report=report))["facts"]
    assert facts["least"] == pytest.approx(least)


def test_nothing_can_leave_its_script_element(parts):
    codes = (HOSTILE, *parts.codes[1:])
    hostile = replace(parts, codes=codes, descriptions={HOSTILE: "<!--<script>\u2028" + HOSTILE})
    for block in blocks(hostile):
        assert not set("<>&\u2028") & set(block.text), block.name
    assert decoded(hostile)["names"]["codes"][0] == HOSTILE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"focus": "PheCode:1"}, ["PheCode:1", "336 codes"]),
        ({"embedding": np.zeros((3, 2))}, ["embedding", "(3, 2)", "336"]),
        ({"embedding": np.full((336, 2), np.nan)}, ["embedding", "not finite"]),
        ({"couplings": (np.zeros((336, 2)), np.zeros((2, 2)))}, ["V has shape", "336"]),
        ({"prevalence": np.zeros(4)}, ["prevalence", "(4,)"]),
        ({"codes": ()}, ["no codes"]),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(InputError) as caught:
        make_parts(**changes)
    assert all(word in str(caught.value) for word in words)
