# mypy: ignore-errors
"""Checks whether this board works; each check returns [name, passed, what it measured]."""

import binascii
import gc
import hashlib
import json  # noqa: F401 - what is printed
import os
import time

NAME = "/selftest.new"
PIECE = 512
PIECES = 8
BAUD = 115200  # some ports have no rate if none is named
UART_PIECE = 32  # what the smallest UART keeps
HEAP_FREE_MIN = 32768  # a node's tables and buffers, beside its code


def heap() -> list:
    """Enough heap is free beside the loaded code."""
    gc.collect()
    free = gc.mem_free()
    return ["heap", free >= HEAP_FREE_MIN, "%d of %d bytes free" % (free, free + gc.mem_alloc())]


def flash(root: str) -> list:
    """A file on the drive mounted at `root` can be written, read back and deleted."""
    path = root + NAME
    data = os.urandom(PIECE)
    start_ms = time.ticks_ms()
    try:
        with open(path, "wb") as file:
            for _ in range(PIECES):
                file.write(data)
        same = True
        with open(path, "rb") as file:
            for _ in range(PIECES):
                same = same and file.read(PIECE) == data
            same = same and not file.read(1)
    finally:
        os.remove(path)
    spent_ms = time.ticks_diff(time.ticks_ms(), start_ms)
    return ["flash", same, "%d bytes written and read in %d ms" % (PIECE * PIECES, spent_ms)]


def clock() -> list:
    """Two clocks of the chip agree over a sleep."""
    start_ms = time.ticks_ms()
    start_us = time.ticks_us()
    time.sleep_ms(100)
    spent_us = time.ticks_diff(time.ticks_us(), start_us)
    spent_ms = time.ticks_diff(time.ticks_ms(), start_ms)
    apart = spent_us - spent_ms * 1000
    agree = -2000 < apart < 2000 and spent_ms >= 99
    return ["clock", agree, "a sleep of 100 ms took %d us" % spent_us]


def chance() -> list:
    """The random source does not repeat itself."""
    first, second = os.urandom(16), os.urandom(16)
    return [
        "random",
        first != second,
        "two draws of 16 bytes differ" if first != second else "the same",
    ]


def hashes(text: str, blake2s: str, sha256: str) -> list:
    """BLAKE2s and SHA-256 of the host's random bytes equal the host's digests."""
    from drupelet.base.hashes import Blake2s

    data = binascii.unhexlify(text)
    own = Blake2s()
    own.start()
    own.update(data, 0, len(data))
    out = bytearray(32)
    own.digest_into(out, 0)
    passed = [
        binascii.hexlify(out).decode() == blake2s,
        binascii.hexlify(hashlib.sha256(data).digest()).decode() == sha256,
    ]
    start_us = time.ticks_us()
    own.start()
    own.update(data, 0, len(data))
    own.digest_into(out, 0)
    spent_us = time.ticks_diff(time.ticks_us(), start_us)
    return ["hash", all(passed), "BLAKE2s of %d bytes in %d us" % (len(data), spent_us)]


def aead(key: str, nonce: str, text: str, sealed: str) -> list:
    """AES-CCM seals the host's random bytes as the host did, and opens them again."""
    from boards.aead import Aead

    port = Aead()
    cipher = port.cipher(binascii.unhexlify(key), 0)
    nonce = bytearray(binascii.unhexlify(nonce))
    buf = bytearray(binascii.unhexlify(text))
    size = len(buf)
    buf.extend(bytes(8))
    start_us = time.ticks_us()
    port.seal(cipher, nonce, buf, 0, 0, size, 8)
    spent_us = time.ticks_diff(time.ticks_us(), start_us)
    same = binascii.hexlify(buf).decode() == sealed
    opened = port.open(cipher, nonce, buf, 0, 0, size, 8)
    buf = buf[:size]
    passed = same and opened and binascii.hexlify(buf).decode() == text
    return ["seal", passed, "AES-CCM of %d bytes in %d us" % (size, spent_us)]


def uart(number: int, settings: dict) -> list:
    """The bytes that a UART sends come back: a wire joins its two pins."""
    import machine

    for name in ("tx", "rx"):
        if name in settings:
            settings[name] = machine.Pin(settings[name])
    line = machine.UART(number, baudrate=BAUD, timeout=200, **settings)
    data = os.urandom(UART_PIECE)
    line.write(data)
    back = line.read(UART_PIECE)
    line.deinit()
    return ["uart", back == data, "%d of %d bytes" % (len(back) if back else 0, UART_PIECE)]
