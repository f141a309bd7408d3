"""Distribution of sender keys between us and each listener of a topic.

They travel in frames of kind 0x56 through the listener's own sealed link (docs/SPEC.md 12.9), are
durable before they are confirmed, and are retransmitted until then. A listener that is excluded
keeps a key chain that nobody uses any more.
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
_HELD_AT = const(57)  # likewise: which epoch of the reader's chain the frame's sender has
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
    listener's row is its index in `ids`. `keys` must be loaded and have a chain of our own.
    """

    def __init__(
        self, keys: SenderKeys, own_id: "bytes | bytearray", topic: "bytes | bytearray",
        ids: "bytes | bytearray",
    ) -> None:  # fmt: skip
        self.keys = keys
        self.audience: "AudiencePort | None" = None  # excluded listeners are removed from it
        self.topic = topic
        self._own_id = own_id
        self._ids = ids
        self.count = len(ids) // _ID_SIZE
        self._states = bytearray(self.count)
        self._tried_ms = [-1] * self.count
        self._waits_ms = [SENDER_KEY_MS] * self.count

    def row(self, id: "bytes | bytearray") -> int:
        """Return the row of a listener by its device id, or -1."""
        return find(self._ids, _ID_SIZE, self.count, id, 0, _ID_SIZE)

    def is_confirmed(self, row: int) -> bool:
        """Whether a listener has confirmed our chain, so that it can read what we send."""
        return self._states[row] == _CONFIRMED

    def is_due(self, row: int, now_ms: int) -> bool:
        """Whether to send our key to a listener now; if so, it counts as sent."""
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
        """Reset the back-off of a listener that was heard."""
        self._waits_ms[row] = SENDER_KEY_MS

    def record_into(self, frame: bytearray, row: int) -> int:
        """Write the frame with our key for a listener; return its size."""
        frame[0] = KIND_SENDER_KEY
        copy(frame, 1, self.topic, 0, TOPIC_SIZE)
        self.keys.record_into(frame, _TEXT_AT)
        self.keys.place_into(frame, _HELD_AT, self._ids, row * _ID_SIZE)
        return RECORD_FRAME_SIZE

    def receive(self, frame: bytearray, size: int, row: int) -> int:
        """Handle a listener's frame; write the answer to `frame` and return its size, or 0.

        Frames of another topic, of a wrong size or with another device's key are ignored.
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
        has_chain = self.keys.place_into(frame, _TEXT_AT, self._ids, owner_at)
        return PLACE_FRAME_SIZE if has_chain else 0

    def _confirmed(self, frame: bytearray, at: int, row: int) -> None:
        """Compare the chain and epoch at frame[at], which a listener has of us, with ours."""
        ours = bytearray(PLACE_SIZE)
        self.keys.place_into(ours, 0, self._own_id, 0)
        is_our_chain = equal(ours, 0, frame, at, _ID_SIZE)
        if is_our_chain and frame[at + _ID_SIZE : at + PLACE_SIZE] > ours[_ID_SIZE:]:
            # It has a later epoch of our chain: our keys were restored from an older copy.
            self.renew()
        else:
            # If it has an older chain or none, or lags too far behind to follow the chain, send
            # our record again.
            is_same = equal(ours, 0, frame, at, PLACE_SIZE)
            self._states[row] = _CONFIRMED if is_same else _UNCONFIRMED

    def renew(self) -> int:
        """Begin a new chain and send it to all listeners that are not excluded; OK or a code."""
        code = self.keys.create()
        if code == OK:
            for row in range(self.count):
                if self._states[row] == _CONFIRMED:
                    self._states[row] = _UNCONFIRMED
                self._tried_ms[row] = -1
                self._waits_ms[row] = SENDER_KEY_MS
        return code

    def exclude(self, row: int) -> None:
        """Stop sending keys to a listener, and ignore what it sends."""
        self._states[row] = _EXCLUDED
        at = row * _ID_SIZE
        if self.audience is not None:
            self.audience.remove(self._ids[at : at + _ID_SIZE])
        self.keys.remove(self._ids, at)

    def revoke(self, row: int) -> int:
        """Exclude a listener and begin a chain that it never receives; OK or a code."""
        self.exclude(row)
        return self.renew()

    def is_excluded(self, row: int) -> bool:
        """Whether a listener has been excluded since the start."""
        return self._states[row] == _EXCLUDED
