"""A real deployment on this machine: a server and three sites, own processes, mutual TLS."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from daniel.core.sample import gibbs
from daniel.data import read_site
from daniel.data.prepare import prepare
from daniel.federated import folder, protocol
from daniel.federated.flare import kits, provision, run
from daniel.federated.keys import make_key, write_key
from daniel.federated.ledger import Ledger
from daniel.study import Codes, Disclosure, Study

pytest.importorskip("nvflare", reason="the network needs the extra `network`")

DANIEL = Path(sys.executable).with_name("daniel")
SITES = ("north", "south", "west")
CODES = tuple(f"PheCode:{j}" for j in range(10))


class Network:
    """The hub's folder, its records, and the processes of all kits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.net = folder, folder / "network"
        self.keys = {name: make_key(name) for name in ("hub", *SITES)}
        roster = tuple(k.public("hub" if n == "hub" else "site") for n, k in self.keys.items())
        self.study = Study(
            name="three sites", codes=Codes(names=CODES), sites=roster, disclosure=Disclosure()
        )
        self.matrices = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def kit(self, site: str) -> Path:
        return self.net / "sites" / site

    def prepare(self) -> None:
        provision.init(self.study, self.net, "localhost", free_port())
        for seed, (name, key) in enumerate(self.keys.items()):
            place = self.folder if name == "hub" else self.kit(name)
            write_events(place / "events.csv", seed)
            prepare(place / "events.csv", self.study, name, place / "records", random_state=seed)
            self.study.write(place / "study.toml")
            write_key(key, place)
            self.matrices[name] = read_site(place / "records")
        self.widen_the_server()

    def widen_the_server(self) -> None:
        """A hub that would ship code: only the sites' own policies can stop it."""
        path = self.net / "server/local/authorization.json"
        policy = kits.read_json(path)
        policy["permissions"]["project_admin"]["byoc"] = "any"
        kits.write_json(path, policy)
        path = self.net / "server/local/resources.json"
        resources = kits.read_json(path)
        resources["servers"][0]["heart_beat_timeout"] = 15
        kits.write_json(path, resources)

    def join(self, name: str, kit: Path) -> None:
        log = (self.folder / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(
            [DANIEL, "network", "join", str(kit)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def end(self, name: str) -> None:
        """End a kit's process and its jobs, as a power cut does."""
        import psutil  # comes with nvflare

        process = self.processes.pop(name, None)
        if process is None:
            return
        for child in (*psutil.Process(process.pid).children(recursive=True), process):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()

    def start(self, name: str) -> Path:
        path = self.folder / name
        path.write_bytes(protocol.start(self.matrices["hub"], self.study, self.keys["hub"]))
        return path

    def submit(self, job: dict[str, object]) -> dict[str, object]:
        """Submit files as a job, past daniel's own command; what became of it."""
        folder = self.folder / "jobs" / str(len(list(self.folder.glob("jobs/*")))) / "job"
        for name, content in job.items():
            text = content if isinstance(content, str) else json.dumps(content)
            kits.write_bytes(folder / name, text.encode())
        with run.Session(self.net / "admin") as session:
            job_id = session.submit_job(str(folder))
            _, meta = session.monitor_job_and_return_job_meta(job_id, 60, 0.5)
            late = time.monotonic() + 10  # the server tells that a job failed, and then why
            while "job_deploy_detail" not in meta and time.monotonic() < late:
                time.sleep(0.2)
                meta = session.get_job_meta(job_id)
        return meta


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def write_events(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    U = 0.5 * np.repeat(np.eye(2), 5, axis=0)
    Z = gibbs(U, np.full(10, -0.5), 300, rng)
    lines = [f"{i},2020-01-0{1 + i % 9},{CODES[j]}" for i, j in zip(*np.nonzero(Z), strict=True)]
    path.write_text("\n".join(["patient,time,code", *lines, ""]))


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    made = Network(tmp_path_factory.mktemp("flare"))
    made.prepare()
    try:
        made.join("server", made.net / "server")
        for site in SITES:
            made.join(site, made.kit(site))
        assert run.wait_for_sites(made.net, 120) == set(SITES)
        yield made
    finally:
        for name in list(made.processes):
            made.end(name)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DANIEL, "network", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_the_server_wants_a_certificate_of_this_network(network):
    port = kits.read_json(network.net / "network.json")["port"]
    context = ssl.create_default_context(cafile=network.net / "admin/startup/rootCA.pem")
    context.set_alpn_protocols(["h2"])
    with pytest.raises((ssl.SSLError, ConnectionError)):  # TLS 1.3 says so at the first read
        talk(context, port)
    startup = network.net / "admin/startup"
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    assert talk(context, port)


def talk(context: ssl.SSLContext, port: int) -> bytes:
    """The server's first bytes after an HTTP/2 greeting."""
    with (
        socket.create_connection(("localhost", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        data = secure.recv(100)
        if not data:
            raise ConnectionError
        return data


def test_the_network_gives_the_model_of_memory(network):
    start = network.start("start.daniel")
    for site in ("north", "south"):
        assert command("approve", network.kit(site), "--by", f"Dr. {site}").returncode == 0

    first = command("run", start, "--network", network.net, "--timeout", 60)
    assert first.returncode == 2
    assert "west (refused by the site)" in first.stderr
    assert "north" not in first.stderr
    assert "Nobody has approved" in (network.folder / "west.log").read_text()
    (received,) = network.kit("west").glob("inbox/*.daniel")
    assert received.read_bytes() == start.read_bytes()  # there to be inspected

    approved = command("approve", network.kit("west"), "--by", "Dr. W", "--start", received)
    assert approved.returncode == 0, approved.stderr
    second = command("run", start, "--network", network.net, "--timeout", 60)
    assert second.returncode == 0, second.stderr
    answers = [Path(line) for line in second.stdout.split() if line.endswith(".daniel")]
    assert [path.stem for path in answers] == sorted(SITES)

    own = protocol.answer(
        network.matrices["hub"],
        network.study,
        start.read_bytes(),
        network.keys["hub"],
        approved_by="Dr. H",
        ledger=None,
    )
    files = [own, *(path.read_bytes() for path in answers)]
    model, _ = protocol.finish(network.matrices["hub"], network.study, start.read_bytes(), files)
    memory, _ = protocol.fit(network.matrices, network.study)
    assert np.abs(memory.theta_).max() > 0.05
    np.testing.assert_allclose(model.theta_, memory.theta_, atol=1e-6)
    places = [network.folder, *(network.kit(site) for site in SITES)]
    folder.fit([place / "records" for place in places], network.study, network.folder / "model")
    by_files = folder.read_model(network.folder / "model")
    np.testing.assert_allclose(model.theta_, by_files.theta_, atol=1e-6)

    for site in SITES:
        sent = list((network.kit(site) / "outbox").iterdir())
        assert [path.read_bytes() for path in sent] == [files[1 + sorted(SITES).index(site)]]
        log = Ledger.beside(network.kit(site) / f"{site}.key").entries()
        assert [entry["event"] for entry in log] == ["approved", "written"]
        assert log[0]["by"] == ("Dr. W" if site == "west" else f"Dr. {site}")


def test_code_from_the_hub_is_refused_by_every_site(network):
    trace = network.folder / "code-ran"
    start = network.start("other.daniel").read_bytes()
    job = run._job(kits.digest(start), list(SITES), 30, 5)
    job["site/custom/helper.py"] = f"open({str(trace)!r}, 'w')\n"
    meta = network.submit(job)
    assert meta["status"] == "FINISHED:FAILED_TO_RUN"
    for site in SITES:
        assert f"{site}: NVFLARE_ERROR: BYOC not permitted" in meta["job_deploy_detail"]
    assert not trace.exists()


def test_a_job_may_name_no_other_class(network):
    trace = network.folder / "command-ran"
    start = network.start("other.daniel").read_bytes()
    folder = kits.exchange_folder(network.net / "server", kits.digest(start))
    kits.write_bytes(folder / "start.daniel", start)
    job = run._job(kits.digest(start), list(SITES), 30, 5)
    harmful = {"path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}}
    job["site/config/config_fed_client.json"]["executors"][0]["executor"] = harmful
    network.submit(job)
    for site in SITES:
        log = (network.folder / f"{site}.log").read_text()
        assert "Component 'subprocess.Popen'" in log
        assert "is not in allow_list" in log
    assert not trace.exists()
    assert not (folder / "answers").exists()


def test_the_operator_cannot_look_into_a_site(network):
    with run.Session(network.net / "admin") as session:
        for line in ("ls north", "cat north local/approval.json", "tail north log.txt"):
            assert "not authorized" in str(session.api.do_command(line)["data"])


def test_a_dead_site_is_named_and_the_others_release_once(network):
    """West dies while it works; north and south have answered this epoch, and refuse another."""
    start = network.start("later.daniel")
    west = network.kit("west")
    os.mkfifo(west / "pipe")  # reading the study there never ends
    settings = (west / kits.SETTINGS).read_text().replace("study.toml", "pipe")
    (west / kits.SETTINGS).write_text(settings)

    exchange = kits.exchange_folder(network.net / "server", kits.digest(start.read_bytes()))
    received = west / f"inbox/{exchange.name}.daniel"

    def works_alone() -> bool:
        states = kits.read_json(exchange / "status.json") if received.exists() else {}
        return {site for site, state in states.items() if state == kits.WAITING} == {"west"}

    over = threading.Event()

    def end_west() -> None:
        while not works_alone():
            if over.wait(0.1):
                return
        network.end("west")

    thread = threading.Thread(target=end_west, daemon=True)
    thread.start()
    try:
        done = run.exchange(network.net, start, timeout=200, lost_after=2)
    finally:
        over.set()
        thread.join(60)
    assert done.states == {
        "north": "refused by the site",
        "south": "refused by the site",
        "west": "connection lost",
    }
    assert done.answers == []
    assert "has released its answer" in (network.folder / "north.log").read_text()
