# host only: shapes for the type checker, never loaded on a board
"""Ports of links: a wake plan, a budget, and the node that owns them."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drupelet.engine.core import Core


class WakePlanPort(Protocol):
    """Knows when this device and its peers are awake; `duty.wake_plan`."""

    def on_wake(self, peer: int, frame: bytearray, size: int, now_ms: int) -> int: ...
    def wake_into(self, frame: bytearray, peer: int, now_ms: int) -> int: ...
    def there(self, peer: int, now_ms: int) -> bool: ...
    def awake_ms(self, now_ms: int) -> int: ...
    def next_wake_ms(self, now_ms: int) -> int: ...
    def wake_due_ms(self, peer: int, now_ms: int) -> int: ...


class BudgetPort(Protocol):
    """Bounds what a link sends in an epoch; a host has one, no board."""

    def room(self, now_ms: int, size_max: int) -> int: ...
    def spend(self, size: int) -> None: ...
    def wait_ms(self, now_ms: int, size: int) -> int: ...


class NodePort(Protocol):
    """The node of a topic; a topic is in its list of links, as it has the same methods."""

    core: "Core"
    links: list[Any]
