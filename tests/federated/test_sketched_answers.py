"""The exchange with sketched answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.core import natural
from daniel.errors import FormatError, ParameterError
from daniel.federated import messages, protocol, totals
from daniel.federated.describe import describe, describe_parcel
from daniel.federated.release import without_rare
from daniel.federated.sums import site_sums, symmetric
from daniel.federated.terms import options_of
from daniel.study import Disclosure, Study

K = 7


@pytest.fixture(scope="module")
def sketched(make):
    """(network, start, answers) with K directions, masked and open."""

    def of(release):
        network = make(release=release, sketch=K)
        start = network.start()
        return network, start, network.answers(start)

    return {release: of(release) for release in ("masked", "open")}


def told(network, start, name, **options):
    """The plain sums of one site, S (p, p) in units of codes' scales, and the directions."""
    opening = messages.read(start)
    made = protocol._natural_start(opening, options_of(network.study))
    sums = site_sums(network.sites[name], made, options_of(network.study), **options)
    scale = made.coords.scale
    S = symmetric(sums.derivative, scale.size) / np.outer(scale, scale)
    return S, opening.arrays["directions"].astype(float), scale


def error(model, other):
    return np.linalg.norm(model.theta_ - other.theta_) / np.linalg.norm(other.theta_)


def test_the_files_have_the_form_of_the_format_page(sketched):
    for release, (_, start, answers) in sketched.items():
        for data in (start, *answers):
            message = messages.read(data)
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            content = json.loads(header["__metadata__"]["daniel"])
            assert (content["format"], content["sketch"]) == (2, K)
            assert message.manifest.content() == content
            assert len(data) <= messages.largest(20, K)
        assert messages.read(start).arrays["directions"].shape == (20, K)
        arrays = messages.read(answers[1]).arrays
        if release == "masked":
            assert arrays["masked"].shape == (20 * K + 3 * 20 + 2,)
        else:
            assert arrays["sketch"].shape == (20, K) and "triangle" not in arrays


def test_a_study_without_sketches_has_the_files_and_the_hash_of_before(exchange, masked):
    """So that other versions of daniel read them."""
    for data in (exchange[0], *exchange[1]):
        manifest = messages.read(data).manifest
        assert manifest.format == 1 and "sketch" not in manifest.content()
    assert b"sketch" not in masked.study.canonical
    assert replace(Study(), disclosure=Disclosure(sketch=3)).hash != Study().hash


def test_masks_cancel_in_the_sum_of_the_sketches(sketched):
    network, start, answers = sketched["masked"]
    sums = totals.add_up([messages.read(data) for data in answers], 20)
    wanted = 0
    for name in network.sites:
        S, Q, scale = told(network, start, name)
        wanted = wanted + scale[:, None] * (S @ Q)
    np.testing.assert_allclose(sums.derivative.reshape(20, K), wanted, atol=2e-3)
    assert np.abs(wanted).max() > 10


def test_an_open_sketch_knows_nothing_of_rare_codes(make):
    network = make(release="open", sketch=K, floor=60)
    start = network.start()
    matrix = network.sites["south"]
    blind = without_rare(matrix, 60)
    assert 0 < blind.absent.sum() < 15
    without = replace(network, sites=network.sites | {"south": replace(blind, absent=None)})
    one, other = (messages.read(n.answer("south", start)) for n in (network, without))
    for name in ("sketch", "b", "counts", "patients", "absent"):
        np.testing.assert_array_equal(one.arrays[name], other.arrays[name])
    directions = messages.read(start).arrays["directions"]
    rare = without_rare(network.hub, 60).absent
    assert rare.any() and not directions[rare].any() and directions[~rare].any(axis=1).all()


@pytest.mark.parametrize("release", ["masked", "open"])
def test_with_all_directions_it_is_the_plain_exchange(make, release):
    models = []
    for sketch in (None, 20):
        network = make(release=release, sketch=sketch)
        start = network.start()
        models.append(network.finish(start, network.answers(start))[0])
    assert error(models[1], models[0]) < 1e-3
    assert np.linalg.norm(models[0].theta_) > 1


def test_some_directions_are_nearly_as_good(sketched, masked, exchange):
    """Better than what the hub alone can say, where it has a tenth of the records."""
    plain, _ = masked.finish(*exchange)
    network, start, answers = sketched["masked"]
    model, report = network.finish(start, answers)
    hub = protocol.Daniel(random_state=0).fit(network.hub)
    assert error(model, plain) < 0.6 * error(hub, plain)
    assert any("sketches along 7 directions" in term for term in report.terms())
    assert protocol.Report.from_json(report.to_json()) == report


