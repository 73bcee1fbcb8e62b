"""A small study of three sites: keys, records, messages of one exchange, and all of it as files."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from daniel.cli import app
from daniel.core.sample import gibbs
from daniel.data.prepare import prepare
from daniel.federated import protocol
from daniel.federated.keys import SiteKey, make_key, roster_entry, write_key
from daniel.matrix import CodeMatrix
from daniel.study import Codes, Disclosure, Study

NAMES = ("north", "south", "east")
P = 20


@dataclass(frozen=True)
class Network:
    """Sites with keys, and a study whose roster they are; `north` is the hub."""

    study: Study
    keys: dict[str, SiteKey]
    sites: dict[str, CodeMatrix]

    @property
    def hub(self) -> CodeMatrix:
        return self.sites["north"]

    def start(self, **options) -> bytes:
        return protocol.start(self.hub, self.study, self.keys["north"], **options)

    def answer(self, name: str, start: bytes, **options) -> bytes:
        options = {"approved_by": "Ada", "ledger": None} | options
        return protocol.answer(self.sites[name], self.study, start, self.keys[name], **options)

    def answers(self, start: bytes) -> list[bytes]:
        return [self.answer(name, start) for name in self.sites]

    def finish(self, start: bytes, answers: list[bytes], **options):
        return protocol.finish(self.hub, self.study, start, answers, **options)

    def with_study(self, **changes) -> "Network":
        return replace(self, study=replace(self.study, **changes))

    def with_disclosure(self, **changes) -> "Network":
        return self.with_study(disclosure=replace(self.study.disclosure, **changes))


def make_network(records=(500, 400, 300), p=P, names=NAMES, **disclosure) -> Network:
    """Records of one Ising model, two to a patient; the sites differ in size."""
    rng = np.random.default_rng(5)
    U = 0.45 * np.repeat(np.eye(p // 5), 5, axis=0)
    b = rng.permutation(np.linspace(-0.7, 0.1, p))  # rare and common codes
    codes = tuple(f"PheCode:{j}" for j in range(p))
    sites = {}
    for name, n in zip(names, records, strict=True):
        Z = gibbs(U, b, n, rng)
        Z = sp.csr_array(Z.astype(np.float32))
        sites[name] = CodeMatrix(Z, codes, patients=np.arange(n) // 2)
    keys = {name: make_key(name) for name in names}
    roster = tuple(key.public("hub" if name == names[0] else "site") for name, key in keys.items())
    study = Study(
        name="trial", codes=Codes(names=codes), sites=roster, disclosure=Disclosure(**disclosure)
    )
    return Network(study, keys, sites)


@pytest.fixture(scope="session")
def masked() -> Network:
    return make_network()


@pytest.fixture(scope="session")
def open_() -> Network:
    return make_network(release="open")


@pytest.fixture(scope="session")
def make():
    return make_network


@pytest.fixture(scope="session")
def exchange(masked):
    """(start, answers) of the masked study."""
    start = masked.start()
    return start, masked.answers(start)


@pytest.fixture(scope="session")
def open_exchange(open_):
    start = open_.start()
    return start, open_.answers(start)


# --- as files -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def run():
    """A command; what it said, on stderr where it fails with the code."""

    def command(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, result.output + result.stderr
        return result.stdout if code == 0 else result.stderr

    return command


@pytest.fixture(scope="session")
def hospitals(make, tmp_path_factory):
    """Three prepared site folders, keys and a study file, from events as CSV."""
    root = tmp_path_factory.mktemp("hospitals")
    network = make()
    (root / "codes.tsv").write_text("code\n" + "\n".join(network.study.codes.names) + "\n")
    entries = []
    for name, key in network.keys.items():
        write_key(key, root)
        entries.append(roster_entry(key, "hub" if name == "north" else "site"))
    text = "version = 1\nname = 'trial'\n[codes]\nfile = 'codes.tsv'\n"
    (root / "study.toml").write_text(text + "\n".join(entries) + "\n")
    study = Study.load(root / "study.toml")
    for name, matrix in network.sites.items():
        rows, columns = matrix.Z.nonzero()
        events = pd.DataFrame(
            {
                "patient": matrix.patients[rows],
                "date": np.where(rows % 2, "2020-09-01", "2020-01-01"),
                "code": np.array(matrix.codes)[columns],
            }
        )
        events.to_csv(root / f"{name}.csv", index=False)
        prepare(str(root / f"{name}.csv"), study, name, root / name)
    return SimpleNamespace(root=root, study=study, names=list(network.sites))


@pytest.fixture
def here(hospitals, tmp_path, monkeypatch):
    """A working folder that sees the hospitals' files and has logs of its own."""
    for path in hospitals.root.iterdir():
        if path.suffix == ".key":
            (tmp_path / path.name).write_bytes(path.read_bytes())
            (tmp_path / path.name).chmod(0o600)
        elif path.suffix != ".csv":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answered(here, run):
    """A start and all answers, made by the commands."""
    run("start", "north", "--out", "start.daniel")
    for name in ("north", "south", "east"):
        run("answer", name, "start.daniel", "--out", f"{name}.daniel", "--approve", "Ada")
    return here
