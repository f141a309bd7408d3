"""State of a black box for a deep sleep, so that the next boot continues it (docs/SPEC.md 10.3).

Layout: number of events and blocks so far, power state, flags, segment, dt, uncertainty, the two
clocks; t0 of the unfinished block and its events; the counters that are not 0, an index and a row
each.
"""

import struct

from drupelet.base.compat import const
from drupelet.base.limits import BLOCK_HEADER_SIZE, EVENT_SIZE
from drupelet.base.memory import copy, equal
from drupelet.telemetry.black_box import COMMON, GAP, ROW_SIZE, counter_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.telemetry.black_box import BlackBox

_REST = "<BBBBIIH12s"
_REST_SIZE = const(32)
_T0_AT = const(26)
_ZEROS = bytes(6)


def rest_into(box: "BlackBox", out: bytearray, at: int, limit: int) -> int:
    """Write the state to out[at:limit]; return its end, or 0 if there is no room.

    A finished block is not included: store it before.
    """
    size = box.events * EVENT_SIZE
    end = at + _REST_SIZE + size
    if end > limit or box.ready:
        return 0
    struct.pack_into(
        _REST, out, at, box.events, box.block_number, box.power_state, box.wall_flags,
        box.segment_number, box.dt_ms, box.uncertainty, box.clocks,
    )  # fmt: skip
    copy(out, at + _T0_AT, box.writing, 6, 6)
    copy(out, at + _REST_SIZE, box.writing, BLOCK_HEADER_SIZE, size)
    for row in range(0, len(box.counters), ROW_SIZE):
        if not equal(box.counters, row + 1, _ZEROS, 0, 6):
            if end + 1 + ROW_SIZE > limit:
                return 0
            out[end] = counter_at(row)
            copy(out, end + 1, box.counters, row, ROW_SIZE)
            end += 1 + ROW_SIZE
    return end


def wake_from(
    box: "BlackBox", kept: bytearray, at: int, end: int, now_ms: int, slept_ms: int
) -> None:
    """Restore the state that `rest_into` wrote to kept[at:end], after `slept_ms` of sleep."""
    (
        box.events, box.block_number, box.power_state, box.wall_flags,
        box.segment_number, box.dt_ms, box.uncertainty, clocks,
    ) = struct.unpack_from(_REST, kept, at)  # fmt: skip
    box.clocks[:] = clocks
    size = box.events * EVENT_SIZE
    copy(box.writing, 6, kept, at + _T0_AT, 6)
    copy(box.writing, BLOCK_HEADER_SIZE, kept, at + _REST_SIZE, size)
    at += _REST_SIZE + size
    while at < end:
        row = ROW_SIZE * (kept[at] if kept[at] < COMMON else kept[at] - GAP)
        copy(box.counters, row, kept, at + 1, ROW_SIZE)
        at += 1 + ROW_SIZE
    box.last_ms = (now_ms - slept_ms) & 0x3FFFFFFF
