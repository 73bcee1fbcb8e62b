"""Sweeps on a Dask cluster: the local answer, whoever dies, and nothing of the data in a log."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import dask.config
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security
from typer.testing import CliRunner

from daniel import Daniel, MissingDependencyError, NetworkError, ParameterError, cluster, worker
from daniel.cli import app
from daniel.cluster import Cluster, distributed
from daniel.core import checkpoint, couplings, natural, place
from daniel.core.coordinates import paper_coordinates
from daniel.core.ising import (
    _sweep_sums,
    full_sweep,
    reference_gradient,
    reference_loss,
    stripes,
    sweep,
)
from daniel.core.records import Part, records_from
from daniel.data.prepare import prepare
from daniel.data.sitefolder import read_site
from daniel.federated import folder, protocol
from daniel.federated.keys import make_key, roster_entry, write_key
from daniel.study import Study


@pytest.fixture
def calls(monkeypatch):
    """What went to the cluster: the numbers of sums and of parts, and the kinds of work."""
    seen = SimpleNamespace(sums=0, parts=0, works=set())
    sum_, send = Cluster._sum, Cluster._send

    def count_sum(self, work, *arguments):
        seen.sums += 1
        seen.works.add(work)
        return sum_(self, work, *arguments)

    def count_send(self, value, **where):
        seen.parts += isinstance(value, Part)
        return send(self, value, **where)

    monkeypatch.setattr(Cluster, "_sum", count_sum)
    monkeypatch.setattr(Cluster, "_send", count_send)
    return seen


def relative(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def fitted(Z, progress=None):
    options = natural.Options(progress=progress)
    return natural.fit(records_from(Z), options, np.random.default_rng(0))


# --- the same numbers -----------------------------------------------------------------------------


PAPER = {"recipe": "paper", "n_components": 3, "max_iter": 5}


@pytest.fixture(params=["dense", "sparse"])
def either_Z(request, Z, sparse_Z, monkeypatch):
    """Records whose sums are products, and others whose sums go through Phi."""
    if request.param == "dense":
        monkeypatch.setattr(couplings, "CODES_PER_COLUMN", 0.0)
        return Z
    return sparse_Z


def summed_as_they_should_be(calls):
    """Whether sparse records, and no others, were summed through Phi on the workers."""
    sparse = couplings.CODES_PER_COLUMN > 0
    through_phi, products = couplings.sweep_sums in calls.works, _sweep_sums in calls.works
    return through_phi == sparse and products != sparse


@pytest.mark.parametrize(
    ("either_Z", "sites", "parameters"),
    [
        ("dense", 1, {}),
        ("dense", 3, {}),
        ("dense", 3, PAPER),
        ("sparse", 1, {}),
        ("sparse", 3, {}),
    ],
    indirect=["either_Z"],
)
def test_a_fit_is_the_local_fit(parameters, sites, either_Z, client, calls):
    Z = either_Z
    label = np.random.default_rng(0).integers(0, sites, Z.shape[0])
    given = {} if sites == 1 else {"sites": label}
    wanted = Daniel(random_state=0, **parameters).fit(Z, **given)
    assert calls.sums == 0
    with distributed(client):
        found = Daniel(random_state=0, **parameters).fit(Z, **given)
    assert calls.sums > found.n_iter_
    assert summed_as_they_should_be(calls)
    assert relative(found.theta_, wanted.theta_) < 1e-5
    assert relative(found.embedding_, wanted.embedding_) < 1e-5
    np.testing.assert_allclose(found.loss_curve_, wanted.loss_curve_, rtol=1e-5)


def test_a_very_large_fit_goes_by_the_same_stages(Z, client, calls, monkeypatch):
    monkeypatch.setattr(natural, "LARGE", 1)
    wanted = fitted(Z)
    with distributed(client):
        found = fitted(Z)
    assert calls.sums > found.solution.n_iter
    assert relative(found.U, wanted.U) < 1e-5
    np.testing.assert_allclose(found.solution.curve, wanted.solution.curve, rtol=1e-5)


@pytest.mark.parametrize("reached", [True, False], ids=["direct", "through the scheduler"])
def test_a_sweep_on_the_cluster_is_the_reference(reached, Z, client, monkeypatch):
    assert Cluster(client).direct
    monkeypatch.setattr(Cluster, "_reaches", lambda self, workers: reached)
    X = 2.0 * Z - 1
    U = np.random.default_rng(2).normal(size=(30, 4)) / 4
    records, coords = records_from(Z), paper_coordinates(30)
    with distributed(client, partitions=5):
        once, full = sweep(records, coords, U, U, None), full_sweep(records, coords, (U, U), None)
    G = reference_gradient(U @ U.T, X)
    assert once.loss == pytest.approx(reference_loss(U @ U.T, X), rel=1e-10)
    np.testing.assert_allclose(full.G, G, atol=1e-10)
    np.testing.assert_allclose(once.U, G @ U, atol=1e-10)


def test_rows_are_sent_once_and_leave_with_the_records(Z, client, calls):
    records = records_from(Z)
    U = np.full((30, 2), 0.1, dtype=np.float32)
    here = Cluster(client, partitions=3)
    with place.at(here):
        for step in range(4):
            sweep(records, paper_coordinates(30), U * step, U, None)
    assert (calls.sums, calls.parts) == (4, 3)
    kept = next(iter(here._kept.values()))
    assert sorted(kept.chunks, key=lambda s: s.start) == kept.chunks
    assert set(kept.where) == set(client.nthreads())  # both workers have some
    del records, kept
    gc.collect()
    assert here._kept == {}


def test_the_same_number_of_parts_gives_the_same_numbers(Z, client):
    records, coords = records_from(Z), paper_coordinates(30)
    U = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32) / 4
    found = []
    for partitions in (3, 3, 7):
        with distributed(client, partitions=partitions):
            found.append(sweep(records, coords, U, U, None))
    np.testing.assert_array_equal(found[0].U, found[1].U)
    assert relative(found[2].U, found[0].U) < 1e-8


def test_the_next_sum_is_made_while_one_is_fetched(Z, client, monkeypatch):
    """One ahead, never two: the memory of workers holds two sums at most."""
    seen = []
    sum_, fetch = Cluster._sum, Cluster._fetch

    def begin(self, work, kept, shared, item):
        seen.append(f"begin {item}")
        return sum_(self, work, kept, shared, item)

    def fetched(self, begun):
        seen.append("fetch")
        return fetch(self, begun)

    monkeypatch.setattr(Cluster, "_sum", begin)
    monkeypatch.setattr(Cluster, "_fetch", fetched)
    here, records = Cluster(client), records_from(Z)
    assert list(here.sums(numbered, records, 1, [])) == []
    assert list(here.sums(numbered, records, 10, range(4))) == [
        (item, 10 * records.n)
        for item in (0, 2, 4, 6)  # of two parts
    ]
    wanted = "begin 0, begin 1, fetch, begin 2, fetch, begin 3, fetch, fetch"
    assert seen == wanted.split(", ")


def numbered(records, shared, item):
    return item, shared * records.n


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hospitals(Z, tmp_path_factory):
    """Three prepared site folders, keys and a study file."""
    root = tmp_path_factory.mktemp("hospitals")
    codes = [f"PheCode:{j}" for j in range(Z.shape[1])]
    (root / "codes.tsv").write_text("code\n" + "\n".join(codes) + "\n")
    keys = [make_key(name) for name in ("north", "south", "east")]
    entries = [roster_entry(k, "hub" if k.name == "north" else "site") for k in keys]
    text = "version = 1\nname = 'trial'\n[codes]\nfile = 'codes.tsv'\n"
    (root / "study.toml").write_text(text + "\n".join(entries) + "\n")
    study = Study.load(root / "study.toml")
    for key, rows in zip(keys, np.array_split(Z, [700, 1100]), strict=True):
        write_key(key, root)
        patient, code = np.nonzero(rows)
        events = {"patient": patient, "date": "2020-01-01", "code": np.array(codes)[code]}
        pd.DataFrame(events).to_csv(root / f"{key.name}.csv", index=False)
        prepare(str(root / f"{key.name}.csv"), study, key.name, root / key.name)
    return SimpleNamespace(root=root, study=study, keys={k.name: k for k in keys})


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.stderr


def exchange(*options):
    """The model of start, answers and finish."""
    run("start", "north", "--out", "start.daniel", *options)
    answers = []
    for name in ("north", "south", "east"):
        answers.append(f"{name}.daniel")
        run("answer", name, "start.daniel", "--out", answers[-1], "--approve", "Ada", *options)
    run("finish", "north", "start.daniel", *answers, "--out", "model", *options)
    return folder.read_model(folder.Path("model"))


def test_every_command_gives_the_local_model(
    hospitals, tmp_path, monkeypatch, local, client, calls
):
    models = []
    for name in ("here", "there"):
        here = tmp_path / name
        here.mkdir()
        for path in hospitals.root.iterdir():
            (here / path.name).symlink_to(path)
        for key in here.glob("*.key"):  # the release log stands beside it
            key.unlink()
            key.write_bytes((hospitals.root / key.name).read_bytes())
            key.chmod(0o600)
        monkeypatch.chdir(here)
        options = () if name == "here" else ("--scheduler", local.scheduler_address)
        models.append(exchange(*options))
        before = calls.sums
        run("fit", "north", "south", "east", "--out", "together", *options)
        models.append(folder.read_model(folder.Path("together")))
        assert (before > 30) == (calls.sums > before + 30) == (name == "there")
    for found in models[1:]:
        assert relative(found.theta_, models[0].theta_) < 1e-5


def test_an_address_where_nobody_is(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "CONNECT", 0.2)
    monkeypatch.chdir(tmp_path)
    run("new")
    stderr = run("fit", "north", "--scheduler", "tcp://127.0.0.1:1", code=2)
    assert stderr.startswith("daniel: No Dask scheduler answers at tcp://127.0.0.1:1:")
    assert stderr.count("\n") == 1


def test_an_address_where_nobody_speaks_dask(monkeypatch):
    """As at the port of a dashboard: somebody answers, and never greets."""
    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        refused = pytest.raises(NetworkError, match=f"No Dask scheduler answers at {address}")
        with refused, cluster.distributed(address):
            pass


def test_certificates_come_from_dask_s_configuration(Z, calls):
    made = Security.temporary()
    tls = {"ca-file": made.tls_ca_file, "client.key": made.tls_client_key}
    tls["client.cert"] = made.tls_client_cert
    settings = {f"distributed.comm.tls.{name}": value for name, value in tls.items()}
    options = {"processes": False, "protocol": "tls", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, security=made, **options) as closed:
        address = closed.scheduler_address
        assert address.startswith("tls://")
        U = np.full((30, 2), 0.1)
        with dask.config.set(settings), distributed(address):
            sweep(records_from(Z), paper_coordinates(30), U, U, None)
    assert calls.sums == 1


# --- losses ---------------------------------------------------------------------------------------


def test_a_worker_that_dies_is_survived(either_Z, client, kill_one, calls, monkeypatch):
    monkeypatch.setattr(cluster, "RETURN", 0.0)  # the other one takes over
    Z = either_Z
    wanted = fitted(Z)
    records = records_from(Z)
    assert couplings.pays(records, wanted.U.shape[1]) == (couplings.CODES_PER_COLUMN > 0)
    steps = []

    def progress(step, loss, enough):
        steps.append(step)
        if step == 2:
            kill_one()

    with distributed(client):
        found = fitted(Z, progress)
    assert len(steps) > 2
    assert calls.parts > 2  # at least one of the two was sent again
    assert summed_as_they_should_be(calls)
    assert relative(found.U, wanted.U) < 1e-5
    np.testing.assert_allclose(found.solution.curve, wanted.solution.curve, rtol=1e-7)


def test_a_worker_that_dies_between_stripes_is_survived(Z, client, kill_one, calls, monkeypatch):
    """The sum that was begun ahead is lost with it, and made again."""
    monkeypatch.setattr(cluster, "RETURN", 0.0)
    for name, value in {"STRIPE": 5, "WIDE": 5, "LANES": 1, "STRIPES": 1, "LOAD": 0}.items():
        monkeypatch.setattr(couplings, name, value)
    U = np.random.default_rng(2).normal(size=(30, 4)) / 4
    G = np.full((30, 30), np.nan)
    order = []
    with distributed(client):
        for stripe in stripes(records_from(Z), paper_coordinates(30), (U, U), None):
            G[:, stripe.codes] = stripe.G
            order.append(stripe.codes.start)
            if len(order) == 2:
                kill_one()
    assert order == [0, 5, 10, 15, 20, 25]
    assert calls.parts > 2
    np.testing.assert_allclose(G, reference_gradient(U @ U.T, 2.0 * Z - 1), atol=1e-10)


def test_a_worker_that_restarts_is_waited_for(client, monkeypatch):
    here = Cluster(client)
    seen = iter([{"a": 1}, {"a": 1}, {"a": 1, "b": 1}])
    last = {"a": 1, "b": 1}
    monkeypatch.setattr(here, "_threads", lambda: next(seen, last))
    monkeypatch.setattr(here, "_versions", lambda workers: {})
    here._recover()
    assert here.workers == 2 and next(seen, None) is None
    monkeypatch.setattr(cluster, "RETURN", 0.1)
    last = {"a": 1}
    here._recover()
    assert here.workers == 1


def test_workers_that_always_die(Z, client, monkeypatch):
    def dying(self, *arguments):
        raise OSError("gone")

    monkeypatch.setattr(Cluster, "_sum", dying)
    with pytest.raises(NetworkError, match="died 5 times"), distributed(client):
        fitted(Z)


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr(cluster, "ANY", 0.3)
    with LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        address = empty.scheduler_address
        with pytest.raises(NetworkError, match="has no workers"), distributed(address):
            pass


SCHEDULER = """
if __name__ == "__main__":
    import sys
    from distributed import LocalCluster
    options = {"processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler with one worker, in a process that may be killed."""
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}  # it finds the work of tests here
    with subprocess.Popen([sys.executable, script], text=True, env=env, **pipes) as process:
        address = process.stdout.readline().strip()
        yield SimpleNamespace(address=address, kill=process.kill, signal=process.send_signal)
        process.kill()


