"""The bytes of an invitation and of its reply, and what both ends derive (docs/SPEC.md 8.3).

    inviter -> joiner   invitation: who invites into which group, an X25519 key made for it
    joiner -> inviter   reply: who joined, its X25519 key, a proof over the records that it keeps

Both are carried by hand: in a file, as a QR code, or read out as words. Whoever copies them learns
no key. Whoever exchanges them is found out by the words: each end shows four words of its own and
asks for the four of the other end, and all eight come from the secret of both keys.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from drupelet.seal.record import challenge
from drupelet_host.keys.key_folder import KeysError
from drupelet_host.keys.secret import Secret

FORM = 1
INVITATION = 1
REPLY = 2
KEY_SIZE = 32
ID_SIZE = 4
PROOF_SIZE = 16
# Tells an invitation from the others that a home has open; a proof shows that it is the right one.
DIGEST_SIZE = 8
# Finds a slip of whoever types words: one in four billion stays hidden, and the proof finds it.
CHECK_SIZE = 4
# A name has at most 32 bytes; of a group's text so many fit one byte of length.
TEXT_SIZE_MAX = 255
# Seconds since 1970 in 40 bits.
_EXPIRES_SIZE = 5
_FLAG_TAG16 = 1
_ROOT_SIZE = 32
_NONCE_SIZE = 16
_RECORD_KEY = slice(16, 48)
# Four words of 16 bits for each end: nobody searches 2^64 key pairs for one that gives the words.
WORDS = 4
_WORDS_SIZE = 2 * WORDS
_LABEL = b"drupelet invitation 1"
_TEXT_HEAD = "DRUPELET:"
# Proquints (Wilkerson, arXiv 0901.4016): 16 bits are a word of consonants and vowels in turn.
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"
_WORD_SIZE = 5


class InvitationError(KeysError):
    """It is damaged or none; the text says what to do."""


@dataclass(frozen=True)
class Invitation:
    """What the inviter hands out. `public` is known to whoever saw it, and to nobody else."""

    id: bytes
    name: str
    group: str
    public: bytes
    kid: int
    expires_s: int
    tag_size: int

    def body(self) -> bytes:
        """Its bytes, without the check."""
        flags = _FLAG_TAG16 if self.tag_size == 16 else 0
        return (
            bytes((FORM, INVITATION, flags))
            + self.kid.to_bytes(2)
            + self.expires_s.to_bytes(_EXPIRES_SIZE)
            + self.id
            + self.public
            + _text(self.name)
            + _text(self.group)
        )

    def digest(self) -> bytes:
        """What a reply names it by."""
        return hashlib.sha256(self.body()).digest()[:DIGEST_SIZE]


@dataclass(frozen=True)
class Reply:
    """What the joiner answers; `proof` is that of `Pair.proof` over its records."""

    digest: bytes
    id: bytes
    name: str
    public: bytes
    proof: bytes = b""

    def body(self) -> bytes:
        """Its bytes, without the check; without a proof what the proof is made for."""
        head = bytes((FORM, REPLY)) + self.digest + self.id + self.public
        return head + _text(self.name) + self.proof


@dataclass(frozen=True)
class Pair:
    """What both ends derive from an invitation, a reply and their own private key."""

    root: Secret
    confirmation: Secret
    nonce: bytes
    inviter_words: str
    joiner_words: str

    def proof(self, records: list[bytes]) -> bytes:
        """16 bytes that only who keeps these records (docs/SPEC.md 11.2) can say."""
        answers = [challenge(record[_RECORD_KEY], self.nonce) for record in records]
        digest = hmac.digest(self.confirmation.reveal(), b"".join(answers), "sha256")
        return digest[:PROOF_SIZE]


def new_key() -> tuple[Secret, bytes]:
    """A private key for one pairing, and what the other end gets of it."""
    private = X25519PrivateKey.generate()
    return Secret(private.private_bytes_raw()), private.public_key().public_bytes_raw()


def pair(invitation: Invitation, reply: Reply, private: Secret, joiner: bool) -> Pair:
    """Derive what both ends share; raises InvitationError for a public key that is none."""
    other = X25519PublicKey.from_public_bytes(invitation.public if joiner else reply.public)
    try:
        shared = X25519PrivateKey.from_private_bytes(private.reveal()).exchange(other)
    except ValueError:  # a point of small order: everybody would know the secret
        raise InvitationError("its key is none that may be used; make a new invitation") from None
    unproved = Reply(reply.digest, reply.id, reply.name, reply.public)
    transcript = hashlib.sha256(invitation.body() + unproved.body()).digest()
    size = 2 * _ROOT_SIZE + 2 * _WORDS_SIZE
    derived = HKDF(SHA256(), size, None, _LABEL + transcript).derive(shared)
    words = derived[2 * _ROOT_SIZE :]
    return Pair(
        Secret(derived[:_ROOT_SIZE]), Secret(derived[_ROOT_SIZE : 2 * _ROOT_SIZE]),
        transcript[:_NONCE_SIZE], to_words(words[:_WORDS_SIZE]), to_words(words[_WORDS_SIZE:]),
    )  # fmt: skip


# --- bytes, text and words ---


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > TEXT_SIZE_MAX:
        raise InvitationError(
            f"group: longer than {TEXT_SIZE_MAX} bytes fits no invitation; give keys with"
            " `drupelet provision`"
        )
    return bytes((len(data),)) + data


def sealed(body: bytes) -> bytes:
    """A body with its check behind it, of an even size: two bytes are a word."""
    return body + hashlib.sha256(body).digest()[: CHECK_SIZE + (len(body) & 1)]


def parse(data: bytes) -> Invitation | Reply:
    """Take the bytes of `sealed` apart; raises InvitationError."""
    reader = _Reader(data)
    try:
        form, kind = reader.take(2)
        if form != FORM:
            raise InvitationError(f"form {form}: made by a later release; update this one")
        parsed = _parse_invitation(reader) if kind == INVITATION else _parse_reply(reader, kind)
    except (IndexError, ValueError):  # too short, or no UTF-8
        raise _damaged() from None
    body = data[: reader.at]
    if sealed(body) != data:
        raise _damaged()
    return parsed


def _damaged() -> InvitationError:
    return InvitationError("is no invitation and no reply, or damaged; copy it again")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next bytes; IndexError when there are fewer."""
        piece = self._data[self.at : self.at + size]
        if len(piece) != size:
            raise IndexError
        self.at += size
        return piece

    def text(self) -> str:
        """The next text with a byte of size before it."""
        return self.take(self.take(1)[0]).decode()


