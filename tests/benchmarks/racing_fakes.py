"""Methods that the tests of the runner race, in processes of their own."""

import time

import numpy as np

from benchmarks.methods.result import Result


def run(problem, rng, *, what, log=None):
    if log is not None and problem.name != "tiny":
        with open(log, "a") as file:
            file.write("ran\n")
    if problem.name != "tiny":  # the call that counts
        if what == "fails":
            raise ValueError("no such luck\nand more lines")
        if what == "sleeps":
            time.sleep(60)
        if what == "hungry":
            np.ones(40_000_000).sum()
    return Result(np.eye(problem.Z.shape[1]), None, bytes_sent=7, rounds=3)