def closes(client):
    """Whether the client gives its scheduler up, in time."""
    end = time.monotonic() + 30
    while client.status != "closed" and time.monotonic() < end:
        time.sleep(0.05)
    return client.status == "closed"


@pytest.mark.parametrize("before", [0, 1], ids=["before the first sum", "between sums"])
def test_a_scheduler_that_dies_during_local_work(before, Z, scheduler, monkeypatch):
    """Dask's client has closed itself by the next sum: the same sentence, no traceback."""
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    records, coords, U = records_from(Z), paper_coordinates(30), np.full((30, 2), 0.1)
    with cluster._client(scheduler.address) as client, place.at(Cluster(client)):
        for _ in range(before):
            sweep(records, coords, U, U, None)
        scheduler.kill()
        assert closes(client)
        with pytest.raises(NetworkError, match=f"at {scheduler.address} no longer answers"):
            sweep(records, coords, U, U, None)


def slow(records, shared, item):
    time.sleep(shared)
    return item, records.n


def slow_and_then(act):
    """Sums of two seconds; `act` comes in the middle."""
    threading.Timer(0.7, act).start()
    return slow, records_from(np.eye(30)), 2.0, [1]


@pytest.mark.parametrize("during", [False, True], ids=["between sums", "during a sum"])
def test_a_scheduler_that_is_frozen(during, Z, scheduler, monkeypatch):
    """Its connections stay open, and Dask waits for ever: daniel asks for a sign of life."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with cluster._client(scheduler.address) as client:
        here = Cluster(client)
        monkeypatch.setattr(cluster, "CONNECT", 0.5)
        freeze = partial(scheduler.signal, signal.SIGSTOP)
        work = slow_and_then(freeze if during else int)
        if not during:
            freeze()
        begin = time.monotonic()
        with pytest.raises(NetworkError, match=f"at {scheduler.address} no longer answers"):
            list(here.sums(*work))
        assert time.monotonic() - begin < 10


def test_work_that_merely_takes_long_goes_on(Z, client, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.1)
    assert list(Cluster(client, 1).sums(*slow_and_then(int))) == [(1, 30)]


def test_a_worker_that_the_scheduler_has_given_up_is_lost(client, monkeypatch):
    """As one that is frozen: a transfer from there would never end."""
    here, seen = Cluster(client), iter([{"a", "b"}, {"a", "b"}, {"a"}])

    async def workers():
        return next(seen)

    monkeypatch.setattr(cluster, "PATIENCE", 0.1)
    monkeypatch.setattr(here, "_workers", workers)
    with pytest.raises(ConnectionError) as error:
        here._call(client.gather, client.submit(time.sleep, 2, pure=False))
    assert error.type is ConnectionError and next(seen, None) is None


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("nthreads", AttributeError),
        ("scatter", AttributeError),
        ("submit", RuntimeError),
        ("gather", RuntimeError),
    ],
)
def test_a_client_that_closes_within_a_call(method, error, Z, local, monkeypatch):
    """As when it gives its scheduler up at that moment: it may raise anything."""
    with Client(local, set_as_default=False) as client:
        here = Cluster(client)

        async def closing_in_its_loop():
            await client.close()
            raise error("of a client that is closed")

        def closing(*arguments, **options):
            if client.asynchronous:
                return closing_in_its_loop()
            client.close()
            raise error("of a client that is closed")

        monkeypatch.setattr(client, method, closing)
        with pytest.raises(NetworkError, match="no longer answers"):
            list(here.sums(numbered, records_from(Z), None, [1]))


def test_an_error_of_another_kind_is_not_a_lost_scheduler(Z, client, monkeypatch):
    def mistaken(*arguments, **options):
        raise AttributeError("a mistake in a program")

    monkeypatch.setattr(client, "gather", mistaken)
    with pytest.raises(AttributeError, match="a mistake"):
        list(Cluster(client).sums(numbered, records_from(Z), 1, [1]))


def test_a_scheduler_that_dies_loses_nothing(hospitals, tmp_path, scheduler, monkeypatch):
    """One sentence; the solver's state stays, and a finish without a cluster goes on from it."""
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    monkeypatch.setattr(checkpoint.Checkpoint.__init__, "__defaults__", (0.0,))
    study, state = hospitals.study, tmp_path / ".model.state"
    sites = {name: read_site(hospitals.root / name) for name in hospitals.keys}
    start = protocol.start(sites["north"], study, hospitals.keys["north"])
    give = {"approved_by": "Ada", "ledger": None}
    answers = [protocol.answer(sites[k], study, start, hospitals.keys[k], **give) for k in sites]
    steps = []

    def finish(progress):
        steps.clear()
        files = sites["north"], study, start, answers
        return protocol.finish(*files, progress=progress, checkpoint=state)[0]

    wanted = finish(lambda step, loss, enough: steps.append(step))
    every = list(steps)
    state.unlink()  # of the end

    def progress(step, loss, enough):
        if step == 3:
            scheduler.kill()

    with pytest.raises(NetworkError) as error, distributed(scheduler.address):
        finish(progress)
    said = f"The Dask scheduler at {scheduler.address} no longer answers."
    assert str(error.value).startswith(said)
    assert state.is_file()
    found = finish(lambda step, loss, enough: steps.append(step))
    assert (every[:4], steps[0]) == ([1, 2, 3, 4], 4)  # after the last step that was whole
    assert relative(found.theta_, wanted.theta_) < 1e-5


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["nonsense://host:1", "tls://127.0.0.1:8786", "host"])
def test_an_address_that_cannot_be_used(address):
    with pytest.raises(ParameterError, match="tcp://host:8786"), distributed(address):
        pass


