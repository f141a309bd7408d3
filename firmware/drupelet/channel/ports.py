# host only: shapes for the type checker, never loaded on a board
"""What a channel needs from others: keeper, filter, hashes, retrieval hints, files, keys."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drupelet.wire.sds.message import Decoder

Buffer = bytes | bytearray | memoryview
Key = bytes | bytearray


class KeeperPort(Protocol):
    """Keeps the whole messages of one channel; `channel/keeper.py` describes each call."""

    work: bytearray
    left: int
    left_far: int
    horizon: bytearray
    limit: bytearray

    def put(self, key: Key, size: int, waits: bool) -> int: ...
    def load(self, handle: int) -> int: ...
    def find(self, key: Key, id: Buffer, at: int, size: int) -> int: ...
    def names_into(self, handle: int, out: bytearray) -> bool: ...
    def pin(self, handle: int, pinned: bool) -> None: ...
    def waited_ms(self, handle: int) -> int: ...
    def drop(self, handle: int) -> None: ...
    def barrier(self) -> int: ...
    def next(self, handle: int) -> int: ...
    def tail(self, count: int) -> int: ...


class BloomPort(Protocol):
    """A rolling Bloom filter and the keys of ids; `wire/sds/bloom.py`."""

    capacity: int
    count: int
    bits: bytearray

    def key_into(self, out: bytearray, at: int, id: Buffer, start: int, size: int) -> None: ...
    def clear(self) -> None: ...
    def add(self, key: Key, at: int) -> None: ...
    def has(self, bits: Buffer, start: int, key: Key, at: int) -> bool: ...
    def usable(self, bits: Buffer, start: int, size: int) -> bool: ...


class TimesPort(Protocol):
    """T_req, T_resp, response groups and ids of our messages; `base/hashes_sds.py`, Identity."""

    def t_req_ms(self, id: Buffer, at: int, size: int, t_min: int, t_max: int) -> int: ...
    def t_resp_ms(
        self, sender: Buffer, sender_at: int, sender_size: int, id: Buffer, at: int, size: int,
        t_max: int,
    ) -> int: ...  # fmt: skip
    def in_group(
        self, sender: Buffer, sender_at: int, sender_size: int, id: Buffer, at: int, size: int,
        groups: int,
    ) -> bool: ...  # fmt: skip
    def id_into(
        self, out: bytearray, at: int, channel: bytes, lamport: bytearray, content: Buffer,
        content_at: int, size: int,
    ) -> None: ...  # fmt: skip


class HintPort(Protocol):
    """The application's retrieval hints (specs/sds.md "Send Message")."""

    def note(self, entry: "Decoder") -> None:
        """Note the hint of the current entry, whose message is missing here."""

    def hint_into(self, handle: int, out: bytearray) -> int:
        """Write the hint of a kept message to `out`; its size, at most 64; -1: it has none."""


class FilesPort(Protocol):
    """Files of a board, as `store.files.Files`; codes are those of `base.errors`."""

    def names(self) -> list[str]: ...
    def open(self, name: str, create: bool) -> int: ...
    def append(self, fd: int, buf: bytes | bytearray, at: int, size: int) -> int: ...
    def flush(self, fd: int) -> int: ...
    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int: ...
    def close(self, fd: int) -> None: ...
    def remove(self, name: str) -> int: ...


class AudiencePort(Protocol):
    """The listeners of a topic; `link.topic.Topic`."""

    def remove(self, id: bytes | bytearray) -> None: ...


class SenderKeyPort(Protocol):
    """Stores sender key records durably (docs/SPEC.md 12.8); row 0 is our own."""

    def load(self, row: int, out: bytearray) -> int: ...
    def save(self, row: int, record: bytearray) -> int: ...
    def drop(self, row: int) -> int: ...
