"""The byte helpers: CPython's slices and the bytecode for boards give the same answers."""

import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base import _memory_plain, _memory_slices, memory

IMPLEMENTATIONS = [_memory_slices, _memory_plain]
every = pytest.mark.parametrize("helpers", IMPLEMENTATIONS)

# What the "CRC catalogue" value of a polynomial is taken of.
CHECK = b"123456789"


@every
def test_crc16_is_ccitt_false(helpers: ModuleType) -> None:
    assert helpers.crc16(CHECK, 0, 9, 0xFFFF) == 0x29B1
    assert helpers.crc16(b"", 0, 0, 0xFFFF) == 0xFFFF


@every
@given(st.binary(max_size=200), st.data())
def test_crc16_goes_on_from_any_piece(
    helpers: ModuleType, data: bytes, draw: st.DataObject
) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    first = helpers.crc16(data, 0, cut, 0xFFFF)
    whole = helpers.crc16(data, cut, len(data) - cut, first)
    assert whole == _memory_slices.crc16(data, 0, len(data), 0xFFFF)


@every
@given(st.binary(max_size=200), st.data())
def test_crc32_is_zlibs_in_one_or_two_pieces(
    helpers: ModuleType, data: bytes, draw: st.DataObject
) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    out = bytearray(b"\xaa" * 6)
    helpers.crc32_into(out, 1, data, 0, cut, True)
    helpers.crc32_into(out, 1, data, cut, len(data) - cut, False)
    assert out == b"\xaa" + zlib.crc32(data).to_bytes(4, "little") + b"\xaa"


@every
@given(st.binary(min_size=1, max_size=60), st.data())
def test_copy_moves_overlapping_areas(
    helpers: ModuleType, data: bytes, draw: st.DataObject
) -> None:
    size = draw.draw(st.integers(0, len(data)))
    at = draw.draw(st.integers(0, len(data) - size))
    start = draw.draw(st.integers(0, len(data) - size))
    buf = bytearray(data)
    helpers.copy(buf, at, buf, start, size)
    assert buf == data[:at] + data[start : start + size] + data[at + size :]


@every
@given(st.binary(min_size=1, max_size=40), st.data())
def test_fill_and_equal(helpers: ModuleType, data: bytes, draw: st.DataObject) -> None:
    size = draw.draw(st.integers(0, len(data)))
    at = draw.draw(st.integers(0, len(data) - size))
    buf = bytearray(data)
    helpers.fill(buf, at, size, 0x5A)
    assert buf == data[:at] + b"\x5a" * size + data[at + size :]
    assert helpers.equal(buf, at, b"\x5a" * 41, 1, size) is True
    if size:
        buf[at + size - 1] ^= 1
        assert helpers.equal(buf, at, b"\x5a" * 41, 1, size) is False


@every
@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.lists(st.sampled_from([0, 1]), max_size=60),
    st.lists(st.sampled_from([0, 1]), min_size=6, max_size=6),
)
def test_find_gives_the_first_row(
    helpers: ModuleType, size: int, beyond: int, table: list[int], ids: list[int]
) -> None:
    stride = size + beyond
    count = len(table) // stride
    wanted = ids[1 : 1 + size]
    rows = [table[i * stride : i * stride + size] for i in range(count)]
    expected = rows.index(wanted) if wanted in rows else -1
    assert helpers.find(bytearray(table), stride, count, bytes(ids), 1, size) == expected


@every
def test_outside_a_buffer_is_refused_before_a_byte_moves(helpers: ModuleType) -> None:
    buf = bytearray(8)
    for at, start, size in [(5, 0, 4), (0, 5, 4), (-1, 0, 2), (0, -1, 2), (3, 0, -1)]:
        with pytest.raises(AssertionError):
            helpers.copy(buf, at, b"12345678", start, size)
        with pytest.raises(AssertionError):
            helpers.equal(buf, at, b"12345678", start, size)
    with pytest.raises(AssertionError):
        helpers.find(buf, 4, 3, b"1234", 0, 4)
    with pytest.raises(AssertionError):
        helpers.crc32_into(buf, 5, b"1234", 0, 4, True)
    with pytest.raises(AssertionError):
        helpers.fill(buf, 7, 2, 0)
    assert buf == bytes(8)


@given(st.integers(0, 65535))
def test_u16_both_orders(value: int) -> None:
    buf = bytearray(4)
    memory.put_u16(buf, 1, value)
    assert buf == b"\x00" + value.to_bytes(2, "big") + b"\x00"
    assert memory.get_u16(buf, 1) == value
    memory.put_u16_le(buf, 1, value)
    assert buf == b"\x00" + value.to_bytes(2, "little") + b"\x00"
    assert memory.get_u16_le(buf, 1) == value


@given(st.integers(0, 2**32 - 1))
def test_u32_both_orders(value: int) -> None:
    buf = bytearray(6)
    memory.put_u32(buf, 1, value)
    assert buf == b"\x00" + value.to_bytes(4, "big") + b"\x00"
    assert memory.get_u32(buf, 1) == value
    memory.put_u32_le(buf, 1, value)
    assert buf == b"\x00" + value.to_bytes(4, "little") + b"\x00"
    assert memory.get_u32_le(buf, 1) == value


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**29 - 1))
def test_u48_counter_adds_modulo(start: int, amount: int) -> None:
    buf = bytearray(b"\xee" + start.to_bytes(6, "little") + b"\xee")
    memory.add_u48_le(buf, 1, amount)
    assert buf == b"\xee" + ((start + amount) % 2**48).to_bytes(6, "little") + b"\xee"
