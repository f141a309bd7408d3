# host only: sets of thousands of ids
"""Recovery from a lost store on a `compact-1` link: a sketch first, then the missing messages.

The side that lost its store calls `begin`; the other learns of it from the HELLO or the sketch.
Both forget what the other was thought to hold, and hold offers and messages back until the sketch
has found what both have. If no sketch arrives, everything is offered again.
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
# An answer arrives within two epochs. Offers are held back long enough for a few lost ones.
_AGAIN_EPOCHS = const(2)
_HOLD_EPOCHS = const(16)


def shared_ids(exchange: "Exchange") -> "list[bytes]":
    """Return the ids of all messages in the log that are shared with the link's peer, in order."""
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
    """The SketchPort of one `compact-1` link; `salt` is called for 4 random bytes."""

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
        self._heard_epoch = 0  # when the peer last sent a SKETCH record
        self._begun_epoch = -1  # when the peer's last sketch began
        if codec.sketches is None:
            codec.sketches = {}
        codec.sketches[link.exchange.codec_row] = self

    def begin(self) -> None:
        """Send a sketch of what we hold: our store was lost or replaced."""
        self._exchange.forget_holds()
        self._reconciler.begin(self._exchange, self._random_salt())
        self._began = True
        self.hold_back()
        self._follow()

    def is_open(self) -> bool:
        """True while a sketch that we began is not finished."""
        return self._began

    def hold_back(self) -> None:
        """Hold offers and messages back: one side has another store, so a sketch may arrive."""
        self._holding = True
        self._moved_epoch = self._heard_epoch = self._exchange.epoch
        self._exchange.attention = True

    def holds(self) -> bool:
        """True while offers and messages wait for a sketch."""
        exchange = self._exchange
        waited = epochs_since(exchange.epoch, self._heard_epoch)
        if self._holding and waited >= _HOLD_EPOCHS * exchange.pace.every:
            self._holding = self._began = False
            # No sketch came, for example from a board, which has none: offer everything again.
            self._reconciler = Reconciler(shared_ids)
        return self._holding

    def take(self, buf: bytearray, at: int, size: int) -> bool:
        """Handle the SKETCH record in buf[at:at+size]; False if it is malformed."""
        exchange = self._exchange
        salt = bytes(buf[at + 1 : at + 1 + _SALT_SIZE])
        if size > _SALT_SIZE and buf[at] == SYMBOLS and salt != self._peer_salt:
            if exchange.epoch == self._begun_epoch:
                return True  # a sketch reads the whole log: accept one new sketch per epoch
            self._begun_epoch = exchange.epoch
            self._peer_salt = salt
            exchange.forget_holds()
            self.hold_back()
        if not self._reconciler.take(exchange, buf, at, size):
            return False
        self._moved_epoch = self._heard_epoch = exchange.epoch
        self._follow()
        return True

    def _follow(self) -> None:
        exchange = self._exchange
        reconciler = self._reconciler
        exchange.attention = True
        if self._began and not reconciler.is_open():
            self._began = self._holding = False
        if reconciler.must_full:
            # Select our link: the codec may have served another one last.
            self._codec.use(exchange)
            self._codec.ask_whole_ids(exchange)
        elif reconciler.must_list:
            exchange.forget_holds()
        reconciler.must_full = reconciler.must_list = False

    def put_into(self, buf: bytearray, at: int, limit: int) -> int:
        """Write the next SKETCH record to buf[at:limit]; return its end, `at` if none is due."""
        exchange = self._exchange
        waited = epochs_since(exchange.epoch, self._moved_epoch)
        if self._reconciler.is_open() and waited >= _AGAIN_EPOCHS * exchange.pace.every:
            self._reconciler.again()
        end = self._reconciler.put_into(buf, at, limit)
        if end > at:
            self._moved_epoch = exchange.epoch
            if buf[at] >= DONE:
                self._holding = False
        return end
