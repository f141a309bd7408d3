"""Contacts of `compact-1`: when a HELLO is due, and which profile the peer uses (SPEC 3.5).

A contact begins at a boot or with `greet`. Until the peer has answered, an asking HELLO goes into
the first frame that is sent, and again after 2, 4 ... 64 whole epochs. If nothing else is due it
gets a frame of its own, up to HELLO_SENDS_MAX times. An asking HELLO is answered once, an answer
is not answered. An end that hears nothing in compact-1 sends bsp-1 and probes from time to time
whether the peer reads compact-1.
"""

from drupelet.base.compat import const
from drupelet.base.limits import (
    COMPACT_PROBE_EPOCHS,
    COMPACT_PROBE_EPOCHS_MAX,
    COMPACT_SILENT_EPOCHS,
    HELLO_SENDS_MAX,
)
from drupelet.base.memory import fill, get_u16, put_u16
from drupelet.base.time_ms import epochs_since
from drupelet.engine.members import SHARED
from drupelet.wire.compact.numbering import Numbering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange
    from drupelet.wire.ports import SketchPort

UNKNOWN = const(0)  # not heard yet; we send compact-1
COMPACT = const(1)
PLAIN = const(2)  # we send bsp-1
_CLOSED = const(3)  # the row is free

SUM_SIZE = const(8)


# Flags of a contact.
GREETING = const(1)  # we wait for an answer to our HELLO
ANSWERING = const(2)  # the peer's HELLO is still to be answered
IN_SYNC = const(4)  # the sums in our last HELLO and the peer's were equal
FULL = const(8)  # two ids have the same prefix: use whole ids in this generation
FULL_ASKED = const(16)  # tell the peer to use whole ids
_WAITS = const(32)  # we sent compact-1 and have received none since
_HEARD_PLAIN = const(64)  # we have received bsp-1 since then
_HEARD_STORE = const(128)  # _STORE is valid
# Counts above the flags: UNKNOWN, COMPACT, PLAIN or _CLOSED (2 bits); asking HELLOs sent (3 bits);
# how often the interval between probes was doubled (3 bits).
_SPEAKS = const(8)
_SENDS = const(10)
_DOUBLED = const(13)
# The slab has a row for each link after the rows of the peers. Its fields, 16 bits each: flags and
# counts; generation in the peer's last asking HELLO; the peer's store_gen; then epochs: of our
# last asking HELLO, since when we wait, of the next probe.
_ASKED = const(2)
_STORE = const(4)
_SENT_EPOCH = const(6)
_WAITS_FROM = const(8)
_PROBE_EPOCH = const(10)
_ROW_SIZE = const(12)
assert HELLO_SENDS_MAX < 8 and COMPACT_PROBE_EPOCHS << 7 == COMPACT_PROBE_EPOCHS_MAX


