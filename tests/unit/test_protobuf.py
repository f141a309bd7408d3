"""The proto3 reader and writer, against a plain one on Python's integers written here."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER
from drupelet.wire import protobuf
from drupelet.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, Reader

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FIELD_MAX = (1 << 29) - 1


def varint(value: int, padding: int = 0) -> bytes:
    """Write an unsigned varint, `padding` bytes longer than need be."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    groups += [0] * padding
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def fields_of(data: bytes, at: int = 0) -> list[tuple[int, int, bytes]]:
    """Read a message that stands behind `at` other bytes; the last entry is 0 or an error."""
    reader = Reader()
    buf = bytes(at) + data + b"\x08\x01"
    reader.open(buf, at, at + len(data))
    found = []
    while (field := reader.next()) > 0:
        found.append((field, reader.kind, buf[reader.start : reader.start + reader.size]))
    assert reader.next() == field, "an end stays an end, an error an error"
    return [*found, (field, 0, b"")]


@st.composite
def fields(draw: st.DrawFn) -> tuple[int, int, bytes, bytes]:
    """Draw a field: number, kind, value, wire."""
    number = draw(st.integers(1, FIELD_MAX) | st.integers(1, 40))
    kind = draw(st.sampled_from([VARINT, FIXED64, BYTES, FIXED32]))
    tag = varint(number << 3 | kind, draw(st.integers(0, 3)))
    if kind == VARINT:
        value = varint(draw(st.integers(0, (1 << 64) - 1)))
    else:
        sizes = {FIXED64: (8, 8), FIXED32: (4, 4), BYTES: (0, 300)}[kind]
        value = draw(st.binary(min_size=sizes[0], max_size=sizes[1]))
    size = varint(len(value), draw(st.integers(0, 3))) if kind == BYTES else b""
    return number, kind, value, tag + size + value


@given(st.lists(fields(), max_size=6), st.integers(0, 3))
def test_every_field_is_found_where_it_is(drawn: list, at: int) -> None:
    data = b"".join(wire for *_, wire in drawn)
    expected = [(number, kind, value) for number, kind, value, _ in drawn]
    assert fields_of(data, at) == [*expected, (0, 0, b"")]


@given(st.lists(fields(), min_size=1, max_size=4), st.data())
def test_a_cut_is_an_error_unless_between_fields(drawn: list, data: st.DataObject) -> None:
    wire = b"".join(wire for *_, wire in drawn)
    ends = {sum(len(w) for *_, w in drawn[:count]) for count in range(len(drawn) + 1)}
    size = data.draw(st.integers(0, len(wire)))
    assert fields_of(wire[:size])[-1][0] == (0 if size in ends else E_PEER)


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\x00\x00", id="field 0"),
        pytest.param(varint((FIELD_MAX + 1) << 3) + b"\x00", id="field 2^29"),
        pytest.param(varint((1 << 64) - 1), id="tag of 64 bits"),
        pytest.param(b"\x0b\x0c", id="group"),
        pytest.param(b"\x0c", id="end of a group"),
        pytest.param(b"\x0e\x00", id="kind 6"),
        pytest.param(b"\x0f\x00", id="kind 7"),
        pytest.param(b"\x08" + b"\xff" * 9 + b"\x02", id="varint of 65 bits"),
        pytest.param(b"\x08" + b"\x80" * 10 + b"\x00", id="varint of 11 bytes"),
        pytest.param(b"\x0a" + varint(3) + b"ab", id="longer than the message"),
        pytest.param(b"\x0a" + varint(1 << 30), id="length 2^30"),
        pytest.param(b"\x0a" + varint((1 << 64) - 1), id="length of 64 bits"),
        pytest.param(b"\x09" + bytes(7), id="7 of 8 bytes"),
        pytest.param(b"\x0d" + bytes(3), id="3 of 4 bytes"),
    ],
)
def test_malformed_is_the_peers_error(wire: bytes) -> None:
    assert fields_of(b"\x10\x05" + wire) == [(2, VARINT, b"\x05"), (E_PEER, 0, b"")]


@given(INT64, st.integers(0, 3), st.integers(0, 4))
@example(0, 0, 0)
@example(-1, 0, 0)
@example(-(1 << 63), 1, 0)
@example((1 << 63) - 1, 1, 0)
def test_int64_between_varint_and_eight_bytes(value: int, at: int, padding: int) -> None:
    eight = bytes(at) + value.to_bytes(8, "little", signed=True)
    wire = varint(value & (1 << 64) - 1)
    assert protobuf.le8_size(eight, at) == len(wire)
    buf = bytearray(b"\xaa" * 16)
    assert protobuf.put_le8(buf, at, eight, at) == at + len(wire)
    assert buf == b"\xaa" * at + wire + b"\xaa" * (16 - at - len(wire))
    padded = varint(value & (1 << 64) - 1, min(padding, 10 - len(wire)))
    out = bytearray(b"\xbb" * 12)
    protobuf.varint_to_le8(bytes(at) + padded, at, at + len(padded), out, at)
    assert out == b"\xbb" * at + eight[at:] + b"\xbb" * (4 - at)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 2))
def test_varints_are_ints_below_2_30(value: int, padding: int) -> None:
    wire = varint(value, min(padding, 10 - len(varint(value))))
    assert protobuf.skip_varint(wire, 0, len(wire)) == len(wire)
    assert protobuf.get_varint(wire, 0, len(wire)) == (value if value < 1 << 30 else -1)


@given(st.integers(0, (1 << 30) - 1), st.integers(1, (1 << 27) - 1), st.binary(max_size=200))
def test_what_is_written_is_minimal(value: int, field: int, data: bytes) -> None:
    buf = bytearray(300)
    end = protobuf.put_varint(buf, 2, value)
    assert buf[2:end] == varint(value) and protobuf.varint_size(value) == end - 2
    end = protobuf.put_bytes(buf, 1, field, b"x" + data, 1, len(data))
    assert buf[1:end] == varint(field << 3 | BYTES) + varint(len(data)) + data
    assert protobuf.bytes_size(field, len(data)) == end - 1


def test_bool_is_any_bit() -> None:
    reader = Reader()
    for wire, expected in (
        (b"\x08\x00", False),
        (b"\x08\x01", True),
        (b"\x08\x80\x00", False),
        (b"\x08\x80\x01", True),
    ):
        reader.open(wire, 0, len(wire))
        assert reader.next() == 1
        assert reader.is_true() is expected
