"""What a log of segments says, field by field, and segments with one bit flipped."""

import struct
from types import SimpleNamespace

from drupelet_tools.telemetry.tables.summary import read, summarise


def log_of(*datas):
    return read(datas)


def events_of(log):
    """Every event of a log, field by field."""
    fields = SimpleNamespace(time_ms=[], code=[], a=[], b=[], c=[], boot=[])
    for block, owner in zip(log.chunk.blocks, log.chunk.owner, strict=True):
        data = block.tobytes()
        t0 = int.from_bytes(data[6:12], "little")
        for at in range(data[1]):
            dt, code, a, b, c = struct.unpack_from("<IBBHI", data, 16 + 12 * at)
            row = (t0 + dt, code, a, b, c, log.headers[owner].boot)
            for field, value in zip(vars(fields).values(), row, strict=True):
                field.append(value)
    return fields


def damages_of(log):
    return [(damage.block, damage.reason) for damage in log.chunk.damages]


def times(log):
    return {row["state"]: row["ms"] for row in summarise(log)["state_time"]}


def spoil(data, block, at=40):
    """Flip one bit inside a block."""
    spoilt = bytearray(data)
    spoilt[32 + 512 * block + at] ^= 4
    return bytes(spoilt)
