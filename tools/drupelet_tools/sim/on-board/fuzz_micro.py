# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed of a micro member: its serial line, its link, and its one table."""

from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.micro.link import MicroLink
from drupelet.micro.member import Micro
from drupelet.micro.serial_line import MicroSerial
from drupelet_transports.common.framing import encode_into

FRAME_SIZE = 251
SOUND_MAX = 24


class Stream:
    """A line on which some bytes have come; what is written to it is counted."""

    def __init__(self):
        self.buf = bytearray(1200)
        self.at = self.end = self.sent = 0

    def readinto(self, chunk):
        """As a UART that does not wait."""
        count = min(len(chunk), self.end - self.at)
        for n in range(count):
            chunk[n] = self.buf[self.at + n]
        self.at += count
        return count or None

    def write(self, buf, at, size):
        """As a UART that takes all."""
        self.sent += 1
        return size


class MicroFuzz:
    """A micro member behind its line."""

    def __init__(self, parser, draw):
        nodes = [Micro(READINGS_CLIENT_ID, b"fuzz", peers_max=1) for _ in range(2)]
        links = [MicroLink(node, 1) for node in nodes]
        self.node, self.link = nodes[0], links[0]
        self.stream = Stream()
        self.serial = MicroSerial(self.link, self.stream)
        self.sound = []
        frame = bytearray(FRAME_SIZE)
        for epoch in range(12):
            for row in (0, 1):
                if epoch < 4:
                    text = b"%d %d" % (row, epoch)
                    nodes[row].publish(text, len(text), bytearray(7) + bytes((epoch + 1,)))
                size = links[row].poll_into(frame, epoch * 1000)
                while size:
                    if len(self.sound) < SOUND_MAX:
                        self.sound.append(bytes(frame[:size]))
                    links[1 - row].receive(frame, size, epoch * 1000)
                    size = links[row].poll_into(frame, epoch * 1000)
                self.drain(nodes[row])
        self.framed = False
        self.now_ms = 20_000

    def drain(self, node):
        """Take what entered the log."""
        row = node.next_event()
        while row >= 0:
            node.done(row)
            row = node.next_event()

    def fix(self, buf, size, word):
        self.framed = word >> 17 > 0
        return size

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 70) & 0x3FFFFFFF
        stream = self.stream
        stream.at = 0
        if self.framed:
            stream.end = encode_into(stream.buf, buf, size)
        else:
            stream.buf[:size] = buf[:size]
            stream.end = size
        malformed = self.node.malformed
        damaged = self.serial.damaged
        sent = stream.sent
        self.serial.pump(self.now_ms)
        self.drain(self.node)
        sound = self.framed and self.serial.damaged == damaged
        result = 1 if sound and self.node.malformed == malformed else 0
        return result | 2 if stream.sent != sent else result
