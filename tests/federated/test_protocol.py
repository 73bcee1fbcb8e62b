"""The exchange: against the mathematics in memory, and in the cases of real life."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.core import natural
from daniel.core.records import records_from
from daniel.errors import DanielError, FormatError, InputError, ParameterError
from daniel.estimator import Daniel
from daniel.federated import denoise, messages, protocol, totals
from daniel.federated.directions import matrix_of, noise_along, norm_of_noise
from daniel.federated.release import noise_of
from daniel.federated.sums import Sums, site_sums, symmetric
from daniel.federated.terms import generator, options_of
from daniel.matrix import CodeMatrix


def in_memory(network, start_bytes):
    """natural.finish on the plain answers of all records, from the same start."""
    options = options_of(network.study)
    a = messages.read(start_bytes).arrays
    coords = natural.Coordinates(a["center"], a["scale"], 1 / a["scale"])
    start = natural.Start(coords, a["U"], a["signs"], a["b"][None, :])
    records = [records_from(m.Z) for m in network.sites.values()]
    answers = [natural.answer(r, start, options) for r in records]
    rng = generator(network.study, 1, 1)
    return natural.finish(records[0], start, natural.mean_answer(answers), options, rng)


@pytest.mark.parametrize("kind", ["masked", "open"])
def test_the_exchange_gives_the_fit_of_the_plain_answers(kind, request):
    """Masks, float32 and the symmetric half of the derivative change nothing."""
    network = request.getfixturevalue("masked" if kind == "masked" else "open_")
    start, answers = request.getfixturevalue("exchange" if kind == "masked" else "open_exchange")
    model, report = network.finish(start, answers)
    fitted = in_memory(network, start)
    phi = (fitted.U * fitted.signs) @ fitted.U.T
    own = model._U @ model._V.T
    assert np.linalg.norm(phi) > 0.5
    assert np.linalg.norm(own - phi) < 2e-3 * np.linalg.norm(phi)  # small components are cut to 0
    np.testing.assert_allclose(model._b, fitted.b, atol=1e-3)
    assert report.codes == model.n_features_in_ == 20
    assert model.sites_ == ["north", "south", "east"]
    assert model.hub_ == "north"


def test_masked_and_open_sums_are_the_same(masked, exchange, open_, open_exchange):
    a = totals.add_up([messages.read(d) for d in exchange[1]], 20)
    b = totals.add_up([messages.read(d) for d in open_exchange[1]], 20)
    for name in ("derivative", "b", "counts", "patients", "totals"):
        x, y = getattr(a, name), getattr(b, name)
        assert np.linalg.norm(x - y) <= 1e-6 * np.linalg.norm(y)
    Z = sp.vstack([m.Z for m in masked.sites.values()]).toarray()
    np.testing.assert_allclose(a.counts, Z.sum(axis=0), atol=1e-6)
    assert a.totals[0] == pytest.approx(1200)


def test_only_the_symmetric_half_of_the_derivative_matters(open_, open_exchange):
    """natural.finish with G and with (G + G')/2 of every site."""
    options = options_of(open_.study)
    rng = np.random.default_rng(0)
    records = [records_from(m.Z) for m in open_.sites.values()]
    start = natural.make_start(records[0], options, rng)
    answers = [natural.answer(r, start, options) for r in records]
    assert np.abs(answers[0].G - answers[0].G.T).max() > 0.01
    halves = [replace(a, G=(a.G + a.G.T) / 2) for a in answers]
    fits = [
        natural.finish(
            records[0], start, natural.mean_answer(given), options, np.random.default_rng(1)
        )
        for given in (answers, halves)
    ]
    phis = [(f.U * f.signs) @ f.U.T for f in fits]
    assert np.linalg.norm(phis[0] - phis[1]) < 1e-3 * np.linalg.norm(phis[0])


def test_answers_in_any_order_and_twice_give_the_same_model(masked, exchange):
    start, answers = exchange
    first, _ = masked.finish(start, answers)
    for given in (answers[::-1], [*answers, answers[1]], [answers[1], *answers]):
        model, _ = masked.finish(start, given)
        np.testing.assert_array_equal(model.theta_, first.theta_)


def test_a_site_that_sends_again_counts_once(open_, open_exchange):
    start, answers = open_exchange
    again = open_.answer("south", start)  # another file, with another time, and the same numbers
    model, report = open_.finish(start, [*answers, again])
    np.testing.assert_array_equal(model.theta_, open_.finish(start, answers)[0].theta_)
    assert [s.state for s in report.sites] == ["used"] * 3


def test_missing_and_late_sites_of_an_open_study(open_, open_exchange):
    start, answers = open_exchange
    some, report = open_.finish(start, answers[:2])
    assert [s.state for s in report.sites] == ["used", "used", "missing"]
    assert any("again" in note for note in report.notes)
    late, report = open_.finish(start, answers)
    assert [s.state for s in report.sites] == ["used"] * 3 and not report.notes
    assert np.abs(some.theta_ - late.theta_).max() > 1e-3
    # The hub's own answer need not travel: its records stand for it, also where one is given.
    without, report = open_.finish(start, answers[1:])
    assert report.sites[0].state == "own records" and not report.notes
    np.testing.assert_array_equal(without.theta_, late.theta_)


def test_the_hubs_own_records_need_no_floor(make):
    """They do not leave: a code of too few patients at the hub counts there all the same."""
    network = make(release="open", floor=60)
    start = network.start()
    answers = network.answers(start)
    absent = [messages.read(a).arrays["absent"].astype(bool) for a in answers]
    assert absent[0].any()  # otherwise the test says nothing
    opening, options = messages.read(start), options_of(network.study)
    told = [messages.read(data) for data in answers[1:]]
    made = protocol._natural_start(opening, options)
    sums, _ = protocol._collect(network.hub, network.study, made, options, told, None)
    expected = network.hub.Z.toarray().sum(axis=0)
    for name, hidden in zip(("south", "east"), absent[1:], strict=True):
        expected = expected + np.where(hidden, 0, network.sites[name].Z.toarray().sum(axis=0))
    np.testing.assert_allclose(sums.counts, expected)


def test_a_missing_site_of_a_masked_study_says_what_to_do(masked, exchange):
    start, answers = exchange
    with pytest.raises(InputError, match="east is missing") as error:
        masked.finish(start, answers[:2])
    for word in ("all 3 sites", "wait", "roster", "epoch", "new start"):
        assert word in str(error.value)


def test_two_different_answers_of_a_site_are_refused(open_, open_exchange):
    start, answers = open_exchange
    matrix = open_.sites["south"]
    part = CodeMatrix(matrix.Z[:300], matrix.codes, patients=matrix.patients[:300])
    other = replace(open_, sites=open_.sites | {"south": part}).answer("south", start)
    with pytest.raises(FormatError, match="two different answers of 'south'"):
        open_.finish(start, [*answers, other])


def test_two_sites_that_send_the_same_records_are_refused(open_, open_exchange):
    start, answers = open_exchange
    copied = replace(open_, sites=open_.sites | {"east": open_.sites["south"]})
    with pytest.raises(FormatError, match="same numbers"):
        open_.finish(start, [*answers[:2], copied.answer("east", start)])


def test_answers_of_another_study_start_or_epoch_are_refused(masked, exchange):
    start, answers = exchange
    other = masked.with_study(epoch=2)
    for foreign, word in (
        (other.answer("south", other.start()), "another study"),
        (masked.with_disclosure(floor=5), "another study"),
    ):
        if not isinstance(foreign, bytes):
            foreign = foreign.answer("south", foreign.start())
        with pytest.raises(FormatError, match=word):
            masked.finish(start, [answers[0], foreign, answers[2]])
    with pytest.raises(FormatError, match="another study"):
        masked.answer("south", other.start())
    later = masked.start()  # the same numbers at another time: another start
    message = messages.read(answers[1])
    changed = replace(message.manifest, start="0" * 64)
    old = messages.write(changed, message.arrays, masked.keys["south"])
    with pytest.raises(FormatError, match="another start"):
        masked.finish(start, [answers[0], old, answers[2]])
    assert messages.read(later).manifest.payload == messages.read(start).manifest.payload


def test_wrong_roles_are_refused(masked, exchange):
    with pytest.raises(InputError, match="only the hub"):
        protocol.start(masked.sites["south"], masked.study, masked.keys["south"])
    with pytest.raises(FormatError, match="a start was expected"):
        masked.answer("south", exchange[1][0])
    with pytest.raises(FormatError, match="an answer was expected"):
        masked.finish(exchange[0], [exchange[0]])


def test_the_masked_finish_drops_codes_of_too_few_patients_in_all(make):
    network = make()
    sites = {}
    for name, matrix in network.sites.items():
        Z = matrix.Z.toarray()
        Z[:, 0] = 0
        Z[: 2 * {"north": 4, "south": 4, "east": 2}[name], 0] = 1  # 10 patients in all
        Z[:, 1] = 0
        Z[: 2 * {"north": 4, "south": 4, "east": 3}[name], 1] = 1  # 11
        sites[name] = replace(matrix, Z=sp.csr_array(Z))
    network = replace(network, sites=sites)
    start = network.start()
    model, report = network.finish(start, network.answers(start))
    assert "PheCode:0" not in model.feature_names_in_
    assert "PheCode:1" in model.feature_names_in_
    assert (report.codes, report.codes_dropped) == (19, 1)
    strict = network.with_disclosure(floor=10)
    start = strict.start()
    assert strict.finish(start, strict.answers(start))[1].codes == 20


def test_codes_that_sites_lack_are_averaged_where_both_are(make):
    """Entry by entry against plain numpy, and a code that is rare by chance is not 'absent'."""
    network = make(release="open", floor=1)
    sites = {}
    for name, matrix in network.sites.items():
        Z = matrix.Z.toarray()
        if name == "south":
            Z[:, [0, 1]] = 0
        if name == "east":
            Z[:, [1, 2]] = 0
        Z[:, 3] = 0
        if name == "north":
            Z[:4, 3] = 1
        sites[name] = replace(matrix, Z=sp.csr_array(Z))
    network = replace(network, sites=sites)
    start = network.start()
    opening = messages.read(start)
    options = options_of(network.study)
    made = protocol._natural_start(opening, options)
    each = [site_sums(m, made, options) for m in sites.values()]
    records, has = np.array([500.0, 400, 300]), np.ones((3, 20))
    has[1, [0, 1]] = has[2, [1, 2]] = 0  # but not code 3: chance expects fewer than five of it
    scale = made.coords.scale
    S = np.array([symmetric(s.derivative, 20) for s in each])
    n_pair = np.einsum("i,ij,ik->jk", records, has, has)
    expected = S.sum(axis=0) / n_pair / np.outer(scale, scale)
    used = [messages.read(a) for a in network.answers(start)]
    mean = totals.mean_answer(
        totals.add_up(used, 20), [totals.of_message(m) for m in used], scale, np.arange(20)
    )
    np.testing.assert_allclose(mean.G, expected, atol=1e-5)
    np.testing.assert_allclose(
        mean.counts, sum(s.counts for s in each) * 1200 / (records @ has), rtol=1e-6
    )
    assert mean.n == 1200
    model, _ = network.finish(start, network.answers(start))
    assert np.isfinite(model.theta_).all()


def test_sites_of_very_different_size(make):
    network = make(records=(3000, 40, 60))
    start = network.start()
    model, _ = network.finish(start, network.answers(start))
    pooled = replace(network, sites={"north": network.hub})
    assert np.isfinite(model.theta_).all()
    alone = in_memory(pooled, start)
    phi = (alone.U * alone.signs) @ alone.U.T
    assert np.linalg.norm(model._U @ model._V.T - phi) < 0.2 * np.linalg.norm(phi)


def test_sealed_answers(masked, exchange):
    start, answers = exchange
    closed = [masked.answer(name, start, sealed=True) for name in masked.sites]
    model, _ = masked.finish(start, closed, key=masked.keys["north"])
    np.testing.assert_array_equal(model.theta_, masked.finish(start, answers)[0].theta_)
    with pytest.raises(FormatError):
        masked.finish(start, closed)


def test_the_second_round_starts_from_the_model(make):
    network = make(records=(60, 900, 900)).with_study(rounds=2)
    first = network.start()
    model, _ = network.finish(first, network.answers(first))
    second = network.start(previous=model, round=2)
    arrays = messages.read(second).arrays
    np.testing.assert_allclose(arrays["U"], model._U)
    with pytest.raises(FormatError, match="another start"):
        network.finish(second, network.answers(first))
    better, report = network.finish(second, network.answers(second))
    assert report.round == 2
    again, _ = protocol.fit(network.sites, network.study)
    np.testing.assert_allclose(again.theta_, better.theta_, atol=1e-5)
    pooled = natural.fit(
        records_from(sp.vstack([m.Z for m in network.sites.values()])),
        options_of(network.study),
        np.random.default_rng(0),
    )
    phi = (pooled.U * pooled.signs) @ pooled.U.T
    gap = [np.linalg.norm(m._U @ m._V.T - phi) for m in (model, better)]
    assert gap[1] < 0.6 * gap[0]
    for wrong in ({"round": 2}, {"previous": model}, {"previous": model, "round": 3}):
        with pytest.raises(ParameterError, match=r"[Rr]ound"):
            network.start(**wrong)


def test_later_rounds_are_held_to_their_start(masked):
    assert options_of(masked.study).damping is None
    assert options_of(masked.study, 2).damping == 12
    told = replace(masked.study, model=replace(masked.study.model, damping=3.0))
    assert options_of(told, 2).damping == 3


def test_a_dropped_code_stands_at_zero_in_the_next_start(make):
    network = make().with_study(rounds=2)
    first = network.start()
    model, _ = network.finish(first, network.answers(first))
    few = network.study.codes.names[:-1]
    model.feature_names_in_ = model.feature_names_in_[:-1]
    assert tuple(model.feature_names_in_) == few
    for name in ("center", "scale"):
        object.__setattr__(model._coords, name, getattr(model._coords, name)[:-1])
    model._U, model._V, model._b = model._U[:-1], model._V[:-1], model._b[:, :-1]
    arrays = messages.read(network.start(previous=model, round=2)).arrays
    assert not arrays["U"][-1].any() and arrays["U"][:-1].any()


def test_fit_on_one_machine_is_the_exchange(masked, exchange):
    model, report = protocol.fit(masked.sites, masked.study)
    expected, _ = masked.finish(*exchange)
    np.testing.assert_array_equal(model.theta_, expected.theta_)
    bare = replace(masked.study, sites=())
    model, report = protocol.fit(masked.sites, bare)
    assert report.sites[0].role == "hub"
    assert report.study == bare.hash
    np.testing.assert_array_equal(model.theta_, expected.theta_)
    two = {name: masked.sites[name] for name in ("north", "south")}
    assert protocol.fit(two, bare)[1].release == "open"
    with pytest.raises(InputError, match="roster"):
        protocol.fit(two, masked.study)


def test_noise_costs_little_when_epsilon_is_large(make):
    network = make(records=(3000, 3000, 3000))
    plain, _ = protocol.fit(network.sites, network.study)
    network = network.with_disclosure(clip=40.0, epsilon=50.0)
    noisy, report = protocol.fit(network.sites, network.study)
    assert report.epsilon == 50.0 and report.codes == 20
    gap = np.linalg.norm(noisy.theta_ - plain.theta_) / np.linalg.norm(plain.theta_)
    assert 0 < gap < 0.2


def test_much_noise_leaves_the_hubs_own_derivative():
    """Eigenvalues of the difference below the noise vanish, the others lose its norm."""
    rng = np.random.default_rng(0)
    own = rng.standard_normal((12, 12))
    v = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    half = (own + own.T) / 2
    G = half + 3 * np.outer(v[:, 0], v[:, 0]) - 0.5 * np.outer(v[:, 1], v[:, 1])
    mean = natural.Answer(G, np.zeros((1, 12)), 10.0, np.zeros(12))
    np.testing.assert_allclose(denoise.denoised(mean, half, 10.0).G, half, atol=1e-5)
    np.testing.assert_allclose(denoise.denoised(mean, half, 0.0).G, G, atol=1e-5)
    expected = half + 2 * np.outer(v[:, 0], v[:, 0])
    np.testing.assert_allclose(denoise.denoised(mean, half, 1.0).G, expected, atol=1e-5)


def test_the_norm_of_the_noise_is_what_matrices_show(make):
    network = make(clip=5.0, epsilon=2.0)
    start = network.start()
    answers = [messages.read(a) for a in network.answers(start)]
    noise = denoise.total_noise(answers)
    assert noise == pytest.approx(np.sqrt(3) * noise_of(network.study, 5.0))
    p, rng = 400, np.random.default_rng(0)
    E = rng.standard_normal((p, p))
    E = (E + E.T) / 2
    assert np.linalg.norm(E, 2) == pytest.approx(norm_of_noise(p, p), rel=0.1)
    Q = np.linalg.qr(rng.standard_normal((p, 10)))[0]
    E = matrix_of(noise_along(rng.standard_normal((10 + p, 10)), Q), Q)
    assert np.linalg.norm(E, 2) == pytest.approx(norm_of_noise(p, 10), rel=0.1)


def test_noisy_counts_are_mixed_with_the_hubs_own():
    """Without noise those of all sites, with much noise the hub's, in between by precision."""
    own = natural.Answer(np.zeros((2, 2)), np.array([[0.1, 0.2]]), 100.0, np.array([20.0, 3.0]))
    mean = natural.Answer(np.zeros((2, 2)), np.array([[0.3, 0.1]]), 1000.0, np.array([150.0, 50]))
    exact = denoise.steadied(mean, own, np.zeros(2))
    np.testing.assert_allclose(exact.counts, mean.counts)
    np.testing.assert_allclose(exact.b, mean.b)
    lost = denoise.steadied(mean, own, np.full(2, 1e9))
    np.testing.assert_allclose(lost.counts, [205, 35], rtol=1e-6)
    np.testing.assert_allclose(lost.b, own.b)
    noise = np.sqrt([2100.0, 400])  # as uncertain as the hub's own
    np.testing.assert_allclose(denoise.steadied(mean, own, noise).counts, [177.5, 42.5])


def test_with_noise_the_sites_still_help_a_small_hub(make):
    """Known groups of five codes: nearer to them than the hub alone, at a moderate epsilon."""
    network = make(records=(150, 4000, 4000), clip="auto", epsilon=2.0)
    noisy = [protocol.fit(network.sites, network.study)[0] for _ in range(9)]  # noise has no seed
    alone = Daniel(random_state=0).fit(network.hub)
    truth = np.repeat(np.eye(4), 5, axis=0)
    truth = truth @ truth.T - np.eye(20)

    def gap(model):
        theta = model.theta_ - np.diag(np.diag(model.theta_))
        return np.linalg.norm(theta - 0.45**2 * truth)

    assert np.median([gap(model) for model in noisy]) < 0.85 * gap(alone)


@pytest.mark.parametrize(
    "change",
    [{"codes": ("a", "b")}, {"recipe": "paper"}, {"sites": 0}, {"sites": 1}, {"names": ()}],
)
def test_what_cannot_take_part_is_refused(masked, change):
    study, matrix = masked.study, masked.hub
    if "codes" in change:
        matrix = CodeMatrix(matrix.Z[:, :2], change["codes"])
    elif "recipe" in change:
        study = replace(study, model=replace(study.model, recipe="paper"))
    elif "names" in change:
        study = replace(study, codes=replace(study.codes, names=()))
    else:
        study = replace(study, sites=study.sites[: change["sites"]])  # one alone has no mask
    with pytest.raises(DanielError) as error:
        protocol.start(matrix, study, masked.keys["north"])
    assert str(error.value).endswith(".")


def test_all_intercepts_work(make):
    for intercept in ("shared", "tied"):
        network = make()
        model = replace(network.study.model, intercept=intercept)
        network = network.with_study(model=model)
        start = network.start()
        fitted, _ = network.finish(start, network.answers(start))
        assert np.isfinite(fitted.theta_).all()
        assert (
            fitted.similar("PheCode:0", n=4)["code"]
            .isin([f"PheCode:{j}" for j in range(1, 5)])
            .sum()
            >= 3
        )


def test_vectors_of_sums_round_trip():
    sums = Sums(np.arange(6.0), np.ones(3), np.zeros(3), np.full(3, 2.0), np.array([9.0, 5]))
    back = Sums.of_vector(sums.vector(), 3)
    for name in ("derivative", "b", "counts", "patients", "totals"):
        np.testing.assert_array_equal(getattr(back, name), getattr(sums, name))
