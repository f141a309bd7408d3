# host only: BLAKE2b and buffers of a record's full size
"""Records of profile `bsp-0`: the protocol of Briar 1.5.19 (bramble-core, package sync).

The records of `bsp-1` (drupelet.wire.bsp1) with version byte 0 and two more types:

    type  4 VERSIONS: 1 to 10 bytes, the versions that the sender supports; opens every session
          5 PRIORITY: a nonce of 16 bytes

A payload has at most 49,152 bytes, so an id list has at most 1,536 ids; a body is never empty. The
reader accepts what Briar accepts: a record that breaks one of these rules or has another version
ends the stream with PeerError as soon as it is complete; an unknown type of version 0 is skipped.
"""

from hashlib import blake2b

from drupelet.base.compat import const
from drupelet.base.errors import PeerError
from drupelet.base.limits import BODY_SIZE_MAX, CONTENT_HEADER_SIZE, ID_SIZE, RECORD_HEADER_SIZE

VERSION = const(0)
ACK = const(0)
MESSAGE = const(1)
OFFER = const(2)
REQUEST = const(3)
VERSIONS = const(4)
PRIORITY = const(5)

# Briar's SyncConstants and Record: 48 KiB per payload, which is 1,536 ids.
PAYLOAD_SIZE_MAX = const(49152)
IDS_MAX = const(1536)
VERSIONS_MAX = const(10)
NONCE_SIZE = const(16)
# Briar's ClientId and Group: a text of 1 to 100 bytes, a descriptor of at most 16 KiB.
CLIENT_ID_SIZE_MAX = const(100)
DESCRIPTOR_SIZE_MAX = const(16384)

_LABEL = b"org.briarproject.bramble/"
# The version byte in the hashes of groups, messages and bodies.
_FORMAT_VERSION = b"\x01"


def hash32(*parts: bytes) -> bytes:
    """Return BLAKE2b-256 over the parts, each preceded by its length in 4 bytes, big-endian."""
    return blake2b(_joined(*parts), digest_size=ID_SIZE).digest()


def _joined(*parts: bytes) -> bytes:
    """Join the parts as they are hashed, each preceded by its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def group_id(client_id: str, major_version: int, descriptor: bytes) -> bytes:
    """Return the 32-byte id of a group of a Briar client (`client_id`, `major_version`)."""
    client = client_id.encode()
    assert 0 < len(client) <= CLIENT_ID_SIZE_MAX
    assert 0 <= major_version < 1 << 31
    assert len(descriptor) <= DESCRIPTOR_SIZE_MAX
    version = major_version.to_bytes(4, "big")
    return hash32(_LABEL + b"GROUP_ID", _FORMAT_VERSION, client, version, descriptor)


def message_id(group: bytes, timestamp: bytes, body: bytes) -> bytes:
    """Return a message's 32-byte id; `timestamp` has 8 bytes, ms, big-endian."""
    root = blake2b(root_label(len(body)) + body, digest_size=ID_SIZE).digest()
    return message_id_of_root(group, timestamp, root)


def root_label(body_size: int) -> bytes:
    """Return what is hashed before a body of this size to get its root, a BLAKE2b-256."""
    return _joined(_LABEL + b"MESSAGE_BLOCK", _FORMAT_VERSION) + body_size.to_bytes(4, "big")


def message_id_of_root(group: bytes, timestamp: bytes, root: bytes) -> bytes:
    """Return the 32-byte id of a message whose body has this 32-byte root hash."""
    assert len(group) == len(root) == ID_SIZE and len(timestamp) == 8
    return hash32(_LABEL + b"MESSAGE_ID", _FORMAT_VERSION, group, timestamp, root)


def record(kind: int, payload: bytes) -> bytes:
    """Return a whole record of a known type; the payload is well-formed for it."""
    assert VERSION <= kind <= PRIORITY and is_well_formed(kind, payload)
    return bytes((VERSION, kind)) + len(payload).to_bytes(2, "big") + payload


def is_well_formed(kind: int, payload: bytes) -> bool:
    """Whether Briar accepts this payload in a record of this type; it skips unknown types."""
    return is_well_sized(kind, len(payload)) and (kind != MESSAGE or payload[ID_SIZE] < 0x80)


def is_well_sized(kind: int, size: int) -> bool:
    """Whether a record of this type may have a payload of this size."""
    if size > PAYLOAD_SIZE_MAX:
        return False
    if kind == MESSAGE:
        return 0 < size - CONTENT_HEADER_SIZE <= BODY_SIZE_MAX
    if kind in (ACK, OFFER, REQUEST):
        return size > 0 and size % ID_SIZE == 0
    if kind == VERSIONS:
        return 0 < size <= VERSIONS_MAX
    return kind != PRIORITY or size == NONCE_SIZE


class Reader:
    """Splits a session's byte stream, pushed in pieces of any size, into records.

    Call `push`, then `next` until it returns False; after True, `kind` and `payload` are a record
    of a known type. At the end of the stream `is_cut` says whether a record is incomplete. The
    reader holds what was pushed and not yet read, and at most one record more.
    """

    def __init__(self) -> None:
        self.kind = 0
        self.payload = b""
        self._buffer = bytearray()

    @property
    def is_cut(self) -> bool:
        """Whether the bytes pushed so far end within a record."""
        return bool(self._buffer)

    def push(self, piece: "bytes | bytearray | memoryview") -> None:
        """Append a piece of the stream; read all records with `next` before the next piece."""
        self._buffer += piece

    def next(self) -> bool:
        """Go to the next record; False if it is incomplete. PeerError: the session is over."""
        buffer = self._buffer
        while len(buffer) >= RECORD_HEADER_SIZE:
            end = RECORD_HEADER_SIZE + int.from_bytes(buffer[2:4], "big")
            if end > RECORD_HEADER_SIZE + PAYLOAD_SIZE_MAX:
                raise PeerError("record longer than 48 KiB")
            if len(buffer) < end:
                return False
            version = buffer[0]
            kind = buffer[1]
            payload = bytes(buffer[RECORD_HEADER_SIZE:end])
            if version != VERSION or not is_well_formed(kind, payload):
                raise PeerError(f"record of version {version}, type {kind}, {len(payload)} bytes")
            del buffer[:end]
            if kind <= PRIORITY:
                self.kind = kind
                self.payload = payload
                return True
        return False
