"""Profile `bsp-1`: a frame is a sequence of the records of BSP v1 section 3.

    byte  0        1     2..3                     4..
          version  type  payload length, big-end  payload

    type  0 ACK, 2 OFFER, 3 REQUEST: one or more message ids of 32 bytes
          1 MESSAGE: group id 32 | timestamp 8 (ms, big-endian) | body

A record of another version, an id list that is empty or not a multiple of 32 bytes, a MESSAGE
without a whole header and a negative timestamp are errors of the peer: the rest of the frame is
dropped. Records of an unknown type are skipped.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    RECORD_HEADER_SIZE,
)
from drupelet.base.memory import copy, equal, get_u16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.wire.ports import RecordsPort

VERSION = const(1)
ACK = const(0)
MESSAGE = const(1)
OFFER = const(2)
REQUEST = const(3)


def check_record(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Return the payload length of the record at `at`, or E_PEER if it is malformed."""
    if end - at < RECORD_HEADER_SIZE or buf[at] != VERSION:
        return E_PEER
    kind = buf[at + 1]
    length = get_u16(buf, at + 2)
    if at + RECORD_HEADER_SIZE + length > end:
        return E_PEER
    if kind == MESSAGE:
        if length < CONTENT_HEADER_SIZE or length > CONTENT_HEADER_SIZE + BODY_SIZE_MAX:
            return E_PEER
        if buf[at + RECORD_HEADER_SIZE + ID_SIZE] & 0x80:
            return E_PEER
    elif kind <= REQUEST and (length == 0 or length % ID_SIZE):
        return E_PEER
    return length


def put_header(buf: bytearray, at: int, kind: int, length: int) -> None:
    """Write a record header."""
    buf[at] = VERSION
    buf[at + 1] = kind
    put_u16(buf, at + 2, length)


def parse(exchange: "RecordsPort", frame: bytearray, at: int, end: int) -> int:
    """Hand each record of frame[at:end] to the engine; OK, or E_PEER at the first malformed."""
    ack_at = -1  # the previous ACK's id: the same id twice in a row says that the message is gone
    while at < end:
        length = check_record(frame, at, end)
        if length < 0:
            return E_PEER
        kind = frame[at + 1]
        at += RECORD_HEADER_SIZE
        if kind == MESSAGE:
            body_at = at + CONTENT_HEADER_SIZE
            size = length - CONTENT_HEADER_SIZE
            exchange.on_message(frame, at, frame, at + ID_SIZE, frame, body_at, size)
        elif kind <= REQUEST:
            # ID_SIZE as a literal: with a name as step, MicroPython would allocate the range.
            for id_at in range(at, at + length, 32):
                if kind == ACK:
                    exchange.on_ack(frame, id_at)
                    if ack_at >= 0 and equal(frame, ack_at, frame, id_at, ID_SIZE):
                        exchange.on_gone(frame, id_at)
                    ack_at = id_at
                elif kind == OFFER:
                    exchange.on_offer(frame, id_at)
                else:
                    exchange.on_request(frame, id_at)
        exchange.count_record(False, kind, RECORD_HEADER_SIZE + length)
        at += length
    return OK


def fill(exchange: "RecordsPort", frame: bytearray, at: int, limit: int) -> int:
    """Write the records that are due to frame[at:limit]; return their end (`at` if none is)."""
    begin = at
    at = fill_ids(exchange, frame, at, limit)
    while limit - at >= RECORD_HEADER_SIZE + CONTENT_HEADER_SIZE and exchange.next_message():
        size = CONTENT_HEADER_SIZE + exchange.core.store.size
        if at + RECORD_HEADER_SIZE + size > limit:
            if begin + RECORD_HEADER_SIZE + size <= len(frame):
                break  # the next frame has room
            exchange.too_long()
        elif put_message(exchange, frame, at, size):
            at += RECORD_HEADER_SIZE + size
    return fill_record(exchange, frame, at, limit, OFFER)


def fill_ids(exchange: "RecordsPort", frame: bytearray, at: int, limit: int) -> int:
    """Write only the ACKs and REQUESTs that are due; arguments and result as for `fill`."""
    at = fill_record(exchange, frame, at, limit, ACK)
    return fill_record(exchange, frame, at, limit, REQUEST)


def put_message(exchange: "RecordsPort", frame: bytearray, at: int, size: int) -> bool:
    """Write a MESSAGE with the selected message, `size` bytes with its header; return True if the
    store could read it."""
    core = exchange.core
    put_header(frame, at, MESSAGE, size)
    at += RECORD_HEADER_SIZE
    copy(frame, at, core.members.group_ids, exchange.message_group * ID_SIZE, ID_SIZE)
    copy(frame, at + ID_SIZE, core.store.timestamp, 0, CONTENT_HEADER_SIZE - ID_SIZE)
    is_read = exchange.body_into(frame, at + CONTENT_HEADER_SIZE, 0, size - CONTENT_HEADER_SIZE)
    # A message that the store could not read counts as sent, too: its back-off delays the retry.
    exchange.put_message()
    if is_read:
        exchange.count_record(True, MESSAGE, RECORD_HEADER_SIZE + size)
    return is_read


def fill_record(exchange: "RecordsPort", frame: bytearray, at: int, limit: int, kind: int) -> int:
    """Write a record with the ids of a `kind` that are due to frame[at:limit]; return its end."""
    start = end = at + RECORD_HEADER_SIZE
    while end + ID_SIZE <= limit:
        if kind == ACK:
            taken = exchange.take_ack(frame, end)
        elif kind == REQUEST:
            taken = exchange.take_request(frame, end)
        else:
            taken = exchange.take_offer(frame, end)
        if not taken:
            break
        end += ID_SIZE
    if end == start:
        return at
    put_header(frame, at, kind, end - start)
    exchange.count_record(True, kind, RECORD_HEADER_SIZE + end - start)
    return end
