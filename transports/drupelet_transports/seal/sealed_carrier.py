"""A live carrier whose frames are sealed, with the interface of a carrier; boards and hosts.

It sends and handles the seal's own frames (status, REKEY, REVOKE); the link sees only its frames.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import SEAL_ANEW_MS_MAX, SEAL_TELL_MS, SEAL_TELL_MS_MAX
from drupelet.base.memory import copy, put_u16
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.seal.record import ANEW, FRAME_SIZE_AT, HEARD, OWES, RENEW, URGENT
from drupelet.seal.seal import STATUS_SIZE, TYPE_CONTROL, TYPE_DATA
from drupelet_transports.common.wrapper import Behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.seal.issue import Issuer
    from drupelet.seal.seal import Seal
    from drupelet_transports.common.transport import Transport

# Frames without data for the link that one call reads, so that a flood cannot keep a board busy.
_REFUSED_MAX = const(32)


class Sealed(Behind):
    """`carrier` with a loaded `seal`; `buf` has room for the carrier's longest frame.

    All sealed carriers of a device may share one `buf`. `refused` counts frames that were forged
    or replayed. `send` may also return E_STORAGE: the keys could not be made durable.
    """

    issuer: "Issuer | None" = None  # on a host: the source of REKEY and REVOKE frames

    def __init__(
        self, carrier: "Transport", seal: "Seal", now_ms: "Callable[[], int]", buf: bytearray
    ) -> None:
        self.carrier = carrier
        self.seal = seal
        self.duplex = carrier.duplex
        self.last_wire_size = 0
        self.refused = 0
        self._now_ms = now_ms
        self._buf = buf
        self._told_ms = -1
        self._wait_ms = SEAL_TELL_MS
        self._aged_ms = now_ms()
        size = min(carrier.frame_size_max, len(buf))
        put_u16(seal.context.rows, seal.at + FRAME_SIZE_AT, size)
        self.frame_size_max = seal.room()

    def send(self, frame: bytearray, size: int) -> int:
        """Seal and send one frame of the link; see Transport."""
        assert 0 < size <= self.frame_size_max
        self.last_wire_size = 0
        seal = self.seal
        code = seal.prepare()
        if code == OK and seal.flags & OWES and size + STATUS_SIZE > self.frame_size_max:
            code = self._put(frame, 0, TYPE_DATA)  # no room for both: send the status first
        if code == OK and self.issuer is not None:
            code = self._issue(self.issuer)
        return self._put(frame, size, TYPE_DATA) if code == OK else code

    def _put(self, frame: "bytes | bytearray", size: int, kind: int) -> int:
        sealed = self.seal.seal_into(self._buf, frame, size, kind)
        if sealed < 0:
            return sealed
        code = self.carrier.send(self._buf, sealed)
        if code == OK:
            self.last_wire_size += self.carrier.last_wire_size
        else:
            self.seal.flags |= OWES  # the frame may have had our status, which was not sent
        return code

    def _issue(self, issuer: "Issuer") -> int:
        code = OK
        text = issuer.due(self._now_ms())
        while text and code == OK:
            code = self._put(text, len(text), TYPE_CONTROL)
            text = issuer.due(self._now_ms())
        return code

    def _may_tell(self) -> bool:
        return self._told_ms < 0 or elapsed_ms(self._now_ms(), self._told_ms) >= self._wait_ms

    def tell(self) -> int:
        """Send our status now in a frame of its own; OK or a code of `send`.

        If nothing authentic was received since the last call, the status is sent in a new epoch:
        the peer may have been restored from an older copy, so that each end has closed the other's
        epoch. The back-off doubles with each call until something is received. Announcing a new
        log (ANEW) needs no new epoch, so its back-off has a shorter bound.
        """
        self._told_ms = self._now_ms()
        seal = self.seal
        longest = SEAL_ANEW_MS_MAX
        if seal.flags & (HEARD | URGENT) == URGENT:
            longest = SEAL_TELL_MS_MAX
            seal.flags |= RENEW
        if seal.flags & (HEARD | ANEW) != HEARD:
            self._wait_ms = min(2 * self._wait_ms, longest)
        seal.flags &= ~HEARD
        code = seal.prepare()
        if code == OK:
            seal.flags |= OWES
            code = self._put(self._buf, 0, TYPE_DATA)
        if code == OK and self.issuer is not None:
            code = self._issue(self.issuer)
        return code

    def receive_into(self, frame: bytearray) -> int:
        """Receive the next frame for the link; see Transport. Frames not authentic are counted."""
        buf = self._buf
        seal = self.seal
        self.last_wire_size = 0
        age_units = elapsed_ms(self._now_ms(), self._aged_ms) >> 16
        if age_units:
            self._aged_ms = later_ms(self._aged_ms, age_units << 16)
            seal.grow_old(age_units)
        tries = _REFUSED_MAX
        while tries:
            tries -= 1
            size = self.carrier.receive_into(buf)
            if size <= 0:
                break
            self.last_wire_size += self.carrier.last_wire_size
            size = seal.open(buf, size, self._now_ms())
            if size >= 0 and not seal.flags & ANEW:
                self._wait_ms = SEAL_TELL_MS
            if size > 0:
                copy(frame, 0, buf, seal.context.at, size)
                return size
            if size < 0:
                self.refused += 1
            if size == E_STORAGE:
                break
        if seal.flags & (URGENT | ANEW) and not self.carrier.pending_size and self._may_tell():
            self.tell()
        return size if size < 0 and tries and size != E_STORAGE else 0
