"""The socket for a stick: one visit each time a stick is plugged in."""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet_transports.sealed_visit import SealedVisit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from boards.ports import DevicePort
    from drupelet.link.stick_visit import BundleLink
    from drupelet.seal.seal import Seal
    from drupelet_transports.stick import Stick


# A stick that was plugged in is found within this: who carries it waits beside it.
_STICK_MS = const(1000)


class Socket:
    """A KeeperPort: what it keeps up is that whoever plugs a stick in is served.

    The frame and the log are the device's, `buf` is its seals'. A visit is one turn, however
    long: `feed` keeps the watchdog quiet.
    """

    poll_object = None

    def __init__(self, stick: "Stick", buf: bytearray, feed: "Callable[[], None]") -> None:
        self.device: "DevicePort | None" = None
        self._links: "list[tuple[bytes, BundleLink]]" = []  # peer ids and links
        self._seals: "dict[bytes, Seal]" = {}
        self._stick = stick
        self._buf = buf
        self._feed = feed
        self._visited = False
        self._wait_ms = 0

    def add(self, peer_id: bytes, link: "BundleLink", seal: "Seal") -> None:
        """Reach one more peer by stick."""
        self._links.append((peer_id, link))
        self._seals[peer_id] = seal

    def wait_ms(self, _now_ms: int) -> int:
        """How long `maintain` may wait; what a visit brought is served at once."""
        return self._wait_ms

    def maintain(self, _now_ms: int) -> None:
        """Visit a stick that was not there before."""
        is_here = self._stick.present()
        self._wait_ms = _STICK_MS
        if is_here and not self._visited:
            self._visit(self.device)
            self._wait_ms = 0
        self._visited = is_here

    def _visit(self, device: "DevicePort") -> None:
        """Take in, hand out, then say that it may be unplugged."""
        self._visited = True  # also where memory runs out on the way
        visit = SealedVisit(
            self._stick, self._seals, device.frame, device.port.now_ms, self._after_frame,
            self._buf,
        )  # fmt: skip
        for peer_id, link in self._links:
            visit.take_in(link, peer_id)
        device.consume()
        for peer_id, link in self._links:
            visit.hand_out(link, peer_id)
        if device.node.save(device.port.now_ms()) == OK:
            visit.saved()
        device.console.say(
            '{"event":"stick","read":%d,"frames_read":%d,"truncated":%d,"wrote":%d,'
            '"frames_wrote":%d,"failed":%d}'
            % (
                visit.bundles_in, visit.frames_in, visit.truncated,
                visit.bundles_out, visit.frames_out, visit.failed,
            )
        )  # fmt: skip

    def _after_frame(self) -> None:
        self.device.drain()
        self._feed()
