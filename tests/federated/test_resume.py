"""A finish or fit that was interrupted, or could not write, goes on to the same model."""

import os
import resource
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from safetensors.numpy import save_file

from daniel import fingerprint as fingerprint_module
from daniel.core import checkpoint, surrogate
from daniel.core.coordinates import natural_coordinates
from daniel.core.place import add_up
from daniel.core.records import records_from
from daniel.core.start import correlation_operator
from daniel.data import sitefolder
from daniel.errors import FormatError, InputError, ReleaseError
from daniel.federated import folder, messages, protocol, resume
from daniel.federated.files import check_parent, new_folder
from daniel.federated.resume import key_of_fit, records_hash
from daniel.fingerprint import fingerprint

FILES = ("north.daniel", "south.daniel", "east.daniel")


@pytest.fixture
def calls(monkeypatch):
    """Counts evaluations of the hub's objective; `stop_at` interrupts at one of them."""
    whole = surrogate.Surrogate.__call__

    class Calls:
        made = 0
        stop_at = None

        def interrupt(self, work, at):
            self.made, self.stop_at = 0, at
            with pytest.raises(KeyboardInterrupt):
                work()
            self.made, self.stop_at = 0, None

    seen = Calls()

    def counted(self, x):
        seen.made += 1
        if seen.made == seen.stop_at:
            raise KeyboardInterrupt
        return whole(self, x)

    monkeypatch.setattr(surrogate.Surrogate, "__call__", counted)
    return seen


@pytest.fixture
def at_every_step(monkeypatch):
    """States are written at every step, not every so many seconds."""
    monkeypatch.setattr(checkpoint.Checkpoint.__init__, "__defaults__", (0.0,))


def same(found, wanted):
    """Bit by bit."""
    for name in ("embedding_", "theta_", "intercept_", "loss_curve_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_an_interrupted_finish_goes_on_to_the_same_model(
    masked, exchange, tmp_path, calls, at_every_step
):
    state = tmp_path / ".model.state"

    def finish():
        return masked.finish(*exchange, checkpoint=state)[0]

    wanted = masked.finish(*exchange)[0]
    every = calls.made
    calls.interrupt(finish, 6)
    assert state.is_file()
    same(finish(), wanted)
    assert calls.made <= every - 4  # the first steps were not made again
    calls.made = 0
    same(finish(), wanted)  # the state of the end stays until somebody has the model
    assert calls.made == 0


def test_a_state_is_of_the_hubs_records_too(open_, open_exchange, tmp_path, calls, at_every_step):
    state = tmp_path / ".model.state"
    calls.interrupt(lambda: open_.finish(*open_exchange, checkpoint=state), 6)
    hub = replace(open_.hub, Z=sp.csr_array(open_.hub.Z[::-1]))
    other = replace(open_, sites=open_.sites | {"north": hub})
    model = other.finish(*open_exchange, checkpoint=state)[0]
    same(model, other.finish(*open_exchange)[0])


@pytest.mark.parametrize("rounds", [1, 2])
def test_an_interrupted_fit_goes_on_to_the_same_model(make, rounds, tmp_path, calls, at_every_step):
    """Its keys, start and answers are others in every run; its records and options are not."""
    network = make().with_study(rounds=rounds)

    def fit(sites=network.sites, **options):
        return protocol.fit(sites, network.study, **options)[0]

    wanted = fit()
    every, last = calls.made, len(wanted.loss_curve_)
    state = {"checkpoint": tmp_path / ".model.state"}
    calls.interrupt(lambda: fit(**state), every - 2)  # of the last round
    assert len(list(tmp_path.iterdir())) == rounds
    same(fit(**state), wanted)
    again = 4 if rounds == 1 else 0  # the start and the last steps, but not the first round
    assert calls.made < every - last + again
    hub = network.hub
    few = replace(hub, Z=hub.Z[2:], patients=hub.patients[2:])
    sites = network.sites | {"north": few}
    same(fit(sites, **state), fit(sites))


