"""BLAKE2s and the ids made of it, against hashlib, the published answers and a BSP peer."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base import _blake2s, _blake2s_hashlib
from drupelet.base.hashes import MessageHash, group_id_into
from published import VECTORS, blake2s_answers

# On CPython the class for boards runs on its halves: there is no viper.
CLASSES = [_blake2s_hashlib.Blake2s, _blake2s.Blake2s]
every = pytest.mark.parametrize("blake2s", CLASSES)
Kind = type[_blake2s.Blake2s]


def digest_of(blake2s: Kind, pieces: list[bytes], key: bytes | None = None) -> bytes:
    made = blake2s()
    made.start(b"k" * 32)  # a life before, cut off: nothing of it may stay
    made.update(b"old" * 30, 0, 90)
    made.start(key)
    for piece in pieces:
        made.update(b"<" + piece + b">", 1, len(piece))
    out = bytearray(b"\xaa" * 34)
    made.digest_into(out, 1)
    assert out[0] == out[33] == 0xAA
    return bytes(out[1:33])


@every
def test_published_keyed_answers(blake2s: Kind) -> None:
    answers = blake2s_answers()
    assert len(answers) == 256
    for data, key, expected in answers:
        assert digest_of(blake2s, [data], key) == expected


@every
def test_rfc_7693_appendix_b(blake2s: Kind) -> None:
    assert digest_of(blake2s, [b"abc"]).hex() == (
        "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"
    )


@given(st.lists(st.binary(max_size=150), max_size=4), st.binary(max_size=32))
def test_halves_equal_hashlib_for_any_pieces_and_key(pieces: list[bytes], key: bytes) -> None:
    expected = hashlib.blake2s(b"".join(pieces), key=key).digest()
    assert digest_of(_blake2s.Blake2s, pieces, key) == expected
    assert digest_of(_blake2s_hashlib.Blake2s, pieces, key) == expected


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 129, 65536 + 7])
def test_halves_at_block_edges_and_past_a_16_bit_count(size: int) -> None:
    data = bytes(i * 7 & 255 for i in range(size))
    assert digest_of(_blake2s.Blake2s, [data]) == hashlib.blake2s(data).digest()


def test_group_ids_of_a_bsp_peer() -> None:
    path = VECTORS / "bsp/bsp_briar_hist_2016-11_blake2s_plainlabel.json"
    groups = [
        group
        for group in json.loads(path.read_text())["groups"]
        if len(group["client_id"]) == 2 * 32
    ]
    assert len(groups) >= 5
    for group in groups:
        descriptor = bytes.fromhex(group["descriptor"])
        out = bytearray(32)
        group_id_into(out, bytes.fromhex(group["client_id"]), descriptor + b"x", len(descriptor))
        assert out.hex() == group["group_id"]


def reference(*arguments: bytes) -> bytes:
    """BSP v1 section 1.3, straight from the text."""
    joined = b"".join(len(x).to_bytes(4, "big") + x for x in arguments)
    return hashlib.blake2s(joined).digest()


@given(st.binary(max_size=400), st.integers(1, 100), st.integers(0, 2**63 - 1))
def test_message_id_in_any_pieces(body: bytes, piece_size: int, timestamp_ms: int) -> None:
    group_id = hashlib.sha256(body).digest()
    timestamp = timestamp_ms.to_bytes(8, "big")
    made = MessageHash()
    made.start(b"gg" + group_id, 2, b"t" + timestamp, 1, len(body))
    for at in range(0, len(body), piece_size):
        made.update(body, at, min(piece_size, len(body) - at))
    out = bytearray(32)
    made.digest_into(out, 0)
    assert out == reference(b"MESSAGE_ID", group_id, timestamp, body)