def test_workers_behind_a_wall_are_not_spoken_to_directly(client, monkeypatch):
    monkeypatch.setattr(cluster, "NEAR", 0.2)
    here = Cluster(client)
    assert here._reaches(client.nthreads())
    assert not here._reaches([*client.nthreads(), "tcp://127.0.0.1:1"])


def test_no_partitions(client):
    with pytest.raises(ParameterError, match="partitions is 0"), distributed(client, partitions=0):
        pass


def test_a_client_that_is_closed(local):
    with Client(local, set_as_default=False) as client:
        pass
    with pytest.raises(ParameterError, match="client is closed"), distributed(client):
        pass


def test_another_version_on_the_workers(client, monkeypatch):
    monkeypatch.setattr(worker, "version", lambda name: "0.0.0")
    with pytest.raises(NetworkError, match=r"here it is 0\.0\.0"), distributed(client):
        pass


def test_other_code_of_the_same_version_on_the_workers(client, monkeypatch):
    monkeypatch.setattr(worker, "CORE", "12345678")
    with pytest.raises(NetworkError, match=r"core 12345678"), distributed(client):
        pass


def be_of_core(core):
    worker.CORE = core


@pytest.fixture
def growing():
    """A cluster of one worker, and a function that adds one with other code."""
    options = {"dashboard_address": ":0", "processes": True, "threads_per_worker": 1}
    with (
        LocalCluster(n_workers=1, **options) as own,
        Client(own, set_as_default=False) as client,
    ):

        def add():
            before = set(client.nthreads())
            own.scale(2)
            client.wait_for_workers(2, timeout=60)
            client.run(be_of_core, "12345678", workers=list(set(client.nthreads()) - before))

        yield client, add


