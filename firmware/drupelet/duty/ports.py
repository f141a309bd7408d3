# host only: shapes for the type checker, never loaded on a board
"""Port of the snapshot: a live link, which it reads before a deep sleep and restores after it."""

from typing import Any, Protocol


class LivePort(Protocol):
    """A link of `link.link`."""

    visits: bool
    exchange: Any

    @property
    def peer(self) -> int: ...
    def count_anew(self) -> None: ...
    def resume(self) -> None: ...
