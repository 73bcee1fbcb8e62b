"""How the hub reads answers with noise: what it knows itself stands in for what noise hides."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daniel.core import natural
from daniel.core.noise import noise_level
from daniel.core.records import Records
from daniel.federated.directions import along, directions, matrix_of, norm_of_noise
from daniel.federated.messages import Message


def read(
    mean: natural.Answer,
    answers: Sequence[Message],
    hub: Records,
    start: natural.Start,
    options: natural.Options,
    rng: np.random.Generator,
) -> tuple[natural.Answer, natural.Options]:
    """The mean answer without what is noise, and options that know what is left of it."""
    noise = total_noise(answers)
    if noise == 0:
        return mean, options
    own = natural.answer(hub, start, options)
    Q = directions(start)
    p = start.coords.p
    norm = noise / mean.n * norm_of_noise(p, p if Q is None else Q.shape[1])
    G = (own.G + own.G.T).astype(np.float64) / 2
    if Q is not None:
        G = matrix_of(along(G, Q), Q)
    mean = denoised(steadied(mean, own, noise * start.coords.scale), G, norm)
    # What is left is the hub's own derivative, and no noisier than its records are.
    level = noise_level(hub.counts(), hub.total, start.coords.scale, rng)
    return mean, replace(options, noise=min(norm, level))


def total_noise(answers: Sequence[Message]) -> float:
    """Standard deviation of the noise in the sum of the answers."""
    return float(np.sqrt(sum(answer.manifest.noise**2 for answer in answers)))


def denoised(mean: natural.Answer, own: np.ndarray, noise: float) -> natural.Answer:
    """The mean derivative where it differs from the hub's `own` (p, p) by more than noise.

    Eigenvalues of the difference are lowered by the noise's norm: with much noise the fit stays
    what the hub alone would make of its records, instead of being shrunk to nothing.
    """
    value, vector = np.linalg.eigh(mean.G.astype(np.float64) - own)
    value = np.sign(value) * np.maximum(np.abs(value) - noise, 0)
    return replace(mean, G=(own + (vector * value) @ vector.T).astype(np.float32))


def steadied(mean: natural.Answer, own: natural.Answer, noise: np.ndarray) -> natural.Answer:
    """Counts and derivatives in b with the hub's `own` mixed in, each by its precision.

    noise (p,): standard deviation in the counts, and in the sum of the derivatives in b.  A count c
    of the hub's n records stands for c N/n of all N, with variance (c + 1)(N/n)^2.
    """
    up = mean.n / own.n
    guess, variance = (own.counts + 0.5) * up, (own.counts + 1) * up**2
    trust = variance / (variance + noise**2)
    counts = np.clip(guess + trust * (mean.counts - guess), 0.5, mean.n)
    chance = counts / (mean.n * own.n)  # variance of the hub's derivative in b
    trust = chance / (chance + (noise / mean.n) ** 2)
    return replace(mean, b=own.b + trust * (mean.b - own.b), counts=counts)