class Contact(Numbering):
    """What a node knows of the other end of each link; `use` selects the current link."""

    # On a host: the port that reads and writes SKETCH records of a link, by its `codec_row`.
    sketches: "dict[int, SketchPort] | None" = None

    def __init__(self, core: "Core") -> None:
        Numbering.__init__(self, core)
        self._contact = 0

    def begin(self, exchange: "Exchange") -> None:
        """Give a new link a row: one of a closed link, or else a new one; begin its contact."""
        first = self._contact = self.rows_end()
        while self._contact < len(self._slab) and self._count(_SPEAKS) != _CLOSED:
            self._contact += _ROW_SIZE
        if self._contact == len(self._slab):
            self._slab += bytes(_ROW_SIZE)
        fill(self._slab, self._contact, _ROW_SIZE, 0)
        exchange.codec_row = (self._contact - first) // _ROW_SIZE
        core = exchange.core
        self.meet(exchange.peer, core.members.peer_number(exchange.peer))
        self.greet(exchange)

    def end(self, exchange: "Exchange") -> None:
        """Free the row of a link that is closed."""
        self.use(exchange)
        self._put_count(_SPEAKS, _CLOSED)
        if self.sketches is not None:
            self.sketches.pop(exchange.codec_row, None)

    def use(self, exchange: "Exchange") -> None:
        """Select the link that the following calls are about."""
        self._contact = self.rows_end() + exchange.codec_row * _ROW_SIZE
        self.turn_to(exchange.peer)

    def greet(self, exchange: "Exchange") -> None:
        """Begin a new contact: an asking HELLO is due."""
        self.use(exchange)
        self.mark(GREETING, True)
        self.mark(IN_SYNC, False)
        self._put_count(_SENDS, 0)

    def spoken(self, exchange: "Exchange") -> int:
        """Which profile we send on this link: UNKNOWN, COMPACT or PLAIN."""
        self.use(exchange)
        return self._count(_SPEAKS)

    def peer_store_gen(self, exchange: "Exchange") -> int:
        """The peer's store_gen; -1 if it has not been received yet."""
        self.use(exchange)
        return self._field(_STORE) if self.has(_HEARD_STORE) else -1

    def sketch_of(self, exchange: "Exchange") -> "SketchPort | None":
        """The port that reconciles ids by a sketch on this link, or None; on hosts only."""
        return self.sketches.get(exchange.codec_row) if self.sketches is not None else None

    def has(self, flag: int) -> bool:
        """Whether a flag is set."""
        return self._field(0) & flag != 0

    def mark(self, flag: int, is_set: bool) -> None:
        """Set or clear flags of the current link."""
        self._put_field(0, self._field(0) & ~flag | (flag if is_set else 0))

    def asked(self) -> int:
        """The generation in the peer's last asking HELLO; our answer repeats it."""
        return self._field(_ASKED)

    def _field(self, field: int) -> int:
        return get_u16(self._slab, self._contact + field)

    def _put_field(self, field: int, value: int) -> None:
        put_u16(self._slab, self._contact + field, value)

    def _count(self, shift: int) -> int:
        """The count in three bits of the flags; _SPEAKS has two."""
        return self._field(0) >> shift & (3 if shift == _SPEAKS else 7)

    def _put_count(self, shift: int, count: int) -> None:
        mask = (3 if shift == _SPEAKS else 7) << shift
        self._put_field(0, self._field(0) & ~mask | count << shift)

    # --- in ---

    def heard(self) -> None:
        """Note that a well-formed compact-1 frame was received."""
        self._speak(COMPACT)

    def _speak(self, profile: int) -> None:
        self._put_count(_SPEAKS, profile)
        self._put_count(_DOUBLED, 0)
        self.mark(_WAITS | _HEARD_PLAIN, False)

    def heard_ask(self, generation: int) -> None:
        """Note an asking HELLO of this generation: an answer is due."""
        self.mark(ANSWERING, True)
        self._put_field(_ASKED, generation)

    def heard_store(self, store_gen: int) -> bool:
        """Note the peer's store_gen; True if it differs from the one known before."""
        has_changed = self.has(_HEARD_STORE) and self._field(_STORE) != store_gen
        self.mark(_HEARD_STORE, True)
        self._put_field(_STORE, store_gen)
        return has_changed

    def heard_plain(self, epoch: int) -> None:
        """Note a bsp-1 frame: the peer does not know compact-1, or has fallen back to bsp-1."""
        speaks = self._count(_SPEAKS)
        if speaks == UNKNOWN:
            self._turn_plain(epoch)
        elif speaks == PLAIN and not self.has(_HEARD_PLAIN):
            self._put_field(_PROBE_EPOCH, epoch)
        self.mark(_HEARD_PLAIN, True)

    # --- out ---

    def plain(self, epoch: int, every: int) -> bool:
        """True if this end sends bsp-1 now; `every` is the number of epochs between payloads."""
        speaks = self._count(_SPEAKS)
        is_silent = self.has(_WAITS) and (
            epochs_since(epoch, self._field(_WAITS_FROM)) >= COMPACT_SILENT_EPOCHS * every
        )
        if is_silent and speaks != PLAIN and (speaks == UNKNOWN or self.has(_HEARD_PLAIN)):
            self._turn_plain(epoch)
            self._put_field(_PROBE_EPOCH, (epoch + COMPACT_PROBE_EPOCHS) & 0xFFFF)
            return True
        return speaks == PLAIN

    def _turn_plain(self, epoch: int) -> None:
        # Probe at once: a peer that fell back as we did learns that we read compact-1.
        self._speak(PLAIN)
        self._put_field(_PROBE_EPOCH, epoch)

    def probe_due(self, epoch: int) -> bool:
        """True if it is time to probe with a HELLO whether the peer reads compact-1 by now."""
        return epochs_since(epoch, self._field(_PROBE_EPOCH)) < 0x8000

    def probed(self, epoch: int) -> None:
        """Note that the probe is in the frame; double the interval to the next one."""
        doubled = self._count(_DOUBLED)
        every = COMPACT_PROBE_EPOCHS << doubled
        self._put_field(_PROBE_EPOCH, (epoch + every) & 0xFFFF)
        if every < COMPACT_PROBE_EPOCHS_MAX:
            self._put_count(_DOUBLED, doubled + 1)

    def sent(self, epoch: int) -> None:
        """Note that a frame which the peer should answer in compact-1 is being sent."""
        if not self.has(_WAITS):
            self.mark(_WAITS, True)
            self._put_field(_WAITS_FROM, epoch)

    def asked_now(self, epoch: int) -> None:
        """Note that an asking HELLO is in the frame."""
        self._put_count(_SENDS, min(self._count(_SENDS) + 1, HELLO_SENDS_MAX))
        self._put_field(_SENT_EPOCH, epoch)

    def _ask_wait(self, epoch: int, every: int) -> int:
        """Epochs until the next asking HELLO; 0 or less: now."""
        sends = self._count(_SENDS)
        # One more: the epoch of the last one may have been nearly over, and the peer needs a
        # whole epoch to answer.
        return (every << sends) + 1 - epochs_since(epoch, self._field(_SENT_EPOCH)) if sends else 0

    def asks(self, epoch: int, every: int) -> bool:
        """True if the next frame should carry an asking HELLO."""
        return self.has(GREETING) and self._ask_wait(epoch, every) <= 0

    def may_go_alone(self) -> bool:
        """True if a HELLO that is due may have a frame of its own."""
        sends = self._count(_SENDS)
        return self.has(ANSWERING) or sends < HELLO_SENDS_MAX

    def wait(self, epoch: int, every: int) -> int:
        """Epochs until a HELLO or probe is due, at least 1; 0: none will be due."""
        if self._count(_SPEAKS) == PLAIN:
            wait_epochs = epochs_since(self._field(_PROBE_EPOCH), epoch)
            return wait_epochs if 0 < wait_epochs < 0x8000 else 1
        if not self.has(ANSWERING) and not (self.has(GREETING) and self.may_go_alone()):
            return 0
        return max(self._ask_wait(epoch, every), 1)


def outstanding_into(exchange: "Exchange", out: bytearray) -> bool:
    """XOR the first 8 bytes of all outstanding ids into `out`; False if nothing is outstanding.

    Outstanding is what the peer is not known to hold. Messages after the outbox cursor count as
    outstanding, but are not in the sum.
    """
    core = exchange.core
    outbox = core.outboxes[exchange.peer]
    id = core.graph.ids  # scratch
    fill(out, 0, SUM_SIZE, 0)
    is_any = outbox.cursor != core.graph.newest
    for row in range(outbox.count):
        if outbox.is_open(row) and exchange.sees(outbox.group(row)) == SHARED:
            is_any = True
            if core.store.id_into(outbox.handles[row], id, 0):
                for index in range(SUM_SIZE):
                    out[index] ^= id[index]
    return is_any
