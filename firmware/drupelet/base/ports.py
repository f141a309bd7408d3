# host only: shapes for the type checker, never loaded on a board
"""Ports that several rooms use.

Every implementation of a port passes the port's contract suite in tests/.
"""

from typing import Any, Protocol

Buffer = bytes | bytearray | memoryview
# A key in the form that an AEAD needs, opaque to everybody else.
Cipher = Any


class HashPort(Protocol):
    """Computes message ids of one family in pieces: `start`, `update` ..., `digest_into`."""

    def start(
        self, group_id: Buffer, at: int, timestamp: Buffer, ts_at: int, body_size: int
    ) -> None: ...
    def update(self, body: Buffer, at: int, size: int) -> None: ...
    def digest_into(self, out: bytearray, at: int) -> None: ...


class BoxPort(Protocol):
    """The black box, as the engine uses it; docs/DESIGN.md 18."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None: ...
    def log_id(self, now_ms: int, code: int, a: int, b: int, ids: Buffer, at: int) -> None: ...
    def count(self, index: int, amount: int) -> None: ...


class AeadPort(Protocol):
    """AES-CCM with keys of 16 bytes, in place; sizes as in `drupelet.base.ccm.Ccm`."""

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
    """Keeps the chain records of one peer over power cuts; docs/SPEC.md 11.2.

    `load` returns E_STORAGE if there is no such record. What `save` and `drop` did is durable once
    they return OK; a power cut before that leaves the old record or the new one. `revoke` ends the
    keys of another peer: buf[at:] has its id [4] and their kid, u16, 0 for any.
    """

    own_id: bytes
    peer_id: bytes

    def load(self, row: int, out: bytearray) -> int: ...
    def save(self, row: int, record: bytearray) -> int: ...
    def drop(self, row: int) -> int: ...
    def revoke(self, buf: bytearray, at: int) -> int: ...


class ArbiterPort(Protocol):
    """Lets the live links to a peer share one payload per epoch; `link.arbiter`."""

    def begin(self, peer: int) -> None: ...
    def end(self, peer: int) -> None: ...
    def note_payload(self, peer: int, link: Any) -> None: ...
    def turn_ms(self, peer: int, link: Any, now_ms: int) -> int: ...
