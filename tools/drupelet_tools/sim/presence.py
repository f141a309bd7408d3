"""Presence by WAKE frames (docs/SPEC.md 10.2): 10 bytes to each peer when a window begins.

Without a wake plan no device knows when a peer comes online. A device that comes online calls each
peer once, and a peer that is called answers. A device sends nothing else to a peer that it has not
heard in this window. In a window of one epoch no peer can come later, so a device calls only the
peers for which it has a message.
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
        """Begin a window: no peer has been heard yet. Call the wanted peers, or all of them."""
        self._here.clear()
        self._met.clear()
        self._to_answer.clear()
        self._to_call = set(range(self._peers) if wanted is None else wanted)

    def due(self) -> list[int]:
        """The peers to which a call or an answer is due, and those that are online."""
        return sorted(self._to_call | self._to_answer | self._here)

    def call_into(self, frame: bytearray, peer: int) -> int:
        """Write the WAKE frame that is due to a peer; return its size, or 0."""
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

    def receive_wake(self, peer: int, frame: bytearray) -> None:
        """Note the WAKE frame that a peer sent."""
        if frame[1] & _ASK:
            self._to_answer.add(peer)
            self._met.add(peer)  # the peer that came later sends its filter first
        self._here.add(peer)

    def heard(self, peer: int) -> None:
        """Note that a peer sent a frame of any other kind."""
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
    """The part of a wake plan that a topic calls, for one peer."""

    def __init__(self, presence: Presence, number: int) -> None:
        self._presence = presence
        self._number = number

    def there(self, _peer: int, _now_ms: int) -> bool:
        """Whether the peer was heard in this window."""
        return self._presence.there(self._number)
