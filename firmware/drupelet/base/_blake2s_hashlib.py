"""BLAKE2s-256 with the methods of `drupelet.base._blake2s`, over CPython's hashlib."""

from hashlib import blake2s


class Blake2s:
    """A reusable hash; see `drupelet.base._blake2s.Blake2s`."""

    def __init__(self) -> None:
        self._hash = blake2s()

    def start(self, key: "bytes | bytearray | None" = None) -> None:
        """Begin a new digest; `key` is at most 32 bytes, None or empty for the plain hash."""
        self._hash = blake2s(key=key or b"")

    def update(self, buf: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Hash buf[at:at+size], too."""
        assert 0 <= at <= at + size <= len(buf)
        self._hash.update(memoryview(buf)[at : at + size])

    def digest_into(self, out: "bytearray | memoryview", at: int) -> None:
        """Store the 32-byte digest at out[at]; call `start` before the next `update`."""
        assert 0 <= at <= at + 32 <= len(out)
        out[at : at + 32] = self._hash.digest()
