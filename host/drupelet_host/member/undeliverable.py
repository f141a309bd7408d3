"""How many messages cannot be delivered to a peer (docs/SPEC.md 3.4).

They fit no frame of its carrier, and it has not shown that it reads segments.
"""

from drupelet import host_api
from drupelet.node import Node

_UNCOUNTED = ((0, False), 0, 0)


class Undeliverable:
    """Counts them by peer (number); what was counted is not read again while the first waits."""

    def __init__(self, node: Node) -> None:
        self._node = node
        # The first one and whether the peer holds it by now, the last one looked at, and how many.
        self._counts: dict[int, tuple[tuple[int, bool], int, int]] = {}

    def count(self, peer: int) -> int:
        """Messages that were passed over for the peer, as far as its cursor has come.

        One that is on its way after all is outstanding, and not among them.
        """
        node = self._node
        state = host_api.peer_state(node, peer)
        first = state.passed_over
        if not first:
            self._counts.pop(peer, None)
            return 0
        known, last, count = self._counts.get(peer, _UNCOUNTED)
        if known != (first, state.is_passed_held) or last > state.cursor:
            last = first
            count = int(not state.is_passed_held and host_api.is_too_long(node, peer, first))
        handle = node.store.next(last)
        while 0 < handle <= state.cursor:
            count += host_api.is_too_long(node, peer, handle)
            last = handle
            handle = node.store.next(last)
        self._counts[peer] = ((first, state.is_passed_held), last, count)
        is_on_its_way = host_api.is_on_its_way(node, peer, first)
        return count - (is_on_its_way and not state.is_passed_held)

    def reads_segments(self, peer: int) -> bool:
        """Whether the peer reads segments: then what was passed over is on its way to it."""
        return host_api.reads_segments(self._node, peer)
