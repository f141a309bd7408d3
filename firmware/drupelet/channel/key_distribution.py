"""Distribution of sender keys: ours go to each listener of a topic, theirs come to us.

They travel in frames of kind 0x56 through the listener's own sealed link (docs/SPEC.md 12.9), are
durable before they are confirmed, and are sent again until then. A listener that is excluded keeps
a chain that nobody uses any more.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import SENDER_KEY_MS, SENDER_KEY_MS_MAX
from drupelet.base.memory import copy, equal, find
from drupelet.base.time_ms import elapsed_ms
from drupelet.channel.sender_keys import PLACE_SIZE, SenderKeys
from drupelet.seal.record import RECORD_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import AudiencePort

KIND_SENDER_KEY = const(0x56)
TOPIC_SIZE = const(4)
_ID_SIZE = const(4)
_TEXT_AT = const(5)
_OWNER_AT = const(17)  # in a frame with a record
_HELD_AT = const(57)  # likewise: what its sender has of the reader's chain
RECORD_FRAME_SIZE = const(65)
PLACE_FRAME_SIZE = const(13)
_UNCONFIRMED = const(0)
_CONFIRMED = const(1)
_EXCLUDED = const(2)

assert _HELD_AT == _TEXT_AT + RECORD_SIZE and RECORD_FRAME_SIZE == _HELD_AT + PLACE_SIZE
assert PLACE_FRAME_SIZE == _TEXT_AT + PLACE_SIZE


class KeyDistribution:
    """The sender keys of one topic and its listeners.

    topic: 4 bytes, the same at every member; ids: the listeners' device ids, 4 bytes each. A
    listener is named by its row in `ids`. `keys` is loaded, and has a chain of our own.
    """

    def __init__(
        self, keys: SenderKeys, own_id: "bytes | bytearray", topic: "bytes | bytearray",
        ids: "bytes | bytearray",
    ) -> None:  # fmt: skip
        self.keys = keys
        self.audience: "AudiencePort | None" = None  # who listens no more is taken out of it
        self.topic = topic
        self._own_id = own_id
        self._ids = ids
        self.count = len(ids) // _ID_SIZE
        self._states = bytearray(self.count)
        self._tried_ms = [-1] * self.count
        self._waits_ms = [SENDER_KEY_MS] * self.count

    def row(self, id: "bytes | bytearray") -> int:
        """The row of a listener, or -1."""
        return find(self._ids, _ID_SIZE, self.count, id, 0, _ID_SIZE)

    def is_confirmed(self, row: int) -> bool:
        """Whether a listener can read what we send."""
        return self._states[row] == _CONFIRMED

    def is_due(self, row: int, now_ms: int) -> bool:
        """Whether a listener is to be handed our key now; then it counts as tried."""
        if self._states[row]:
            return False
        tried_ms = self._tried_ms[row]
        if tried_ms >= 0:
            if elapsed_ms(now_ms, tried_ms) < self._waits_ms[row]:
                return False
            self._waits_ms[row] = min(2 * self._waits_ms[row], SENDER_KEY_MS_MAX)
        self._tried_ms[row] = now_ms
        return True

    def on_heard(self, row: int) -> None:
        """A listener is there: it gets our key soon."""
        self._waits_ms[row] = SENDER_KEY_MS

    def record_into(self, frame: bytearray, row: int) -> int:
        """Write the frame with our key for a listener; its size."""
        frame[0] = KIND_SENDER_KEY
        copy(frame, 1, self.topic, 0, TOPIC_SIZE)
        self.keys.record_into(frame, _TEXT_AT)
        self.keys.place_into(frame, _HELD_AT, self._ids, row * _ID_SIZE)
        return RECORD_FRAME_SIZE

    def receive(self, frame: bytearray, size: int, row: int) -> int:
        """Take in a frame of a listener; the size of the answer, now in `frame`, or 0.

        What is not of this topic, not whole or not its own is passed over.
        """
        if size not in (RECORD_FRAME_SIZE, PLACE_FRAME_SIZE) or self._states[row] == _EXCLUDED:
            return 0
        if not equal(frame, 1, self.topic, 0, TOPIC_SIZE):
            return 0
        if size == PLACE_FRAME_SIZE:
            self._confirmed(frame, _TEXT_AT, row)
            return 0
        owner_at = row * _ID_SIZE
        if not equal(frame, _OWNER_AT, self._ids, owner_at, _ID_SIZE):
            return 0
        self._confirmed(frame, _HELD_AT, row)
        self.keys.admit(frame, _TEXT_AT)
        held = self.keys.place_into(frame, _TEXT_AT, self._ids, owner_at)
        return PLACE_FRAME_SIZE if held else 0

    def _confirmed(self, frame: bytearray, at: int, row: int) -> None:
        """A listener says which chain of ours it has, and how far."""
        ours = bytearray(PLACE_SIZE)
        self.keys.place_into(ours, 0, self._own_id, 0)
        if not equal(ours, 0, frame, at, _ID_SIZE):
            self._states[row] = _UNCONFIRMED  # an older chain or none: ours did not get there yet
        elif frame[at + _ID_SIZE : at + PLACE_SIZE] > ours[_ID_SIZE:]:
            # It has seen epochs that we do not know: our keys were put back to an older copy.
            self.renew()
        else:
            # One that lags far behind follows no chain: it is told where ours is.
            self._states[row] = (
                _CONFIRMED if equal(ours, 0, frame, at, PLACE_SIZE) else _UNCONFIRMED
            )

    def renew(self) -> int:
        """Begin a new chain and tell it to all that are not shut out; OK or a code."""
        code = self.keys.create()
        if code == OK:
            for row in range(self.count):
                if self._states[row] == _CONFIRMED:
                    self._states[row] = _UNCONFIRMED
                self._tried_ms[row] = -1
                self._waits_ms[row] = SENDER_KEY_MS
        return code

    def exclude(self, row: int) -> None:
        """Hand a listener nothing any more, and take nothing from it."""
        self._states[row] = _EXCLUDED
        at = row * _ID_SIZE
        if self.audience is not None:
            self.audience.remove(self._ids[at : at + _ID_SIZE])
        self.keys.remove(self._ids, at)

    def revoke(self, row: int) -> int:
        """Likewise, and begin a chain that it never gets; OK or a code."""
        self.exclude(row)
        return self.renew()

    def is_excluded(self, row: int) -> bool:
        """Whether a listener was shut out since the start."""
        return self._states[row] == _EXCLUDED
