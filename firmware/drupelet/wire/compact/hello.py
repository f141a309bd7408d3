"""Contacts of `compact-1`: when a HELLO is due, and what the peer speaks (docs/SPEC.md 3.5).

A contact begins at a boot or with `greet`. Until the peer has answered, a HELLO that asks goes
with the first frame that leaves, and again after 2, 4 ... 64 whole epochs; alone it goes only when
nothing else is due, and not for ever. What asks is answered once, an answer never. An end that
hears nothing in compact-1 speaks bsp-1, and asks again from time to time.
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

UNKNOWN = const(0)  # not heard yet: spoken to in compact-1
COMPACT = const(1)
PLAIN = const(2)  # spoken to in bsp-1
_CLOSED = const(3)  # the row is free

SUM_SIZE = const(8)


# Flags of a contact.
GREETING = const(1)  # the peer should answer us
ANSWERING = const(2)
IN_SYNC = const(4)  # our last HELLO and the peer's said the same
FULL = const(8)  # two ids have the same prefix: use whole ids in this generation
FULL_ASKED = const(16)  # and the peer should know
_WAITS = const(32)  # we sent in compact-1, and nothing came back in it
_HEARD_PLAIN = const(64)  # since then
_HEARD_STORE = const(128)
# Counts above the flags: UNKNOWN, COMPACT, PLAIN or _CLOSED; HELLOs that asked; how often the time
# between probes doubled.
_SPEAKS = const(8)
_SENDS = const(10)
_DOUBLED = const(13)
# A row for each link behind those of the peers, numbers of 16 bits: flags and counts, the
# generation that the peer asked with, its store's, and epochs: our last HELLO that asked, since
# when we wait, the next probe.
_ASKED = const(2)
_STORE = const(4)
_SENT_EPOCH = const(6)
_WAITS_FROM = const(8)
_PROBE_EPOCH = const(10)
_ROW_SIZE = const(12)
assert HELLO_SENDS_MAX < 8 and COMPACT_PROBE_EPOCHS << 7 == COMPACT_PROBE_EPOCHS_MAX


class Contact(Numbering):
    """What each link knows of the other end. Of one link at a time: `use` says which."""

    # A host's, by `codec_row`: give and take the SKETCH bytes (docs/SPEC.md 3.5).
    sketches: "dict[int, SketchPort] | None" = None

    def __init__(self, core: "Core") -> None:
        Numbering.__init__(self, core)
        self._contact = 0

    def begin(self, exchange: "Exchange") -> None:
        """A link is made; its row is one whose link was closed, or a new one."""
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
        """A link was closed."""
        self.use(exchange)
        self._put_count(_SPEAKS, _CLOSED)
        if self.sketches is not None:
            self.sketches.pop(exchange.codec_row, None)

    def use(self, exchange: "Exchange") -> None:
        """What follows is about this exchange."""
        self._contact = self.rows_end() + exchange.codec_row * _ROW_SIZE
        self.turn_to(exchange.peer)

    def greet(self, exchange: "Exchange") -> None:
        """A new contact: say HELLO when nothing else is due."""
        self.use(exchange)
        self.mark(GREETING, True)
        self.mark(IN_SYNC, False)
        self._put_count(_SENDS, 0)

    def spoken(self, exchange: "Exchange") -> int:
        """UNKNOWN, COMPACT or PLAIN."""
        self.use(exchange)
        return self._count(_SPEAKS)

    def peer_store_gen(self, exchange: "Exchange") -> int:
        """The number of the peer's store; -1: not told yet."""
        self.use(exchange)
        return self._field(_STORE) if self.has(_HEARD_STORE) else -1

    def sketch_of(self, exchange: "Exchange") -> "SketchPort | None":
        """What reconciles many ids with the other end of a link, on a host."""
        return self.sketches.get(exchange.codec_row) if self.sketches is not None else None

    def has(self, flag: int) -> bool:
        """Whether a flag is set."""
        return self._field(0) & flag != 0

    def mark(self, flag: int, is_set: bool) -> None:
        """Set flags, or clear them."""
        self._put_field(0, self._field(0) & ~flag | (flag if is_set else 0))

    def asked(self) -> int:
        """The generation that the peer asked with."""
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
        """A well-formed frame of compact-1 came."""
        self._speak(COMPACT)

    def _speak(self, profile: int) -> None:
        self._put_count(_SPEAKS, profile)
        self._put_count(_DOUBLED, 0)
        self.mark(_WAITS | _HEARD_PLAIN, False)

    def heard_ask(self, generation: int) -> None:
        """The peer asked: it is answered."""
        self.mark(ANSWERING, True)
        self._put_field(_ASKED, generation)

    def heard_store(self, store_gen: int) -> bool:
        """The peer's store is this one; True: it had another one."""
        lost = self.has(_HEARD_STORE) and self._field(_STORE) != store_gen
        self.mark(_HEARD_STORE, True)
        self._put_field(_STORE, store_gen)
        return lost

    def heard_plain(self, epoch: int) -> None:
        """A frame of bsp-1 came: an old peer, or one that gave compact-1 up."""
        speaks = self._count(_SPEAKS)
        if speaks == UNKNOWN:
            self._turn_plain(epoch)
        elif speaks == PLAIN and not self.has(_HEARD_PLAIN):
            self._put_field(_PROBE_EPOCH, epoch)
        self.mark(_HEARD_PLAIN, True)

    # --- out ---

    def plain(self, epoch: int, every: int) -> bool:
        """True while this end speaks bsp-1; `every`: epochs of the clock that make one here."""
        speaks = self._count(_SPEAKS)
        silent = self.has(_WAITS) and (
            epochs_since(epoch, self._field(_WAITS_FROM)) >= COMPACT_SILENT_EPOCHS * every
        )
        if silent and speaks != PLAIN and (speaks == UNKNOWN or self.has(_HEARD_PLAIN)):
            self._turn_plain(epoch)
            self._put_field(_PROBE_EPOCH, (epoch + COMPACT_PROBE_EPOCHS) & 0xFFFF)
            return True
        return speaks == PLAIN

    def _turn_plain(self, epoch: int) -> None:
        # A peer that gave up as we did shall hear at once that we understand.
        self._speak(PLAIN)
        self._put_field(_PROBE_EPOCH, epoch)

    def probe_due(self, epoch: int) -> bool:
        """True when a HELLO should find out whether the peer speaks compact-1 by now."""
        return epochs_since(epoch, self._field(_PROBE_EPOCH)) < 0x8000

    def probed(self, epoch: int) -> None:
        """The HELLO is in the frame: the next one comes after twice the time."""
        doubled = self._count(_DOUBLED)
        every = COMPACT_PROBE_EPOCHS << doubled
        self._put_field(_PROBE_EPOCH, (epoch + every) & 0xFFFF)
        if every < COMPACT_PROBE_EPOCHS_MAX:
            self._put_count(_DOUBLED, doubled + 1)

    def sent(self, epoch: int) -> None:
        """A frame that the peer should answer went out."""
        if not self.has(_WAITS):
            self.mark(_WAITS, True)
            self._put_field(_WAITS_FROM, epoch)

    def asked_now(self, epoch: int) -> None:
        """A HELLO that asks is in the frame."""
        self._put_count(_SENDS, min(self._count(_SENDS) + 1, HELLO_SENDS_MAX))
        self._put_field(_SENT_EPOCH, epoch)

    def _ask_wait(self, epoch: int, every: int) -> int:
        """Epochs until the next HELLO that asks; <= 0: now."""
        sends = self._count(_SENDS)
        # Of the epoch that it went in only the end may be left, and the answer needs a whole one.
        return (every << sends) + 1 - epochs_since(epoch, self._field(_SENT_EPOCH)) if sends else 0

    def asks(self, epoch: int, every: int) -> bool:
        """True when the next frame should ask."""
        return self.has(GREETING) and self._ask_wait(epoch, every) <= 0

    def may_go_alone(self) -> bool:
        """True when a HELLO that is due is worth a frame of its own."""
        sends = self._count(_SENDS)
        return self.has(ANSWERING) or sends < HELLO_SENDS_MAX

    def wait(self, epoch: int, every: int) -> int:
        """Epochs after which the link should be asked again, at least 1; 0: never of itself."""
        if self._count(_SPEAKS) == PLAIN:
            left = epochs_since(self._field(_PROBE_EPOCH), epoch)
            return left if 0 < left < 0x8000 else 1
        if not self.has(ANSWERING) and not (self.has(GREETING) and self.may_go_alone()):
            return 0
        return max(self._ask_wait(epoch, every), 1)


def outstanding_into(exchange: "Exchange", out: bytearray) -> bool:
    """XOR the first 8 bytes of every id that the peer is not known to hold; False: there is none.

    What waits on flash behind the rows is outstanding, too, but not in the sum.
    """
    core = exchange.core
    outbox = core.outboxes[exchange.peer]
    id = core.graph.ids  # scratch
    fill(out, 0, SUM_SIZE, 0)
    some = outbox.cursor != core.graph.newest
    for row in range(outbox.count):
        if outbox.is_open(row) and exchange.sees(outbox.group(row)) == SHARED:
            some = True
            if core.store.id_into(outbox.handles[row], id, 0):
                for index in range(SUM_SIZE):
                    out[index] ^= id[index]
    return some
