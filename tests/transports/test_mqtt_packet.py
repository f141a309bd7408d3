"""Bounded MQTT 3.1.1 packets: bytes of the standard, any cut of the stream, any length claim."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet_transports.board.mqtt_packet import (
    DISCONNECT,
    PINGREQ,
    PacketReader,
    connect_into,
    payload_start,
    publish_into,
    short_into,
    subscribe_into,
)


def remaining(size: int) -> bytes:
    out = bytearray()
    while True:
        size, low = divmod(size, 128)
        out.append(low | (128 if size else 0))
        if not size:
            return bytes(out)


def read_all(reader: PacketReader, stream: bytes, piece: int) -> list[tuple[int, bytes, int]]:
    found = []
    for start in range(0, len(stream), piece):
        chunk = bytearray(stream[start : start + piece])
        at = 0
        while at < len(chunk) and not reader.broken:
            at = reader.feed(chunk, at, len(chunk))
            if reader.ready:
                found.append((reader.kind, bytes(reader.body[: reader.size]), reader.wire_size))
                reader.release()
    return found


def test_packets_of_the_standard() -> None:
    out = bytearray(64)
    size = connect_into(out, b"d1", 60)
    assert out[:size] == b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02d1"
    size = subscribe_into(out, 1, b"a/+")
    assert out[:size] == b"\x82\x08\x00\x01\x00\x03a/+\x00"
    size = publish_into(out, b"a/b", b"hello", 4)
    assert out[:size] == b"\x30\x09\x00\x03a/bhell"
    assert out[: short_into(out, PINGREQ)] == b"\xc0\x00"
    assert out[: short_into(out, DISCONNECT)] == b"\xe0\x00"


@given(st.binary(max_size=1100), st.integers(1, 40))
def test_publish_round_trip(payload: bytes, topic_size: int) -> None:
    out = bytearray(1200)
    topic = b"t" * topic_size
    size = publish_into(out, topic, payload, len(payload))
    reader = PacketReader(1150)
    ((kind, body, wire_size),) = read_all(reader, bytes(out[:size]), 64)
    assert (kind, wire_size) == (0x30, size)
    start = payload_start(bytearray(body), len(body))
    assert body[start:] == payload


packets = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=12)


@given(packets, st.integers(1, 70))
def test_a_stream_may_come_in_any_pieces(sent: list[tuple[int, bytes]], piece: int) -> None:
    reader = PacketReader(200)
    stream = b"".join(bytes([kind]) + remaining(len(body)) + body for kind, body in sent)
    found = read_all(reader, stream, piece)
    kept = [(kind, body) for kind, body in sent if len(body) <= 200]
    assert [(kind, body) for kind, body, _ in found] == kept
    assert reader.skipped == len(sent) - len(kept)
    assert len(reader.body) == 200


@given(st.binary(max_size=600), st.integers(1, 70))
def test_any_bytes_are_survived(noise: bytes, piece: int) -> None:
    reader = PacketReader(64)
    for _, body, _ in read_all(reader, noise, piece):
        start = payload_start(bytearray(body), len(body))
        assert start == -1 or 2 <= start <= len(body)
    assert len(reader.body) == 64


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_longer_than_the_buffer_is_read_past(size: int) -> None:
    reader = PacketReader(100)
    stream = b"\x30" + remaining(size) + bytes(size) + b"\xd0\x00"
    assert read_all(reader, stream, 4096) == [(0xD0, b"", 2)]
    assert reader.skipped == 1


def test_five_length_bytes_break_the_stream_for_good() -> None:
    reader = PacketReader(100)
    assert read_all(reader, b"\x30\x80\x80\x80\x80\x01\xd0\x00", 3) == []
    assert reader.broken
    reader.reset()
    assert read_all(reader, b"\x30\x80\x80\x80\x00\xd0\x00", 3) == [(0x30, b"", 5), (0xD0, b"", 2)]


def test_a_topic_longer_than_its_packet() -> None:
    for body in (b"", b"\x00", b"\x00\x01", struct.pack(">H", 65535) + b"t"):
        assert payload_start(bytearray(body), len(body)) == -1
    assert payload_start(bytearray(b"\x00\x01t"), 3) == 3
