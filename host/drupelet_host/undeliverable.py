"""How many messages cannot be delivered to a peer (docs/SPEC.md 3.4).

They fit no frame of its carrier, and it has not shown that it reads segments.
"""

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.engine.core import Core
from drupelet.engine.oversize import is_oversize
from drupelet.engine.states import HOLD, QUEUED


class Undeliverable:
    """Counts them by peer (row); what was counted is not read again while the first one waits."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._counts: dict[int, tuple[int, int, int]] = {}  # first, last that was looked at; count

    def count(self, peer: int) -> int:
        """Messages that were passed over for the peer, as far as its cursor has come.

        One that is on its way after all is outstanding, and not among them.
        """
        window = self._core.window
        first = window.oversize[peer] if window.oversize else 0
        if not first:
            self._counts.pop(peer, None)
            return 0
        known, last, count = self._counts.get(peer, (0, 0, 0))
        if known != first or last > window.cursors[peer]:
            last = ~first if first < 0 else first
            count = int(first > 0 and is_oversize(self._core, peer, last, FRAME_SIZE_MAX))
        handle = self._core.store.next(last)
        while 0 < handle <= window.cursors[peer]:
            count += is_oversize(self._core, peer, handle, FRAME_SIZE_MAX)
            last = handle
            handle = self._core.store.next(last)
        self._counts[peer] = (first, last, count)
        return count - self._is_queued(first, peer)

    def _is_queued(self, handle: int, peer: int) -> bool:
        slots = self._core.slots
        row = slots.states[peer * slots.count : (peer + 1) * slots.count]
        return any(
            slots.flags[slot]
            and slots.handles[slot] == handle
            and state & (QUEUED | HOLD) == QUEUED
            for slot, state in enumerate(row)
        )

    def reads_segments(self, peer: int) -> bool:
        """Whether the peer reads segments: then what was passed over is on its way to it."""
        rows = self._core.window.oversize
        return bool(rows) and rows[len(rows) // 2 + peer] < 0
