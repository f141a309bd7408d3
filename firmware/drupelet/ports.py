# host only: shapes for the type checker, never loaded on a board
"""The ports: what differs between a board and a host is handed in and has these shapes.

Every implementation of a port passes the port's contract suite in tests/.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drupelet.core import Core
    from drupelet.reader import BodyReader

Buffer = bytes | bytearray | memoryview
# What an AEAD makes of a key; only that AEAD knows what it is.
Cipher = Any


class IndexPort(Protocol):
    """Where a message id is in the slot table: a scan on a board, a dict on a host."""

    def find(self, id: Buffer, at: int) -> int:
        """The slot, or -1."""

    def put(self, id: Buffer, at: int, slot: int) -> None:
        """Note a taken slot."""

    def drop(self, id: Buffer, at: int) -> None:
        """Forget a freed slot."""


class HashPort(Protocol):
    """The id of a message of one family, in pieces; `start`, `update` …, `digest_into`."""

    def start(
        self, group_id: Buffer, at: int, timestamp: Buffer, ts_at: int, body_size: int
    ) -> None: ...
    def update(self, body: Buffer, at: int, size: int) -> None: ...
    def digest_into(self, out: bytearray, at: int) -> None: ...


class ClientPort(Protocol):
    """A group's client (BSP v1 section 5): finds dependencies, validates; `reader.py`."""

    def dependencies(self, reader: "BodyReader") -> int:
        """How many ids the body names (0..DEPENDENCIES_MAX), or E_PEER: it cannot be parsed."""

    def dependency_into(self, reader: "BodyReader", row: int, out: bytearray) -> bool:
        """Copy one of the ids to out[0:32]."""

    def validate(self, reader: "BodyReader") -> int:
        """At delivery, all dependencies being in the log: INVALID, SHARE, KEEP or DELETE."""


class StorePort(Protocol):
    """Where messages survive a power cut; DESIGN 7. Codes are those of `drupelet.errors`.

    `saved`: WAKE_STATE_SIZE_MAX bytes, `saved_size` of them the wake state that `open` found. Once
    it was taken up, and until the next `save`, codecs use the room for a message's parents.
    """

    id: bytearray
    timestamp: bytearray
    group: int
    source: int
    size: int
    state: int
    edges_size: int
    private: bool
    saved: bytearray
    saved_size: int
    settled_handle: int
    settled: list[int]
    missing: int
    box_slots: int
    box_slot: int

    def open(self) -> int: ...
    def member(self, kind: int, key: Buffer, at: int, size: int) -> int: ...
    def put(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        body: Buffer, at: int, size: int, state: int,
    ) -> int: ...  # fmt: skip
    def dismiss(self, kind: int, number: int) -> int: ...
    def descriptor_put(self, part: int, number: int) -> int: ...
    def descriptor_size(self, number: int) -> int: ...
    def descriptor_read_into(
        self, number: int, offset: int, buf: bytearray, at: int, size: int
    ) -> int: ...
    def part_open(self, part: int, key: Buffer, at: int, total: int) -> int: ...
    def part_append(self, part: int, buf: Buffer, at: int, size: int) -> int: ...
    def part_size(self, part: int) -> int: ...
    def part_left(self, part: int) -> int: ...
    def part_read_into(
        self, part: int, offset: int, buf: bytearray, at: int, size: int
    ) -> int: ...
    def part_drop(self, part: int) -> int: ...
    def bodies(self, group: int) -> int: ...
    def put_part(
        self, part: int, group: int, source: int, id: Buffer, id_at: int, state: int
    ) -> int: ...
    def find(self, id: Buffer, at: int, size: int = 32) -> int: ...
    def load(self, handle: int) -> int: ...
    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int: ...
    def promote(self, handle: int, state: int) -> int: ...
    def open_up(self, handle: int) -> int: ...
    def bury(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        handle: int,
    ) -> int: ...  # fmt: skip
    def next(self, handle: int) -> int: ...
    def next_pending(self, handle: int) -> int: ...
    def entomb(self, handle: int, edges: Buffer, size: int, missing: int = 0) -> int: ...
    def keep(self, handle: int, missing: int) -> int: ...
    def next_kept(self, handle: int) -> int: ...
    def dropped(self, group: int) -> int: ...
    def save(self, state: Buffer, size: int) -> int: ...
    def barrier(self) -> int: ...


