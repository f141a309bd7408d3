# host only: Briar's sizes, and BLAKE2b
"""The frame codec of profile `bsp-0`: records of drupelet.wire.bsp0.records in frames.

    frame   kind 0x45 | VERSIONS | PRIORITY | records of types 0 to 3

Every payload is a session. Its first frame begins with VERSIONS; on a stick, where a bundle may be
truncated, every frame does. If two members have several live links over one carrier, PRIORITY
follows: a nonce of 16 bytes that each end generates for this link. The greater nonce of the two
ends is the link's priority, so both ends know the same value. While another link with a greater
priority is heard, a link sends nothing except the rest of messages begun in segments. (In Briar
only the end that opened a connection generates a nonce, and the connection with the smaller one is
closed: drupelet.wire.bsp0.session.)
"""

from hashlib import blake2b

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    BSP0_INSISTS_MAX,
    BSP0_RIVAL_EPOCHS,
    CONTENT_HEADER_SIZE,
    FRAME_HEADER_SIZE,
    ID_SIZE,
    RECORD_HEADER_SIZE,
)
from drupelet.base.memory import copy, equal, get_u16
from drupelet.base.time_ms import epochs_since
from drupelet.wire.bsp0.records import (
    ACK,
    IDS_MAX,
    MESSAGE,
    NONCE_SIZE,
    OFFER,
    PRIORITY,
    REQUEST,
    VERSION,
    VERSIONS,
    is_well_sized,
    record,
)
from drupelet.wire.bsp1 import fill_record, put_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange

VERSIONS_RECORD = record(VERSIONS, bytes((VERSION,)))
_OPENING_SIZE_MAX = len(VERSIONS_RECORD) + RECORD_HEADER_SIZE + NONCE_SIZE
_FIRST_AT_MAX = FRAME_HEADER_SIZE + _OPENING_SIZE_MAX
_RECORD_SIZE_MIN = RECORD_HEADER_SIZE + CONTENT_HEADER_SIZE + 1


