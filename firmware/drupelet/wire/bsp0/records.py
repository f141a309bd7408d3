# host only: BLAKE2b and buffers of a record's full size
"""Profile `bsp-0`: what Briar 1.5.19 speaks (bramble-core, package sync).

The records of `bsp-1` (drupelet.wire.bsp1) with version byte 0 and two types more:

    type  4 VERSIONS: 1 to 10 bytes, the versions that the sender supports; opens every session
          5 PRIORITY: a nonce of 16 bytes

A payload has at most 49,152 bytes, thus an id list at most 1,536 ids; a body is never empty. The
reader's verdicts are Briar's: any of these broken, or another version, ends the stream with
PeerError once the record is there; an unknown type of version 0 is skipped.
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

# Briar's SyncConstants and Record: 48 KiB a payload, which is 1,536 ids.
PAYLOAD_SIZE_MAX = const(49152)
IDS_MAX = const(1536)
VERSIONS_MAX = const(10)
NONCE_SIZE = const(16)
# Briar's ClientId and Group: a text of 1 to 100 bytes, a descriptor of 16 KiB.
CLIENT_ID_SIZE_MAX = const(100)
DESCRIPTOR_SIZE_MAX = const(16384)

_LABEL = b"org.briarproject.bramble/"
# Both hashes and the block hash have this version, one byte.
_FORMAT_VERSION = b"\x01"


def hash32(*parts: bytes) -> bytes:
    """Return BLAKE2b-256 over the parts, each behind its length in 4 bytes big-endian."""
    return blake2b(_joined(*parts), digest_size=ID_SIZE).digest()


def _joined(*parts: bytes) -> bytes:
    """The parts as they are hashed, each behind its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def group_id(client_id: str, major_version: int, descriptor: bytes) -> bytes:
    """Return the 32-byte id of a group of Briar's client `client_id`, of one major version."""
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
    """What precedes a body of this size in the BLAKE2b-256 that is its root."""
    return _joined(_LABEL + b"MESSAGE_BLOCK", _FORMAT_VERSION) + body_size.to_bytes(4, "big")


def message_id_of_root(group: bytes, timestamp: bytes, root: bytes) -> bytes:
    """Return the 32-byte id of a message whose body has this root of 32 bytes."""
    assert len(group) == len(root) == ID_SIZE and len(timestamp) == 8
    return hash32(_LABEL + b"MESSAGE_ID", _FORMAT_VERSION, group, timestamp, root)


def record(kind: int, payload: bytes) -> bytes:
    """Return a whole record of a known type; the payload is well-formed for it."""
    assert VERSION <= kind <= PRIORITY and is_well_formed(kind, payload)
    return bytes((VERSION, kind)) + len(payload).to_bytes(2, "big") + payload


def id_records(kind: int, ids: "list[bytes]") -> "list[bytes]":
    """Return as few records of type ACK, OFFER or REQUEST as hold these ids; none for none."""
    starts = range(0, len(ids), IDS_MAX)
    return [record(kind, b"".join(ids[at : at + IDS_MAX])) for at in starts]


def is_well_formed(kind: int, payload: bytes) -> bool:
    """Whether Briar takes this payload in a record of this type; unknown types are skipped."""
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
    """Takes a session's stream in pieces of any size and gives its records.

    `push` bytes, then `next` until it is False; after True, `kind` and `payload` are a record of
    a known type. `is_cut` tells, at the end of the stream, whether it ends within a record. Holds
    what was pushed and not yet read, and at most one record beyond.
    """

    def __init__(self) -> None:
        self.kind = 0
        self.payload = b""
        self._buffer = bytearray()

    @property
    def is_cut(self) -> bool:
        """Whether the stream so far ends within a record."""
        return bool(self._buffer)

    def push(self, piece: "bytes | bytearray | memoryview") -> None:
        """Append a piece of the stream; read all records out before the next one."""
        self._buffer += piece

    def next(self) -> bool:
        """Go to the next record; False: not all here yet. PeerError: the session is over."""
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