def _parse_invitation(reader: _Reader) -> Invitation:
    flags = reader.take(1)[0]
    kid, expires_s = int.from_bytes(reader.take(2)), int.from_bytes(reader.take(_EXPIRES_SIZE))
    id, public = reader.take(ID_SIZE), reader.take(KEY_SIZE)
    name, group = reader.text(), reader.text()
    if flags & ~_FLAG_TAG16 or not kid or kid & 3:
        raise ValueError
    return Invitation(id, name, group, public, kid, expires_s, 16 if flags & _FLAG_TAG16 else 8)


def _parse_reply(reader: _Reader, kind: int) -> Reply:
    if kind != REPLY:
        raise ValueError
    digest, id, public = reader.take(DIGEST_SIZE), reader.take(ID_SIZE), reader.take(KEY_SIZE)
    return Reply(digest, id, reader.text(), public, reader.take(PROOF_SIZE))


def to_text(body: bytes) -> str:
    """One line for a file or a QR code: letters and digits that a QR code packs best."""
    return _TEXT_HEAD + base64.b32encode(sealed(body)).decode().rstrip("=")


def from_text(text: str) -> Invitation | Reply:
    """What `to_text` wrote, or its words; raises InvitationError."""
    packed = "".join(text.split()).upper()
    if packed.startswith(_TEXT_HEAD):
        packed = packed.removeprefix(_TEXT_HEAD)
        try:
            data = base64.b32decode(packed + "=" * (-len(packed) % 8))
        except (binascii.Error, ValueError):
            raise _damaged() from None
    else:
        data = from_words(text)
    return parse(data)


def to_words(data: bytes) -> str:
    """An even number of bytes as words of five letters."""
    return " ".join(_word(int.from_bytes(data[at : at + 2])) for at in range(0, len(data), 2))


def _word(value: int) -> str:
    letters = (
        _CONSONANTS[value >> 12], _VOWELS[value >> 10 & 3], _CONSONANTS[value >> 6 & 15],
        _VOWELS[value >> 4 & 3], _CONSONANTS[value & 15],
    )  # fmt: skip
    return "".join(letters)


def from_words(text: str) -> bytes:
    """The bytes of words, however they are written apart; raises InvitationError."""
    data = b""
    for word in text.lower().replace("-", " ").split():
        if len(word) != _WORD_SIZE:
            raise _damaged()
        value = 0
        for place, letter in enumerate(word):
            letters = _VOWELS if place & 1 else _CONSONANTS
            if letter not in letters:
                raise InvitationError(f"{word[:_WORD_SIZE]!r}: is no word of ours; type it again")
            value = value * len(letters) + letters.index(letter)
        data += value.to_bytes(2)
    return data
