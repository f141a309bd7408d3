"""HKDF with SHA-256 (RFC 5869), for hosts; the seal's own key schedule needs HMAC only."""

from drupelet.base.compat import const
from drupelet.base.hmac256 import hmac

_DIGEST_SIZE = const(32)
# RFC 5869 section 2.3: the counter is one byte.
_BLOCKS_MAX = const(255)


def hkdf(ikm: "bytes | bytearray", salt: bytes, info: bytes, size: int) -> bytes:
    """Return `size` bytes (at most 8,160) of keying material; an empty salt is 32 zeros."""
    assert 0 <= size <= _BLOCKS_MAX * _DIGEST_SIZE
    key = hmac(salt or bytes(_DIGEST_SIZE), ikm)
    okm = block = b""
    count = 0
    while len(okm) < size:
        count += 1
        block = hmac(key, block + info + bytes((count,)))
        okm += block
    return okm[:size]
