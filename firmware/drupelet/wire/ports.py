# host only: shapes for the type checker, never loaded on a board
"""What wire profiles need from the rest of the node, and what a host hands to them."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange
    from drupelet.engine.ports import CodecPort


class LinkPort(Protocol):
    """A link, as far as a bsp-0 session or a sketch recovery needs it."""

    profile: int
    closed: bool
    visits: bool
    own_codec: "CodecPort | None"

    @property
    def exchange(self) -> "Exchange": ...
    @property
    def codec(self) -> "CodecPort": ...
    def receive(self, frame: bytearray, size: int, now_ms: int) -> int: ...
    def poll_into(self, frame: bytearray, now_ms: int) -> int: ...


class BundlePort(Protocol):
    """A stick link that a host gives the packing codec."""

    def use_packing(self, packing: Any) -> None: ...


class RecordsPort(Protocol):
    """An exchange or a topic (docs/DESIGN.md 9), as a stateless record profile uses it.

    Reading: `on_...` reports a record. `on_message` reads group id and timestamp before anything
    else, so both may lie in the scratch `graph.ids`. Writing: `take_...` writes the next 32-byte
    id that is due to buf[at]. `next_message` selects the next message that is due and `body_into`
    copies its body; then `put_message` says that it is in the frame, or `too_long` that it fits
    into no frame.
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
    def take_ack(self, buf: bytearray, at: int) -> int: ...
    def take_request(self, buf: bytearray, at: int) -> int: ...
    def take_offer(self, buf: bytearray, at: int) -> bool: ...
    def next_message(self) -> bool: ...
    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool: ...
    def put_message(self) -> None: ...
    def too_long(self) -> None: ...


class SketchPort(Protocol):
    """What a host hands to a `compact-1` codec to reconcile many ids by a sketch (SPEC 3.5).

    Each link has its own.
    """

    def take(self, buf: bytearray, at: int, size: int) -> bool: ...
    def put_into(self, buf: bytearray, at: int, limit: int) -> int: ...
    def hold_back(self) -> None: ...
    def holds(self) -> bool: ...
