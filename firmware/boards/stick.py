"""The socket for a stick: one visit each time a stick is plugged in."""

from drupelet_transports.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.device import Device
    from drupelet.link import Link
    from drupelet_transports.stick import Stick


class Socket:
    """Look at it in every turn; the frame and the log are the device's."""

    def __init__(self, stick: "Stick") -> None:
        self.links: "list[tuple[bytes, Link]]" = []  # peer id and link of whom the stick reaches
        self._stick = stick
        self._visited = False

    def look(self, device: "Device") -> None:
        """Visit a stick that was not there before, then say that it may be unplugged."""
        if not self._stick.present():
            self._visited = False
            return
        if self._visited:
            return
        self._visited = True
        visit = Visit(self._stick, device.frame, device.clock.now_ms, device.drain)
        for peer_id, link in self.links:
            visit.take_in(link, peer_id)
        device.consume()
        for peer_id, link in self.links:
            visit.hand_out(link, peer_id)
        device.node.save(device.clock.now_ms())
        device.say(
            '{"event":"stick","read":%d,"frames_read":%d,"truncated":%d,"wrote":%d,'
            '"frames_wrote":%d,"failed":%d}'
            % (
                visit.bundles_in, visit.frames_in, visit.truncated,
                visit.bundles_out, visit.frames_out, visit.failed,
            )
        )  # fmt: skip
