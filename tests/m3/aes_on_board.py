# mypy: ignore-errors
"""Runs on the Cortex-M3: seals and opens what the host sealed, and counts a frame of 100 bytes.

A line of /frames.txt has, in hex: key, nonce, what is authenticated, text, what was sealed; then
the tag size. Prints `same N` and `instructions N`.
"""

from binascii import unhexlify

import board
from boards.aead import Aead

AT = 3  # frames do not begin where words do
SEAL_SIZE = 100

aead = Aead()
count = 0
with open("/frames.txt") as lines:
    for line in lines:
        *fields, tag_size = line.split(",")
        key, nonce, aad, text, sealed = [unhexlify(field) for field in fields]
        tag = int(tag_size)
        cipher = aead.cipher(key, 0, len(key))
        buf = bytearray(AT) + aad + text + bytes(tag)
        aead.seal(cipher, bytearray(nonce), buf, AT, len(aad), len(text), tag)
        assert buf == bytearray(AT) + aad + sealed, line
        assert aead.open(cipher, bytearray(nonce), buf, AT, len(aad), len(text), tag)
        assert buf[AT + len(aad) : AT + len(aad) + len(text)] == text
        count += 1
print("same", count)
cipher = aead.cipher(bytes(range(16)), 0)
buf = bytearray(SEAL_SIZE + 24)
nonce = bytearray(13)
began = board.instructions()
aead.seal(cipher, nonce, buf, 8, 8, SEAL_SIZE, 8)
print("instructions", board.instructions() - began)
print("end")
