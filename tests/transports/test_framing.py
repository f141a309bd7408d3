"""COBS frames: examples, round trips, and what noise may cost."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import PeerError
from drupelet_transports.common.cobs import cobs_decode, cobs_encode
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max
from published import COBS_DAMAGED, COBS_PAIRS

# Runs of zeros and of full blocks are where stuffing goes wrong.
stretch = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 3).map(bytes),
    st.integers(250, 258).map(lambda size: b"\x07" * size),
    st.just(b"\x07" * 508),
)
stuffable = st.lists(stretch, max_size=4).map(b"".join)
frames = stuffable.filter(lambda data: 0 < len(data) <= 1024)


def encode(frame: bytes) -> bytes:
    out = bytearray(wire_size_max(len(frame)))
    return bytes(out[: encode_into(out, frame, len(frame))])


def decode_all(decoder: Decoder, stream: bytes, piece_size: int = 64) -> list[bytes]:
    """Feed in pieces as a UART gives them; return the frames."""
    found = []
    for begin in range(0, len(stream), piece_size):
        rx = bytearray(stream[begin : begin + piece_size])
        at = 0
        while at < len(rx):
            before = at
            at = decoder.feed(rx, at, len(rx))
            assert at > before
            if decoder.size:
                found.append(bytes(decoder.frame[: decoder.size]))
    return found


def test_examples_of_every_edge_of_a_block() -> None:
    for data, wire in COBS_PAIRS:
        assert cobs_encode(data) == wire
        assert cobs_decode(wire) == data


@pytest.mark.parametrize("wire", COBS_DAMAGED, ids=range(len(COBS_DAMAGED)))
def test_damage_is_refused(wire: bytes) -> None:
    with pytest.raises(PeerError):
        cobs_decode(wire)


@given(stuffable)
def test_cobs_round_trip_has_no_zero_and_little_overhead(data: bytes) -> None:
    wire = cobs_encode(data)
    assert 0 not in wire
    assert len(data) < len(wire) <= len(data) + 1 + len(data) // 254
    assert cobs_decode(wire) == data


@given(st.lists(frames, max_size=4), st.integers(1, 300))
def test_frames_come_back_in_any_pieces(sent: list[bytes], piece_size: int) -> None:
    decoder = Decoder(1024)
    assert decode_all(decoder, b"".join(map(encode, sent)), piece_size) == sent
    assert decoder.damaged == 0


@given(frames)
def test_wire_size_is_what_crossed_the_line(frame: bytes) -> None:
    wire = encode(frame)
    assert len(wire) <= wire_size_max(len(frame))
    decoder = Decoder(1024)
    assert decode_all(decoder, b"\x00\x00" + wire) == [frame]
    assert decoder.wire_size == len(wire)


def test_the_crc_is_ccitt_false_big_endian() -> None:
    # 0x29B1 is the published check value of "123456789".
    assert encode(b"123456789").hex() == "0c" + b"123456789".hex() + "29b1" + "00"


@given(frames, frames, st.data())
def test_one_flipped_bit_costs_at_most_the_frames_it_touches(
    first: bytes, second: bytes, draw: st.DataObject
) -> None:
    wire = bytearray(encode(first))
    bit = draw.draw(st.integers(0, len(wire) * 8 - 1))
    wire[bit // 8] ^= 1 << bit % 8
    decoder = Decoder(1024)
    found = decode_all(decoder, bytes(wire) + encode(second) + encode(b"third"))
    assert found[-1] == b"third"
    assert first not in found[:-1] or first == second
    # The delimiter is the last byte: without it both frames become one.
    assert (bit // 8 == len(wire) - 1) or found == [second, b"third"]
    assert decoder.damaged >= 1


@given(st.binary(max_size=3000), frames)
def test_after_any_noise_the_next_but_one_frame_arrives(noise: bytes, frame: bytes) -> None:
    decoder = Decoder(1024)
    found = decode_all(decoder, noise + encode(b"lost perhaps") + encode(frame))
    assert found[-1] == frame


def test_half_a_frame_and_a_lost_delimiter_cost_one_frame_each() -> None:
    decoder = Decoder(64)
    first, second, third = encode(b"first"), encode(b"second"), encode(b"third")
    assert decode_all(decoder, first[:4] + b"\x00" + second) == [b"second"]
    assert decoder.damaged == 1
    assert decode_all(decoder, first[:-1] + second + third) == [b"third"]
    assert decoder.damaged == 2


def test_longer_than_any_frame_is_dropped_up_to_the_delimiter() -> None:
    decoder = Decoder(64)
    buffers = len(decoder.frame)
    stuck = b"\x55" * 100_000
    assert decode_all(decoder, stuck + encode(b"x" * 65) + encode(b"y" * 64)) == [b"y" * 64]
    assert decoder.damaged == 1  # what had no delimiter is one with the frame behind it
    assert decode_all(decoder, encode(b"x" * 65) + encode(b"y")) == [b"y"]
    assert decoder.damaged == 2
    assert len(decoder.frame) == buffers


def test_noise_is_hardly_ever_a_frame() -> None:
    random = Random(20261121)
    decoder = Decoder(1024)
    found = decode_all(decoder, random.randbytes(400_000))
    # A CRC of 16 bits lets one in 65,536 pass; about 1,500 candidates stand here.
    assert len(found) <= 1
    assert decoder.damaged > 1000
