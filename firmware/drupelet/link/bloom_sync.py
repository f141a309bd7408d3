# host only: it looks at the whole log
"""Anti-entropy by Bloom filters instead of OFFER and ACK lists (mobile paper, enhancement 3).

Who meets a peer tells it the sum of a part of what it has. If the peer's is another, it answers
with a filter of that part; each sends what is not in the other's filter. A false positive only
delays: the next filter has another salt. 'Maybe' is never an acknowledgement; equal sums are.
"""

from drupelet.base.errors import E_PEER, OK
from drupelet.engine.members import SHARED
from drupelet.store.states import STATE_DELIVERED
from drupelet.wire.bloom_available import (
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
# A group of more messages than so many filters hold is told in parts.
_MODULO_MAX = 0xFFFF
# One in so many parts is not the newest: what was missed long ago is found, too.
_OLD_EVERY = 4


class BloomSync:
    """One group over one link, whose exchange must be quiet (`is_quiet`): it offers nothing."""

    def __init__(
        self, node: "NodePort", group: int, link: "Link", draw: "Callable[[int], int]"
    ) -> None:
        self._core = node.core
        self._group = node.core.members.group_row(group)
        self._link = link
        self._draw = draw  # draw(n): random, 0 .. n - 1
        at = self._group * 32
        self._prefix = bytes(node.core.members.group_ids[at : at + 8])
        self._due = False
        self._answer: "Subset | None" = None
        self._answer_flags = 0
        self._turn = 0
        self._id = bytearray(32)
        self._known: "list[tuple[int, bytes]]" = []  # what the log held up to `_known_to`
        self._known_to = 0
        self.told = self.lacking = self.equal = 0

    def meet(self) -> None:
        """The peer is here: tell it what we have."""
        self._due = True

    def poll_into(self, frame: bytearray, size_max: int) -> int:
        """Write the filter that is due; its size, or 0."""
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
        self.told += 1
        size = put_into(
            frame, Available(self._prefix, flags, subset, len(ids), sum_of(ids), bloom)
        )
        return self._link.core.durable_size(size, True)  # it says what we hold

    def receive(self, frame: bytearray, size: int) -> int:
        """Take in the peer's filter; OK, or E_PEER."""
        what = read(frame, size)
        if what is None or what.group != self._prefix:
            return E_PEER
        ours = [id for timestamp, id in self._messages() if what.subset.has(timestamp, id)]
        same = len(ours) == what.count and sum_of(ours) == what.sum
        self.equal += same
        for id in ours:
            self._id[:] = id
            if same:
                self._link.exchange.on_ack(self._id, 0)
            elif not what.flags & SUM_ONLY and not what.filter.maybe(id):
                self.lacking += 1
                self._link.exchange.on_request(self._id, 0)
        self._answer_to(what, same)
        return OK

    def _answer_to(self, what: "Available", same: bool) -> None:
        """Equal: it is told so. Else our filter, and after that the other's."""
        if not what.flags & ANSWER:
            self._answer = what.subset
            self._answer_flags = 0
            if same:
                self._answer_flags = ANSWER | SUM_ONLY
            elif not what.flags & SUM_ONLY:
                self._answer_flags = ANSWER

    def _messages(self) -> "list[tuple[int, bytes]]":
        """Timestamp and id of all that entered the log; what was deleted since was held, too."""
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
        """All, if one filter holds it; else a part: mostly of the newest, sometimes of all.

        A range holds the newest `capacity`; where that many have one timestamp, or time is of no
        use, a rest by a modulus takes as many of all.
        """
        messages = sorted(self._messages())
        if len(messages) <= capacity:
            return Subset(0, TIME_END)
        self._turn += 1
        modulo = min(-(-len(messages) // capacity), _MODULO_MAX)
        if self._turn % _OLD_EVERY == 0:
            return Subset(0, TIME_END, modulo, self._draw(modulo))
        # Recent-biased: the pivot is the newest of two draws.
        pivot = max(self._draw(len(messages)), self._draw(len(messages)))
        last = max(pivot, capacity - 1)
        start, end = messages[last + 1 - capacity][0], messages[last][0] + 1
        inside = sum(start <= timestamp < end for timestamp, _ in messages)
        cut = min(-(-inside // capacity), _MODULO_MAX)
        end = TIME_END if last == len(messages) - 1 else end
        return Subset(start, end, cut, self._draw(cut))
