# host only: shapes for the type checker, never loaded on a board
"""Ports of the engine: the methods that it needs of classes that other rooms implement.

Every implementation of a port passes the port's contract suite in tests/.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drupelet.engine.body import BodyReader
    from drupelet.engine.inbox import Inbox
    from drupelet.engine.outbox import Outbox
    from drupelet.engine.pending import Pending
    from drupelet.store.ports import StorePort


class ClientPort(Protocol):
    """A group's client (BSP v1 5): finds dependencies, validates; `engine/body.py`."""

    def dependencies(self, reader: "BodyReader") -> int:
        """Return how many ids the body names (0 to DEPENDENCIES_MAX), or E_PEER: malformed."""

    def dependency_into(self, reader: "BodyReader", row: int, out: bytearray) -> bool:
        """Copy the id of a dependency to out[0:32]; False if the read fails."""

    def validate(self, reader: "BodyReader") -> int:
        """Decide at delivery, when all dependencies are here: INVALID, SHARE, KEEP or DELETE."""


class GraphPort(Protocol):
    """What `dependency_cycle` needs of the graph."""

    store: "StorePort"
    pending: "Pending"
    reader: "BodyReader"
    ids: bytearray

    def finder(self, group: int, reader: "BodyReader") -> ClientPort: ...


class ControlPort(Protocol):
    """Shares and deletes single messages; groups are rows, results OK or a code."""

    def share(self, group: int, handle: int) -> int: ...
    def delete(self, group: int, handle: int) -> int: ...


class TopicPort(Protocol):
    """A topic beside a link: what it carries need not go over the link."""

    def carries(self, peer: int, group: int, row: int) -> bool: ...


class PassedOverPort(Protocol):
    """The messages that are too long for a peer's frames; `oversize`."""

    firsts: "list[int]"

    def begin(self, peer: int) -> int: ...
    def note_held(self, peer: int, handle: int, is_ack: bool) -> None: ...
    def note_reads_segments(self, peer: int) -> None: ...
    def reads_segments(self, peer: int) -> bool: ...
    def needed_from(self, peer: int) -> int: ...
    def lacks(self, peer: int, handle: int) -> bool: ...
    def forget(self, peer: int) -> None: ...


class CodecPort(Protocol):
    """A wire profile: parses records, and writes those that are due for an exchange."""

    def parse(self, exchange: Any, frame: bytearray, at: int, end: int) -> int: ...
    def fill(self, exchange: Any, frame: bytearray, at: int, limit: int) -> int: ...


class ExchangePort(Protocol):
    """What `Pace` needs of its exchange."""

    core: Any
    family: int

    @property
    def outbox(self) -> "Outbox": ...
    @property
    def inbox(self) -> "Inbox": ...
    @property
    def epoch(self) -> int: ...
    @property
    def peer_number(self) -> int: ...


class LongPort(Protocol):
    """The long bodies of a node; `long_bodies`."""

    def state_into(self, exchange: Any, frame: bytearray) -> int: ...
    def segment_into(self, exchange: Any, frame: bytearray, limit: int) -> int: ...
    def on_state(self, exchange: Any, frame: bytearray, size: int) -> int: ...
    def on_segment(self, exchange: Any, frame: bytearray, size: int) -> int: ...
    def tell_if_coming(self, exchange: Any, id: bytearray, at: int) -> bool: ...
    def part(self, peer: int) -> int: ...
    def claim_part(self, key: bytearray, at: int, evict: bool) -> int: ...
    def end(self, exchange: Any) -> None: ...
    def forget_peer(self, peer: int) -> None: ...
    def end_turn_of(self, peer: int, handle: int) -> None: ...
