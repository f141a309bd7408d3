"""How many messages cannot be delivered to a peer (docs/SPEC.md 3.4).

They fit no frame of its carrier, and it has not shown that it reads segments.
"""

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.engine.core import Core
from drupelet.engine.oversize import is_oversize, reads_segments


class Undeliverable:
    """Counts them by peer (row); what was counted is not read again while the first one waits."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._counts: dict[int, tuple[int, int, int]] = {}  # first, last that was looked at; count

    def count(self, peer: int) -> int:
        """Messages that were passed over for the peer, as far as its cursor has come.

        One that is on its way after all is outstanding, and not among them.
        """
        core = self._core
        first = core.oversize[peer] if core.oversize else 0
        cursor = core.outboxes[peer].cursor
        if not first:
            self._counts.pop(peer, None)
            return 0
        known, last, count = self._counts.get(peer, (0, 0, 0))
        if known != first or last > cursor:
            last = ~first if first < 0 else first
            count = int(first > 0 and is_oversize(core, peer, last, FRAME_SIZE_MAX))
        handle = core.store.next(last)
        while 0 < handle <= cursor:
            count += is_oversize(core, peer, handle, FRAME_SIZE_MAX)
            last = handle
            handle = core.store.next(last)
        self._counts[peer] = (first, last, count)
        return count - self._is_on_its_way(first, peer)

    def _is_on_its_way(self, handle: int, peer: int) -> bool:
        outbox = self._core.outboxes[peer]
        row = outbox.row_of(handle)
        return row >= 0 and outbox.is_open(row)

    def reads_segments(self, peer: int) -> bool:
        """Whether the peer reads segments: then what was passed over is on its way to it."""
        return bool(self._core.oversize) and reads_segments(self._core, peer)
