"""AES in Python (FIPS 197), for boards whose port has no `cryptolib` (nRF, QEMU).

It only encrypts, which is all that CCM needs. Its loops are viper if the port has the emitter,
else bytecode. It is not in constant time on a machine with a cache, of data or of the flash that
code runs from: bytes of the state index the S-box, and the cache reveals which.

Memory: once, the S-box (256 B; no heap if code runs in place) and 32 B of scratch, without viper
256 B more. Per key: the round keys (176 B for a key of 16 bytes) and two objects.
"""

from drupelet.base.compat import const

# SyntaxError: the compiler has no viper; ValueError: an .mpy for another processor.
try:
    from drupelet.base._aes_viper import encrypt, expand
except (ImportError, SyntaxError, ValueError):
    from drupelet.base._aes_plain import encrypt, expand  # type: ignore[assignment]

_BLOCK_SIZE = const(16)

# The S-box (FIPS 197 section 5.1.1).
_BOX = (
    b"\x63\x7c\x77\x7b\xf2\x6b\x6f\xc5\x30\x01\x67\x2b\xfe\xd7\xab\x76"
    b"\xca\x82\xc9\x7d\xfa\x59\x47\xf0\xad\xd4\xa2\xaf\x9c\xa4\x72\xc0"
    b"\xb7\xfd\x93\x26\x36\x3f\xf7\xcc\x34\xa5\xe5\xf1\x71\xd8\x31\x15"
    b"\x04\xc7\x23\xc3\x18\x96\x05\x9a\x07\x12\x80\xe2\xeb\x27\xb2\x75"
    b"\x09\x83\x2c\x1a\x1b\x6e\x5a\xa0\x52\x3b\xd6\xb3\x29\xe3\x2f\x84"
    b"\x53\xd1\x00\xed\x20\xfc\xb1\x5b\x6a\xcb\xbe\x39\x4a\x4c\x58\xcf"
    b"\xd0\xef\xaa\xfb\x43\x4d\x33\x85\x45\xf9\x02\x7f\x50\x3c\x9f\xa8"
    b"\x51\xa3\x40\x8f\x92\x9d\x38\xf5\xbc\xb6\xda\x21\x10\xff\xf3\xd2"
    b"\xcd\x0c\x13\xec\x5f\x97\x44\x17\xc4\xa7\x7e\x3d\x64\x5d\x19\x73"
    b"\x60\x81\x4f\xdc\x22\x2a\x90\x88\x46\xee\xb8\x14\xde\x5e\x0b\xdb"
    b"\xe0\x32\x3a\x0a\x49\x06\x24\x5c\xc2\xd3\xac\x62\x91\x95\xe4\x79"
    b"\xe7\xc8\x37\x6d\x8d\xd5\x4e\xa9\x6c\x56\xf4\xea\x65\x7a\xae\x08"
    b"\xba\x78\x25\x2e\x1c\xa6\xb4\xc6\xe8\xdd\x74\x1f\x4b\xbd\x8b\x8a"
    b"\x70\x3e\xb5\x66\x48\x03\xf6\x0e\x61\x35\x57\xb9\x86\xc1\x1d\x9e"
    b"\xe1\xf8\x98\x11\x69\xd9\x8e\x94\x9b\x1e\x87\xe9\xce\x55\x28\xdf"
    b"\x8c\xa1\x89\x0d\xbf\xe6\x42\x68\x41\x99\x2d\x0f\xb0\x54\xbb\x16"
)


class Aes:
    """One key of 16, 24 or 32 bytes; `encrypt` is that of `cryptolib.aes` in ECB mode."""

    def __init__(self, key: "bytes | bytearray") -> None:
        size = len(key)
        assert size in (16, 24, 32)
        self._keys = bytearray(_BLOCK_SIZE * (size // 4 + 7))
        self._keys[:size] = key
        expand(_BOX, self._keys, size)

    def encrypt(
        self, source: "bytes | bytearray | memoryview", target: "bytearray | memoryview"
    ) -> None:
        """Encrypt whole blocks; `target` may be `source`."""
        encrypt(_BOX, self._keys, source, target)
