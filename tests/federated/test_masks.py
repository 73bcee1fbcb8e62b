"""Masks: the sum is exact, and a single masked vector is noise."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from daniel.errors import ParameterError
from daniel.federated.keys import make_key
from daniel.federated.masks import CHUNK, LARGEST, add_masks, decode, encode

CONTEXT = ["study", 1, 1, "start"]


def roster(m):
    keys = [make_key(f"site {i}") for i in range(m)]
    return keys, [key.public() for key in keys]


@pytest.mark.parametrize("m", [3, 5])
def test_the_masked_sum_is_the_plain_sum(m):
    rng = np.random.default_rng(m)
    values = rng.standard_normal((m, CHUNK + 3)) * 10.0 ** rng.integers(-3, 6, CHUNK + 3)
    keys, sites = roster(m)
    total = np.zeros(CHUNK + 3, dtype=np.uint64)
    for key, v in zip(keys, values, strict=True):
        words = encode(v, m)
        add_masks(words, key, sites, CONTEXT)
        total += words
    plain = values.sum(axis=0)
    assert np.abs(decode(total) - plain).max() <= m * 2.0**-33 + 1e-15 * np.abs(plain).max()
    assert np.linalg.norm(decode(total) - plain) < 1e-9 * np.linalg.norm(plain)


def test_a_single_masked_answer_is_noise():
    keys, sites = roster(3)
    words = encode(np.zeros(200_000), 3)
    add_masks(words, keys[0], sites, CONTEXT)
    octets = np.bincount(words.view(np.uint8), minlength=256)
    assert chisquare(octets).pvalue > 1e-6
    assert kstest(words / 2.0**64, "uniform").pvalue > 1e-6
    plain = encode(np.zeros(200_000), 3)
    assert chisquare(np.bincount(plain.view(np.uint8), minlength=256)).pvalue < 1e-6


def test_the_stream_is_what_the_format_says():
    """x25519, HKDF-SHA256 and AES-256-CTR, written out as docs/format.md has it."""
    (a, b), sites = roster(2)
    words = encode(np.zeros(5), 2)
    add_masks(words, a, sites, CONTEXT)
    secret = b.masking.exchange(
        X25519PublicKey.from_public_bytes(bytes.fromhex(sites[0].masking_key))
    )
    info = b'["daniel mask 1",["study",1,1,"start"],"site 0","site 1"]'
    key = HKDF(SHA256(), 32, None, info).derive(secret)
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(40))
    assert words.tolist() == np.frombuffer(stream, "<u8").tolist()


@pytest.mark.parametrize("other", [["other", 1, 1, "start"], ["study", 2, 1, "start"]])
def test_another_study_or_epoch_has_other_masks(other):
    keys, sites = roster(3)
    first, second = encode(np.zeros(50), 3), encode(np.zeros(50), 3)
    add_masks(first, keys[0], sites, CONTEXT)
    add_masks(second, keys[0], sites, other)
    assert not (first == second).any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_fixed_point_keeps_nine_digits(values):
    values = np.array(values)
    back = decode(encode(values, 3))
    assert np.abs(back - values).max() <= max(2.0**-33, 1e-9 * np.abs(values).max())


@pytest.mark.parametrize("value", [LARGEST / 3, -LARGEST / 3, np.nan, np.inf])
def test_what_could_overflow_is_refused(value):
    with pytest.raises(ParameterError, match="masked"):
        encode(np.array([0.0, value]), 3)
    assert decode(encode(np.array([LARGEST / 3 - 1]), 3)) == LARGEST / 3 - 1


def test_a_roster_without_keys_is_refused():
    keys, sites = roster(3)
    for wrong in (None, "00" * 32):
        bad = [sites[0], replace(sites[1], masking_key=wrong), sites[2]]
        with pytest.raises(ParameterError, match="site 1"):
            add_masks(encode(np.zeros(3), 3), keys[0], bad, CONTEXT)
