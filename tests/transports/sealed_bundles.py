"""Members who write sealed bundles on a stick, without an engine behind them."""

from drupelet.base.errors import OK
from drupelet_transports.stick.sealed_visit import SealedVisit
from drupelet_transports.stick.stick import Stick
from seal_ends import Clock


class FakeLink:
    """What a visit asks of a stick's link."""

    def __init__(self, frames=()):
        self.due = list(frames)
        self.given = []
        self.bundle_in = self.bundle_out = self.peer_seen = 0
        self.got = []
        self.limits = set()
        self.aborted = 0

    is_full = False
    begin_import = int

    def set_room(self, room):
        assert room > 0

    def visit(self, _now_ms, _without_ours):
        self.given = list(self.due)

    def poll_into(self, frame, _now_ms):
        self.limits.add(len(frame))
        if not self.given:
            return 0
        text = self.given.pop(0)
        frame[: len(text)] = text
        return len(text)

    def sent(self, wire_size):
        assert wire_size > 4

    def received(self, wire_size):
        assert wire_size > 4

    def receive(self, frame, size, _now_ms):
        self.got.append(bytes(frame[:size]))
        return OK

    def commit(self, _now_ms, number):
        self.bundle_out = number
        self.due = []

    def abort(self, _now_ms):
        self.aborted += 1

    def imported(self, number, seen, _whole):
        self.bundle_in = number
        self.peer_seen = max(self.peer_seen, seen)


class Member:
    """One device at the stick."""

    def __init__(self, root, end):
        self.end = end
        self.link = FakeLink()
        self.stick = Stick(str(root), end.keys.own_id)
        self.clock = Clock()
        self.visit = None

    def go(self, out=(), save=True):
        """A whole visit."""
        end = self.end
        self.link.due += out
        seals = {end.keys.peer_id: end.seal}
        assert self.stick.present()
        visit = self.visit = SealedVisit(
            self.stick, seals, bytearray(1024), self.clock, lambda: None, bytearray(1024)
        )
        visit.take_in(self.link, end.keys.peer_id)
        code = visit.hand_out(self.link, end.keys.peer_id)
        if save:
            assert visit.saved() == OK
        return code


def bundles(tmp_path):
    return sorted(tmp_path.rglob("*.DRP"))
