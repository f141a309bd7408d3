# host only: Briar's sizes
"""Profile `bsp-0` over a connection that is a stream of bytes, as Briar's own ends speak it.

    stream   VERSIONS | PRIORITY, from the end that opened the connection | other records

A session is one connection. The next one goes on with the same link: what the last one lost is
sent again. A stream loses nothing and keeps its order, so nothing is sent twice on one, whatever
time the peer takes: that an OFFER, MESSAGE or REQUEST was sent on this connection stands in place
of the back-off in epochs. Only what the peer asks for goes again. There are no frames and no
segments; a record is as long as its content. Of several connections to one peer over one transport
the one with the greatest nonce goes on: the others write no more, and end once the peer has closed
its half, too.

    session = Session(link, rivals, nonce)   rivals: the open sessions of this peer and transport
    code = session.feed(piece, now_ms)
    piece = session.poll(now_ms)             until it is empty, then again after link.wake_ms
    session.is_written                       nothing more will come: close our half
    session.end()                            the peer closed its half, or the connection broke
"""

from drupelet.base.errors import E_PEER, OK, PeerError
from drupelet.base.limits import FRAME_HEADER_SIZE, RECORD_HEADER_SIZE
from drupelet.wire.bsp0.codec import VERSIONS_RECORD, Records
from drupelet.wire.bsp0.records import NONCE_SIZE, PAYLOAD_SIZE_MAX, PRIORITY, Reader, record
from drupelet.wire.profiles import PROFILE_BSP_0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange
    from drupelet.wire.ports import LinkPort

_FRAME_KIND = 0x40 | PROFILE_BSP_0


class Session(Records):
    """One connection over a live link; bytes in and out, in pieces of any size.

    `rivals` is a list that all sessions of one peer and transport share; `nonce` has 16 random
    bytes when we opened the connection, none when we accepted it.
    """

    def __init__(self, link: "LinkPort", rivals: "list[Session]", nonce: bytes = b"") -> None:
        assert link.profile == PROFILE_BSP_0 and not link.visits
        assert not isinstance(link.codec, Session) or link.codec.is_over, "two on one link"
        assert len(nonce) in (0, NONCE_SIZE)
        Records.__init__(self)
        self.link = link
        self.priority = b""
        self.is_written: bool = False  # we write no more
        self.is_over: bool = False  # nothing goes either way
        self._is_ours = bool(nonce)
        self._reader = Reader()
        # One record of any kind has room, so none is ever too long.
        self._frame = bytearray(FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + PAYLOAD_SIZE_MAX)
        self._opening = VERSIONS_RECORD
        self._rivals = rivals
        rivals.append(self)
        link.own_codec = self
        link.pace.begin_stream()
        link.exchange.forget_sends()  # and what came up while there was no connection is due
        if nonce:
            self._opening += record(PRIORITY, nonce)
            self._contest(nonce)

    # --- in ---

    def feed(self, piece: "bytes | bytearray | memoryview", now_ms: int) -> int:
        """Take in what came; OK, or E_PEER: the session is over, the connection to be closed."""
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
        """The peer writes no more, or the connection broke; E_PEER when it did within a record."""
        is_cut = self._reader.is_cut and not self.is_over
        self._stop()
        return E_PEER if is_cut else OK

    def on_priority(self, nonce: bytes) -> None:
        """The nonce of the end that opened the connection; if that is us, the peer errs."""
        if not self._is_ours:
            self._contest(nonce)

    # --- out ---

    def poll(self, now_ms: int) -> bytes:
        """The next piece to write, at most one payload of 48 KiB; empty: nothing just now."""
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
        """Write what is due (called by the link); its end, or `at` for nothing due."""
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
            self.link.exchange.forget_sends()
            self._reader = Reader()
