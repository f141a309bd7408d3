"""Packs of a fleet of any size: each device has a segment of one block a day.

A block has what a device adds up four times a day, a battery reading, its memory, a message of
its own and one of each other device of its group. All blocks of some devices are made with numpy
at once.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drupelet.base.events import VERSION_HIGH, VERSION_LOW
from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_HEADER_SIZE,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet_tools.bench.corpus import GROUP, LENGTH_SIZE, Bytes, Ints, group_tag, message_id
from drupelet_tools.telemetry.blackbox import codes

DAY_MS = 86_400_000
START_MS = 1_780_272_000_000  # 2026-06-01, 00:00 UTC
DEVICES_AT_A_TIME = 1_000  # a pack has all days of so many
_TURNS = 4  # a day
_MIXED = 2_654_435_761  # ids are in no order, as those that a board draws
_SPREAD = 5  # of the wall clock, in units of the header
_CARRIER = 1
_CREATED, _DELIVERED = 10, 15
_TRAFFIC = codes.TRAFFIC_BASE + _CARRIER * 32
_OWN, _ALL = 10, 11  # counters of messages created and delivered
# Counters and what a turn adds to each: sleep (the rest of the time), idle, receive, send,
# messages, bytes sent and received, bytes of messages sent. The latter three are written in each
# second turn only.
_AWAKE = ((2, 24_000), (3, 9_000), (4, 2_500))
_COUNTED = (
    (0, DAY_MS // _TURNS - sum(ms for _, ms in _AWAKE)), *_AWAKE, (_OWN, 0), (_ALL, 0),
    (_TRAFFIC + 1, 9_000), (_TRAFFIC + 16 + 1, 7_000), (_TRAFFIC + 3, 4_000),
)  # fmt: skip
_OFTEN = 6  # of them
_Column = tuple[Any, Any, Any, Any, Any]  # dt, code, a, b, c of one event of every row
_EVENT = np.dtype([("dt", "<u4"), ("code", "u1"), ("a", "u1"), ("b", "<u2"), ("c", "<u4")])


def device_ids(devices: int) -> list[bytes]:
    """Their ids, 4 bytes each, all different."""
    return [(index * _MIXED % (1 << 32)).to_bytes(4, "big") for index in range(devices)]


def write(folder: Path, devices: int, days: int, seed: int) -> int:
    """Write the packs; their bytes."""
    folder.mkdir(parents=True)
    ids = device_ids(devices)
    size = 0
    for first in range(0, devices, DEVICES_AT_A_TIME):
        some = ids[first : first + DEVICES_AT_A_TIME]
        data = _pack(some, first, days, np.random.default_rng([seed, first]))
        (folder / f"pack-{first // DEVICES_AT_A_TIME:05}.dbxpack").write_bytes(data)
        size += len(data)
    return size


def _pack(ids: list[bytes], first: int, days: int, rng: np.random.Generator) -> bytes:
    index = first + np.repeat(np.arange(len(ids)), days)
    day = np.tile(np.arange(days), len(ids))
    events = _events(index, day, rng)
    count, held = events.shape
    begin = LENGTH_SIZE + BOX_HEADER_SIZE
    data = np.zeros((count, begin + BLOCK_SIZE), dtype=np.uint8)
    data[:, :LENGTH_SIZE] = _bytes(np.full(count, BOX_HEADER_SIZE + BLOCK_SIZE), LENGTH_SIZE)
    _headers(data[:, LENGTH_SIZE:begin], ids, day, days)
    block = data[:, begin:]
    block[:, 0], block[:, 1] = codes.BLOCK_MAGIC, held
    block[:, 4:6] = _bytes(np.ones(count, dtype=np.int64), 2)
    block[:, 6:12] = _bytes(day * DAY_MS, 6)
    end = BLOCK_HEADER_SIZE + held * EVENT_SIZE
    block[:, BLOCK_HEADER_SIZE:end] = events.view(np.uint8).reshape(count, -1)
    _sign(data, begin, begin + BLOCK_SIZE, begin + 12)
    _sign(data, LENGTH_SIZE, begin - 4, begin - 4)
    return data.tobytes()


def _headers(head: Bytes, ids: list[bytes], day: Ints, days: int) -> None:
    head[:, 0:4] = np.frombuffer(codes.MAGIC, dtype=np.uint8)
    head[:, 4], head[:, 5], head[:, 6] = codes.VERSION, codes.WALL_KNOWN, 1
    head[:, 8:12] = np.repeat(np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 4), days, axis=0)
    head[:, 16:20] = _bytes(day, 4)
    head[:, 20:26] = _bytes(START_MS + day * DAY_MS, 6)
    head[:, 26] = _SPREAD


def _bytes(values: Ints, size: int) -> Bytes:
    """Whole numbers as so many bytes each, the least first."""
    wide: Bytes = values.astype("<u8").view(np.uint8).reshape(-1, 8)
    return wide[:, :size]


def _sign(data: Bytes, low: int, high: int, at: int) -> None:
    """Put the CRC of a part of each row at a place, which is 0 until then."""
    view = data.reshape(-1).data
    starts = range(0, data.size, data.shape[1])
    crcs = [zlib.crc32(view[start + low : start + high]) for start in starts]
    data[:, at : at + 4] = np.array(crcs, dtype="<u4").view(np.uint8).reshape(-1, 4)


def _events(index: Ints, day: Ints, rng: np.random.Generator) -> npt.NDArray[np.void]:
    """The events of each device and day, in order of time."""
    columns = [*_first(day), *_turns(index, day, rng), *_last(index, day, rng)]
    assert len(columns) <= EVENTS_PER_BLOCK, "a day fits into a block"
    events = np.zeros((len(index), len(columns)), dtype=_EVENT)
    for at, column in enumerate(columns):
        for name, value in zip(_EVENT.names or (), column, strict=True):
            events[name][:, at] = value
    return events


def _first(day: Ints) -> list[_Column]:
    """The first day begins with the boot of an ESP32 and its firmware, each other one with as many
    readings of memory."""
    boots = day == 0
    code = np.where(boots, codes.DESCRIPTOR, codes.HEAP_LOW)
    return [
        (0, np.where(boots, codes.BOOT, codes.HEAP_LOW), boots, boots, np.where(boots, 0, 41_000)),
        (0, code, 3 * boots, boots, np.where(boots, 0, 41_000)),
        (0, code, 4 * boots, 0, np.where(boots, VERSION_HIGH << 16 | VERSION_LOW, 41_000)),
    ]


def _turns(index: Ints, day: Ints, rng: np.random.Generator) -> list[_Column]:
    columns: list[_Column] = []
    for turn in range(_TURNS):
        now = (turn + 1) * (DAY_MS // _TURNS) - 1
        if turn == _TURNS // 2:
            columns += _messages(index, day, now - DAY_MS // _TURNS + 1, rng)
        for counter, amount in _COUNTED if turn % 2 else _COUNTED[:_OFTEN]:
            value = amount * (day * _TURNS + turn + 1)
            if counter in (_OWN, _ALL):
                value = (day + (turn >= _TURNS // 2)) * (GROUP if counter == _ALL else 1)
            columns.append((now, codes.COUNTER, counter, value >> 32, value & 0xFFFFFFFF))
    return columns


def _messages(index: Ints, day: Ints, now: int, rng: np.random.Generator) -> list[_Column]:
    """An own message, and later one of each other device of the group."""
    own, tag = message_id(index, day), group_tag(index)
    columns: list[_Column] = [(now, _CREATED, 0, tag, own), (now, _DELIVERED, 0, tag, own)]
    late = np.sort(rng.integers(0, 3_600_000, (GROUP - 1, len(index))), axis=0)
    for peer, wait in enumerate(late, 1):
        other = message_id(index // GROUP * GROUP + (index + peer) % GROUP, day)
        columns.append((now + 60_000 + wait, _DELIVERED, peer, tag, other))
    return columns


def _last(index: Ints, day: Ints, rng: np.random.Generator) -> list[_Column]:
    mv = 4_000 - day * (3 + index % 7) + rng.integers(-6, 7, len(index))
    return [
        (DAY_MS - 1, codes.BATTERY, 0, mv, 0),
        (DAY_MS - 1, codes.HEAP_LOW, 0, 0, 40_000 - day),
    ]