@pytest.mark.parametrize("command", ["finish", "fit"])
def test_a_state_of_other_code_is_not_gone_on_from(
    masked, exchange, tmp_path, calls, at_every_step, monkeypatch, command
):
    """The version stays the same while the code of the solver changes."""
    state = tmp_path / ".model.state"

    def run():
        calls.made = 0
        if command == "fit":
            return protocol.fit(masked.sites, masked.study, checkpoint=state)[0]
        return masked.finish(*exchange, checkpoint=state)[0]

    wanted = run()
    every = calls.made
    same(run(), wanted)
    assert calls.made < every  # the same code goes on
    monkeypatch.setattr(resume, "CODE", "of other code")
    same(run(), wanted)
    assert calls.made == every


@pytest.mark.parametrize("module", [surrogate, protocol])
def test_the_fingerprint_changes_with_the_code_of_core_and_exchange(module, tmp_path, monkeypatch):
    ignore = shutil.ignore_patterns("__pycache__")
    own = {
        name: shutil.copytree(Path(package.__file__).parent, tmp_path / name, ignore=ignore)
        for name, package in (("daniel.core", surrogate), ("daniel.federated", protocol))
    }
    monkeypatch.setattr(fingerprint_module, "files", own.__getitem__)
    assert fingerprint(*own) == resume.CODE
    changed = own[module.__package__]
    (changed / "notes.txt").write_text("not code")
    assert fingerprint(*own) == resume.CODE
    with (changed / Path(module.__file__).name).open("a") as file:
        file.write("# changed\n")
    assert fingerprint(*own) != resume.CODE


def test_a_fit_with_noise_goes_on_from_no_other(masked):
    """No two runs draw the same noise."""
    noisy = masked.with_disclosure(clip=40.0, epsilon=50.0)
    keys = [key_of_fit(masked.sites, network.study, 1) for network in (masked, noisy)]
    assert keys[0] is not None and keys[1] is None


# --- disks and places that cannot be written ------------------------------------------------------


