"""Messages: one valid form, and a thousand wrong ones that are refused."""

import hashlib
import json
import random
import tracemalloc
from dataclasses import asdict, replace

import numpy as np
import pytest
from safetensors.numpy import load

from daniel.errors import DanielError, FormatError
from daniel.federated import messages, protocol
from daniel.federated.answers import read_answer
from daniel.federated.container import MAX_HEADER, canonical, pack, unpack
from daniel.federated.keys import make_key
from daniel.federated.messages import ANSWER, START
from daniel.federated.sealed import seal, unseal


def header_of(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(header, rest):
    text = header if isinstance(header, bytes) else canonical(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + rest


def refused(data, masked, kind=ANSWER):
    """The sentence with which a message is refused."""
    with pytest.raises(FormatError) as error:
        messages.verify(messages.read(data), masked.study, kind)
    text = str(error.value)
    assert "\n" not in text and text.endswith(".")
    return text


def test_any_safetensors_library_reads_a_message(exchange):
    for data in (exchange[0], exchange[1][0]):
        arrays = load(data)
        own = messages.read(data).arrays
        assert arrays.keys() == own.keys()
        for name, values in arrays.items():
            assert values.dtype == own[name].dtype
            np.testing.assert_array_equal(values, own[name])


def test_the_manifest_says_where_a_message_comes_from(masked, exchange):
    start, answers = exchange
    m = messages.read(answers[1]).manifest
    assert (m.kind, m.site, m.role, m.study) == (ANSWER, "south", "site", masked.study.hash)
    assert m.start == hashlib.sha256(start).hexdigest()
    assert m.records == 400
    text = header_of(answers[1])[0]["__metadata__"]["daniel"]
    assert canonical(json.loads(text)).decode() == text


def test_thousand_mutations_are_refused(masked, exchange):
    """Bit flips, cut and longer files, changed manifests: one sentence each, little memory."""
    start, answers = exchange
    rng = random.Random(0)
    opening = protocol.read_start(start, masked.study)
    sentences = set()
    tracemalloc.start()
    for i in range(1000):
        whole = answers[i % 3] if i % 4 else start
        data = whole
        while data == whole:
            data = mutate(rng, whole)
        with pytest.raises(DanielError) as error:
            if i % 4:
                read_answer(data, masked.study, opening)
            else:
                protocol.read_start(data, masked.study)
        sentences.add(str(error.value))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * max(map(len, answers)) + 8 * MAX_HEADER
    assert all("\n" not in s and s.endswith(".") for s in sentences)
    assert len(sentences) >= 5


def mutate(rng, data):
    kind = rng.randrange(6)
    if kind == 0:  # one bit anywhere
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 1:  # one bit in the header, where meaning is
        at = rng.randrange(min(len(data), 1200))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 2:
        return data[: rng.randrange(len(data))]
    if kind == 3:
        return data + bytes(rng.randrange(1, 100))
    header, rest = header_of(data)
    manifest = json.loads(header["__metadata__"]["daniel"])
    name = rng.choice([*manifest])
    manifest[name] = rng.choice(["west", "hub", -1, 0, 2, 10**30, None, [], {}, 1.5, "x" * 600])
    if kind == 4:
        manifest["site"] = rng.choice(["north", "south", "east", "west"])
        manifest["created"] = "2020-01-01T00:00:00+00:00"
    header["__metadata__"]["daniel"] = canonical(manifest).decode()
    return with_header(header, rest)


HOSTILE = [
    b"",
    b"\0" * 7,
    (1 << 62).to_bytes(8, "little") + b"{}",
    (MAX_HEADER + 8).to_bytes(8, "little") + b" " * (MAX_HEADER + 8),
    with_header(b"[" * 100_000, b""),
    with_header(b'{"__metadata__":' * 5_000, b""),
    with_header(b'{"__metadata__":{},"a":{"dtype":"F32","shape":[' + b"9" * 5_000 + b"]}}", b""),
    with_header({"__metadata__": {}, "a": {"dtype": "F64", "shape": [1 << 39, 1 << 39]}}, b""),
    with_header({"__metadata__": {}, "a": {"dtype": "F64", "shape": [-1]}}, b""),
    with_header({"__metadata__": {}, "a": {"dtype": "O", "shape": [1]}}, b"12345678"),
    with_header({"__metadata__": {"daniel": "{}"}}, b""),
    with_header({"__metadata__": {"daniel": 3}}, b""),
    with_header(b"\xff\xfe{}", b""),
    with_header(b"NaN", b""),
    with_header(b"null", b""),
    with_header(b"[]", b""),
    b"\x80\x04cos\nsystem\n(S'true'\ntR.",  # a pickle
    b"daniel sealed 1\n" + b"\0" * 10,
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_are_refused(data, masked):
    refused(data, masked)


def test_a_blank_in_the_header_is_refused(masked, exchange):
    header, rest = header_of(exchange[1][0])
    assert with_header(header, rest) == exchange[1][0]
    refused(with_header(json.dumps(header).encode(), rest), masked)
    text = canonical(header)
    doubled = text[:-1] + b',"absent":' + canonical(header["absent"]) + b"}"
    refused(with_header(doubled, rest), masked)


def resigned(data, key, **changes):
    """The same message with other words in its manifest, signed by `key`."""
    message = messages.read(data)
    return messages.write(replace(message.manifest, **changes), message.arrays, key)


def test_each_wrong_claim_has_its_sentence(masked, exchange):
    answer, keys = exchange[1][1], masked.keys
    assert "signature" in refused(resigned(answer, keys["east"]), masked)
    assert "no site" in _said(resigned(answer, make_key("west"), site="west"), masked)
    assert "role" in refused(resigned(answer, keys["south"], role="hub"), masked)
    assert "another study" in refused(resigned(answer, keys["south"], study="0" * 64), masked)
    for change in ({"epoch": 2}, {"round": 2}, {"floor": 1}, {"codes": 21}, {"clip": 1.0}):
        text = refused(resigned(answer, keys["south"], **change), masked)
        assert "other terms" in text or "must hold" in text
    assert "format 3" in refused(_with_format(answer, 3), masked)
    assert "lacks" in refused(_with_format(answer, 2), masked)  # that of sketches
    assert "manifest" in refused(resigned(answer, keys["south"], created="\x1b[2Jnow"), masked)
    assert "a start was expected" in refused(answer, masked, START)
    assert "an answer was expected" in refused(exchange[0], masked)


def _said(data, masked):
    with pytest.raises(DanielError) as error:
        messages.verify(messages.read(data), masked.study, ANSWER)
    return str(error.value)


def _with_format(data, version):
    header, rest = header_of(data)
    manifest = json.loads(header["__metadata__"]["daniel"]) | {"format": version}
    header["__metadata__"]["daniel"] = canonical(manifest).decode()
    return with_header(header, rest)


def test_a_start_of_a_site_that_is_not_the_hub_is_refused(masked, exchange):
    text = refused(
        resigned(exchange[0], masked.keys["south"], site="south", role="site"), masked, START
    )
    assert "only the hub" in text


@pytest.mark.parametrize("name,value", [("scale", 0.0), ("scale", np.nan), ("signs", 0.5)])
def test_numbers_that_cannot_be_are_refused(masked, exchange, name, value):
    message = messages.read(exchange[0])
    arrays = {k: v.copy() for k, v in message.arrays.items()}
    arrays[name][0] = value
    data = messages.write(message.manifest, arrays, masked.keys["north"])
    assert "cannot be" in refused(data, masked, START)


def test_sealed_messages_open_with_the_hubs_key_only(masked, exchange):
    data = exchange[1][1]
    closed = seal(data, masked.study.sites[0])
    assert data not in closed and closed != seal(data, masked.study.sites[0])
    assert unseal(closed, masked.keys["north"]) == data
    assert unseal(data, masked.keys["north"]) == data
    with pytest.raises(FormatError, match="sealed for another site"):
        unseal(closed, masked.keys["east"])
    for at in (20, 60, len(closed) - 1):
        flipped = closed[:at] + bytes([closed[at] ^ 1]) + closed[at + 1 :]
        with pytest.raises(FormatError, match="damaged"):
            unseal(flipped, masked.keys["north"])


def test_container_round_trip():
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(0)}
    metadata, back = unpack(pack(arrays, {"k": "v"}))
    assert metadata == {"k": "v"}
    assert all(
        np.array_equal(back[k], arrays[k]) and back[k].shape == arrays[k].shape for k in arrays
    )


@pytest.mark.parametrize("count,told", [(0, 0), (7, 0), (57, 50), (99, 90), (4349, 4300)])
def test_counts_are_told_to_two_digits(count, told):
    assert messages.rounded(count) == told


def test_the_size_of_a_message_is_known_beforehand(masked, exchange):
    limit = messages.largest(len(masked.study.codes.names))
    assert max(map(len, [exchange[0], *exchange[1]])) <= limit
    assert messages.largest(2142) < 30e6
    assert set(asdict(messages.read(exchange[0]).manifest)) >= {"epsilon", "delta", "noise"}
