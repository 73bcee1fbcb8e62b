"""A small study of three sites, with keys, records and the messages of one exchange."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.core.sample import gibbs
from daniel.federated import protocol
from daniel.federated.keys import SiteKey, make_key
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