def test_tied_intercepts_keep_their_diagonal(make):
    network = make(sketch=20)
    model = replace(network.study.model, intercept="tied")
    network = network.with_study(model=model)
    start = network.start()
    sums = totals.add_up([messages.read(d) for d in network.answers(start)], 20)
    opening = messages.read(start)
    every = np.arange(20)
    sites = [totals.Site(400.0, np.zeros(20, bool))] * 3
    scale, Q = opening.arrays["scale"], opening.arrays["directions"]
    mean = totals.mean_answer(sums, sites, scale, every, directions=Q, tied=True)
    plain = 0
    for name in network.sites:
        plain = plain + told(network, start, name)[0]
    assert np.abs(np.diag(plain)).min() > 0
    np.testing.assert_allclose(mean.G, plain / 1200, atol=1e-5)


def test_clipped_patients_count_less_in_a_sketch_too(sketched):
    network, start, _ = sketched["masked"]
    S, Q, scale = told(network, start, "east", clip=1.0)
    options = options_of(network.study)
    made = protocol._natural_start(messages.read(start), options)
    found = site_sums(network.sites["east"], made, options, clip=1.0, directions=Q)
    free = site_sums(network.sites["east"], made, options, directions=Q)
    np.testing.assert_allclose(found.derivative.reshape(20, K), scale[:, None] * (S @ Q), atol=2e-3)
    assert np.linalg.norm(found.derivative) < 0.8 * np.linalg.norm(free.derivative)


def test_two_rounds(make):
    network = make(sketch=K).with_study(rounds=2)
    start = network.start()
    model, _ = network.finish(start, network.answers(start))
    again = network.start(previous=model, round=2)
    Q = messages.read(again).arrays["directions"].astype(float)
    strong = model._U[:, (model._U**2).sum(axis=0) > 0.05]
    assert 1 <= strong.shape[1] < K
    np.testing.assert_allclose(Q @ (Q.T @ strong), strong, atol=1e-3)
    assert np.isfinite(network.finish(again, network.answers(again))[0].theta_).all()


def test_a_person_is_told_that_it_is_a_sketch(sketched, tmp_path):
    network, start, answers = sketched["masked"]
    (tmp_path / "a.daniel").write_bytes(answers[1])
    (tmp_path / "s.daniel").write_bytes(start)
    network.study.write(tmp_path / "study.toml")
    said = describe(tmp_path / "a.daniel", network.study)
    assert "It is a sketch" in said and "7 directions" in said and "format 2" in said
    assert "sketches along 7 directions" in describe(tmp_path / "s.daniel", network.study)
    assert "a sketch along 7 directions" in describe(tmp_path / "study.toml")
    parcel = protocol.preview(network.hub, network.study, start, network.keys["north"])
    assert "sketch = 7" in describe_parcel(parcel) and "It is a sketch" in describe_parcel(parcel)


def test_what_cannot_be_is_refused(sketched, make):
    with pytest.raises(ParameterError, match=r"disclosure\.sketch .* noise"):
        Study(disclosure=Disclosure(sketch=3, epsilon=1.0, clip=1.0))
    with pytest.raises(ParameterError, match=r"disclosure\.sketch"):
        Study(disclosure=Disclosure(sketch=0))
    network, start, answers = sketched["open"]
    message = messages.read(start)
    wide = {**message.arrays, "directions": message.arrays["directions"] * 3}
    data = messages.write(message.manifest, wide, network.keys["north"])
    with pytest.raises(FormatError, match="cannot be"):
        messages.read(data)
    answer = messages.read(answers[1])
    arrays = {**answer.arrays, "sketch": answer.arrays["sketch"][:, :4].copy()}
    data = messages.write(replace(answer.manifest, sketch=4), arrays, network.keys["south"])
    with pytest.raises(FormatError, match="other terms"):
        messages.verify(messages.read(data), network.study, messages.ANSWER)
    triangle = {k: v for k, v in answer.arrays.items() if k != "sketch"}
    triangle["triangle"] = np.zeros(210, dtype=np.float32)
    data = messages.write(answer.manifest, triangle, network.keys["south"])
    with pytest.raises(FormatError, match="does not hold what"):
        messages.read(data)


def test_pairs_count_at_the_sites_that_have_both_codes(make):
    """A code that a site lacks: with all directions the entries are those of the plain answer."""
    network = make(sketch=20)
    Z = network.sites["east"].Z.toarray()
    Z[:, 3] = 0
    east = replace(network.sites["east"], Z=sp.csr_array(Z))
    network = replace(network, sites=network.sites | {"east": east})
    start = network.start()
    opening = messages.read(start)
    sketches = [messages.read(d) for d in network.answers(start)]
    sites = [totals.of_message(m) for m in sketches]
    Q, scale = opening.arrays["directions"], opening.arrays["scale"]
    every = np.arange(20)
    found = totals.mean_answer(totals.add_up(sketches, 20), sites, scale, every, directions=Q)
    S = sum(told(network, start, name)[0] for name in network.sites)
    share = np.ones((20, 20))
    records = np.array([site.records for site in sites])
    share[3], share[:, 3] = records[:2].sum() / records.sum(), records[:2].sum() / records.sum()
    np.testing.assert_allclose(found.G, S / 1200 / share, atol=1e-5)
    assert isinstance(found, natural.Answer) and found.G.dtype == np.float32
