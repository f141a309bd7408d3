"""The bytes of a remote log: protobufs as 3/REMOTE-LOG has them, sealed (docs/SPEC.md 15).

RemoteLog   repeated Pair pair = 1; bytes tail = 2
Pair        bytes remoteHash = 1; bytes localHash = 2; bytes data = 3
Message     bytes group_id = 1; int64 timestamp = 2; bytes body = 3
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag

from drupelet.base.errors import PeerError
from drupelet.base.hkdf import hkdf
from drupelet.base.limits import BODY_SIZE_MAX, ID_SIZE
from drupelet.wire import protobuf_bytes
from drupelet.wire.protobuf import BYTES, VARINT
from drupelet_host.base.aead import Cipher
from drupelet_host.remote.content_store import ADDRESS_SIZE

ROOT_SIZE = 32
NAME_SIZE = 16
_KEY_SIZE = 16
_NONCE_SIZE = 13
_TAG_SIZE = 16
_SEQUENCE_SIZE = 8
_POINTER_SIZE = ADDRESS_SIZE + 8 + 4
# Pairs of one page: a page is written anew with each message until it is full.
PAGE_PAIRS_MAX = 16
# A message up to this size stands in the page itself.
DATA_INLINE_MAX = 1024
# What a sealed thing is: part of what its tag covers, so that none stands for another.
SEAL_POINTER = 1
SEAL_PAGE = 2
SEAL_MESSAGE = 3
SEAL_ENVELOPE = 4


def put_field(out: bytearray, number: int, value: bytes) -> None:
    """Append a field of bytes."""
    out += protobuf_bytes.bytes_field(number, value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a varint of up to 64 bits."""
    out += protobuf_bytes.varint(value)


def fields(content: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message; what is neither bytes nor varint is left out.

    Raises PeerError.
    """
    for number, kind, value in protobuf_bytes.fields(content):
        if kind in (BYTES, VARINT):
            yield number, value


@dataclass
class Pair:
    """One message of a log: its id, and where it is or what it is; neither: it was deleted."""

    id: bytes
    address: bytes = b""
    data: bytes = b""


@dataclass
class Page:
    """Some messages of a log in its order, and where the ones before them are; b"": none."""

    pairs: list[Pair] = field(default_factory=list)
    tail: bytes = b""

    def encode(self) -> bytes:
        """As RemoteLog."""
        out = bytearray()
        for pair in self.pairs:
            inner = bytearray()
            for number, value in ((1, pair.address), (2, pair.id), (3, pair.data)):
                if value:
                    put_field(inner, number, value)
            put_field(out, 1, bytes(inner))
        if self.tail:
            put_field(out, 2, self.tail)
        return bytes(out)


def decode_page(content: bytes) -> Page:
    """Read a RemoteLog; raises PeerError."""
    page = Page()
    for number, value in fields(content):
        if number == 1 and isinstance(value, bytes):
            if len(page.pairs) == PAGE_PAIRS_MAX:
                raise PeerError("a page with too many messages")
            pair = Pair(b"")
            for inner, part in fields(value):
                if isinstance(part, bytes):
                    pair.address = part if inner == 1 else pair.address
                    pair.id = part if inner == 2 else pair.id
                    pair.data = part if inner == 3 else pair.data
            if len(pair.id) != ID_SIZE or len(pair.address) not in (0, ADDRESS_SIZE):
                raise PeerError("a message without an id")
            page.pairs.append(pair)
        elif number == 2 and isinstance(value, bytes):
            page.tail = value
    if len(page.tail) not in (0, ADDRESS_SIZE):
        raise PeerError("a page whose tail is no address")
    return page


@dataclass(frozen=True)
class Message:
    """vac.mvds.Message; `body` as it is stored (docs/SPEC.md 4), `timestamp` as a number."""

    group: bytes
    timestamp: int
    body: bytes

    def encode(self) -> bytes:
        """As a protobuf."""
        out = bytearray()
        put_field(out, 1, self.group)
        if self.timestamp:
            put_varint(out, 2 << 3 | VARINT)
            put_varint(out, self.timestamp)
        if self.body:
            put_field(out, 3, self.body)
        return bytes(out)


def decode_message(content: bytes) -> Message:
    """Read a message; raises PeerError."""
    group = body = b""
    timestamp = 0
    for number, value in fields(content):
        if number == 1 and isinstance(value, bytes):
            group = value
        elif number == 2 and isinstance(value, int):
            timestamp = value
        elif number == 3 and isinstance(value, bytes):
            body = value
    if len(group) != ID_SIZE or len(body) > BODY_SIZE_MAX:
        raise PeerError("not a message of a group")
    return Message(group, timestamp, body)


@dataclass(frozen=True)
class Pointer:
    """The newest state of a log: its last page, how many messages it has, how often it grows."""

    sequence: int
    head: bytes
    count: int
    period_s: int


class FeedKeys:
    """What follows from a feed's root: its name, and the key that seals its contents."""

    def __init__(self, root: bytes) -> None:
        assert len(root) == ROOT_SIZE
        self.root = root
        self.name = hkdf(root, b"", b"drupelet feed name", NAME_SIZE)
        self._cipher = Cipher(hkdf(root, b"", b"drupelet feed key", _KEY_SIZE)).of(_TAG_SIZE)

    def __repr__(self) -> str:
        return f"FeedKeys({self.name.hex()})"

    def seal(self, kind: int, text: bytes, with_it: bytes = b"") -> bytes:
        """Nonce, ciphertext and tag; the tag covers `with_it`, too."""
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._cipher.encrypt(nonce, text, bytes((kind,)) + self.name + with_it)

    def open(self, kind: int, sealed: bytes, with_it: bytes = b"") -> bytes:
        """The text; raises PeerError for anything that a holder of the root did not seal."""
        if len(sealed) < _NONCE_SIZE + _TAG_SIZE:
            raise PeerError("too short for a sealed content")
        nonce, rest = sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:]
        try:
            return self._cipher.decrypt(nonce, rest, bytes((kind,)) + self.name + with_it)
        except InvalidTag as error:
            raise PeerError("not sealed by a member") from error

    def seal_pointer(self, pointer: Pointer) -> bytes:
        """What a name points to: the sequence number in the clear, the rest sealed."""
        sequence = pointer.sequence.to_bytes(_SEQUENCE_SIZE)
        text = pointer.head + pointer.count.to_bytes(8) + pointer.period_s.to_bytes(4)
        return sequence + self.seal(SEAL_POINTER, text, sequence)

    def open_pointer(self, content: bytes) -> Pointer:
        """Read what a name points to; raises PeerError."""
        sequence = content[:_SEQUENCE_SIZE]
        text = self.open(SEAL_POINTER, content[_SEQUENCE_SIZE:], sequence)
        if len(text) != _POINTER_SIZE:
            raise PeerError("not a pointer")
        head, numbers = text[:ADDRESS_SIZE], text[ADDRESS_SIZE:]
        return Pointer(
            int.from_bytes(sequence), head, int.from_bytes(numbers[:8]),
            int.from_bytes(numbers[8:]),
        )  # fmt: skip
