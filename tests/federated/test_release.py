"""The gate: sizes, clipping, noise, floors, approval and the log."""

import hashlib
import json
import stat
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import kstest

from daniel.core import natural
from daniel.core.coordinates import natural_coordinates
from daniel.core.records import records_from
from daniel.errors import DanielError, FormatError, InputError, ReleaseError
from daniel.federated import ledger as ledger_module
from daniel.federated import messages, protocol, release
from daniel.federated.directions import directions, noise_along
from daniel.federated.keys import make_key, read_key, roster_entry, write_key
from daniel.federated.ledger import Ledger
from daniel.federated.sealed import seal
from daniel.federated.sums import Sums, patient_norms, patients_with, site_sums, symmetric
from daniel.matrix import CodeMatrix
from daniel.study import Study


@pytest.fixture
def case():
    """(matrix, start) with patients of one to six records, and a start that is not zero."""
    rng = np.random.default_rng(2)
    n, p, d = 90, 9, 3
    Z = (rng.random((n, p)) < 0.3).astype(np.float32)
    matrix = CodeMatrix(sp.csr_array(Z), tuple("abcdefghi"), patients=rng.integers(0, 30, n))
    coords = natural_coordinates(Z.sum(axis=0), n)
    U = (0.4 * rng.standard_normal((p, d))).astype(np.float32)
    return matrix, natural.Start(coords, U, np.array([1.0, 1, -1]), rng.normal(-1, 0.3, (1, p)))


def derivative_by_hand(z, start, b):
    """(p, p) symmetric derivative of one record's loss in Phi, without diagonal, and in b."""
    c = start.coords
    x = (z - c.center) / c.scale
    phi = (start.U * start.signs) @ start.U.T
    np.fill_diagonal(phi, 0)
    residual = expit(b + c.gain * (x @ phi)) - z
    A = np.outer(x, c.gain * residual)
    np.fill_diagonal(A, 0)
    return (A + A.T) / 2, residual


def test_the_sums_are_those_of_the_records_one_by_one(case):
    matrix, start = case
    sums = site_sums(matrix, start, natural.Options(intercept="shared"))
    S, b = 0.0, 0.0
    for z in matrix.Z.toarray():
        A, residual = derivative_by_hand(z, start, start.b[0])
        S, b = S + A * np.outer(start.coords.scale, start.coords.scale), b + residual
    np.testing.assert_allclose(symmetric(sums.derivative, 9), S, atol=2e-4)
    np.testing.assert_allclose(sums.b, b, atol=1e-4)
    np.testing.assert_array_equal(sums.counts, matrix.Z.toarray().sum(axis=0))
    assert sums.totals.tolist() == [90, len(set(matrix.patients))]
    for j in range(9):
        assert sums.patients[j] == len(set(matrix.patients[matrix.Z.toarray()[:, j] > 0]))


def told(S, Q):
    """What directions leave of a symmetric matrix, as it is defined."""
    rest = np.eye(len(S)) - Q @ Q.T
    return S - rest @ S @ rest


@pytest.mark.parametrize("along", [False, True])
def test_norms_of_patients_are_those_of_their_matrices(case, monkeypatch, along):
    matrix, start = case
    Q = directions(start) if along else None
    assert Q is None or 1 <= Q.shape[1] <= 3
    monkeypatch.setattr("daniel.federated.sums.BLOCK", 7)  # patients across many blocks
    patient = np.unique(matrix.patients, return_inverse=True)[1]
    norms, counts = patient_norms(records_from(matrix.Z, merge=False), patient, start, start.b, Q)
    Z = matrix.Z.toarray()
    for i in range(patient.max() + 1):
        own = Z[patient == i]
        parts = [derivative_by_hand(z, start, start.b[0]) for z in own]
        S = sum(A for A, _ in parts)
        S = S if Q is None else told(S, Q)
        vector = [S.ravel(), sum(r for _, r in parts) * start.coords.gain]
        assert norms[i] == pytest.approx(np.linalg.norm(np.concatenate(vector)), rel=1e-5)
        vector = [*(own.sum(axis=0) / start.coords.scale), 5.0 * len(own)]
        assert counts[i] == pytest.approx(np.linalg.norm(vector), rel=1e-5)