class Records:
    """Reads and writes records of types 0 to 3; the subclasses open sessions."""

    def __init__(self) -> None:
        self.peer_versions = b""  # the payload of the peer's last VERSIONS; empty: none yet

    # --- in ---

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of frame[at:end] to the engine; E_PEER if Briar would reject one."""
        while at < end:
            start = at + RECORD_HEADER_SIZE
            if start > end or frame[at] != VERSION:
                return E_PEER
            kind = frame[at + 1]
            length = get_u16(frame, at + 2)
            if start + length > end or not is_well_sized(kind, length):
                return E_PEER
            if kind == MESSAGE:
                if frame[start + ID_SIZE] & 0x80:
                    return E_PEER
                body_at = start + CONTENT_HEADER_SIZE
                size = length - CONTENT_HEADER_SIZE
                exchange.on_message(frame, start, frame, start + ID_SIZE, frame, body_at, size)
            else:
                self._known(exchange, kind, frame, start, start + length)
            exchange.count_record(False, kind, RECORD_HEADER_SIZE + length)
            at = start + length
        return OK

    def _known(self, exchange: "Exchange", kind: int, frame: bytearray, at: int, end: int) -> None:
        """Handle a well-formed record that is not a MESSAGE."""
        if kind == VERSIONS:
            self.peer_versions = bytes(frame[at:end])
        elif kind == PRIORITY:
            self.on_priority(bytes(frame[at:end]))
        elif kind == ACK:
            for id_at in range(at, end, ID_SIZE):
                exchange.on_ack(frame, id_at)
                if id_at > at and equal(frame, id_at - ID_SIZE, frame, id_at, ID_SIZE):
                    exchange.on_gone(frame, id_at)
        elif kind == OFFER:
            for id_at in range(at, end, ID_SIZE):
                exchange.on_offer(frame, id_at)
        elif kind == REQUEST:
            for id_at in range(at, end, ID_SIZE):
                exchange.on_request(frame, id_at)

    def on_priority(self, nonce: bytes) -> None:
        """Note the peer's nonce for this link or connection."""
        raise NotImplementedError

    # --- out ---

    def records_into(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write the records due to frame[at:limit]; return their end (`at` if none is due)."""
        at = _ids_into(exchange, frame, at, limit, ACK)
        at = _ids_into(exchange, frame, at, limit, REQUEST)
        while limit - at >= _RECORD_SIZE_MIN and exchange.next_message():
            assert exchange.core.store.size, "an empty body is in the log"
            size = CONTENT_HEADER_SIZE + exchange.core.store.size
            end = at + RECORD_HEADER_SIZE + size
            if end <= limit:
                if put_message(exchange, frame, at, size):
                    frame[at] = VERSION
                    at = end
            elif _FIRST_AT_MAX + RECORD_HEADER_SIZE + size <= len(frame):
                break  # the next frame has room, even with the longest opening
            else:
                exchange.too_long()
        return _ids_into(exchange, frame, at, limit, OFFER)


def _ids_into(exchange: "Exchange", frame: bytearray, at: int, limit: int, kind: int) -> int:
    limit = min(limit, at + RECORD_HEADER_SIZE + IDS_MAX * ID_SIZE)
    end = fill_record(exchange, frame, at, limit, kind)
    if end > at:
        frame[at] = VERSION
    return end


class Codecs:
    """The bsp-0 codecs of one node: how many were made, and the live ones by peer and carrier."""

    def __init__(self) -> None:
        self.made = 0
        self.rivals: "dict[tuple[int, int], list[FrameCodec]]" = {}


class FrameCodec(Records):
    """Reads and writes the frames of one link."""

    def __init__(self, core: "Core", peer: int) -> None:
        Records.__init__(self)
        if not isinstance(core.bsp0_codecs, Codecs):
            core.bsp0_codecs = Codecs()
        self._codecs = core.bsp0_codecs
        self._rivals = [self]
        self._is_placed = False
        self.nonce = self._made_up(core, peer)
        self.peer_nonce = b""
        self._opened_epoch = self._heard_epoch = -1
        # The peer sent on this link though it is the one to be silent: tell it our nonce.
        self._answers = False
        self._insists = 0  # in how many consecutive epochs it did
        self._insisted_epoch = -1

    def _made_up(self, core: "Core", peer: int) -> bytes:
        """Return a nonce that no other link of ours has, the same in every replay of a test."""
        codecs = self._codecs
        codecs.made += 1
        words = (core.boot, core.members.peer_number(peer), codecs.made)
        seed = b"".join(word.to_bytes(4, "big") for word in words)
        return blake2b(seed, digest_size=NONCE_SIZE).digest()

    @property
    def priority(self) -> bytes:
        """The greater nonce of both ends; empty until the peer's is known."""
        return max(self.nonce, self.peer_nonce) if self.peer_nonce else b""

    def on_priority(self, nonce: bytes) -> None:
        """Note the peer's nonce for this link."""
        if nonce != self.peer_nonce:
            self.peer_nonce = nonce
            self._insists = 0

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of a frame to the engine; E_PEER if one is malformed, as `Records`."""
        self._place(exchange)
        self._heard_epoch = exchange.epoch
        code = Records.parse(self, exchange, frame, at, end)
        if end - at > _OPENING_SIZE_MAX and self.is_silent(exchange):
            self._answers = True
            since = epochs_since(exchange.epoch, self._insisted_epoch)
            if since or self._insisted_epoch < 0:
                goes_on = (
                    self._insisted_epoch >= 0 and since <= BSP0_RIVAL_EPOCHS * exchange.pace.every
                )
                self._insists = self._insists + 1 if goes_on else 1
                self._insisted_epoch = exchange.epoch
        return code

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due, after the payload's opening; return its end, `at` if none is due."""
        self._place(exchange)
        is_silent = self.is_silent(exchange)
        if is_silent and not self._answers:
            return at
        start = at
        if exchange.visits or self._opened_epoch != exchange.epoch:
            start = self._opening_into(exchange, frame, at)
        end = start if is_silent else self.records_into(exchange, frame, start, limit)
        if end == start and not is_silent:
            return at
        self._answers = False
        self._opened_epoch = exchange.epoch
        if start > at:
            exchange.count_record(True, VERSIONS, start - at)
        return end

    def _opening_into(self, exchange: "Exchange", frame: bytearray, at: int) -> int:
        copy(frame, at, VERSIONS_RECORD, 0, len(VERSIONS_RECORD))
        at += len(VERSIONS_RECORD)
        if exchange.visits or len(self._rivals) == 1:
            return at
        priority = record(PRIORITY, self.nonce)
        copy(frame, at, priority, 0, len(priority))
        return at + len(priority)

    # --- several links to one peer ---

    def _place(self, exchange: "Exchange") -> None:
        """Register with the other live links to this peer over this carrier, once."""
        if not self._is_placed:
            self._is_placed = True
            if not exchange.visits:
                carrier = exchange.carrier
                self._rivals = self._codecs.rivals.setdefault((exchange.peer, carrier), [])
                self._rivals.append(self)

    def is_silent(self, exchange: "Exchange") -> bool:
        """True while a rival with a greater priority is heard, unless the peer ignores that."""
        if not self.peer_nonce or self._insists > BSP0_INSISTS_MAX:
            return False
        for rival in self._rivals:
            if rival.priority > self.priority and rival.is_heard(exchange):
                return True
        return False

    def is_heard(self, exchange: "Exchange") -> bool:
        """True if the peer was heard on this link lately; `exchange`: another link to the peer."""
        since = epochs_since(exchange.epoch, self._heard_epoch)
        return self._heard_epoch >= 0 and since <= BSP0_RIVAL_EPOCHS * exchange.pace.every
