"""Times and peak memory of one exchange over NVIDIA FLARE: a server and three sites, mutual TLS.

    python -m benchmarks.network            writes results/federation/network.md

Each process has its own kit and certificate, all on this machine.  A start has the size of U and V
with d = 200; an answer that of a masked one, the upper triangle in 64-bit words, filled with random
numbers.  What the sites compute is left out: this measures the road, not the journey's purpose.
"""

import argparse
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

from benchmarks.problems import PROJECT_ROOT
from daniel.federated.flare import kits, provision, run
from daniel.federated.flare.site import SiteExecutor
from daniel.study import Codes, Site, Study

OUT = PROJECT_ROOT / "results" / "federation" / "network.md"
SITES = ("north", "south", "west")
P = (2142, 10_000)
D = 200
EXECUTOR = "benchmarks.network.RandomAnswer"


class RandomAnswer(SiteExecutor):
    """A site that answers random numbers of the right size."""

    @staticmethod
    def make(kit: kits.Kit, start: Path, out: Path, by: str) -> None:
        p = start.stat().st_size // (2 * D * 4)
        np.random.default_rng().random(p * (p + 1) // 2).tofile(out)


class Memory(threading.Thread):
    """The peak memory of processes and of their children, read ten times a second."""

    def __init__(self, processes: dict[str, subprocess.Popen[bytes]]) -> None:
        super().__init__(daemon=True)
        self.processes, self.peaks = processes, dict[str, int]()
        self.running = True

    def run(self) -> None:
        while self.running:
            for name, process in self.processes.items():
                parent = psutil.Process(process.pid)
                self._note(f"{name}, standing", parent.pid)
                for child in parent.children(recursive=True):
                    self._note(f"{name}, exchange", child.pid)
            time.sleep(0.1)

    def _note(self, name: str, pid: int) -> None:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:  # ended meanwhile
            return
        peak = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
        self.peaks[name] = max(self.peaks.get(name, 0), peak // 1024)

    def of(self, part: str) -> dict[str, int]:
        """The largest peak in MB of the server's and of the sites' processes of one kind."""
        sites = [self.peaks.get(f"{site}, {part}", 0) for site in SITES]
        return {"server": self.peaks.get(f"server, {part}", 0), "site": max(sites)}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


def make_network(folder: Path) -> Path:
    """Provision a network whose sites accept the random answer, and approve it at each."""
    roster = (Site("hub", "hub"), *(Site(name) for name in SITES))
    study = Study(name="benchmark", codes=Codes(names=("A:1", "A:2")), sites=roster)
    network = folder / "network"
    provision.init(study, network, "localhost", free_port())
    for site in SITES:
        kit = network / "sites" / site
        study.write(kit / "study.toml")
        resources = kits.read_json(kit / "local/resources.json")
        kits.write_json(kit / "local/resources.json", resources | {"class_allow_list": [EXECUTOR]})
        (kit / "records").mkdir()
        (kit / f"{site}.key").touch()
        kits.Kit(kit).approve("benchmark")
    return network


@contextmanager
def running(network: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The processes of all kits, from start to end."""
    places = {"server": network / "server"} | {s: network / "sites" / s for s in SITES}
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "OMP_NUM_THREADS": "1"}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, kit in places.items():
            run.prepare_kit(kit)
            processes[name] = subprocess.Popen(
                run.command(kit),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
        if len(run.wait_for_sites(network, 60)) < len(SITES):
            raise SystemExit("not all sites have connected within a minute")
        yield processes
    finally:
        for process in processes.values():
            for child in (*psutil.Process(process.pid).children(recursive=True), process):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()


def measure(network: Path, p: int) -> list[str]:
    """One exchange: a row of the table."""
    with running(network) as processes:
        start = network.parent / f"{p}.daniel"
        start.write_bytes(np.random.default_rng(p).bytes(2 * p * D * 4))
        memory = Memory(processes)
        memory.start()
        begin = time.monotonic()
        done = run.exchange(network, start, timeout=600)
        whole = time.monotonic() - begin
        memory.running = False
        memory.join()
    done.check()
    first = min(path.stat().st_mtime for path in network.glob("sites/*/inbox/*.daniel"))
    last = max(path.stat().st_mtime for path in (done.folder / "status.json", *done.answers))
    peaks = memory.of("exchange")
    return [
        f"{p:,}",
        f"{start.stat().st_size / 1e6:.0f} MB",
        f"{done.answers[0].stat().st_size / 1e6:.0f} MB",
        f"{last - first:.1f} s",
        f"{whole:.1f} s",
        f"{peaks['server']:,} MB",
        f"{peaks['site']:,} MB",
        f"{max(memory.of('standing').values()):,} MB",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--p", type=int, nargs="*", default=P)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    run.EXECUTOR = EXECUTOR
    heads = (
        "codes",
        "start",
        "each answer",
        "exchange",
        "whole command",
        "peak memory, hub's job",
        "peak memory, a site's job",
        "standing process",
    )
    rows = [heads, ["---"] * len(heads)]
    for p in arguments.p:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(make_network(Path(folder)), p))
        print(*rows[-1], sep="  ")
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    cores = os.cpu_count()
    text = f"""# One exchange over NVIDIA FLARE

Server and three sites, mutual TLS, own processes, on one machine with {cores} cores, written by
`python -m benchmarks.network`. The exchange runs from the first start at a site to the last answer
on the hub's disk; drawing random numbers stands for the site's own work. The whole command also
deploys the job. Memory is the largest of each process.

{table}
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
