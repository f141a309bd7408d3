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
from drupelet.store.reader import STATE_DELIVERED
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.sketch.reconcile import Reconciler
from drupelet.wire.sketch.sketch import DONE, SYMBOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.engine.ports import LinkPort
    from drupelet.link.link import Link

_SALT_SIZE = const(4)
# An answer is here after two epochs; it may be lost a few times.
_AGAIN_EPOCHS = const(2)
_HOLD_EPOCHS = const(16)


def shared_ids(link: "LinkPort") -> "list[bytes]":
    """The ids of all messages of the log that the link shares with its peer, in log order."""
    core = link.core
    store = core.store
    ids = []
    handle = store.next(0)
    while handle:
        if store.load(handle) == OK and store.state == STATE_DELIVERED:
            group = core.members.group_slot(store.group)
            if group >= 0 and link.sees(group) == SHARED:
                ids.append(bytes(store.id))
        handle = store.next(handle)
    return ids


class Recovery:
    """The SketchPort of one link in `compact-1`; `salt` gives 4 random bytes."""

    def __init__(self, link: "Link", salt: "Callable[[], bytes]") -> None:
        codec = link.codec
        assert isinstance(codec, Compact1)
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
        codec.sketches[link.codec_row] = self

    def begin(self, link: "LinkPort") -> None:
        """We lost state: tell what we hold."""
        self._codec.forget_holds(link)
        self._reconciler.begin(link, self._random_salt())
        self._began = True
        self._hold(link)
        self._follow(link)

    def is_open(self) -> bool:
        """True while a sketch that we began waits for its end; False: nothing begun is left."""
        return self._began

    def peer_lost(self, link: "LinkPort") -> None:
        """The peer has another store: its sketch may come."""
        self._hold(link)

    def holds(self, link: "LinkPort") -> bool:
        """True while offers and messages wait for a sketch."""
        waited = epochs_since(link.epoch, self._heard_epoch)
        if self._holding and waited >= _HOLD_EPOCHS * link.every:
            self._holding = self._began = False
            self._reconciler = Reconciler(shared_ids)  # a board knows none: all is shown again
        return self._holding

    def _hold(self, link: "LinkPort") -> None:
        self._holding = True
        self._moved_epoch = self._heard_epoch = link.epoch
        link.attention = True

    def take(self, link: "LinkPort", buf: bytearray, at: int, size: int) -> bool:
        """Take the bytes of one SKETCH record; False: malformed."""
        salt = bytes(buf[at + 1 : at + 1 + _SALT_SIZE])
        if size > _SALT_SIZE and buf[at] == SYMBOLS and salt != self._peer_salt:
            if link.epoch == self._begun_epoch:
                return True  # reading the log is work: one sketch an epoch
            self._begun_epoch = link.epoch
            self._peer_salt = salt
            self._codec.forget_holds(link)
            self._hold(link)
        if not self._reconciler.take(link, buf, at, size):
            return False
        self._moved_epoch = self._heard_epoch = link.epoch
        self._follow(link)
        return True

    def _follow(self, link: "LinkPort") -> None:
        reconciler = self._reconciler
        link.attention = True
        if self._began and not reconciler.is_open():
            self._began = self._holding = False
        if reconciler.must_full:
            # Of all links the codec may have served another one last, or none yet.
            self._codec.use(link)
            self._codec.ask_whole_ids(link)
        elif reconciler.must_list:
            self._codec.forget_holds(link)
        reconciler.must_full = reconciler.must_list = False

    def put_into(self, link: "LinkPort", buf: bytearray, at: int, limit: int) -> int:
        """Put the bytes of the next record to buf[at:limit]; return their end, `at` for none."""
        waited = epochs_since(link.epoch, self._moved_epoch)
        if self._reconciler.is_open() and waited >= _AGAIN_EPOCHS * link.every:
            self._reconciler.again()
        end = self._reconciler.put_into(link, buf, at, limit)
        if end > at:
            self._moved_epoch = link.epoch
            if buf[at] >= DONE:
                self._holding = False
        return end
