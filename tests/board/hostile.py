"""A broker that says what a test tells it to: one connection at a time, raw bytes."""

import socket
import struct

TIMEOUT_S = 10.0
TOPIC = b"t/000000a1/000000b2"
CONNACK = b"\x20\x02\x00\x00"
SUBACK = b"\x90\x03\x00\x01\x00"
PINGRESP = b"\xd0\x00"


def remaining(size: int) -> bytes:
    out = b""
    while True:
        size, low = divmod(size, 128)
        out += bytes([low | (128 if size else 0)])
        if not size:
            return out


def packet(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + remaining(len(body)) + body


def publish(payload: bytes, topic: bytes = TOPIC, flags: int = 0, packet_id: bytes = b"") -> bytes:
    return packet(0x30 | flags, struct.pack(">H", len(topic)) + topic + packet_id + payload)


class HostileBroker:
    """Listens on loopback; `accept` takes the next connection of the device."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.port = self._listener.getsockname()[1]
        self.sock: socket.socket | None = None

    def __enter__(self) -> "HostileBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self._listener.close()

    def accept(self) -> None:
        """The next connection, nothing said yet."""
        self.hang_up()
        self.sock, _ = self._listener.accept()
        self.sock.settimeout(TIMEOUT_S)

    def serve(self) -> None:
        """The next connection, up to SUBACK."""
        self.accept()
        assert self.packet()[0] == 0x10
        self.send(CONNACK)
        assert self.packet()[0] == 0x82
        self.send(SUBACK)

    def send(self, data: bytes) -> None:
        assert self.sock is not None
        self.sock.sendall(data)

    def hang_up(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def packet(self) -> tuple[int, bytes]:
        """The device's next packet: first byte and body."""
        kind = self._exactly(1)[0]
        size = shift = 0
        while True:
            byte = self._exactly(1)[0]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return kind, self._exactly(size)

    def echo(self, payload: bytes) -> None:
        """Send a frame and check that the device sends it back, whatever pings come between."""
        self.send(publish(payload))
        for _ in range(20):
            kind, body = self.packet()
            if kind == 0xC0:
                self.send(PINGRESP)
                continue
            assert kind == 0x30
            assert body == struct.pack(">H", 19) + b"t/000000b2/000000a1" + payload
            return
        raise AssertionError("no echo")

    def closed_by_device(self) -> bool:
        """Whether the device hangs up; reads what it still had to say."""
        assert self.sock is not None
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def _exactly(self, size: int) -> bytes:
        assert self.sock is not None
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            assert piece, "the device hung up"
            data += piece
        return data
