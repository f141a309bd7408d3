"""Anti-entropy by Bloom filters instead of OFFER and ACK lists (mobile paper, enhancement 3).

A study, for `drupelet sim paper 6` and `drupelet bench anew`: no host speaks it, because a sketch
(docs/SPEC.md 3.6) always costs less (docs/bench.md). At a contact, each end sends a checksum of a
subset of its messages. A peer whose checksum differs answers with a Bloom filter of that subset;
each end then sends the messages that are not in the other's filter. A false positive only delays,
since the next filter has another salt. "Maybe" never acknowledges a message; equal checksums do.
"""

from drupelet.base.errors import E_PEER, OK
from drupelet.engine.members import SHARED
from drupelet.store.states import STATE_DELIVERED
from drupelet_tools.sim.filter_frame import (
    ANSWER,
    BITS_PER_ID,
    HEAD_SIZE,
    SUM_ONLY,
    TIME_END,
    Available,
    Filter,
    Subset,
    put_into,
    read,
    sum_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.link.link import Link
    from drupelet.link.ports import NodePort

RANGE, MODULO, PIVOT = range(3)
# The modulus of a subset is a u16 on the wire.
_MODULO_MAX = 0xFFFF
# Every fourth subset is taken from the whole log, to find old messages that were missed.
_OLD_EVERY = 4


class FilterSync:
    """Syncs one group over one link, whose exchange must not offer anything (`is_quiet`)."""

    def __init__(
        self, node: "NodePort", group: int, link: "Link", draw: "Callable[[int], int]"
    ) -> None:
        self._core = node.core
        self._group = node.core.members.group_row(group)
        self._link = link
        self._draw = draw  # draw(n): random, 0 to n - 1
        at = self._group * 32
        self._prefix = bytes(node.core.members.group_ids[at : at + 8])
        self._due = False
        self._answer: Subset | None = None
        self._answer_flags = 0
        self._turn = 0
        self._id = bytearray(32)
        self._known: list[tuple[int, bytes]] = []  # messages of the log up to `_known_to`
        self._known_to = 0
        self.sent = self.lacking = self.equal = 0  # frames, messages, frames

    def meet(self) -> None:
        """Begin a contact: a checksum is due."""
        self._due = True

    def poll_into(self, frame: bytearray, size_max: int) -> int:
        """Write the checksum or filter that is due; return its size, or 0."""
        if self._answer is not None:
            subset, flags = self._answer, self._answer_flags
            self._answer = None
        elif self._due:
            self._due = False
            subset, flags = self._choose((size_max - HEAD_SIZE) * 8 // BITS_PER_ID), SUM_ONLY
        else:
            return 0
        ids = [id for timestamp, id in self._messages() if subset.has(timestamp, id)]
        salt = bytes(self._draw(256) for _ in range(4))
        bloom = Filter.over([] if flags & SUM_ONLY else ids, salt, size_max - HEAD_SIZE)
        self.sent += 1
        size = put_into(
            frame, Available(self._prefix, flags, subset, len(ids), sum_of(ids), bloom)
        )
        return self._link.core.durable_size(size)

    def receive(self, frame: bytearray, size: int) -> int:
        """Handle the peer's checksum or filter; return OK or E_PEER."""
        available = read(frame, size)
        if available is None or available.group != self._prefix:
            return E_PEER
        ours = [id for timestamp, id in self._messages() if available.subset.has(timestamp, id)]
        is_equal = len(ours) == available.count and sum_of(ours) == available.sum
        self.equal += is_equal
        for id in ours:
            self._id[:] = id
            if is_equal:
                self._link.exchange.on_ack(self._id, 0)
            elif not available.flags & SUM_ONLY and not available.filter.maybe(id):
                self.lacking += 1
                self._link.exchange.on_request(self._id, 0)
        self._answer_to(available, is_equal)
        return OK

    def _answer_to(self, available: "Available", is_equal: bool) -> None:
        """Decide on the answer: a checksum if all is equal, else our filter, which is the last
        one if it answers a filter."""
        if not available.flags & ANSWER:
            self._answer = available.subset
            self._answer_flags = 0
            if is_equal:
                self._answer_flags = ANSWER | SUM_ONLY
            elif not available.flags & SUM_ONLY:
                self._answer_flags = ANSWER

    def _messages(self) -> "list[tuple[int, bytes]]":
        """Return timestamp and id of all messages of the group that ever entered the log."""
        if self._link.exchange.sees(self._group) != SHARED:
            return []
        store = self._core.store
        number = self._core.members.group_number(self._group)
        while (handle := store.next(self._known_to)) > 0:
            known = store.load(handle) == OK and store.state == STATE_DELIVERED
            if known and store.group == number:
                stamp = int.from_bytes(store.timestamp) & TIME_END - 1
                self._known.append((stamp, bytes(store.id)))
            self._known_to = handle
        return self._known

    def _choose(self, capacity: int) -> Subset:
        """Return a subset that fits one filter: all, mostly recent, or sometimes old messages.

        A time range has the newest `capacity` messages. If more than that have one timestamp, or
        if old messages are due, a remainder modulo some number selects among them.
        """
        messages = sorted(self._messages())
        if len(messages) <= capacity:
            return Subset(0, TIME_END)
        self._turn += 1
        modulo = min(-(-len(messages) // capacity), _MODULO_MAX)
        if self._turn % _OLD_EVERY == 0:
            return Subset(0, TIME_END, modulo, self._draw(modulo))
        # Prefer recent messages: the pivot is the newer one of two draws.
        pivot = max(self._draw(len(messages)), self._draw(len(messages)))
        last = max(pivot, capacity - 1)
        start, end = messages[last + 1 - capacity][0], messages[last][0] + 1
        inside = sum(start <= timestamp < end for timestamp, _ in messages)
        cut = min(-(-inside // capacity), _MODULO_MAX)
        end = TIME_END if last == len(messages) - 1 else end
        return Subset(start, end, cut, self._draw(cut))
