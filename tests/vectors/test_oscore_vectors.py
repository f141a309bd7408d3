"""HMAC, HKDF and AES-CCM through the line harness, on all three interpreters.

The values of RFC 8613 appendix C are derived by `published`; RFC 3610, 4231 and 5869 come from the
unit tests; beside them stand random requests that `cryptography` answers.
"""

import hmac
import random

from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from line_harness import Json, ask, on_all
from published import rfc_8613_answers
from seal_numbers import KEY_3610, NONCE_TAIL, RFC3610, RFC4231, RFC5869

Case = tuple[str, Json, Json | str]


def answer(command: list[str], cases: list[Case]) -> None:
    """Ask everything in one run, and compare; a string is the kind of an error."""
    replies = ask(command, [(verb, request) for verb, request, _ in cases])
    for (verb, request, wanted), (status, got) in zip(cases, replies, strict=True):
        if isinstance(wanted, str):
            assert (status, got["kind"]) == ("error", wanted), (verb, request)
        else:
            assert (status, got) == ("ok", wanted), (verb, request)


def ccm(
    key: bytes, nonce: bytes, aad: bytes, text: bytes, made: bytes, tag_size: int
) -> list[Case]:
    """Both ways, and three that must fail."""
    head = {"key": key.hex(), "nonce": nonce.hex(), "aad": aad.hex(), "tag_size": tag_size}
    spoilt = bytes([made[0] ^ 1]) + made[1:]
    return [
        ("ccm_seal", head | {"plaintext": text.hex()}, {"ciphertext": made.hex()}),
        ("ccm_open", head | {"ciphertext": made.hex()}, {"plaintext": text.hex()}),
        ("ccm_open", head | {"ciphertext": spoilt.hex()}, "PeerError"),
        ("ccm_open", head | {"ciphertext": made[:-1].hex()}, "PeerError"),
        ("ccm_open", head | {"ciphertext": made.hex(), "aad": (aad + b"\0").hex()}, "PeerError"),
    ]


def published() -> list[Case]:
    cases: list[Case] = []
    for nonce, aad_size, size, tag_size, result in RFC3610:
        packet = bytes(range(size))
        sealed = bytes.fromhex(result)
        whole = bytes.fromhex(nonce + NONCE_TAIL)[-13:]
        cases += ccm(KEY_3610, whole, packet[:aad_size], packet[aad_size:], sealed, tag_size)
    for key, data, digest in RFC4231:
        cases.append(("hmac", {"key": key.hex(), "data": data.hex()}, {"digest": digest}))
    for ikm, salt, info, size, okm in RFC5869:
        cases.append(
            ("hkdf", {"ikm": ikm, "salt": salt, "info": info, "size": size}, {"okm": okm})
        )
    return cases


def oscore() -> list[Case]:
    """RFC 8613: keys, IVs and frames."""
    derived, sealed = rfc_8613_answers()
    cases: list[Case] = []
    for ikm, salt, info, okm in derived:
        request = {"ikm": ikm.hex(), "salt": salt.hex(), "info": info.hex(), "size": len(okm)}
        cases.append(("hkdf", request, {"okm": okm.hex()}))
    for answer in sealed:
        cases += ccm(answer.key, answer.nonce, answer.aad, answer.text, answer.ciphertext, 8)
    return cases


def drawn() -> list[Case]:
    draw = random.Random(8613)
    cases: list[Case] = []
    for _ in range(60):
        key = draw.randbytes(draw.choice((16, 16, 24, 32)))
        nonce = draw.randbytes(draw.randrange(7, 14))
        tag_size = draw.choice((4, 6, 8, 10, 12, 14, 16))
        aad = draw.randbytes(draw.choice((0, 7, 15, 16, 40)))
        text = draw.randbytes(draw.choice((0, 1, 16, 129, draw.randrange(200))))
        made = AESCCM(key, tag_size).encrypt(nonce, text, aad)
        cases += ccm(key, nonce, aad, text, made, tag_size)
        digest = hmac.digest(key * 5, text, "sha256").hex()
        cases.append(("hmac", {"key": (key * 5).hex(), "data": text.hex()}, {"digest": digest}))
        size = draw.randrange(1, 200)
        okm = HKDF(SHA256(), size, nonce, aad).derive(key).hex()
        request = {"ikm": key.hex(), "salt": nonce.hex(), "info": aad.hex(), "size": size}
        cases.append(("hkdf", request, {"okm": okm}))
    return cases


@on_all
def test_published_numbers(command: list[str]) -> None:
    answer(command, published())


@on_all
def test_rfc_8613(command: list[str]) -> None:
    cases = oscore()
    assert len(cases) == 9 + 5 * 5
    answer(command, cases)


@on_all
def test_what_cryptography_answers(command: list[str]) -> None:
    answer(command, drawn())


@on_all
def test_the_longest_text_of_a_long_nonce(command: list[str]) -> None:
    """It is the plaintext that is counted: both ways the same ones are taken."""
    head = {"key": "00" * 16, "nonce": "00" * 13, "aad": "", "tag_size": 16}
    text = bytes(0xFFFF)
    made = AESCCM(bytes(16), 16).encrypt(bytes(13), text, b"")
    answer(
        command,
        [
            ("ccm_seal", head | {"plaintext": text.hex()}, {"ciphertext": made.hex()}),
            ("ccm_open", head | {"ciphertext": made.hex()}, {"plaintext": text.hex()}),
            ("ccm_seal", head | {"plaintext": (text + b"x").hex()}, "CapacityError"),
            ("ccm_open", head | {"ciphertext": (made + b"x").hex()}, "CapacityError"),
            ("ccm_open", head | {"ciphertext": bytes(15).hex()}, "PeerError"),
        ],
    )


@on_all
def test_requests_that_make_no_sense(command: list[str]) -> None:
    good = {"key": "00" * 16, "nonce": "00" * 13, "aad": "", "tag_size": 8, "plaintext": "00"}
    answer(
        command,
        [
            ("ccm_seal", good | {"key": "00" * 15}, "CapacityError"),
            ("ccm_seal", good | {"nonce": "00" * 6}, "CapacityError"),
            ("ccm_seal", good | {"nonce": "00" * 14}, "CapacityError"),
            ("ccm_seal", good | {"tag_size": 7}, "CapacityError"),
            ("ccm_seal", good | {"tag_size": 2}, "CapacityError"),
            ("ccm_seal", {"key": "00" * 16}, "ValueError"),
            ("hkdf", {"ikm": "00", "size": 255 * 32 + 1}, "CapacityError"),
            ("hkdf", {"ikm": "00", "size": 0}, {"okm": ""}),
            ("hmac", {"data": "0"}, "ValueError"),
        ],
    )
