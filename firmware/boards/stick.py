"""The socket for a stick: one visit each time a stick is plugged in."""

from drupelet.base.errors import OK
from drupelet_transports.sealed_visit import SealedVisit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from boards.ports import DevicePort
    from drupelet.link.stick_visit import BundleLink
    from drupelet.seal.seal import Seal
    from drupelet_transports.stick import Stick


class Socket:
    """Look at it in every turn; the frame and the log are the device's, `buf` is its seals'.

    A visit is one turn, however long: `feed` keeps the watchdog quiet.
    """

    def __init__(self, stick: "Stick", buf: bytearray, feed: "Callable[[], None]") -> None:
        self._links: "list[tuple[bytes, BundleLink]]" = []  # peer ids and links
        self._seals: "dict[bytes, Seal]" = {}
        self._stick = stick
        self._buf = buf
        self._feed = feed
        self._visited = False

    def add(self, peer_id: bytes, link: "BundleLink", seal: "Seal") -> None:
        """Reach one more peer by stick."""
        self._links.append((peer_id, link))
        self._seals[peer_id] = seal

    def look(self, device: "DevicePort") -> None:
        """Visit a stick that was not there before, then say that it may be unplugged."""
        if not self._stick.present():
            self._visited = False
            return
        if self._visited:
            return
        self._visited = True
        self._device = device
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
        self._device.drain()
        self._feed()