@pytest.mark.parametrize("along", [False, True])
def test_no_patient_moves_the_sums_by_more_than_the_clip(case, along):
    """Take each patient away: derivatives move by at most C, counts by at most C/4."""
    matrix, start = case
    options, C = natural.Options(intercept="shared"), 6.0
    scale = start.coords.scale
    Q = directions(start) if along else None

    def vectors(m):
        s = site_sums(m, start, options, clip=C, with_counts=True, Q=Q)
        S = symmetric(s.derivative, 9) / np.outer(scale, scale)
        derivative = np.concatenate([S.ravel(), s.b / scale])
        return derivative, np.concatenate([s.counts / scale, 5 * s.totals[:1]])

    whole, moved = vectors(matrix), []
    for one in np.unique(matrix.patients):
        rest = matrix.patients != one
        part = CodeMatrix(matrix.Z[rest], matrix.codes, patients=matrix.patients[rest])
        moved.append([np.linalg.norm(a - b) for a, b in zip(whole, vectors(part), strict=True)])
    most = np.max(moved, axis=0)
    assert most[1] == pytest.approx(C / 4, rel=1e-4)  # met, and not exceeded
    if along:  # without the diagonal, which does not leave
        assert 0.8 * C < most[0] < C
    else:
        assert most[0] == pytest.approx(C, rel=1e-4)


def test_along_directions_the_sums_are_what_they_leave_of_the_matrix(case):
    matrix, start = case
    options, Q = natural.Options(intercept="shared"), directions(start)
    plain, part = (site_sums(matrix, start, options, Q=q) for q in (None, Q))
    unit = np.outer(start.coords.scale, start.coords.scale)
    expected = told(symmetric(plain.derivative, 9) / unit, Q)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(symmetric(part.derivative, 9) / unit, expected, atol=2e-3)
    np.testing.assert_array_equal(part.b, plain.b)


def test_directions_are_the_strong_components(case):
    _, start = case
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 3)))[0]
    Q = directions(replace(start, U=U * np.sqrt([1.0, 0.3, 0.2])))
    np.testing.assert_allclose(Q @ Q.T, U[:, :2] @ U[:, :2].T, atol=1e-12)
    assert directions(replace(start, U=np.zeros((9, 1)))) is None


def test_noise_along_directions_has_one_size_in_all_of_them():
    """Its covariance is the projection on the space of what directions leave."""
    p, d = 6, 2
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((p, d)))[0]
    drawn = []
    for _ in range(20_000):
        B = noise_along(rng.standard_normal((d + p, d)), Q)
        drawn.append((B @ Q.T + Q @ B.T).ravel())
    unit = np.eye(p * p).reshape(-1, p, p)
    projection = np.array([told((E + E.T) / 2, Q).ravel() for E in unit])
    np.testing.assert_allclose(np.cov(np.transpose(drawn)), projection, atol=0.04)


def test_a_wide_clip_changes_nothing(case):
    matrix, start = case
    options = natural.Options()
    plain, clipped = (site_sums(matrix, start, options, clip=c) for c in (None, 1e9))
    for name in ("derivative", "b", "counts", "totals"):
        np.testing.assert_allclose(getattr(clipped, name), getattr(plain, name), atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 8])
def test_noise_multiplier_meets_epsilon_by_an_independent_accountant(epsilon):
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    for rounds in (1, 3):
        sigma = release.noise_multiplier(epsilon, 1e-6, rounds)
        accountant = PLDAccountant()
        accountant.compose(GaussianDpEvent(sigma), rounds)
        assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, rel=2e-2)


