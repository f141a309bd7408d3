"""A visit of a stick with unsealed bundles, for the simulator, the bench and tests.

Its order is that of `sealed_visit`, which devices use.
"""

from drupelet.base.errors import OK
from drupelet_transports.stick.sealed_visit import SealedVisit
from drupelet_transports.stick.stick import AHEAD_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.link.stick_visit import BundleLink
    from drupelet_transports.stick.stick import Stick


class Visit(SealedVisit):
    """One visit and its counters; `failed` bundles are written again at the next visit."""

    def __init__(
        self, stick: "Stick", frame: bytearray, now_ms: "Callable[[], int]",
        after_frame: "Callable[[], None]",
    ) -> None:  # fmt: skip
        SealedVisit.__init__(self, stick, {}, frame, now_ms, after_frame, frame)

    def take_in(self, link: "BundleLink", peer_id: bytes) -> None:
        """Read the peer's bundles that we have not read completely before, oldest first."""
        reader = self._stick.reader(peer_id, link.bundle_in)
        frame = self._frame
        while reader.next():
            link.begin_import()
            is_whole = True
            size = reader.read_into(frame)
            while size > 0:
                self.frames_in += 1
                link.received(reader.last_wire_size)
                is_whole = link.receive(frame, size, self._now_ms()) == OK and is_whole
                self._after_frame()
                size = reader.read_into(frame)
            if reader.complete:
                self.bundles_in += 1
                reader.taken += 1
                link.imported(reader.number, reader.seen, is_whole)
            else:
                self.truncated += 1  # its valid frames were handled; the peer sends the rest

    def _bundle(self, link: "BundleLink", peer_id: bytes, size_max: int) -> int:
        """See SealedVisit."""
        stick = self._stick
        self._size = 0
        self.short = False
        number_min = max(link.bundle_out, link.peer_seen)
        stick.number_max = number_min + AHEAD_MAX
        stick.clean(peer_id, link.peer_seen)
        newest = stick.newest_own(peer_id, link.bundle_out)
        link.visit(self._now_ms(), newest < link.bundle_out)
        # After a power cut between rename and save we do not remember our last bundle.
        number = max(number_min, newest) + 1
        writer = stick.writer(peer_id, number, link.bundle_in)
        code = OK
        size = self._next(link, writer, self._frame, size_max)
        if not size:
            return OK
        while size and code == OK:
            code = writer.write(self._frame, size)
            link.sent(writer.last_wire_size)
            self.frames_out += 1
            self._after_frame()
            size = self._next(link, writer, self._frame, size_max)
        return self._end(link, writer, number, code)