OTHER = r"have daniel .*\(core 12345678\).*, and here it is "


def test_a_worker_with_other_code_that_joins_later(Z, growing, calls, monkeypatch):
    client, add = growing
    here = Cluster(client)
    told = Mock(wraps=client.run)
    monkeypatch.setattr(client, "run", told)
    U, coords = np.full((30, 2), 0.1), paper_coordinates(30)
    with place.at(here):
        for _ in range(2):  # records of their own
            sweep(records_from(Z), coords, U, U, None)
        assert (calls.parts, told.call_count) == (2, 0)  # nobody is asked twice
        add()
        told.reset_mock()
        with pytest.raises(NetworkError, match=OTHER):
            sweep(records_from(Z), coords, U, U, None)
    assert (calls.parts, told.call_count) == (2, 1)  # nothing was sent there
    with pytest.raises(NetworkError, match=OTHER):  # as after a death
        here._recover()


def test_a_worker_with_other_code_that_gets_a_part_from_another(Z, client, calls):
    """Dask moves parts and tasks by itself, as when a worker retires: no part is sent again."""
    records, coords, U = records_from(Z), paper_coordinates(30), np.full((30, 2), 0.1)
    try:
        with distributed(client):
            sweep(records, coords, U, U, None)
            client.run(be_of_core, "12345678")
            with pytest.raises(NetworkError, match=OTHER):
                sweep(records, coords, U, U, None)
    finally:
        client.run(be_of_core, worker.CORE)
    assert calls.parts == 2


