"""Who is online now, told by WAKE frames (docs/SPEC.md 10.2): 10 bytes when a window begins.

Without a wake plan nobody knows when a peer comes. Who comes online calls each peer once; who is
called answers; and nothing else is sent to a peer that was not heard in this window. In a window
of one epoch nobody can come later, so there only who has something for a peer calls it.
"""

from collections.abc import Iterable

from drupelet.duty.wake_plan import KIND_WAKE, WAKE_SIZE

_ASK = 1


class Presence:
    """One device's view of its peers in its present window."""

    def __init__(self, peers: int) -> None:
        self._peers = peers
        self._here: set[int] = set()
        self._to_call: set[int] = set()
        self._to_answer: set[int] = set()
        self._met: set[int] = set()

    def begin(self, wanted: Iterable[int] | None = None) -> None:
        """A window begins: nobody has been heard; everybody is to be called, or who is wanted."""
        self._here.clear()
        self._met.clear()
        self._to_answer.clear()
        self._to_call = set(range(self._peers) if wanted is None else wanted)

    def due(self) -> list[int]:
        """Peers that are to be called, or are here."""
        return sorted(self._to_call | self._to_answer | self._here)

    def call_into(self, frame: bytearray, peer: int) -> int:
        """Write the WAKE frame that is due to a peer; its size, or 0."""
        asks = peer in self._to_call and peer not in self._here
        if not asks and peer not in self._to_answer:
            return 0
        self._to_call.discard(peer)
        self._to_answer.discard(peer)
        frame[:WAKE_SIZE] = bytes(WAKE_SIZE)
        frame[0] = KIND_WAKE
        frame[1] = _ASK if asks else 0
        return WAKE_SIZE

    def call_all_into(self, frame: bytearray) -> int:
        """The same on a topic: one frame calls all, one answers all."""
        asks = bool(self._to_call)
        if not asks and not self._to_answer:
            return 0
        self._to_call.clear()
        self._to_answer.clear()
        frame[:WAKE_SIZE] = bytes(WAKE_SIZE)
        frame[0] = KIND_WAKE
        frame[1] = _ASK if asks else 0
        return WAKE_SIZE

    def told(self, peer: int, frame: bytearray) -> None:
        """A WAKE frame of a peer came."""
        if frame[1] & _ASK:
            self._to_answer.add(peer)
            self._met.add(peer)  # who comes tells first
        self._here.add(peer)

    def heard(self, peer: int) -> None:
        """Anything else came."""
        self._here.add(peer)

    def there(self, peer: int) -> bool:
        """Whether the peer was heard in this window."""
        return peer in self._here

    def newly_met(self, peer: int) -> bool:
        """True once a window for each peer that is here."""
        new = peer in self._here and peer not in self._met
        self._met.add(peer)
        return new


class There:
    """What a topic asks of a wake plan, for one peer."""

    def __init__(self, presence: Presence, number: int) -> None:
        self._presence = presence
        self._number = number

    def there(self, _peer: int, _now_ms: int) -> bool:
        """Whether the peer was heard in this window."""
        return self._presence.there(self._number)
