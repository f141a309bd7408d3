"""Runs on MicroPython as on a port without `cryptolib`: seals and opens what the host has sealed.

aes_same.py MODULE_PATH best|plain FRAMES
A line of FRAMES has, in hex: key, nonce, what is authenticated, text, what was sealed, and the
tag size. Every frame is sealed, opened, spoilt and refused with the heap locked; blocks and keys
are then compared with `cryptolib`. Prints the loops that ran, what was done, and a key's bytes.
"""

import gc
import sys
from binascii import unhexlify

import micropython
from cryptolib import aes

sys.path.insert(0, sys.argv[1])
sys.modules["cryptolib"] = object()  # type: ignore[assignment]
if sys.argv[2] == "plain":
    sys.modules["drupelet.base._aes_viper"] = object()  # type: ignore[assignment]

from boards.aead import Aead  # noqa: E402

ECB = 1
AT = 3  # frames do not begin where words do
BLOCKS = 9
SPOIL_STEP = 7
KEYS = 8

aead = Aead()


def exchange(
    key: bytes, nonce: bytearray, aad: bytes, text: bytes, sealed: bytes, tag: int
) -> None:
    """One frame in place, there and back, and once with a bit of it changed."""
    cipher = aead.cipher(b"#" + key, 1, len(key))
    buf = bytearray(AT) + aad + text + bytes(tag)
    wanted = bytearray(AT) + aad + sealed
    plain = bytearray(AT) + aad + text
    spoilt = AT + (len(wanted) * SPOIL_STEP + sealed[0]) % (len(wanted) - AT)
    micropython.heap_lock()
    try:
        aead.seal(cipher, nonce, buf, AT, len(aad), len(text), tag)
        same = buf == wanted
        opened = aead.open(cipher, nonce, buf, AT, len(aad), len(text), tag)
    finally:
        micropython.heap_unlock()
    assert same, (len(key), len(text))
    assert opened and buf[: len(plain)] == plain
    wanted[spoilt] ^= 1
    micropython.heap_lock()
    try:
        opened = aead.open(cipher, nonce, wanted, AT, len(aad), len(text), tag)
    finally:
        micropython.heap_unlock()
    assert not opened


def blocks(key: bytes, of: bytearray) -> None:
    """Whole blocks from one buffer to another, beside the interpreter's own AES."""
    wanted = bytearray(len(of))
    aes(key, ECB).encrypt(of, wanted)
    out = bytearray(len(of))
    cipher = aead.cipher(key, 0, len(key))
    micropython.heap_lock()
    try:
        cipher(of, out)
    finally:
        micropython.heap_unlock()
    assert out == wanted
    for size in (len(of) - 1, 15):
        try:
            cipher(memoryview(of)[:size], memoryview(out)[:size])
        except AssertionError:
            continue
        raise AssertionError("parts of a block are refused")


count = 0
with open(sys.argv[3]) as lines:
    for line in lines:
        *fields, tag_size = line.split(",")
        key, nonce, aad, text, sealed = [unhexlify(field) for field in fields]
        exchange(key, bytearray(nonce), aad, text, sealed, int(tag_size))
        if len(key) != 24:  # cryptolib has no such keys
            blocks(key, bytearray((key + nonce) * BLOCKS)[: 16 * BLOCKS])
        count += 1
print("frames", count)
keys: "list[object]" = [None] * KEYS
gc.collect()
before = gc.mem_alloc()
for i in range(KEYS):
    keys[i] = aead.cipher(bytes(16), 0)
gc.collect()
print("key", (gc.mem_alloc() - before) // KEYS)
print(
    "loops",
    *(name for name in ("_aes_viper", "_aes_plain") if "drupelet.base." + name in sys.modules),
)
