"""Plain COBS, without CRC and delimiter, as in its published test vectors; for tools."""

from drupelet.base.errors import PeerError
from drupelet.base.memory import copy
from drupelet_transports.common.framing import BLOCK_SIZE, stuff, unstuff


def cobs_encode(data: "bytes | bytearray") -> bytes:
    """Return the COBS encoding of `data`."""
    raw = 1 + len(data) // BLOCK_SIZE
    out = bytearray(raw + len(data) + 1)
    copy(out, raw, data, 0, len(data))
    return bytes(out[: stuff(out, 0, raw, raw + len(data))])


def cobs_decode(wire: "bytes | bytearray") -> bytes:
    """Return the data that `cobs_encode` encoded; PeerError: a truncated block or a zero byte."""
    if b"\x00" in wire:
        raise PeerError("a zero byte inside COBS")
    buf = bytearray(wire)
    size = unstuff(buf, len(buf))
    if size < 0:
        raise PeerError("COBS block is cut off: the wire ends inside it")
    return bytes(buf[:size])
