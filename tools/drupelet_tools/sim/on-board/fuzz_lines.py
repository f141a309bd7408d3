# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ANN204, ARG001, ARG002
"""What is fuzzed of carriers: a serial line, MQTT packets and a broker, bundles on a stick."""

import io

import drupelet_transports.board.mqtt_board as mqtt_board
import drupelet_transports.stick.stick as stick_module
from drupelet.base.memory import copy, crc16, put_u16
from drupelet_transports.board.mqtt_packet import PacketReader, payload_start, publish_into
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max

INBOX, OUTBOX = b"0123456789abcdef", b"fedcba9876543210"


class CobsFuzz:
    """The decoder of a serial line."""

    def __init__(self, parser, draw):
        self.decoder = Decoder(256)
        self.plain = bytearray(1088)
        self.sound = []
        for size in (1, 5, 60, 254, 255, 256):
            frame = bytearray(draw(256) for _ in range(size))
            wire = bytearray(wire_size_max(size))
            self.sound.append(bytes(wire[: encode_into(wire, frame, size)]))

    def fix(self, buf, size, word):
        if word >> 18 and size < 400:  # what was mutated is what is framed
            if word & 1:
                buf[0] = 0
            copy(self.plain, 0, buf, 0, size)
            return encode_into(buf, self.plain, size)
        return size

    def feed(self, buf, size):
        decoder = self.decoder
        at = 0
        result = 0
        while at < size:
            at = decoder.feed(buf, at, size)
            if decoder.size:
                result = 1
        return result


