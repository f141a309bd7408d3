"""The harness's verbs for what seals are made of: HMAC, HKDF, AES-CCM.

On MicroPython the block cipher is the port's own, where it has the key's size; on CPython, and for
keys of 24 bytes, it is the core's.
"""

from drupelet.base.aes import Aes
from drupelet.base.ccm import Ccm
from drupelet.base.errors import CapacityError, PeerError
from drupelet.base.hkdf import hkdf as hkdf_sha256
from drupelet.base.hmac256 import hmac as hmac_sha256
from harness_values import number, to_hex, unhex

try:
    from boards.aead import Aead
except ImportError:
    Aead = None

KEY_SIZES = (16, 24, 32)
OKM_SIZE_MAX = 255 * 32


def hmac(request):
    key = unhex(request.get("key") or "")
    return {"digest": to_hex(hmac_sha256(key, unhex(request["data"])))}


def hkdf(request):
    size = number(request["size"])
    if not 0 <= size <= OKM_SIZE_MAX:
        raise CapacityError(f"{size} bytes of keying material")
    ikm = unhex(request["ikm"])
    salt = unhex(request.get("salt") or "")
    info = unhex(request.get("info") or "")
    return {"okm": to_hex(hkdf_sha256(ikm, salt, info, size))}


class Request:
    """Key, nonce, what is authenticated, tag size: as CCM takes them.

    `size` is the plaintext's: of a ciphertext, the tag at its end is no part of it.
    """

    def __init__(self, request, text, sealed):
        key = unhex(request["key"])
        self.nonce = unhex(request["nonce"])
        self.aad = unhex(request.get("aad") or "")
        self.tag_size = number(request["tag_size"])
        self.buf = bytearray(self.aad + text)
        if len(key) not in KEY_SIZES or not 7 <= len(self.nonce) <= 13:
            raise CapacityError(f"a key of {len(key)}, a nonce of {len(self.nonce)} bytes")
        if self.tag_size not in (4, 6, 8, 10, 12, 14, 16):
            raise CapacityError(f"a tag of {self.tag_size} bytes")
        self.size = len(text) - (self.tag_size if sealed else 0)
        if self.size >= 1 << (16 if len(self.nonce) == 13 else 20):
            raise CapacityError(f"a text of {self.size} bytes")
        self.aead = Ccm(Aes) if Aead is None or len(key) == 24 else Aead()
        self.cipher = self.aead.cipher(key, 0, len(key))


def ccm_seal(request):
    text = unhex(request["plaintext"])
    asked = Request(request, text, False)
    buf = asked.buf + bytes(asked.tag_size)
    asked.aead.seal(
        asked.cipher, asked.nonce, buf, 0, len(asked.aad), len(text), asked.tag_size
    )  # fmt: skip
    return {"ciphertext": to_hex(buf[len(asked.aad) :])}


def ccm_open(request):
    text = unhex(request["ciphertext"])
    asked = Request(request, text, True)
    size = asked.size
    start = len(asked.aad)
    if size < 0 or not asked.aead.open(
        asked.cipher, asked.nonce, asked.buf, 0, start, size, asked.tag_size
    ):
        raise PeerError("the tag is wrong")
    return {"plaintext": to_hex(asked.buf[start : start + size])}


VERBS = {"hmac": hmac, "hkdf": hkdf, "ccm_seal": ccm_seal, "ccm_open": ccm_open}
