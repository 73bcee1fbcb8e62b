"""A real Dask cluster: a scheduler and two worker processes of one thread each."""

import os

import numpy as np
import pytest
from distributed import Client, LocalCluster

from daniel.core import place
from daniel.core import records as records_module
from daniel.core.sample import gibbs


@pytest.fixture(scope="session")
def local():
    options = {"dashboard_address": ":0", "processes": True}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        yield cluster


@pytest.fixture
def client(local):
    with Client(local, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture
def kill_one(client):
    """A function that kills a worker process, as a machine that fails would."""
    pids = list(client.run(os.getpid).values())
    return lambda: os.kill(pids[0], 9)


@pytest.fixture(autouse=True)
def worth_the_way(monkeypatch):
    """Small records go to the cluster as large ones do."""
    monkeypatch.setattr(place, "WORTH", 0)
    monkeypatch.setattr(place, "WORTH_ONCE", 0)
    monkeypatch.setattr(records_module, "SMALL_WORK", 0)
    monkeypatch.setattr(records_module, "CHUNK_ROWS", (1, 8192))
    monkeypatch.setattr(records_module, "SPARSE_ROWS", (1, 8192))


@pytest.fixture(scope="session")
def Z():
    """1,500 records of 30 codes in six groups."""
    rng = np.random.default_rng(3)
    U = 0.45 * np.repeat(np.eye(6), 5, axis=0)
    return gibbs(U, rng.permutation(np.linspace(-1.2, -0.2, 30)), 1500, rng)


@pytest.fixture(scope="session")
def sparse_Z():
    """15,000 records of about two of 100 codes in ten groups: sums go through Phi itself."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 10, (15_000, 1))
    chance = np.where(group == np.repeat(np.arange(10), 10), 0.12, 0.01)
    return (rng.random((15_000, 100)) < chance).astype(np.uint8)
