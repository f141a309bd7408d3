"""AES-CCM, HMAC and HKDF: published numbers, and one contract for every AEAD port.

Numbers from RFC 3610 section 8, RFC 4231 section 4, RFC 5869 appendix A, FIPS 197 appendix C.
"""

import random

import pytest

from drupelet.base import _ccm_plain
from drupelet.base.aes import Aes
from drupelet.base.ccm import Ccm
from drupelet.base.hkdf import hkdf
from drupelet.base.hmac256 import hmac
from drupelet_host.base.aead import Aead
from seal_numbers import KEY_3610, NONCE_TAIL, RFC3610, RFC4231, RFC5869


def ports():
    return {"cryptography": Aead(), "core": Ccm(Aes)}


@pytest.fixture(params=sorted(ports()))
def aead(request):
    return ports()[request.param]


def sealed(aead, key, nonce, aad, text, tag_size, at=0):
    buf = bytearray(at) + aad + text + bytes(tag_size) + b"behind"
    cipher = aead.cipher(b"#" + key, 1, len(key))
    aead.seal(cipher, bytearray(nonce), buf, at, len(aad), len(text), tag_size)
    assert buf[:at] == bytes(at) and buf[at : at + len(aad)] == aad and buf[-6:] == b"behind"
    return bytes(buf[at + len(aad) : -6])


def opened(aead, key, nonce, aad, made, tag_size, at=0):
    buf = bytearray(at) + aad + made + b"behind"
    size = len(made) - tag_size
    cipher = aead.cipher(key, 0, len(key))
    good = aead.open(cipher, bytearray(nonce), buf, at, len(aad), size, tag_size)
    start = at + len(aad)
    text = bytes(buf[start : start + size])
    assert good or text == bytes(size), "what is not authentic is wiped"
    return text if good else None


@pytest.mark.parametrize("vector", RFC3610, ids=range(1, 13))
def test_rfc_3610(aead, vector):
    nonce, aad_size, size, tag_size, result = vector
    nonce = bytes.fromhex(nonce + NONCE_TAIL)[-13:]
    packet = bytes(range(size))
    aad, text = packet[:aad_size], packet[aad_size:]
    made = sealed(aead, KEY_3610, nonce, aad, text, tag_size)
    assert made.hex() == result
    assert opened(aead, KEY_3610, nonce, aad, made, tag_size) == text


def test_fips_197():
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    for size, result in (
        (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (32, "8ea2b7ca516745bfeafc49904b496089"),
    ):
        out = bytearray(16)
        Aes(bytes(range(size))).encrypt(block, out)
        assert out.hex() == result
        twice = bytearray(block + block)
        Aes(bytes(range(size))).encrypt(twice, twice)
        assert twice.hex() == result * 2


def test_all_ports_make_the_same_bytes():
    draw = random.Random(3610)
    first, second = ports().values()
    for _ in range(400):
        key = draw.randbytes(draw.choice((16, 16, 16, 24, 32)))
        nonce = draw.randbytes(draw.randrange(7, 14))
        tag_size = draw.choice((4, 6, 8, 10, 12, 14, 16))
        aad = draw.randbytes(draw.choice((0, 1, 7, 13, 14, 15, 29, 30, 31)))
        text = draw.randbytes(draw.choice((0, 1, 15, 16, 17, 64, draw.randrange(300))))
        at = draw.randrange(4)
        made = sealed(first, key, nonce, aad, text, tag_size, at)
        assert made == sealed(second, key, nonce, aad, text, tag_size, at)
        for port in (first, second):
            assert opened(port, key, nonce, aad, made, tag_size, at) == text
            spoilt = bytearray(made)
            spoilt[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
            assert opened(port, key, nonce, aad, bytes(spoilt), tag_size, at) is None
            if aad:
                assert opened(port, key, nonce, aad[:-1] + b"?", made, tag_size) in (None, text)


def test_what_is_authenticated_may_be_longer_than_two_bytes_of_size_tell():
    key, nonce = bytes(16), bytes(12)
    first, second = ports().values()
    for size in (0xFEFF, 0xFF00):
        made = sealed(first, key, nonce, bytes(size), b"text", 16)
        assert made == sealed(second, key, nonce, bytes(size), b"text", 16)


def test_a_frame_of_1024_bytes_counts_blocks_over_a_bytes_end():
    key, nonce, text = bytes(16), bytes(13), bytes(8000)
    first, second = ports().values()
    assert sealed(first, key, nonce, b"", text, 8) == sealed(second, key, nonce, b"", text, 8)


def test_a_spoilt_tag_is_found_wherever_it_is(aead):
    key, nonce = bytes(16), bytes(13)
    made = sealed(aead, key, nonce, b"head", b"text", 8)
    for at in range(len(made)):
        spoilt = bytearray(made)
        spoilt[at] ^= 0x80
        assert opened(aead, key, nonce, b"head", bytes(spoilt), 8) is None
    assert opened(aead, bytes(15) + b"1", nonce, b"head", made, 8) is None
    assert opened(aead, key, bytes(12) + b"1", b"head", made, 8) is None
    assert opened(aead, key, nonce, b"Head", made, 8) is None


def test_the_loops_of_ccm_in_pieces():
    state = bytearray(16)
    _ccm_plain.absorb(lambda _source, _target: None, state, 2, bytes(range(40)), 3, 20)
    mixed = bytearray(16)
    for i in range(20):
        mixed[(2 + i) % 16 if i < 14 else i - 14] ^= 3 + i
    assert state == mixed


# --- HMAC and HKDF ---


@pytest.mark.parametrize(("key", "data", "digest"), RFC4231, ids=(1, 2, 3, 4, 6, 7))
def test_rfc_4231(key, data, digest):
    assert hmac(key, data).hex() == digest


@pytest.mark.parametrize(("ikm", "salt", "info", "size", "okm"), RFC5869, ids=(1, 2, 3))
def test_rfc_5869(ikm, salt, info, size, okm):
    made = hkdf(bytes.fromhex(ikm), bytes.fromhex(salt), bytes.fromhex(info), size)
    assert made.hex() == okm
