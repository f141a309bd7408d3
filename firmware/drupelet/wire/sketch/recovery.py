# host only: sets of thousands of ids
"""Recovery of a lost store on a `compact-1` link: a sketch first, then what is missing.

The side that lost state calls `begin`; the other one learns of it from the HELLO or the sketch.
Both believe nothing of what the other was thought to hold, and hold offers and messages back until
the sketch has told what both have. If none comes, everything is shown again, as without a sketch.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.time_ms import epochs_since
from drupelet.engine.members import SHARED
from drupelet.store.states import STATE_DELIVERED
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.sketch.reconcile import Reconciler
from drupelet.wire.sketch.sketch import DONE, SYMBOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.engine.exchange import Exchange
    from drupelet.wire.ports import LinkPort

_SALT_SIZE = const(4)
# An answer is here after two epochs; it may be lost a few times.
_AGAIN_EPOCHS = const(2)
_HOLD_EPOCHS = const(16)


def shared_ids(exchange: "Exchange") -> "list[bytes]":
    """The ids of all messages of the log that the link shares with its peer, in log order."""
    core = exchange.core
    store = core.store
    ids = []
    handle = store.next(0)
    while handle > 0:
        if store.load(handle) == OK and store.state == STATE_DELIVERED:
            group = core.members.group_row(store.group)
            if group >= 0 and exchange.sees(group) == SHARED:
                ids.append(bytes(store.id))
        handle = store.next(handle)
    return ids


class Recovery:
    """The SketchPort of one link in `compact-1`; `salt` gives 4 random bytes."""

    def __init__(self, link: "LinkPort", salt: "Callable[[], bytes]") -> None:
        codec = link.codec
        assert isinstance(codec, Compact1)
        self._exchange = link.exchange
        self._codec = codec
        self._reconciler = Reconciler(shared_ids)
        self._random_salt = salt
        self._peer_salt = b""
        self._began = False
        self._holding = False
        self._moved_epoch = 0
        self._heard_epoch = 0  # when its side last said a word of a sketch
        self._begun_epoch = -1
        if codec.sketches is None:
            codec.sketches = {}
        codec.sketches[link.exchange.codec_row] = self

    def begin(self) -> None:
        """We lost state: tell what we hold."""
        exchange = self._exchange
        exchange.forget_holds()
        self._reconciler.begin(exchange, self._random_salt())
        self._began = True
        self._hold(exchange)
        self._follow(exchange)

    def is_open(self) -> bool:
        """True while a sketch that we began waits for its end; False: nothing begun is left."""
        return self._began

    def hold_back(self) -> None:
        """One of the two has another store: offers and messages wait, for a sketch may come."""
        self._hold(self._exchange)

    def peer_lost(self, exchange: "Exchange") -> None:
        """The peer has another store: its sketch may come."""
        self._hold(exchange)

    def holds(self, exchange: "Exchange") -> bool:
        """True while offers and messages wait for a sketch."""
        waited = epochs_since(exchange.epoch, self._heard_epoch)
        if self._holding and waited >= _HOLD_EPOCHS * exchange.pace.every:
            self._holding = self._began = False
            self._reconciler = Reconciler(shared_ids)  # a board knows none: all is shown again
        return self._holding

    def _hold(self, exchange: "Exchange") -> None:
        self._holding = True
        self._moved_epoch = self._heard_epoch = exchange.epoch
        exchange.attention = True

    def take(self, exchange: "Exchange", buf: bytearray, at: int, size: int) -> bool:
        """Take the bytes of one SKETCH record; False: malformed."""
        salt = bytes(buf[at + 1 : at + 1 + _SALT_SIZE])
        if size > _SALT_SIZE and buf[at] == SYMBOLS and salt != self._peer_salt:
            if exchange.epoch == self._begun_epoch:
                return True  # reading the log is work: one sketch an epoch
            self._begun_epoch = exchange.epoch
            self._peer_salt = salt
            exchange.forget_holds()
            self._hold(exchange)
        if not self._reconciler.take(exchange, buf, at, size):
            return False
        self._moved_epoch = self._heard_epoch = exchange.epoch
        self._follow(exchange)
        return True

    def _follow(self, exchange: "Exchange") -> None:
        reconciler = self._reconciler
        exchange.attention = True
        if self._began and not reconciler.is_open():
            self._began = self._holding = False
        if reconciler.must_full:
            # Of all links the codec may have served another one last, or none yet.
            self._codec.use(exchange)
            self._codec.ask_whole_ids(exchange)
        elif reconciler.must_list:
            exchange.forget_holds()
        reconciler.must_full = reconciler.must_list = False

    def put_into(self, exchange: "Exchange", buf: bytearray, at: int, limit: int) -> int:
        """Put the bytes of the next record to buf[at:limit]; return their end, `at` for none."""
        waited = epochs_since(exchange.epoch, self._moved_epoch)
        if self._reconciler.is_open() and waited >= _AGAIN_EPOCHS * exchange.pace.every:
            self._reconciler.again()
        end = self._reconciler.put_into(exchange, buf, at, limit)
        if end > at:
            self._moved_epoch = exchange.epoch
            if buf[at] >= DONE:
                self._holding = False
        return end