def test_a_worker_that_is_lost_while_it_is_asked(client, monkeypatch):
    """It stays unknown, and is no worker of another version."""
    here = Cluster(client)

    async def run(*arguments, **options):
        return {"a": OSError("gone"), "b": worker.version_and_core()}

    monkeypatch.setattr(client, "run", run)
    here._check_versions(["a", "b"])
    assert here._known == {*client.nthreads(), "b"}


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"daniel\[dask\]"), distributed("tcp://a:1"):
        pass


def test_without_an_address_everything_stays_here(Z, calls):
    with distributed(None):
        fitted(Z)
    assert calls.sums == 0


# --- what a log may hold --------------------------------------------------------------------------

SECRET = 918273


def failing(records, shared, item):
    raise ValueError(f"patient {SECRET} has {records.indices.tolist()}")


def test_an_error_on_a_worker_tells_nothing_of_the_data(Z, client, caplog):
    here = Cluster(client)
    with pytest.raises(NetworkError) as error:
        list(here.sums(failing, records_from(Z), np.full(3, SECRET), [None]))
    text = str(error.value)
    assert "ValueError (test_cluster.py, line" in text and error.value.__cause__ is None
    logs = [line for lines in client.get_worker_logs().values() for _, line in lines]
    logs += [line for _, line in client.get_scheduler_logs()]
    assert any("Compute Failed" in line and "WorkFailed" in line for line in logs)
    for line in [text, repr(error.value), caplog.text, *logs]:
        assert str(SECRET) not in line and "patient" not in line


def test_what_is_sent_shows_its_size_alone(Z):
    part = records_from(Z).part(slice(0, 5))
    hidden = worker.Hidden(part)
    size = sum(a.nbytes for a in (part.indptr, part.indices, part.weight, part.site))
    assert repr(part) == f"Part({part.n} x 30)"
    assert size <= hidden.__sizeof__() <= size + 1000
    assert repr(hidden) == f"<Part, {hidden.__sizeof__()} bytes>"
    assert repr(worker.Hidden((np.arange(10.0), 3.0))) == "<tuple, 208 bytes>"
