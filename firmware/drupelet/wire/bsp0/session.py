# host only: Briar's sizes
"""Profile `bsp-0` over a byte stream, as Briar itself uses it.

    stream   VERSIONS | PRIORITY, from the end that opened the connection | other records

A session is one connection. The next session uses the same link, and what the last one lost is
sent again. A stream loses and reorders nothing, so there is no back-off: an OFFER, MESSAGE or
REQUEST is sent once per connection, and again only if the peer requests it. There are no frames
and no segments; a record is as long as its content. Of several connections to one peer over one
transport, only the one with the greatest nonce continues: the others write no more, and end when
the peer has closed its half, too.

    session = Session(link, rivals, nonce)   rivals: the open sessions of this peer and transport
    code = session.feed(piece, now_ms)
    piece = session.poll(now_ms)             until it is empty, then again after link.wake_ms
    session.is_written                       if true, close our half: there is nothing to write
    session.end()                            the peer closed its half, or the connection broke
"""

from drupelet.base.errors import E_PEER, OK, PeerError
from drupelet.base.limits import FRAME_HEADER_SIZE, RECORD_HEADER_SIZE
from drupelet.engine.pace import NEVER, Pace
from drupelet.engine.states import REQUEST
from drupelet.wire.bsp0.codec import VERSIONS_RECORD, Records
from drupelet.wire.bsp0.records import NONCE_SIZE, PAYLOAD_SIZE_MAX, PRIORITY, Reader, record
from drupelet.wire.profiles import PROFILE_BSP_0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange
    from drupelet.wire.ports import LinkPort

_FRAME_KIND = 0x40 | PROFILE_BSP_0


class StreamPace(Pace):
    """The pace of a connection that loses nothing: everything may go at once, and goes once."""

    window_first = 1 << 16  # more messages than an outbox has rows

    def begin_payload(self) -> None:
        """See Pace; the peer of an open connection is there."""
        self.is_away = False

    def row_wait(self, row: int) -> int:
        """See Pace; never again, unless the peer requests the message."""
        outbox = self._exchange.outbox
        return NEVER if outbox.sends(row) and not outbox.state(row) & REQUEST else 0

    def ask_wait(self, sends: int, asked_epoch: int) -> int:  # noqa: ARG002 - a pace's shape
        """See Pace; never again."""
        return NEVER if sends else 0


def _forget_sends(exchange: "Exchange") -> None:
    """Make everything unanswered due again: a connection begins or ends."""
    outbox = exchange.outbox
    for row in range(outbox.count):
        outbox.make_due(row)
    exchange.inbox.forget_asks()
    exchange.core.pending.ask_again()
    exchange.attention = True


class Session(Records):
    """One connection of a live link; reads and writes bytes in pieces of any size.

    `rivals` is a list that all sessions of one peer and transport share; `nonce` is 16 random
    bytes if we opened the connection, empty if we accepted it.
    """

    def __init__(self, link: "LinkPort", rivals: "list[Session]", nonce: bytes = b"") -> None:
        assert link.profile == PROFILE_BSP_0 and not link.visits
        assert not isinstance(link.codec, Session) or link.codec.is_over, "two on one link"
        assert len(nonce) in (0, NONCE_SIZE)
        Records.__init__(self)
        self.link = link
        self.priority = b""
        self.is_written: bool = False  # we write no more
        self.is_over: bool = False  # neither end writes any more
        self._is_ours = bool(nonce)
        self._reader = Reader()
        # It has room for any record, so no message is ever too long.
        self._frame = bytearray(FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + PAYLOAD_SIZE_MAX)
        self._opening = VERSIONS_RECORD
        self._rivals = rivals
        rivals.append(self)
        link.own_codec = self
        every = link.exchange.pace.every
        link.exchange.pace = StreamPace(link.exchange)
        link.exchange.pace.every = every
        _forget_sends(link.exchange)  # all that is outstanding is due at once
        if nonce:
            self._opening += record(PRIORITY, nonce)
            self._contest(nonce)

    # --- in ---

    def feed(self, piece: "bytes | bytearray | memoryview", now_ms: int) -> int:
        """Read a piece of the stream; OK, or E_PEER: the session is over, close the connection."""
        if self.link.closed:
            self._stop()
        if self.is_over:
            return E_PEER
        reader = self._reader
        reader.push(piece)
        try:
            while reader.next():
                frame = bytearray((_FRAME_KIND,)) + record(reader.kind, reader.payload)
                self.link.receive(frame, len(frame), now_ms)
        except PeerError:
            self.link.exchange.bad_record()
            self._stop()
            return E_PEER
        return OK

    def end(self) -> int:
        """The peer closed its half or the connection broke; E_PEER if that cut a record."""
        is_cut = self._reader.is_cut and not self.is_over
        self._stop()
        return E_PEER if is_cut else OK

    def on_priority(self, nonce: bytes) -> None:
        """Note the nonce of the end that opened the connection; ignore it if we opened it."""
        if not self._is_ours:
            self._contest(nonce)

    # --- out ---

    def poll(self, now_ms: int) -> bytes:
        """Return the next piece to write, at most one payload of 48 KiB; empty: nothing is due."""
        if self.is_written:
            return b""
        piece = self._opening
        self._opening = b""
        if piece:
            self.link.exchange.count_record(True, PRIORITY, len(piece))
            return piece
        size = self.link.poll_into(self._frame, now_ms)
        assert not size or self._frame[0] == _FRAME_KIND
        return bytes(self._frame[FRAME_HEADER_SIZE:size])

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due to frame[at:limit] for the link; its end, or `at` if none is due."""
        return at if self.is_written else self.records_into(exchange, frame, at, limit)

    # --- several connections to one peer ---

    def _contest(self, nonce: bytes) -> None:
        self.priority = nonce
        for rival in self._rivals:
            if rival.priority > nonce:
                self.is_written = True
            elif rival.priority and rival.priority < nonce:
                rival.is_written = True

    def _stop(self) -> None:
        if not self.is_over:
            self.is_written = self.is_over = True
            self._rivals.remove(self)
            # The link may keep us until the next connection.
            self._frame = bytearray()
            _forget_sends(self.link.exchange)
            self._reader = Reader()
