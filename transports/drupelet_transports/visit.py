"""What a member does with a stick, peer by peer: take in what is there, then leave what is due.

The order keeps a pulled stick harmless. Every bundle is read before one is written; a bundle
counts as written only once it is renamed on the stick; and the caller saves the node's state
before it tells anybody that the stick may be unplugged.
"""

from drupelet.errors import OK
from drupelet_transports.stick import AHEAD_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.link import Link
    from drupelet_transports.stick import Stick


class Visit:
    """Counts of one visit; `failed` bundles are written again at the next one."""

    def __init__(
        self, stick: "Stick", frame: bytearray, now_ms: "Callable[[], int]",
        after_frame: "Callable[[], None]",
    ) -> None:  # fmt: skip
        self._stick = stick
        self._frame = frame
        self._now_ms = now_ms
        self._after_frame = after_frame  # the owner's turn: a visit is long
        self.bundles_in = 0
        self.frames_in = 0
        self.truncated = 0
        self.bundles_out = 0
        self.frames_out = 0
        self.failed = 0

    def take_in(self, link: "Link", peer_id: bytes) -> None:
        """Read the peer's bundles that we have not read whole before, oldest first."""
        reader = self._stick.reader(peer_id, link.bundle_in)
        frame = self._frame
        while reader.next():
            size = reader.read_into(frame)
            while size > 0:
                self.frames_in += 1
                link.received(reader.last_wire_size)
                link.receive(frame, size, self._now_ms())
                self._after_frame()
                size = reader.read_into(frame)
            if reader.complete:
                self.bundles_in += 1
                reader.taken += 1
                link.imported(reader.number, reader.seen)
            else:
                self.truncated += 1  # its valid prefix was taken; the rest comes again

    def hand_out(self, link: "Link", peer_id: bytes) -> int:
        """Write one bundle for the peer if anything is due, and remove what it has read."""
        stick = self._stick
        least = max(link.bundle_out, link.peer_seen)
        stick.number_max = least + AHEAD_MAX
        stick.clean(peer_id, link.peer_seen)
        newest = stick.newest_own(peer_id, link.bundle_out)
        link.visit(self._now_ms(), newest < link.bundle_out)
        # A power cut between the rename and the save leaves a bundle that we do not remember.
        number = max(least, newest) + 1
        size = link.poll_into(self._frame, self._now_ms())
        if not size:
            return OK
        writer = stick.writer(peer_id, number, link.bundle_in)
        code = OK
        while size and code == OK:
            code = writer.write(self._frame, size)
            link.sent(writer.last_wire_size)
            self.frames_out += 1
            self._after_frame()
            size = link.poll_into(self._frame, self._now_ms())
        if code == OK:
            code = writer.finish()
        if code == OK:
            link.commit(self._now_ms(), number)
            self.bundles_out += 1
        else:
            writer.abandon()
            link.abort(self._now_ms())
            self.failed += 1
        return code
