"""What tests of MVDS payloads need beside our codec, which never writes group offers.

Runs under CPython and both MicroPythons, like harness_mvds.py which uses it.
"""

from drupelet.base.errors import E_CAPACITY
from drupelet.wire.mvds.payload import GROUP, Payload
from drupelet.wire.protobuf import bytes_size, put_bytes


def timestamp_of(decoder: Payload) -> bytearray:
    """The timestamp of the message just read: 8 bytes, little-endian."""
    out = bytearray(8)
    decoder.timestamp_into(out, 0)
    return out


class Encoder(Payload):
    """As Payload; group offers come last, and their length is written anew with each id."""

    def put_group(self, group: bytes, at: int, size: int) -> int:
        """Begin a group offer for group[at:at+size]; the new end, or E_CAPACITY."""
        content = bytearray(bytes_size(1, size) if size else 0)
        if size:
            put_bytes(content, 0, 1, group, at, size)
        return self._rewrite(self.start, content)

    def put_group_offer(self, ids: bytes, id_at: int) -> int:
        """Add ids[id_at:id_at+32] to the group offer begun last; the new end, or E_CAPACITY."""
        content = self._content + bytearray(bytes_size(2, 32))
        put_bytes(content, len(self._content), 2, ids, id_at, 32)
        return self._rewrite(self._offer_at, content)

    def _rewrite(self, at: int, content: bytearray) -> int:
        field = self._fields[GROUP]
        if at + bytes_size(field, len(content)) > self._limit:
            return E_CAPACITY
        self._offer_at = at
        self._content = content
        self.start = put_bytes(self.buf, at, field, content, 0, len(content))
        return self.start
