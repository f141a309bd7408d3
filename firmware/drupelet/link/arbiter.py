"""The link arbiter: several live links to one peer share one payload per epoch (MVDS "Flow")."""

from drupelet.engine.backoff import drawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.clock import Clocks
    from drupelet.link.link import Link


class Arbiter:
    """For each such peer (row): the epoch of the last payload, and the link that carried it."""

    def __init__(self, clocks: "Clocks") -> None:
        self._clocks = clocks
        self._last: "dict[int, list[object]]" = {}

    def begin(self, peer: int) -> None:
        """Begin to arbitrate: a peer (row) has more than one live link."""
        self._last[peer] = [0, None]

    def end(self, peer: int) -> None:
        """End it: the peer has one live link again."""
        self._last.pop(peer, None)

    def note_payload(self, peer: int, link: "Link") -> None:
        """Record that a payload goes over a link."""
        if peer in self._last:
            last = self._last[peer]
            last[0] = self._clocks.epochs[peer]
            last[1] = link

    def turn_ms(self, peer: int, link: "Link", now_ms: int) -> int:
        """Return the ms until a link may send this epoch's payload; negative: not in this epoch.

        A pseudo-random choice decides if the link that sent the last payload, or the others, wait
        for the first half of the next epoch. So a carrier that leads nowhere cannot take every
        epoch, nor always those in which a message is due that was offered over another link.
        """
        last = self._last.get(peer)
        if last is None or last[1] is None:
            return 0
        clocks = self._clocks
        is_last = last[1] is link
        waits = is_last == drawn(clocks.epochs[peer])
        if last[0] == clocks.epochs[peer]:
            return 0 if is_last else -1
        # To the middle of this epoch.
        wait_ms = clocks.until_ms(peer, now_ms, 1) - (clocks.epoch_ms(peer) + 1) // 2
        return max(wait_ms, 0) if waits else 0
