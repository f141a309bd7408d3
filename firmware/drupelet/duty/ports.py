# host only: shapes for the type checker, never loaded on a board
"""A live link as a snapshot reads it before a deep sleep, and sets it after one."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drupelet.engine.pace import Pace


class LivePort(Protocol):
    """A link of `link.link`."""

    visits: bool

    @property
    def peer(self) -> int: ...
    @property
    def pace(self) -> "Pace": ...
    @property
    def epoch(self) -> int: ...
    def count_anew(self) -> None: ...
    def resume(self) -> None: ...
