"""MQTT 3.1.1 packets in bounded memory: written to a buffer, read from a stream.

Section numbers below refer to OASIS MQTT 3.1.1. Only what QoS 0 needs is implemented. Nothing
allocates after construction, and a length that a broker announces never determines memory use.
"""

from drupelet.base.compat import const
from drupelet.base.memory import copy, get_u16, put_u16

# Control packet types (2.2.1) with their fixed flags (2.2.2), as in the first byte.
CONNECT = const(0x10)
CONNACK = const(0x20)
PUBLISH = const(0x30)
SUBSCRIBE = const(0x82)
SUBACK = const(0x90)
PINGREQ = const(0xC0)
DISCONNECT = const(0xE0)

# PUBLISH flags (3.3.1).
RETAIN = const(0x01)
QOS_MASK = const(0x06)

# First byte, at most two length bytes (up to 16,383, far above a frame), topic length.
PUBLISH_HEAD_SIZE_MAX = const(5)

# Section 2.2.3: the remaining length has at most four bytes of seven bits.
_LENGTH_SHIFT_MAX = const(21)

# Parser states.
_KIND = const(0)
_LENGTH = const(1)
_BODY = const(2)
_SKIP = const(3)

# Variable header of CONNECT (3.1.2): protocol name, level 4; then flags: clean session, and, if
# there is a login, user and password.
_CONNECT_HEAD = b"\x00\x04MQTT\x04"
_CLEAN = const(0x02)
_LOGIN = const(0xC0)


def connect_into(
    out: bytearray, client_id: bytes, keepalive_s: int, login: "tuple[bytes, ...]" = ()
) -> int:
    """Write CONNECT with a clean session and no will (3.1); return the packet's size.

    login: user and password, or empty.
    """
    texts = (client_id,) + login  # noqa: RUF005 - MicroPython has no other way
    remaining = 10
    for text in texts:
        remaining += 2 + len(text)
    at = _head_into(out, CONNECT, remaining)
    copy(out, at, _CONNECT_HEAD, 0, 7)
    out[at + 7] = _CLEAN | _LOGIN if login else _CLEAN
    put_u16(out, at + 8, keepalive_s)
    at += 10
    for text in texts:
        at = _text_into(out, at, text)
    return at


def _head_into(out: bytearray, kind: int, remaining: int) -> int:
    """Write first byte and remaining length (2.2.3); return where the rest begins."""
    assert remaining < 16384
    out[0] = kind
    if remaining < 128:
        out[1] = remaining
        return 2
    out[1] = 128 | (remaining & 127)
    out[2] = remaining >> 7
    return 3


def _text_into(out: bytearray, at: int, text: bytes) -> int:
    """Write a string with its length in front (1.5.3) to out[at:]; return the end."""
    put_u16(out, at, len(text))
    copy(out, at + 2, text, 0, len(text))
    return at + 2 + len(text)


def subscribe_into(out: bytearray, packet_id: int, topic: bytes) -> int:
    """Write SUBSCRIBE to one topic filter at QoS 0 (3.8); return the packet's size."""
    at = _head_into(out, SUBSCRIBE, 5 + len(topic))
    put_u16(out, at, packet_id)
    at = _text_into(out, at + 2, topic)
    out[at] = 0
    return at + 1


def publish_into(out: bytearray, topic: bytes, payload: "bytes | bytearray", size: int) -> int:
    """Write PUBLISH of payload[:size] at QoS 0, not retained (3.3); return the packet's size."""
    at = _head_into(out, PUBLISH, 2 + len(topic) + size)
    at = _text_into(out, at, topic)
    copy(out, at, payload, 0, size)
    return at + size


def short_into(out: bytearray, kind: int) -> int:
    """Write a packet without a body, PINGREQ or DISCONNECT; return its size."""
    return _head_into(out, kind, 0)


class PacketReader:
    """Extracts packets from a byte stream, one whole packet at a time.

    Call `feed` until `ready`; then `kind` (first byte with flags), `body[:size]` and `wire_size`
    describe the packet until `release`. A packet longer than `body` is skipped and counted in
    `skipped`. `broken`: the stream is not valid MQTT, so nothing after it can be read.
    """

    def __init__(self, body_size_max: int) -> None:
        self.body = bytearray(body_size_max)
        self.skipped = 0
        self.reset()

    def reset(self) -> None:
        """Prepare for a new connection."""
        self.broken = False
        self.release()

    def release(self) -> None:
        """Release the packet, so that `feed` reads the next one."""
        self.ready = False
        self.kind = 0
        self.size = 0
        self.wire_size = 0
        self._state = _KIND
        self._have = 0

    def feed(self, chunk: bytearray, at: int, end: int) -> int:
        """Read chunk[at:end] until a packet is ready; return the position reached."""
        while at < end and not self.ready and not self.broken:
            if self._state == _KIND:
                self.kind = chunk[at]
                at += 1
                self.wire_size = 1
                self._state = _LENGTH
            elif self._state == _LENGTH:
                self._take_length(chunk[at])
                at += 1
            else:
                count = min(end - at, self.size - self._have)
                if self._state == _BODY:
                    copy(self.body, self._have, chunk, at, count)
                at += count
                self._have += count
                if self._have == self.size:
                    self._finish()
        return at

    def _take_length(self, byte: int) -> None:
        shift = 7 * (self.wire_size - 1)
        self.wire_size += 1
        self.size |= (byte & 127) << shift
        if byte & 128:
            self.broken = shift == _LENGTH_SHIFT_MAX
            return
        self.wire_size += self.size
        self._state = _BODY if self.size <= len(self.body) else _SKIP
        if not self.size:
            self.ready = True

    def _finish(self) -> None:
        if self._state == _BODY:
            self.ready = True
        else:
            self.skipped += 1
            self.release()


def payload_start(body: bytearray, size: int) -> int:
    """Return where the payload of a QoS 0 PUBLISH begins (3.3.2); -1: the topic is truncated."""
    if size < 2:
        return -1
    start = 2 + get_u16(body, 0)
    return start if start <= size else -1
