"""The AEAD port of a host: AES-CCM of `cryptography`; shaped as `drupelet.base.ccm.Ccm`."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM


class Cipher:
    """One key; the library binds a tag size to an object, so there is one for each size used."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._by_tag: dict[int, AESCCM] = {}

    def of(self, tag_size: int) -> AESCCM:
        """The library's object for this tag size."""
        cipher = self._by_tag.get(tag_size)
        if cipher is None:
            cipher = self._by_tag[tag_size] = AESCCM(self._key, tag_size)
        return cipher

    def __repr__(self) -> str:
        return "Cipher(...)"


class Aead:
    """AES-CCM in place."""

    def cipher(self, key: bytes | bytearray, at: int, size: int = 16) -> Cipher:
        """What `seal` and `open` take for the key at key[at]."""
        return Cipher(bytes(key[at : at + size]))

    def seal(
        self, cipher: Cipher, nonce: bytes | bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> None:  # fmt: skip
        """Encrypt in place: `aad_size` bytes stay, `size` are encrypted, the tag goes behind."""
        start = at + aad_size
        aad = bytes(buf[at:start])
        text = bytes(buf[start : start + size])
        sealed = cipher.of(tag_size).encrypt(bytes(nonce), text, aad)
        buf[start : start + size + tag_size] = sealed

    def open(
        self, cipher: Cipher, nonce: bytes | bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> bool:  # fmt: skip
        """Decrypt `size` bytes in place; False when the tag is wrong, and then they are zero."""
        start = at + aad_size
        aad = bytes(buf[at:start])
        text = bytes(buf[start : start + size + tag_size])
        try:
            opened = cipher.of(tag_size).decrypt(bytes(nonce), text, aad)
        except InvalidTag:
            opened = bytes(size)
            buf[start : start + size] = opened
            return False
        buf[start : start + size] = opened
        return True
