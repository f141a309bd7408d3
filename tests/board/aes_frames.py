"""Sealed frames, published and drawn, that an AES must make and open byte for byte."""

import random
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from published import rfc_8613_answers
from seal_numbers import KEY_3610, NONCE_TAIL, RFC3610

FRAMES = 300


def frames() -> list[tuple[bytes, bytes, bytes, bytes, bytes, int]]:
    """Key, nonce, what is authenticated, text, sealed, tag size: published ones, then drawn."""
    records = []
    for nonce, aad_size, size, tag_size, result in RFC3610:
        packet = bytes(range(size))
        records.append(
            (KEY_3610, bytes.fromhex(nonce + NONCE_TAIL)[-13:], packet[:aad_size],
             packet[aad_size:], bytes.fromhex(result), tag_size)
        )  # fmt: skip
    for answer in rfc_8613_answers()[1]:
        records.append(
            (answer.key, answer.nonce, answer.aad, answer.text, answer.ciphertext,
             len(answer.ciphertext) - len(answer.text))
        )  # fmt: skip
    draw = random.Random(197)
    for _ in range(FRAMES):
        key = draw.randbytes(draw.choice((16, 16, 24, 32)))
        nonce = draw.randbytes(draw.randrange(7, 14))
        tag_size = draw.choice((4, 6, 8, 10, 12, 14, 16))
        aad = draw.randbytes(draw.choice((0, 7, 13, 14, 15, 31)))
        text = draw.randbytes(draw.choice((0, 1, 15, 16, 17, 100, draw.randrange(600))))
        sealed = AESCCM(key, tag_size).encrypt(nonce, text, aad)
        records.append((key, nonce, aad, text, sealed, tag_size))
    return records


def write_frames(path: Path) -> Path:
    """Write them for the board, a line each: fields in hex with commas between them."""
    lines = [
        ",".join(field.hex() for field in row[:5]) + f",{row[5]}\n"  # type: ignore[union-attr]
        for row in frames()
    ]
    path.write_text("".join(lines), "ascii")
    return path
