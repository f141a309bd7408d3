"""Contacts of `compact-1`: when a HELLO is due, and what the peer speaks (docs/SPEC.md 3.5).

A contact begins at a boot or with `greet`. Until the peer has answered, a HELLO that asks goes
with the first frame that leaves, and again after 2, 4 ... 64 epochs; alone it goes only when
nothing else is due, and not for ever. What asks is answered once, an answer never. An end that
hears nothing in compact-1 speaks bsp-1, and asks again from time to time.
"""

from drupelet._compat import const
from drupelet.limits import (
    COMPACT_PROBE_EPOCHS,
    COMPACT_PROBE_EPOCHS_MAX,
    COMPACT_SILENT_EPOCHS,
    HELLO_SENDS_MAX,
    ID_SIZE,
)
from drupelet.members import SHARED
from drupelet.memory import fill
from drupelet.schedule import epochs_since
from drupelet.slots import PENDING
from drupelet.states import HOLD, QUEUED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import LinkPort, SketchPort

UNKNOWN = const(0)  # not heard yet: spoken to in compact-1
COMPACT = const(1)
PLAIN = const(2)  # spoken to in bsp-1

SUM_SIZE = const(8)


class Contact:
    """What one link knows of the other end."""

    # A host's: gives and takes the SKETCH bytes (docs/SPEC.md 3.5).
    sketch: "SketchPort | None" = None

    def __init__(self) -> None:
        self.speaks = UNKNOWN
        self.greeting = True  # the peer should answer us
        self.answering = False
        self.asked = 0  # the generation that it asked with
        self.in_sync = False  # our last HELLO and the peer's said the same
        self.peer_store_gen = -1
        self.full = False  # two ids have the same prefix: use whole ids in this generation
        self.full_asked = False  # and the peer should know
        self._sends = 0
        self._sent_epoch = 0
        self._waits = False  # we sent in compact-1, and nothing came back in it
        self._waits_from = 0
        self._heard_plain = False  # since then
        self._probe_every = COMPACT_PROBE_EPOCHS
        self._probe_epoch = 0

    def greet(self) -> None:
        """A new contact: say HELLO when nothing else is due."""
        self.greeting = True
        self.in_sync = False
        self._sends = 0

    # --- in ---

    def heard(self) -> None:
        """A well-formed frame of compact-1 came."""
        self.speaks = COMPACT
        self._waits = self._heard_plain = False
        self._probe_every = COMPACT_PROBE_EPOCHS

    def proven(self) -> None:
        """The peer answered with our present generation: it has read our HELLO."""
        self.greeting = False

    def heard_plain(self, epoch: int) -> None:
        """A frame of bsp-1 came: an old peer, or one that gave compact-1 up."""
        if self.speaks == UNKNOWN:
            self._turn_plain(epoch)
        elif self.speaks == PLAIN and not self._heard_plain:
            self._probe_epoch = epoch
        self._heard_plain = True

    # --- out ---

    def plain(self, epoch: int, every: int) -> bool:
        """True while this end speaks bsp-1; `every`: epochs of the clock that make one here."""
        silent = self._waits and (
            epochs_since(epoch, self._waits_from) >= COMPACT_SILENT_EPOCHS * every
        )
        if silent and (self.speaks == UNKNOWN or self._heard_plain) and self.speaks != PLAIN:
            self._turn_plain(epoch)
            self._probe_epoch = (epoch + self._probe_every) & 0xFFFF
        return self.speaks == PLAIN

    def _turn_plain(self, epoch: int) -> None:
        # A peer that gave up as we did shall hear at once that we understand.
        self.speaks = PLAIN
        self._waits = self._heard_plain = False
        self._probe_every = COMPACT_PROBE_EPOCHS
        self._probe_epoch = epoch

    def probe_due(self, epoch: int) -> bool:
        """True when a HELLO should find out whether the peer speaks compact-1 by now."""
        return epochs_since(epoch, self._probe_epoch) < 0x8000

    def probed(self, epoch: int) -> None:
        """The HELLO is in the frame: the next one comes after twice the time."""
        self._probe_epoch = (epoch + self._probe_every) & 0xFFFF
        if self._probe_every < COMPACT_PROBE_EPOCHS_MAX:
            self._probe_every *= 2

    def sent(self, epoch: int) -> None:
        """A frame that the peer should answer went out."""
        if not self._waits:
            self._waits = True
            self._waits_from = epoch

    def asked_now(self, epoch: int) -> None:
        """A HELLO that asks is in the frame."""
        self._sends += 1 if self._sends < HELLO_SENDS_MAX else 0
        self._sent_epoch = epoch

    def _ask_wait(self, epoch: int, every: int) -> int:
        """Epochs until the next HELLO that asks; <= 0: now."""
        if not self._sends:
            return 0
        return (every << self._sends) - epochs_since(epoch, self._sent_epoch)

    def asks(self, epoch: int, every: int) -> bool:
        """True when the next frame should ask."""
        return self.greeting and self._ask_wait(epoch, every) <= 0

    def may_go_alone(self) -> bool:
        """True when a HELLO that is due is worth a frame of its own."""
        return self.answering or self._sends < HELLO_SENDS_MAX

    def wait(self, epoch: int, every: int) -> int:
        """Epochs after which the link should be asked again, at least 1; 0: never of itself."""
        if self.speaks == PLAIN:
            left = epochs_since(self._probe_epoch, epoch)
            return left if 0 < left < 0x8000 else 1
        if not self.answering and not (self.greeting and self.may_go_alone()):
            return 0
        left = self._ask_wait(epoch, every)
        return left if left > 0 else 1


def outstanding_into(link: "LinkPort", out: bytearray) -> bool:
    """XOR the first 8 bytes of every id that the peer is not known to hold; False: there is none.

    What waits on flash beyond the slots is outstanding, too, but not in the sum.
    """
    slots = link.core.slots
    window = link.core.window
    fill(out, 0, SUM_SIZE, 0)
    some = window.cursors[link.peer] != window.newest
    base = link.peer * slots.count
    for slot in range(slots.count):
        state = slots.states[base + slot]
        if state & (QUEUED | HOLD) != QUEUED or slots.flags[slot] & PENDING:
            continue
        if link.sight(slot) == SHARED:
            some = True
            at = slot * ID_SIZE
            for index in range(8):
                out[index] ^= slots.ids[at + index]
    return some
