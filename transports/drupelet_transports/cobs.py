"""COBS alone, as its published vectors have it: no CRC, no delimiter. For tools; it allocates."""

from drupelet.base.errors import PeerError
from drupelet.base.memory import copy
from drupelet_transports.framing import BLOCK_SIZE, Decoder, stuff


class _Strings(Decoder):
    """Decodes one stuffed string at a time."""

    def plain(self, wire: bytearray) -> bytes:
        """What the blocks of a string hold; PeerError if one is cut off."""
        self._take(wire, 0, len(wire))
        if self._left or self._lost:
            raise PeerError("COBS block is cut off: the wire ends inside it")
        return bytes(self.frame[: self._fill])


def cobs_encode(data: "bytes | bytearray") -> bytes:
    """Return `data` stuffed."""
    raw = 1 + len(data) // BLOCK_SIZE
    out = bytearray(raw + len(data) + 1)
    copy(out, raw, data, 0, len(data))
    return bytes(out[: stuff(out, 0, raw, raw + len(data))])


def cobs_decode(wire: "bytes | bytearray") -> bytes:
    """Return what `cobs_encode` was given; PeerError if a block is cut off or holds a zero."""
    if b"\x00" in wire:
        raise PeerError("a zero byte inside COBS")
    return _Strings(len(wire)).plain(bytearray(wire))
