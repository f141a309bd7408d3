"""HMAC-SHA256 (RFC 2104) over the builtin SHA-256.

Boards lack MicroPython's `hmac` package, and their hashes cannot be copied. It allocates a few
objects, which is acceptable since keys are stepped once per key epoch.
"""

from hashlib import sha256

from drupelet.base.compat import const

_BLOCK_SIZE = const(64)


def hmac(key: "bytes | bytearray", data: "bytes | bytearray") -> bytes:
    """Return the 32-byte HMAC-SHA256 of `data`, for a key of any size."""
    if len(key) > _BLOCK_SIZE:
        key = sha256(key).digest()
    pad = bytearray(_BLOCK_SIZE)
    pad[: len(key)] = key
    for i in range(_BLOCK_SIZE):
        pad[i] ^= 0x36
    inner = sha256(pad)
    inner.update(data)
    for i in range(_BLOCK_SIZE):
        pad[i] ^= 0x6A  # 0x36 ^ 0x5C
    outer = sha256(pad)
    outer.update(inner.digest())
    return outer.digest()
