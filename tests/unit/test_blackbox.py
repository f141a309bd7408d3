"""The black box against a reader that knows only the drawn bytes (struct and zlib)."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base import events as recorded
from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE, COUNTERS_MAX, EVENTS_PER_BLOCK
from drupelet.telemetry.black_box import BlackBox

MODULUS = 1 << 30
DEVICE = bytes.fromhex("a1b2c3d4")
# As docs/SPEC.md 6.3 has them: 18 common ones, then 32 of each carrier, UDP the fourth.
COUNTERS = [*range(18), *range(64, 64 + 4 * 32)]


def read_header(data: bytes) -> dict[str, int | bytes]:
    magic, version, flags, boot, device, number, low, high, uncertainty, crc = struct.unpack(
        "<4sBBH8sIIHHI", data
    )
    assert (magic, version) == (b"DRBX", 1)
    assert crc == zlib.crc32(data[:28])
    wall = high << 32 | low
    return {
        "flags": flags, "boot": boot, "device": device, "number": number, "wall": wall,
        "uncertainty": uncertainty,
    }  # fmt: skip


def read_block(data: bytes) -> tuple[int, int, int, list[tuple[int, int, int, int, int]]]:
    magic, count, number, boot, low, high, crc = struct.unpack("<BBHHIHI", data[:16])
    assert magic == 0xB1 and len(data) == 512
    assert crc == zlib.crc32(data[:12] + bytes(4) + data[16:])
    assert not any(data[16 + 12 * count :])
    events = [struct.unpack_from("<IBBHI", data, 16 + 12 * i) for i in range(count)]
    return number, boot, high << 32 | low, events


class Owner:
    """Takes finished blocks and puts the segments together, as a node does."""

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        self.segments: list[bytes] = []
        self._part = b""

    def take(self) -> None:
        while self.box.ready:
            self._part += (bytes(self.box.header) if self.box.starts else b"") + self.box.block
            ends = self.box.ends
            self.box.take()
            if ends:
                self.close()

    def close(self) -> None:
        self.segments.append(self._part)
        self._part = b""

    def finish(self, now_ms: int) -> None:
        while not self.box.flush_counters(now_ms):
            self.take()
        self.take()
        assert self.box.finish()
        self.take()
        if self._part:
            self.close()

    def events(self) -> list[tuple[int, int, int, int, int]]:
        """(ms since boot, code, a, b, c) of everything, numbers checked on the way."""
        out = []
        for number, segment in enumerate(self.segments):
            assert read_header(segment[:BOX_HEADER_SIZE])["number"] == number
            for index, at in enumerate(range(BOX_HEADER_SIZE, len(segment), BLOCK_SIZE)):
                block, boot, t0, events = read_block(segment[at : at + BLOCK_SIZE])
                assert (block, boot) == (index, self.box.boot)
                out += [(t0 + event[0], *event[1:]) for event in events]
        return out


def test_every_event_comes_back() -> None:
    box = BlackBox(DEVICE, 513, blocks=2)
    owner = Owner(box)
    said = []
    for i in range(500):
        box.log(i * 10, 30 + i % 5, i & 255, i * 100 & 0xFFFF, i * 7 & 0xFFFF, i * 13 & 0xFFFF)
        said.append((i * 10, 30 + i % 5, i & 255, i * 100 & 0xFFFF, (i * 7 << 16) | i * 13))
        owner.take()
    owner.finish(5000)
    assert owner.events() == said
    assert box.lost == 0
    assert [len(segment) for segment in owner.segments[:-1]] == [32 + 1024] * 6
    header = read_header(owner.segments[0][:32])
    assert header["device"] == DEVICE + bytes(4) and header["boot"] == 513
    assert (header["flags"], header["wall"], header["uncertainty"]) == (0, 0, 65535)


def test_a_drawn_block() -> None:
    """The vector of docs/SPEC.md."""
    box = BlackBox(DEVICE, 7)
    box.wall(1000, (1_700_000_000_000).to_bytes(6, "little"), 3)
    box.state(1000, recorded.STATE_IDLE)
    box.log_id(1250, recorded.CODE_CREATED, 0, 0, bytes.fromhex("0011223344"), 1)
    box.count(recorded.COUNT_CREATED, 1)
    assert box.flush_counters(1300) and box.finish() and box.ready and box.starts and box.ends
    assert box.header.hex() == (
        "44524258" "01" "01" "0700" "a1b2c3d400000000" "00000000" "0068e5cf8b01" "0300" "445ce19c"
    )  # fmt: skip
    assert box.block[:64].hex() == (
        "b1" "04" "0000" "0700" "000000000000" "07f49934"
        "00000000" "01" "02" "0000" "00000000"
        "fa000000" "0a" "00" "0000" "44332211"
        "2c010000" "28" "02" "0000" "2c010000"
        "2c010000" "28" "0a" "0000" "01000000"
    )  # fmt: skip
    assert not any(box.block[64:])


def test_time_in_power_states_adds_up_across_the_wrap_of_now() -> None:
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    now_ms = MODULUS - 1_000_000
    spent = [0] * 8
    box.state(now_ms, 0)
    elapsed_total = 0
    for i in range(1, 3000):
        step = 900_000 + i
        elapsed_total += step
        spent[(i - 1) % 7] += step
        now_ms = (now_ms + step) % MODULUS
        box.state(now_ms, i % 7)
        owner.take()
    owner.finish(now_ms)
    assert elapsed_total > 2 * MODULUS
    counters = {e[2]: e[3] << 32 | e[4] for e in owner.events() if e[1] == recorded.CODE_COUNTER}
    assert counters == {state: spent[state] for state in range(7)}
    assert owner.events()[-1][0] == elapsed_total, "48 bits of ms since boot"


def test_a_long_silence_opens_a_new_block() -> None:
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    now_ms = 0
    for day in range(20):
        box.log(now_ms, 30, day, 0, 0, 0)
        for _ in range(2):
            now_ms = (now_ms + 43_200_000) % MODULUS
            box.state(now_ms, 2)
        owner.take()
    owner.finish(now_ms)
    heap = [event for event in owner.events() if event[1] == 30]
    assert [event[0] for event in heap] == [day * 86_400_000 for day in range(20)]


def test_the_wall_anchor_is_that_of_the_segments_first_block() -> None:
    box = BlackBox(DEVICE, 1, blocks=1)
    owner = Owner(box)
    wall_ms = (1 << 40) + 12345
    box.log(500, 30, 0, 0, 0, 0)
    box.wall(900, wall_ms.to_bytes(6, "little"), 7)
    box.finish()
    owner.take()
    box.log(5000, 30, 0, 0, 0, 0)
    box.finish()
    owner.take()
    first, second = (read_header(segment[:32]) for segment in owner.segments)
    assert (first["wall"], first["flags"], first["uncertainty"]) == (wall_ms - 400, 1, 7)
    assert second["wall"] == wall_ms - 900 + 5000


def test_events_are_refused_and_counted_while_blocks_wait() -> None:
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    for i in range(2 * EVENTS_PER_BLOCK + 9):
        box.log(i, 30, i & 255, 0, 0, 0)
    assert box.lost == 9 and box.ready and not box.finish()
    assert not box.flush_counters(100), "the counter waits, too"
    owner.take()
    assert box.flush_counters(100)
    owner.finish(100)
    events = owner.events()
    assert len([event for event in events if event[1] == 30]) == 2 * EVENTS_PER_BLOCK
    assert (100, recorded.CODE_COUNTER, recorded.COUNT_LOST, 0, 9) in events


def test_counters_are_written_only_when_they_changed() -> None:
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    assert len(COUNTERS) == COUNTERS_MAX
    for index in COUNTERS:
        box.count(index, index)
    for _ in range(9):
        box.count(64, (1 << 29) - 1)
    while not box.flush_counters(0):
        owner.take()
    assert box.flush_counters(0)
    box.count(70, 5)
    owner.finish(0)
    values = [(event[2], event[3] << 32 | event[4]) for event in owner.events()]
    expected = [(index, index) for index in COUNTERS[1:]] + [(70, 75)]
    expected[COUNTERS.index(64) - 1] = (64, 64 + 9 * ((1 << 29) - 1))
    assert values == expected


def test_a_clock_that_goes_back_adds_nothing() -> None:
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    for now_ms in (1000, 1500, 1400, 1450, 1500, 1600):
        box.log(now_ms, 30, 0, 0, 0, 0)
    owner.finish(1600)
    assert [event[0] for event in owner.events()] == [0, 500, 500, 500, 500, 600]


def test_finish_between_blocks_ends_the_segment() -> None:
    box = BlackBox(DEVICE, 1, blocks=4)
    owner = Owner(box)
    for i in range(EVENTS_PER_BLOCK):
        box.log(i, 30, 0, 0, 0, 0)
    owner.take()
    owner.finish(50)
    owner.finish(50)
    assert len(owner.segments) == 1 and len(owner.segments[0]) == 32 + 512
    box.log(60, 31, 0, 0, 0, 0)
    owner.finish(60)
    assert read_header(owner.segments[1][:32])["number"] == 1
    assert owner.events()[-1][:2] == (60, 31)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 200_000_000), st.integers(0, 255), st.booleans()), max_size=200
    ),
    blocks=st.integers(1, 8),
    start=st.integers(0, MODULUS - 1),
)
def test_nothing_is_lost_in_silence(
    steps: list[tuple[int, int, bool]], blocks: int, start: int
) -> None:
    box = BlackBox(DEVICE, 1, blocks=blocks)
    owner = Owner(box)
    now_ms = start
    total = 0
    kept = []
    for step, a, take in steps:
        if kept or box.lost:
            now_ms = (now_ms + step) % MODULUS
            total += step
        lost = box.lost
        box.log(now_ms, 33, a, 0, 0, 0)
        if box.lost == lost:
            kept.append((total, a))
        if take:
            owner.take()
    owner.finish(now_ms)
    events = owner.events()
    assert [(event[0], event[2]) for event in events if event[1] == 33] == kept
    assert len(kept) + box.lost == len(steps)


@pytest.mark.parametrize("name", [n for n in vars(recorded) if n.startswith(("CODE_", "COUNT_"))])
def test_numbers_are_those_of_the_format(name: str) -> None:
    numbers = {
        "CODE_STATE": 1, "CODE_CREATED": 10, "CODE_OFFERED": 11, "CODE_REQUESTED": 12,
        "CODE_SENT": 13, "CODE_ACKED": 14, "CODE_DELIVERED": 15, "CODE_RECEIVED": 16,
        "CODE_DUPLICATE": 17, "CODE_HEAP_LOW": 30, "CODE_BATTERY": 31, "CODE_BOOT": 32,
        "CODE_ERROR": 33, "CODE_DESCRIPTOR": 34, "CODE_COUNTER": 40, "COUNT_PROGRAMS": 8,
        "COUNT_ERASES": 9, "COUNT_CREATED": 10, "COUNT_DELIVERED": 11, "COUNT_DUPLICATES": 12,
        "COUNT_RETRANSMITS": 13, "COUNT_REFUSED": 14, "COUNT_DAMAGED": 15, "COUNT_MALFORMED": 16,
        "COUNT_LOST": 17, "COUNT_CARRIERS": 64,
    }  # fmt: skip
    assert vars(recorded)[name] == numbers[name]
