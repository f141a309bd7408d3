# host only: shapes for the type checker, never loaded on a board
"""What wire profiles ask of who they encode for, and what a host hands to them."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange
    from drupelet.engine.pace import Pace
    from drupelet.engine.ports import CodecPort


class LinkPort(Protocol):
    """A link as a session, a codec of bundles or a recovery is given it."""

    peer: int
    profile: int
    closed: bool
    visits: bool
    pace: "Pace"
    own_codec: "CodecPort | None"

    @property
    def exchange(self) -> "Exchange": ...
    @property
    def codec(self) -> "CodecPort": ...
    def receive(self, frame: bytearray, size: int, now_ms: int) -> int: ...
    def poll_into(self, frame: bytearray, now_ms: int) -> int: ...


class BundlePort(Protocol):
    """A link of sticks, which a host hands a codec of its own."""

    def use_packing(self, packing: Any) -> None: ...


class RecordsPort(Protocol):
    """What a record profile without state of its own asks of who it encodes for: an exchange, or a
    topic (docs/DESIGN.md 9).

    In: `on_...` for what was read; `on_message` reads group id and timestamp before all else: they
    may stand in the graph's `ids`. Out: `take_...` writes a 32-byte id that is due; a message is
    looked at with `next_message`, copied with `body_into`, and `put_message` says that it is in
    the frame, `too_long` that it fits none.
    """

    core: "Core"

    @property
    def message_group(self) -> int: ...
    def count_record(self, sent: bool, kind: int, size: int) -> None: ...
    def on_ack(self, buf: bytearray, at: int) -> None: ...
    def on_gone(self, buf: bytearray, at: int) -> None: ...
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


class SketchPort(Protocol):
    """What a host hands to a `compact-1` codec to reconcile many ids (docs/SPEC.md 3.5)."""

    def take(self, exchange: "Exchange", buf: bytearray, at: int, size: int) -> bool: ...
    def put_into(self, exchange: "Exchange", buf: bytearray, at: int, limit: int) -> int: ...
    def peer_lost(self, exchange: "Exchange") -> None: ...
    def holds(self, exchange: "Exchange") -> bool: ...
