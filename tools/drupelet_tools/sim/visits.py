"""Visits of a stick to simulated devices; the oracle sees every frame before it is written."""

from collections.abc import Callable

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.link.link import CARRIER_STICK
from drupelet_tools.sim.carriers import SimStick
from drupelet_tools.sim.device import SimNode
from drupelet_tools.sim.ends import End
from drupelet_tools.sim.sealing import WatchedLink, show_again
from drupelet_transports.stick.plain_visit import Visit
from drupelet_transports.stick.sealed_visit import SealedVisit


def visit(node: SimNode, stick: SimStick) -> None:
    """Plug a stick in: the device reads all bundles, writes its own and saves."""
    ends = [end for end in node.ends if end.carrier == CARRIER_STICK]
    view = _WatchedView(node, stick, ends)
    seals = {end.peer.id: end.seal for end in ends if end.seal is not None}
    stick_visit: Visit | SealedVisit
    if seals:
        room = bytearray(FRAME_SIZE_MAX)
        stick_visit = SealedVisit(view, seals, node.frame, node.clock_ms, _nothing, room)  # type: ignore[arg-type]
    else:
        stick_visit = Visit(view, node.frame, node.clock_ms, _nothing)  # type: ignore[arg-type]
    for end in ends:
        stick_visit.take_in(WatchedLink(node.world, end), end.peer.id)  # type: ignore[arg-type]
    node.consume()
    for end in ends:
        view.end = end
        link = WatchedLink(node.world, end) if seals else end.link
        stick_visit.hand_out(link, end.peer.id)  # type: ignore[arg-type]
    if node.save() and isinstance(stick_visit, SealedVisit):
        stick_visit.saved()
    for end in ends:
        show_again(node.world, end)
    node.wake_by(node.world.now_ms)


def _nothing() -> None:
    """Called after each frame; in the simulation no time passes during a visit."""


class _WatchedView:
    """A stick's view that shows every frame to the oracle before it is written."""

    def __init__(self, node: SimNode, stick: SimStick, ends: list[End]) -> None:
        self._view = stick.view(node.id)
        self._node = node
        self.end = ends[0] if ends else None
        self.present = self._view.present
        self.newest_own = self._view.newest_own
        self.clean = self._view.clean
        self.reader = self._view.reader

    def writer(self, receiver_id: bytes, number: int, seen: int) -> object:
        """A writer that shows plain frames to the oracle; `WatchedLink` shows the sealed ones."""
        writer = self._view.writer(receiver_id, number, seen)
        write: Callable[[bytearray, int], int] = writer.write

        def watched(frame: bytearray, size: int) -> int:
            assert self.end is not None
            if self.end.seal is None:
                self._node.world.stick_frame(self.end, bytes(frame[:size]))
            return write(frame, size)

        writer.write = watched  # type: ignore[method-assign]
        return writer