def test_noise_is_normal_and_of_the_size_that_the_manifest_says(make):
    network = make(clip=5.0, epsilon=2.0)
    start = network.start()
    parcel = release_of(network, "south", start)
    sensitivity = np.hypot(5.0, 5.0 / 4)  # of derivatives, and of counts
    noise = sensitivity * release.noise_multiplier(2.0, 1e-6) / np.sqrt(2)  # two others share it
    assert parcel.manifest.noise == pytest.approx(noise)
    assert parcel.manifest.records == 0  # its part of the noise would not protect it
    scale = np.linspace(0.1, 0.5, 30)
    zero = Sums(np.zeros(465), *np.zeros((3, 30)), np.full(2, 1e6))
    noisy = [release.with_noise(zero, 2.0, scale, bytes([i] * 32)) for i in range(40)]
    off = [
        (symmetric(s.derivative, 30) / np.outer(scale, scale))[np.triu_indices(30, 1)]
        for s in noisy
    ]
    assert kstest(np.ravel(off) / np.sqrt(2), "norm").pvalue > 1e-4
    for name, size in (("b", 2.0), ("counts", 2.0)):
        drawn = np.array([getattr(s, name) / scale for s in noisy]).ravel()
        assert kstest(drawn / size, "norm").pvalue > 1e-4
    assert np.std([s.totals[0] for s in noisy]) == pytest.approx(0.4, rel=0.4)
    assert all(not np.diag(symmetric(s.derivative, 30)).any() for s in noisy)
    # Along directions: the derivative's noise lies in their space.
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 3)))[0]
    E = symmetric(release.with_noise(zero, 2.0, scale, bytes(32), Q).derivative, 30)
    E /= np.outer(scale, scale)
    outside = E - told(E, Q)
    np.fill_diagonal(outside, 0)  # the diagonal was taken out
    assert np.linalg.norm(outside) < 0.2 * np.linalg.norm(E)


