"""The socket for a stick: makes one visit each time a stick is plugged in."""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet_transports.stick.sealed_visit import SealedVisit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import DevicePort
    from drupelet.link.stick_visit import BundleLink
    from drupelet.seal.seal import Seal
    from drupelet_transports.stick.stick import Stick


# How often to look for a stick: whoever plugged it in is waiting.
_STICK_MS = const(1000)


class Socket:
    """The KeeperPort of sticks: `maintain` makes a visit when a stick is plugged in.

    It uses the frame buffer and the log of the device, and `buf` of its seals. A visit is one long
    turn: it feeds the watchdog after each frame.
    """

    poll_object = None

    def __init__(self, stick: "Stick", buf: bytearray) -> None:
        self.device: "DevicePort | None" = None
        self._links: "list[tuple[bytes, BundleLink]]" = []  # peer ids and links
        self._seals: "dict[bytes, Seal]" = {}
        self._stick = stick
        self._buf = buf
        self._visited = False
        self._wait_ms = 0

    def add(self, peer_id: bytes, link: "BundleLink", seal: "Seal") -> None:
        """Add a peer that is reached by stick."""
        self._links.append((peer_id, link))
        self._seals[peer_id] = seal

    def wait_ms(self, _now_ms: int) -> int:
        """Return when to call `maintain` again, in ms: after a visit at once."""
        return self._wait_ms

    def maintain(self, _now_ms: int) -> None:
        """Make a visit if a stick was plugged in since the last call."""
        is_here = self._stick.present()
        self._wait_ms = _STICK_MS
        if is_here and not self._visited:
            self._visit(self.device)
            self._wait_ms = 0
        self._visited = is_here

    def _visit(self, device: "DevicePort") -> None:
        """Read the stick, write to it, then print that it may be unplugged."""
        self._visited = True  # even if memory runs out during the visit
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
        self.device.port.feed()
