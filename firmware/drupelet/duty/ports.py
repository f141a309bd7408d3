# host only: shapes for the type checker, never loaded on a board
"""Port of the snapshot: a live link, which it reads before a deep sleep and restores after it."""

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