@contextmanager
def full_disk(most):
    """No file may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", ["finish", "fit"])
def test_a_full_disk_does_not_lose_the_fit(answered, run, calls, command):
    arguments = ("finish", "north", "start.daniel", *FILES)
    if command == "fit":
        arguments = ("fit", "north", "south", "east")
    run(*arguments, "--out", "wanted")
    every, calls.made = calls.made, 0
    before = {path.name for path in answered.iterdir()}
    with full_disk(4000):  # enough for the state
        text = run(*arguments, code=2)
    assert text.startswith("daniel: The folder") and text.count("\n") == 1
    assert "model cannot be written (File too large): free some space" in text
    assert calls.made == every
    (state,) = {path.name for path in answered.iterdir()} - before
    assert state.startswith(".model.state")
    calls.made = 0
    run(*arguments)
    assert calls.made <= (0 if command == "finish" else every - solved(answered))
    same(folder.read_model(Path("model")), folder.read_model(Path("wanted")))
    assert {path.name for path in answered.iterdir()} == before | {"model"}


def solved(root):
    """Evaluations of the last fit alone, at least: those of the start of `fit` are made again."""
    model = folder.read_model(root / "model")
    return len(model.loss_curve_)


def test_a_full_disk_at_the_release_log_is_one_sentence(here, run):
    run("start", "north")
    Path("south.log").write_bytes(b"")
    arguments = ("answer", "south", "start.daniel", "--approve", "Ada", "--out", "south.daniel")
    with full_disk(100):
        text = run(*arguments, code=2)
    assert "release log" in text and "south.log cannot be written (File too large)" in text
    assert text.count("\n") == 1 and not Path("south.daniel").exists()
    run(*arguments)
    assert Path("south.log").read_bytes().count(b"\n") == 2


def test_places_are_refused_before_the_work(answered, run, monkeypatch):
    """Nothing is read or fitted for a model, a start or an answer that has no place to go."""
    Path("other").mkdir()
    Path("other/thing").write_text("mine")
    for module, name in ((protocol, "finish"), (protocol, "fit"), (protocol, "start")):
        monkeypatch.setattr(module, name, lambda *a, **k: pytest.fail("it has begun"))
    monkeypatch.setattr(protocol, "preview", lambda *a, **k: pytest.fail("it has begun"))
    commands = (
        ("finish", "north", "start.daniel", *FILES),
        ("fit", "north", "south", "east"),
        ("start", "north"),
        ("answer", "south", "start.daniel", "--approve", "Ada"),
    )
    for command in commands:
        for out, said in (("none/model", "does not exist"), ("other", "exists already")):
            text = run(*command, "--out", out, code=2)
            assert said in text and text.count("\n") == 1
    text = run(*commands[0], "--out", "x" * 300, code=2)
    assert "cannot be written (File name too long)" in text
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(InputError, match="may not write"):
        check_parent(Path("model"))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(5000)),
        lambda path: save_file({"x": np.zeros(5000)}, path),
        lambda path: pq.write_table(pa.table({"x": np.random.default_rng(0).random(5000)}), path),
        lambda path: pacsv.write_csv(pa.table({"x": np.arange(5000)}), path),
    ],
)
def test_whoever_writes_a_full_disk_is_one_sentence(tmp_path, write):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mark").write_text("older")
    refused = pytest.raises(InputError, match=r"out cannot be written \(")
    with refused, full_disk(4000), new_folder(tmp_path / "out", "mark") as part:
        write(part / "file")
    assert (tmp_path / "out" / "mark").read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_of_the_work_is_not_one_of_the_disk(tmp_path):
    """ReleaseError is an OSError to Python, and says more than that the disk may be full."""
    with pytest.raises(ReleaseError, match="mine"), new_folder(tmp_path / "out", "mark"):
        raise ReleaseError("mine")


def test_mapped_records_that_are_cut_short_are_refused(hospitals, tmp_path, monkeypatch):
    monkeypatch.setattr(sitefolder, "MAPPED", 0)
    shutil.copytree(hospitals.root / "north", tmp_path / "north")
    matrix = sitefolder.read_site(tmp_path / "north")
    records = records_from(matrix.Z, merge=False)
    assert records.counts().sum() == add_up(lambda r, *_: (r.counts().sum(),), records, None)[0]
    coords = natural_coordinates(records.counts(), records.total)
    os.truncate(tmp_path / "north" / sitefolder.RECORDS, 100)
    for read in (
        lambda: add_up(lambda *_: pytest.fail("it was read"), records, None),
        lambda: correlation_operator(records, coords),
        lambda: records.take(np.arange(3)),
        lambda: records.part(slice(0, 1)),
        lambda: records_from(matrix.Z),
        lambda: records_hash(matrix),
        *(getattr(records, name) for name in ("csr", "counts", "site_counts")),
    ):
        with pytest.raises(InputError, match="became shorter"):
            read()


# --- memory ---------------------------------------------------------------------------------------


class Counted(bytes):
    """Knows how many of its kind are alive; arrays that are views of it keep it so."""

    alive = most = 0

    def __init__(self, *_):
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self):
        Counted.alive -= 1


@pytest.mark.parametrize("kind", ["masked", "open_"])
def test_answers_are_in_memory_one_after_the_other(request, kind):
    """At most the one that is added and the one that is read; none while the solver runs."""
    network = request.getfixturevalue(kind)
    start, answers = request.getfixturevalue("exchange" if kind == "masked" else "open_exchange")

    class Files:
        def __len__(self):
            return len(answers)

        def __getitem__(self, place):
            return Counted(answers[place])

    alive = []
    model, _ = network.finish(start, Files(), progress=lambda *_: alive.append(Counted.alive))
    assert Counted.most == 2 and set(alive) == {0}
    same(model, network.finish(start, answers)[0])


def test_an_answer_that_changes_while_it_is_read_is_refused(open_, open_exchange):
    start, _ = open_exchange
    again = open_.answer("south", start)  # made at another time
    message = messages.read(again)
    later = messages.write(
        replace(message.manifest, created="later"), message.arrays, open_.keys["south"]
    )
    seen = []

    class Files:
        def __len__(self):
            return 1

        def __getitem__(self, place):
            seen.append(place)
            return again if len(seen) == 1 else later

    with pytest.raises(FormatError, match="'south' was changed while it was read"):
        open_.finish(start, Files())


# --- killed ---------------------------------------------------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def killed(work, where, name, count):
    """Run `work` in a child that dies when it calls `name` for the count-th time."""
    child = os.fork()
    if child == 0:
        whole, calls = getattr(where, name), iter(range(1, count))

        def dying(*arguments, **options):
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(*arguments, **options)

        setattr(where, name, dying)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@needs_fork
def test_a_finish_that_is_killed_again_and_again_ends_as_if_it_had_not(
    answered, hospitals, at_every_step
):
    """At steps, while a state is written, while the model is, and before it has its name."""

    def write(out="model"):
        files = [Path(file) for file in FILES]
        folder.write_model(Path("north"), hospitals.study, Path("start.daniel"), files, Path(out))

    write("wanted")
    before = {path.name for path in answered.iterdir()}
    for where, name, count in (
        (surrogate.Surrogate, "__call__", 1),
        (surrogate.Surrogate, "__call__", 3),
        (checkpoint, "save_file", 2),
        (os, "replace", 2),
        (surrogate.Surrogate, "__call__", 2),
        (folder.pq, "write_table", 1),
        (folder, "save_model", 1),
        (os, "replace", 2),
    ):
        assert killed(write, where, name, count)
        assert not Path("model").exists()
    assert killed(write, shutil, "rmtree", 2)  # the model is there, and so is the state
    for _ in range(2):
        same(folder.read_model(Path("model")), folder.read_model(Path("wanted")))
        write()
    assert {path.name for path in answered.iterdir()} == before | {"model"}


def fill(out, text):
    with new_folder(out, "mark") as part:
        (part / "mark").write_text(text)


@needs_fork
@pytest.mark.parametrize("name", ["model", "model[1]"])
def test_a_folder_whose_replacement_was_killed_survives_a_full_disk(tmp_path, name):
    """Killed with the older folder moved away, and the newer one not yet in its place."""
    out = tmp_path / name
    fill(out, "older")
    assert killed(lambda: fill(out, "newer"), os, "replace", 2)
    assert not out.exists()
    with pytest.raises(InputError, match="cannot be written"), full_disk(4000):
        fill(out, "x" * 5000)
    assert (out / "mark").read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    fill(out, "newest")
    assert (out / "mark").read_text() == "newest"


@needs_fork
@pytest.mark.parametrize("moment", [(os, "replace", 3), (shutil, "rmtree", 1)])
def test_a_folder_that_was_replaced_does_not_come_back(tmp_path, moment):
    """Killed after the newer one had its name."""
    out = tmp_path / "model"
    fill(out, "older")
    assert killed(lambda: fill(out, "newer"), *moment)
    with pytest.raises(RuntimeError), new_folder(out, "mark"):
        raise RuntimeError
    assert (out / "mark").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@needs_fork
def test_a_folder_of_a_longer_name_keeps_its_older_one(tmp_path):
    for name in ("model", "model.2"):
        fill(tmp_path / name, "older")
    assert killed(lambda: fill(tmp_path / "model.2", "newer"), os, "replace", 2)
    fill(tmp_path / "model", "newer")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "model.2", "mark"):
        raise RuntimeError
    assert (tmp_path / "model.2" / "mark").read_text() == "older"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model.2"}


@needs_fork
@pytest.mark.parametrize("command", ["start", "answer"])
def test_a_killed_start_or_answer_leaves_nothing_or_all(here, hospitals, command):
    study, start, out = hospitals.study, Path("start.daniel"), Path("out.daniel")
    folder.write_start(Path("north"), study, start)

    def write():
        if command == "start":
            return folder.write_start(Path("north"), study, out)
        return folder.write_answer(Path("south"), study, start, out, approved_by="Ada")

    moments = [(os, "fsync", n) for n in range(1, 3 if command == "start" else 4)]
    for moment in [*moments, (os, "replace", 1), (folder, "write_file", 1)]:
        assert killed(write, *moment)
        if out.exists():
            assert messages.read(out.read_bytes()).manifest.kind == command
        out.unlink(missing_ok=True)
    assert write().sha256 == messages.read(out.read_bytes()).sha256
    assert not list(here.glob(".out*"))