def test_an_automatic_clip_is_twice_the_median_norm_of_the_hubs_patients(make):
    network = make(clip="auto", epsilon=2.0)
    start = network.start()
    opening = messages.read(start)
    made = protocol._natural_start(opening, natural.Options())
    Q, Z = directions(made), network.hub.Z.toarray()
    norms = []
    for own in np.split(Z, len(Z) // 2):  # two records a patient
        parts = [derivative_by_hand(z, made, made.b[0]) for z in own]
        S, b = told(sum(A for A, _ in parts), Q), sum(r for _, r in parts) / made.coords.scale
        norms.append(np.sqrt((S**2).sum() + (b**2).sum()))
    clip = opening.manifest.clip
    assert clip == pytest.approx(2 * np.median(norms), rel=0.06)
    answers = network.answers(start)
    assert {messages.read(a).manifest.clip for a in answers} == {clip}
    assert network.finish(start, answers)[1].clip == clip
    other = messages.read(answers[1])
    other = messages.write(
        replace(other.manifest, clip=2 * clip), other.arrays, network.keys["south"]
    )
    with pytest.raises(FormatError, match="another clip"):
        network.finish(start, [answers[0], other, answers[2]])


def test_the_same_release_has_the_same_noise_and_another_has_other(make):
    network = make(clip=5.0, epsilon=2.0, release="open")
    start = network.start()
    first, again = (release_of(network, "south", start).arrays for _ in range(2))
    assert messages.payload(first) == messages.payload(again)
    later = network.with_study(epoch=2)
    other = release_of(later, "south", later.start()).arrays
    assert np.abs(first["counts"] - other["counts"]).min() > 0
    changed = release_of(first_rows(network, "south", 398), "south", start).arrays
    assert np.abs(first["counts"] - changed["counts"]).min() > 0  # not the two records alone
    assert not first["absent"].any()
    np.testing.assert_array_equal(first["patients"], first["counts"])  # no second, plain count


def release_of(network, name, start):
    return protocol.preview(network.sites[name], network.study, start, network.keys[name])


def first_rows(network, name, n, least=1):
    matrix = network.sites[name]
    part = CodeMatrix(matrix.Z[:n], matrix.codes, patients=np.arange(n) // least)
    return replace(network, sites=network.sites | {name: part})


def test_small_sites_send_nothing(masked, exchange):
    for n, least, word in ((10, 1, "records"), (21, 3, "patients")):
        small = first_rows(masked, "south", n, least)
        says = f"The site 'south' has fewer {word if n > 10 else 'patients'}"
        with pytest.raises(ReleaseError, match=says) as error:
            small.answer("south", exchange[0])
        assert str(n) not in str(error.value) and "7" not in str(error.value)
    assert first_rows(masked, "south", 11).answer("south", exchange[0])
    with pytest.raises(ReleaseError, match="'north' has fewer patients"):
        first_rows(masked, "north", 10).start()
    for patients in (True, False):  # none at all
        empty = first_rows(masked, "south", 0)
        if not patients:
            bare = replace(empty.sites["south"], patients=None)
            empty = replace(empty, sites=empty.sites | {"south": bare})
        with pytest.raises(ReleaseError, match="'south' has fewer patients"):
            empty.answer("south", exchange[0])


def test_the_open_gate_leaves_rare_codes_out(make):
    network = make(release="open", floor=60)
    start = network.start()
    matrix = network.sites["east"]
    seen = patients_with(matrix, np.unique(matrix.patients, return_inverse=True)[1])
    rare = seen < 60
    assert 0 < rare.sum() < seen.size  # otherwise the test says nothing
    arrays = messages.read(network.answer("east", start)).arrays
    np.testing.assert_array_equal(arrays["absent"].astype(bool), rare)
    assert not arrays["counts"][rare].any() and not arrays["patients"][rare].any()
    # Nothing that leaves depends on who has the rare codes.
    Z = matrix.Z.toarray()
    Z[:, rare] = Z[::-1, rare]
    other = replace(network, sites=network.sites | {"east": replace(matrix, Z=sp.csr_array(Z))})
    assert messages.payload(messages.read(other.answer("east", start)).arrays) == messages.payload(
        arrays
    )


def test_a_site_whose_codes_are_all_rare_says_nothing(make):
    network = make(release="open", floor=95)  # south and north have codes of so many patients
    start = network.start()
    message = messages.read(network.answer("east", start))
    assert message.arrays["absent"].all() and not message.arrays["counts"].any()
    assert network.finish(start, network.answers(start))[1].codes >= 2


def test_the_start_leaves_the_hubs_rare_codes_out(make):
    network = make(floor=100)
    start = messages.read(network.start()).arrays
    seen = patients_with(network.hub, network.hub.patients)
    rare = seen < 100
    assert 0 < rare.sum() < seen.size
    assert np.unique(start["center"][rare]).size == 1
    assert np.abs(start["U"][rare]).max() < 0.01 * np.abs(start["U"][~rare]).max()


def test_masked_answers_tell_absent_codes_and_about_how_many_records_only(masked, exchange):
    arrays = messages.read(exchange[1][1]).arrays
    assert set(arrays) == {"absent", "masked"}
    assert arrays["masked"].dtype == np.uint64


def test_nothing_leaves_without_a_name(masked, exchange):
    for name in ("", "  "):
        with pytest.raises(ReleaseError, match="approve"):
            masked.answer("south", exchange[0], approved_by=name)


# --- the log --------------------------------------------------------------------------------------


def test_one_release_for_an_epoch(make, tmp_path):
    network = make(release="open")
    ledger = Ledger(tmp_path / "south.log")
    start = network.start()
    first = network.answer("south", start, ledger=ledger)
    again = network.answer("south", start, ledger=ledger)  # the same numbers may leave again
    assert messages.read(first).manifest.payload == messages.read(again).manifest.payload

    changed = first_rows(network, "south", 300)
    with pytest.raises(ReleaseError, match="epoch 1, round 1") as error:
        changed.answer("south", start, ledger=ledger)
    assert "epoch" in str(error.value)
    later = changed.with_study(epoch=2)
    assert later.answer("south", later.start(), ledger=ledger)

    events = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [(e["event"], e["epoch"], e["by"]) for e in events] == [
        ("approved", 1, "Ada"),
        ("approved", 1, "Ada"),
        ("approved", 2, "Ada"),
    ]
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_a_roster_with_one_site_less_is_no_new_occasion(make, tmp_path):
    """Two masked sums that differ by one site would give that site's answer away."""
    network = make(records=(100, 90, 80, 70), names=("north", "south", "east", "west"))
    ledger = Ledger(tmp_path / "south.log")
    network.answer("south", network.start(), ledger=ledger)
    fewer = network.with_study(sites=network.study.sites[:3])
    with pytest.raises(ReleaseError, match="two different answers"):
        fewer.answer("south", fewer.start(), ledger=ledger)


def test_a_release_whose_file_never_appeared_may_be_made_again(open_, open_exchange, tmp_path):
    ledger, out = Ledger(tmp_path / "south.log"), tmp_path / "answer.daniel"
    parcel = release_of(open_, "south", open_exchange[0])
    other = release_of(first_rows(open_, "south", 300), "south", open_exchange[0])
    key = open_.keys["south"]
    parcel.send(key, approved_by="Ada", ledger=ledger, out=out)  # killed before the file appeared
    other.send(key, approved_by="Ada", ledger=ledger, out=out)
    ledger.written(other.manifest, messages.payload(other.arrays), "")
    with pytest.raises(ReleaseError):  # it was written, and has been sent since
        parcel.send(key, approved_by="Ada", ledger=ledger, out=out)


@pytest.fixture
def two_answers(open_, open_exchange, tmp_path):
    """A function that sends one of two different answers of an occasion; where they would stand."""
    ledger, out, key = Ledger(tmp_path / "south.log"), tmp_path / "answer.daniel", open_.keys
    network = {"first": open_, "other": first_rows(open_, "south", 300)}

    def send(name="first", epoch=1):
        sender, start = network[name].with_study(epoch=epoch), open_exchange[0]
        parcel = release_of(sender, "south", start if epoch == 1 else sender.start())
        return parcel.send(key["south"], approved_by="Ada", ledger=ledger, out=out)

    return SimpleNamespace(send=send, out=out, ledger=ledger, hub=open_.study.sites[0])


@pytest.mark.parametrize("sealed", [False, True])
def test_an_older_file_in_its_place_is_not_the_release(two_answers, sealed):
    """As after a full disk: the answer of an earlier epoch still stands at the usual place."""
    ledger, out = two_answers.ledger, two_answers.out
    older = two_answers.send(epoch=7)
    data = seal(older, two_answers.hub) if sealed else older
    out.write_bytes(data)
    m = messages.read(older).manifest
    ledger.written(m, m.payload, hashlib.sha256(data).hexdigest())
    two_answers.send("first")  # the disk is full
    two_answers.send("other")
    for foreign in (b"", b"a note of somebody", bytes(40)):
        out.write_bytes(foreign)
        two_answers.send("first")


@pytest.mark.parametrize("sealed", [False, True])
def test_a_file_whose_run_was_killed_before_its_line_is_the_release(two_answers, sealed):
    out, ledger = two_answers.out, two_answers.ledger
    data = two_answers.send("first")
    out.write_bytes(seal(data, two_answers.hub) if sealed else data)
    with pytest.raises(ReleaseError, match="two different answers"):
        two_answers.send("other")
    assert [e["event"] for e in ledger.entries()] == ["approved", "written"]
    out.write_bytes(two_answers.send(epoch=7))  # it takes the place of the first
    with pytest.raises(ReleaseError, match="two different answers"):
        two_answers.send("other")
    two_answers.send("first")


def test_a_file_that_is_replaced_was_there(two_answers):
    """The next epoch takes its place before anybody asks for this one again."""
    out = two_answers.out
    out.write_bytes(two_answers.send("first"))
    out.write_bytes(two_answers.send(epoch=7))
    with pytest.raises(ReleaseError, match="two different answers"):
        two_answers.send("other")


def test_a_file_that_the_disk_does_not_give_may_be_the_release(two_answers, monkeypatch):
    two_answers.out.write_bytes(two_answers.send("first"))

    def broken(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ledger_module, "manifest_in", broken)
    with pytest.raises(ReleaseError, match="two different answers"):
        two_answers.send("other")


def test_a_log_that_moves_with_its_answers_finds_them(open_, open_exchange, tmp_path):
    place = tmp_path / ".new.part"
    (place / "sent").mkdir(parents=True)
    parcel = release_of(open_, "south", open_exchange[0])
    other = release_of(first_rows(open_, "south", 300), "south", open_exchange[0])
    ledger, key = Ledger(place / "south.log"), open_.keys["south"]
    sent = place / "sent" / "south.daniel"
    sent.write_bytes(parcel.send(key, approved_by="Ada", ledger=ledger, out=sent))
    assert ledger.entries()[0]["out"] == "sent/south.daniel"
    place.rename(tmp_path / "demo")
    with pytest.raises(ReleaseError, match="two different answers"):
        other.send(key, approved_by="Ada", ledger=Ledger(tmp_path / "demo" / "south.log"))


@pytest.mark.parametrize("damage", ["change", "drop", "swap"])
def test_a_changed_log_stops_releases(open_, open_exchange, tmp_path, damage):
    ledger = Ledger(tmp_path / "south.log")
    for _ in range(3):
        open_.answer("south", open_exchange[0], ledger=ledger)
    assert len(ledger.entries()) == 3
    lines = ledger.path.read_text().splitlines(keepends=True)
    if damage == "change":
        lines[0] = lines[0].replace("Ada", "Bob")
    elif damage == "drop":
        del lines[1]
    else:
        lines[:2] = lines[1::-1]
    ledger.path.write_text("".join(lines))
    with pytest.raises(ReleaseError, match="changed"):
        open_.answer("south", open_exchange[0], ledger=ledger)


def test_half_a_line_of_a_killed_run_is_written_over(open_, open_exchange, tmp_path):
    ledger = Ledger(tmp_path / "south.log")
    for _ in range(2):
        open_.answer("south", open_exchange[0], ledger=ledger)
        with ledger.path.open("ab") as file:
            file.write(b'{"event":"appr')
    assert len(ledger.entries()) == 2
    open_.answer("south", open_exchange[0], ledger=ledger)
    assert len(ledger.entries()) == 3 and ledger.path.read_bytes().endswith(b"}\n")


# --- keys -----------------------------------------------------------------------------------------


def test_key_files_are_private_and_read_back(tmp_path):
    key = make_key("north")
    path = write_key(key, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).public("hub") == key.public("hub")
    entry = tmp_path / "study.toml"
    entry.write_text(f"version = 1\n{roster_entry(key, 'hub')}\n")
    assert Study.load(entry).sites == (key.public("hub"),)
    private = json.loads(path.read_text())
    assert private["signing"] not in roster_entry(key) + private["name"]
    with pytest.raises(InputError, match="exists already"):
        write_key(key, tmp_path)
    path.chmod(0o640)
    with pytest.raises(ReleaseError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"kind": "daniel key", "format": 1}'])
def test_damaged_key_files_are_refused(tmp_path, content):
    path = tmp_path / "x.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(FormatError, match="key file"):
        read_key(path)


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b", "a\nb"])
def test_names_that_are_no_file_names_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="name of a site"):
        write_key(make_key(name), tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_key_than_the_rosters_is_refused(masked, exchange):
    stranger = replace(masked, keys=masked.keys | {"south": make_key("south")})
    with pytest.raises(DanielError, match="other keys"):
        stranger.answer("south", exchange[0])


def test_patients_are_counted_block_by_block(monkeypatch):
    rng = np.random.default_rng(0)
    patients = rng.integers(0, 40, 300)
    Z = sp.csr_array((rng.random((300, 7)) < 0.2).astype(np.float32))
    number = np.unique(patients, return_inverse=True)[1]
    wanted = [len(set(patients[Z[:, [j]].nonzero()[0]])) for j in range(7)]
    matrix = CodeMatrix(Z, [f"A:{j}" for j in range(7)], patients, np.zeros(300, dtype=int))
    for rows in (1, 7, 299, 1000):
        monkeypatch.setattr("daniel.federated.sums.PATIENT_ROWS", rows)
        assert patients_with(matrix, number).tolist() == wanted