class BoxPort(Protocol):
    """What the engine tells the black box; DESIGN 11."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None: ...
    def log_id(self, now_ms: int, code: int, a: int, b: int, ids: Buffer, at: int) -> None: ...
    def count(self, index: int, amount: int) -> None: ...


class LinkPort(Protocol):
    """What a wire profile asks of the link that it encodes for (docs/DESIGN.md 3).

    In: `on_...` for what was read; `on_message` reads the group id before all else, which may
    stand in the core's `scratch`. Out: `take_...` writes a 32-byte id that is due; a message is
    looked at with `next_message`, copied with `body_into`, and `put_message` says that it is in
    the frame, `too_long` that it fits none.
    """

    core: "Core"
    peer: int
    visits: bool
    interactive: bool
    attention: bool
    every: int

    @property
    def epoch(self) -> int: ...
    @property
    def carrier(self) -> int: ...
    @property
    def codec_row(self) -> int: ...
    @codec_row.setter
    def codec_row(self, row: int) -> None: ...

    def count_record(self, sent: bool, kind: int, size: int) -> None: ...
    def sees(self, group: int) -> int: ...
    def sight(self, slot: int) -> int: ...
    def sees_id(self, id: bytearray, at: int) -> bool: ...
    def on_ack(self, buf: bytearray, at: int) -> None: ...
    def on_offer(self, buf: bytearray, at: int) -> None: ...
    def on_request(self, buf: bytearray, at: int) -> None: ...
    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None: ...  # fmt: skip
    def take_ack(self, buf: bytearray, at: int) -> bool: ...
    def take_request(self, buf: bytearray, at: int) -> bool: ...
    def take_offer(self, buf: bytearray, at: int) -> bool: ...
    def next_message(self) -> bool: ...
    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool: ...
    def put_message(self) -> None: ...
    def too_long(self) -> None: ...


class CodecPort(Protocol):
    """A wire profile: reads a frame's records, writes what is due; no allocation."""

    def parse(self, link: LinkPort, frame: bytearray, at: int, end: int) -> int: ...
    def fill(self, link: LinkPort, frame: bytearray, at: int, limit: int) -> int: ...


class SketchPort(Protocol):
    """What a host hands to a `compact-1` codec to reconcile many ids (docs/SPEC.md 3.5)."""

    def take(self, link: LinkPort, buf: bytearray, at: int, size: int) -> bool: ...
    def put_into(self, link: LinkPort, buf: bytearray, at: int, limit: int) -> int: ...
    def peer_lost(self, link: LinkPort) -> None: ...
    def holds(self, link: LinkPort) -> bool: ...


class AeadPort(Protocol):
    """AES-CCM with keys of 16 bytes, in place; `drupelet.ccm.Ccm` tells the sizes."""

    def cipher(self, key: bytes | bytearray, at: int) -> Cipher: ...
    def seal(
        self, cipher: Cipher, nonce: bytearray, buf: bytearray, at: int, aad_size: int, size: int,
        tag_size: int,
    ) -> None: ...  # fmt: skip
    def open(
        self, cipher: Cipher, nonce: bytearray, buf: bytearray, at: int, aad_size: int, size: int,
        tag_size: int,
    ) -> bool: ...  # fmt: skip


class KeyPort(Protocol):
    """Where the chain records of one peer survive a power cut; docs/SPEC.md 11.2.

    `load` gives E_STORAGE when there is no such record. After `save` and `drop` returned OK a cut
    changes nothing any more; one in between leaves the old record or the new one. `revoke` ends
    the keys of another peer: buf[at:] has its id [4] and their kid, u16, 0 for whatever there is.
    """

    own_id: bytes
    peer_id: bytes

    def load(self, row: int, out: bytearray) -> int: ...
    def save(self, row: int, record: bytearray) -> int: ...
    def drop(self, row: int) -> int: ...
    def revoke(self, buf: bytearray, at: int) -> int: ...
