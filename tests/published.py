"""Peers' vectors in this repository, and published answers that are derived here.

What peers emitted lies in tests/vectors/data. Published answers of others (BLAKE2's known answers,
RFC 8613 appendix C) are not copied: their inputs follow from rules, an independent library
calculates the answers, and one digest over all of them proves that they are the published ones.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VECTORS = Path(__file__).parent / "vectors/data"

_BLAKE2S_KNOWN_ANSWERS = "8ae17a963349019d1c56c0b7834abbbb1639980ef84b6a0438326402db47f02f"
_RFC_8613_ANSWERS = "d97e336b266d6d98daffde309535d7136398a3ada0149b4cbc07b4044e199c1a"


@cache
def blake2s_answers() -> list[tuple[bytes, bytes, bytes]]:
    """Message, key, digest: BLAKE2's 256 known answers for BLAKE2s with a key.

    Message and key count up from 0; the messages have 0 to 255 bytes, the key 32.
    """
    key = bytes(range(32))
    answers = []
    for size in range(256):
        data = bytes(range(size))
        answers.append((data, key, hashlib.blake2s(data, key=key).digest()))
    _prove([digest for _, _, digest in answers], _BLAKE2S_KNOWN_ANSWERS)
    return answers


# Data and its COBS form without the delimiter; each follows from the definition of the code.
_FULL = bytes(range(1, 255))  # 254 bytes that are not zero: the largest block
COBS_PAIRS = [
    (b"", b"\x01"),
    (b"a", b"\x02a"),
    (b"\x00", b"\x01\x01"),
    (b"\x00\x00", b"\x01\x01\x01"),
    (b"\x00a", b"\x01\x02a"),
    (b"a\x00", b"\x02a\x01"),
    (b"ab\x00cd", b"\x03ab\x03cd"),
    (b"\x00ab\x00\x00c\x00", b"\x01\x03ab\x01\x02c\x01"),
    (_FULL[:-1], b"\xfe" + _FULL[:-1]),
    (_FULL, b"\xff" + _FULL),
    (_FULL + b"\xff", b"\xff" + _FULL + b"\x02\xff"),
    (_FULL + b"\x00", b"\xff" + _FULL + b"\x01\x01"),
    (b"\x00" + _FULL, b"\x01\xff" + _FULL),
    (_FULL + _FULL, b"\xff" + _FULL + b"\xff" + _FULL),
]
# A zero inside, and blocks that end before their length.
COBS_DAMAGED = [
    b"\x00", b"\x04ab", b"\x03a\x00", b"\x04ab\x00", b"\x02a\x05bc", b"\xff" + _FULL[:-1],
]  # fmt: skip


class Derived(NamedTuple):
    """One HKDF-SHA-256 answer."""

    ikm: bytes
    salt: bytes
    info: bytes
    okm: bytes


class Sealed(NamedTuple):
    """One AES-CCM-16-64-128 answer."""

    key: bytes
    nonce: bytes
    aad: bytes
    text: bytes
    ciphertext: bytes


_SECRET = bytes(range(1, 17))
_SALT = bytes.fromhex("9e7ca92223786340")
_ID_CONTEXT = bytes.fromhex("37cbf3210017a2d3")
# Appendices C.1, C.2 and C.3: master salt, ID context, the client's and the server's id.
_CONTEXTS = [
    (_SALT, None, b"", b"\x01"),
    (b"", None, b"\x00", b"\x01"),
    (_SALT, _ID_CONTEXT, b"", b"\x01"),
]
_PARTIAL_IV = b"\x14"
_GET_TV1 = b"\x01\xb3tv1"
_HELLO = b"\x45\xffHello World!"


def _bstr(value: bytes) -> bytes:
    return bytes([0x40 + len(value)]) + value


def _info(id: bytes, context: bytes | None, kind: bytes, size: int) -> bytes:
    """RFC 8613 section 3.2.1: [id, id_context, alg_aead, type, L] in CBOR."""
    scope = b"\xf6" if context is None else _bstr(context)
    return b"\x85" + _bstr(id) + scope + b"\x0a" + bytes([0x60 + len(kind)]) + kind + bytes([size])


def _nonce(common_iv: bytes, id: bytes, partial_iv: bytes) -> bytes:
    """RFC 8613 section 5.2."""
    padded = bytes([len(id)]) + id.rjust(7, b"\0") + partial_iv.rjust(5, b"\0")
    return bytes(a ^ b for a, b in zip(common_iv, padded, strict=True))


def _aad(client: bytes) -> bytes:
    """RFC 8613 section 5.4: Encrypt0, no protected header, the request's id and partial IV."""
    array = b"\x85\x01\x81\x0a" + _bstr(client) + _bstr(_PARTIAL_IV) + b"\x40"
    return b"\x83\x68Encrypt0\x40" + _bstr(array)


def _seal(key: bytes, nonce: bytes, client: bytes, text: bytes) -> Sealed:
    aad = _aad(client)
    return Sealed(key, nonce, aad, text, AESCCM(key, 8).encrypt(nonce, text, aad))


@cache
def rfc_8613_answers() -> tuple[list[Derived], list[Sealed]]:
    """Keys and common IVs of appendices C.1 to C.3; the ciphertexts of C.4 to C.8."""
    derived: list[Derived] = []
    sealed: list[Sealed] = []
    for salt, context, client, server in _CONTEXTS:
        outputs = []
        for id, kind, size in ((client, b"Key", 16), (server, b"Key", 16), (b"", b"IV", 13)):
            info = _info(id, context, kind, size)
            okm = HKDF(SHA256(), size, salt, info).derive(_SECRET)
            derived.append(Derived(_SECRET, salt, info, okm))
            outputs.append(okm)
        key, _, iv = outputs
        sealed.append(_seal(key, _nonce(iv, client, _PARTIAL_IV), client, _GET_TV1))
    # C.7 and C.8 answer the request of C.4: once under its nonce, once under one of their own.
    _, server_key, iv = [answer.okm for answer in derived[:3]]
    for nonce in (_nonce(iv, b"", _PARTIAL_IV), _nonce(iv, b"\x01", b"\x00")):
        sealed.append(_seal(server_key, nonce, b"", _HELLO))
    outputs = [answer.okm for answer in derived] + [answer.ciphertext for answer in sealed]
    _prove(outputs, _RFC_8613_ANSWERS)
    return derived, sealed


def _prove(outputs: list[bytes], digest: str) -> None:
    """Fail unless these are the published outputs, of which `digest` is the SHA-256."""
    assert hashlib.sha256(b"".join(outputs)).hexdigest() == digest, "not the published answers"
