"""Peers with more live links than one: these share one payload per epoch (MVDS "Flow")."""

from drupelet.engine.backoff import drawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.clock import Clocks
    from drupelet.link.link import Link


class Sharing:
    """Of each such peer (row): in which epoch a payload went last, and over which link."""

    def __init__(self, clocks: "Clocks") -> None:
        self._clocks = clocks
        self._last: "dict[int, list[object]]" = {}

    def begin(self, peer: int) -> None:
        """More links than one count by the peer's clock from now on."""
        self._last[peer] = [0, None]

    def end(self, peer: int) -> None:
        """There is one link again."""
        self._last.pop(peer, None)

    def paid(self, peer: int, link: "Link") -> None:
        """A payload goes over this link."""
        if peer in self._last:
            last = self._last[peer]
            last[0] = self._clocks.epochs[peer]
            last[1] = link

    def turn_ms(self, peer: int, link: "Link", now_ms: int) -> int:
        """Milliseconds until a link may have the epoch's one payload; below 0: not in this one.

        Who had the last one, or who had not, leaves the others the first half of the next epoch,
        as if drawn: a carrier that leads nowhere must not take them all, nor those in which a
        message goes that was offered over another one.
        """
        last = self._last.get(peer)
        if last is None or last[1] is None:
            return 0
        clocks = self._clocks
        is_last = last[1] is link
        waits = is_last == drawn(clocks.epochs[peer])
        if last[0] == clocks.epochs[peer]:
            return 0 if is_last else -1
        # Until the next epoch less half of one.
        wait_ms = clocks.until_ms(peer, now_ms, 1) - (clocks.epoch_ms(peer) + 1) // 2
        return max(wait_ms, 0) if waits else 0