def packets(draw, topic):
    """What a broker may send to a client of QoS 0, and some that it may not."""
    out = bytearray(300)
    samples = [b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x00", b"\xd0\x00", b"\x20\x02\x00\x05"]
    for size in (1, 60, 200):
        frame = bytes(draw(256) for _ in range(size))
        samples.append(bytes(out[: publish_into(out, topic, frame, size)]))
    head = bytes((0, len(topic))) + topic
    samples.append(bytes((0x32, len(head) + 5)) + head + b"\x00\x07abc")
    samples.append(bytes((0x31, len(head) + 3)) + head + b"old")
    samples.append(bytes((0x30, len(head) + 1)) + head[:-1] + b"#xx")
    samples.append(b"\x40\x02\x00\x07")
    return samples


def set_length(buf, size, word):
    """Give a packet the remaining length of what is there, or one that is near it or far off."""
    at = 1
    while at < min(size, 5) and buf[at] & 0x80:
        at += 1
    body = max(0, size - at - 1)
    if at > 4 or size < 2:
        return size
    how = word >> 16
    length = body
    if how == 0:
        length = (body + (word & 7)) & 0x3FFF
    elif how == 1:
        length = (word & 0xFFFF) << (word & 7)  # up to 2^23
    count = 1
    while length >> 7 * count:
        count += 1
    if how == 2:
        count = min(4, count + 1)  # longer than it need be
    elif how == 3:
        count = 5
    copy(buf, 1 + count, buf, at + 1, body)
    for place in range(count):
        buf[1 + place] = length >> 7 * place & 127 | (128 if place < count - 1 else 0)
    return 1 + count + body


class MqttFuzz:
    """The packet reader of the boards' MQTT client, in pieces of any size."""

    def __init__(self, parser, draw):
        self.reader = PacketReader(256)
        self.sound = packets(draw, b"t/0000/1111")
        self.piece = 1

    def fix(self, buf, size, word):
        self.piece = 1 + (word >> 4 & 63)
        return set_length(buf, size, word) if word & 7 else size

    def feed(self, buf, size):
        reader = self.reader
        if self.piece & 3 == 0:
            reader.reset()  # else a packet of 2^28 bytes hides all that comes after it
        at = 0
        result = 0
        while at < size:
            end = min(size, at + self.piece)
            while at < end:
                at = reader.feed(buf, at, end)
                if reader.broken:
                    reader.reset()
                    return result
                if reader.ready:
                    result |= 1
                    if payload_start(reader.body, reader.size) >= 0:
                        result |= 2
                    reader.release()
        return result


class Wire:
    """A socket on which a broker's bytes are ready, in pieces."""

    def __init__(self):
        self.buf = bytearray(1200)
        self.at = self.end = 0
        self.piece = 64
        self.sent = 0

    def close(self):
        self.at = self.end = 0


def read(wire, chunk):
    """As drupelet_transports.common.sockets."""
    count = min(len(chunk), wire.end - wire.at, wire.piece)
    if count <= 0:
        return -1
    copy(chunk, 0, wire.buf, wire.at, count)
    wire.at += count
    return count


def write(wire, buf, at, size):
    """As drupelet_transports.common.sockets."""
    wire.sent += 1
    return size


class Client(mqtt_board.MqttClient):
    """A client that is always connected to the wire."""

    wire = None

    def inside(self):
        return self._reader._state

    def drop(self):
        self._drop()

    def _open(self):
        self._since_ms = self._now_ms
        self._reset()
        self._sock = self.wire
        self._state = 2  # greeting: named constants are numbers in compiled firmware
        self._queue(mqtt_board.connect_into(self._tx, self._client_id, 60))


class ClientFuzz:
    """The boards' MQTT client with a broker that says anything."""

    def __init__(self, parser, draw):
        mqtt_board.read, mqtt_board.write = read, write
        self.client = Client("h", 1883, "p", lambda: draw(256))
        self.client.wire = self.wire = Wire()
        self.peers = [self.client.transport(INBOX, OUTBOX), self.client.transport(b"1", b"2")]
        self.sound = packets(draw, b"p/" + INBOX)
        self.frame = bytearray(1024)
        self.now_ms = 0

    def fix(self, buf, size, word):
        self.wire.piece = 1 + (word >> 4 & 63)
        if word & 8 and size > 22:  # to a peer of ours
            copy(buf, 0, b"\x30\x01\x00\x12p/" + INBOX, 0, 22)
        return set_length(buf, size, word) if word & 7 else size

    def give(self, buf, size):
        """Some bytes of the broker's, and what the owner does then; frames that came."""
        wire = self.wire
        client = self.client
        copy(wire.buf, 0, buf, 0, size)
        wire.at = 0
        wire.end = size
        frames = 0
        for _ in range(4):
            before = wire.at
            client.maintain(self.now_ms)
            for peer in self.peers:
                frames += peer.receive_into(self.frame) > 0
            if wire.at >= wire.end or (wire.at == before and not frames):
                break
        return frames

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 3000) & 0x3FFFFFFF
        if self.wire.piece & 3 and self.client.inside():
            self.client.drop()  # else a packet of 2^28 bytes hides all that comes after it
        if not self.client.up and size & 3:
            self.now_ms = (self.now_ms + 90_000) & 0x3FFFFFFF  # its back-off is over
            self.client.maintain(self.now_ms)
            for answer in (b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x00", b"\x90\x03\x00\x02\x00"):
                self.give(answer, len(answer))
        sent = self.wire.sent
        result = 1 if self.give(buf, size) else 0
        self.client.wait_ms(self.now_ms)
        if result:
            self.peers[0].send(self.frame, 40)
        return result | 2 if self.wire.sent != sent else result


SENDER, OWN = b"\xaa\x00\x00\x01", b"\xbb\x00\x00\x02"


class OneFile:
    """In the place of `os` and of `open`: a stick with one bundle in it."""

    O_RDONLY = 0
    st_mode = 0x81A4

    def __init__(self):
        self.content = b""

    def ilistdir(self, folder):
        return [("00000001.DRP", 0x8000, 0)]

    def listdir(self, folder):
        return ["00000001.DRP"]

    name = "00000001.DRP"

    def scandir(self, folder):
        return self

    def __iter__(self):
        return iter((self,))

    def close(self):
        pass

    def lstat(self, path):
        return self

    def stat(self, path):
        return (0x4000,)

    def open(self, path, mode):
        return io.BytesIO(self.content)


def checksum(buf, start, size):
    """Put the CRC of buf[start:][:size] behind it."""
    put_u16(buf, start + size, crc16(buf, start, size, 0xFFFF))


class StickFuzz:
    """Bundles as somebody left them on a stick."""

    def __init__(self, parser, draw):
        self.stick = stick_module.Stick("/stick", OWN)
        self.files = stick_module.os = stick_module.open = OneFile()
        stick_module.open = self.files.open
        self.frame = bytearray(1024)
        self.sound = []
        for sizes in ((1,), (30, 90, 5), (200,), ()):
            head = b"DRP1" + SENDER + OWN + b"\x00\x00\x00\x01\x00\x00\x00\x07"
            bundle = bytearray(head + bytes(2))
            checksum(bundle, 0, 20)
            for size in sizes + (0,):  # noqa: RUF005 - MicroPython has no other form
                at = len(bundle)
                bundle += bytes((0, size)) + bytes(draw(256) for _ in range(size)) + bytes(2)
                checksum(bundle, at, size + 2)
            self.sound.append(bytes(bundle))

    def fix(self, buf, size, word):
        if not word >> 17 or size < 22:
            return size
        if word & 7:  # under its own name, or else foreign
            copy(buf, 0, self.sound[0], 0, 16)
        checksum(buf, 0, 20)
        at = 22
        while at + 4 <= size:
            length = buf[at] << 8 | buf[at + 1]
            if length > size - at - 4:
                if word & 8:
                    break
                length = size - at - 4
                put_u16(buf, at, length)
            checksum(buf, at, length + 2)
            at += length + 4
        return size

    def feed(self, buf, size):
        self.files.content = bytes(memoryview(buf)[:size])
        reader = self.stick.reader(SENDER, 0)
        result = 0
        while reader.next():
            result |= 1
            while reader.read_into(self.frame) > 0:
                result |= 2
        reader.close()
        return result
