"""Publishes to an MQTT 3.1.1 broker with QoS 2 so that a kill at any moment doubles nothing.

Client libraries keep a QoS 2 handshake in memory. Here its two halves are apart, so that the
caller can commit between them: `publish` until the broker has everything (PUBREC), `release` until
it has forgotten the packet ids (PUBCOMP). The packet ids of a batch are 1, 2, 3 …, and the broker
keeps the session: a batch that is published again under the same ids is known to it.
"""

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from drupelet.base.errors import DrupeletError
from drupelet_host.export.run import UnavailableError

ANSWER_WAIT_S = 30.0
# A broker ends the connection of a client that says nothing for so long, and a half.
KEEPALIVE_S = 120
# Packets that wait for an answer at the same time.
WINDOW = 16
# Packets of QoS 2 that a broker holds back until they are released: mosquitto takes 20 of a client
# (its max_inflight_messages), and loses what is released beyond them.
RELEASED_LATER_MAX = 16
# Behind the ids of a batch: those of packets with QoS 1.
_FIRST_ID_QOS_1 = 0x8000
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 1, 2, 3, 4, 5, 6, 7
_DISCONNECT = 14
_PACKET_SIZE_MAX = 1 << 16
# CONNACK's codes (MQTT 3.1.1 section 3.2.2.3).
_REFUSALS = {
    1: "does not speak MQTT 3.1.1", 2: "refuses our client id", 3: "is unavailable",
    4: "does not know this user and password; name their file as login_file in [[brokers]]",
    5: "does not let us in; name a login_file in [[brokers]] of drupelet.toml",
}  # fmt: skip


class RefusedError(DrupeletError):
    """The broker does not let us in."""


class AccessLike(Protocol):
    """User, password and TLS context, as drupelet_transports.host.mqtt_access.Access."""

    @property
    def user(self) -> str:
        """The user, or ""."""

    @property
    def password(self) -> str:
        """The password."""


class Packet(NamedTuple):
    """One message for a topic."""

    topic: str
    payload: bytes
    retain: bool = False


class MqttSender:
    """A connection to a broker; raises UnavailableError or RefusedError with one line.

    wrap: makes a TLS socket of a plain one, or hands it back.
    """

    def __init__(self, sock: socket.socket, where: str) -> None:
        self._socket = sock
        self._where = where
        self._buffer = bytearray()

    def connect(self, client_id: str, user: str, password: str) -> bool:
        """Say hello; whether the broker still has our session."""
        flags = 0x80 | 0x40 if user else 0  # the session is kept: no clean-session bit
        body = _string("MQTT") + struct.pack(">BBH", 4, flags, KEEPALIVE_S) + _string(client_id)
        if user:
            body += _string(user) + _string(password)
        with self._explained():
            self._socket.sendall(_packet(_CONNECT << 4, body))
            kind, answer = self._receive()
        if kind >> 4 != _CONNACK or len(answer) != 2:
            raise UnavailableError(f"{self._where}: answered with no MQTT")
        if answer[1]:
            raise RefusedError(f"{self._where}: {_REFUSALS.get(answer[1], 'refuses us')}")
        return bool(answer[0] & 1)

    def publish(self, packets: list[Packet], is_again: bool) -> None:
        """First half: the broker has every packet when this returns."""
        assert len(packets) <= RELEASED_LATER_MAX
        flags = 0x04 | (0x08 if is_again else 0)
        frames = (_publish_frame(packet, flags, id) for id, packet in enumerate(packets, 1))
        self._exchange(frames, len(packets), 1, _PUBREC)

    def release(self, count: int) -> None:
        """Second half: the broker has handed on each packet of the batch, and forgets its id."""
        frames = (_packet(_PUBREL << 4 | 2, struct.pack(">H", id)) for id in range(1, count + 1))
        self._exchange(frames, count, 1, _PUBCOMP)

    def publish_once_more(self, packets: list[Packet]) -> None:
        """With QoS 1: for what may come twice, such as retained settings."""
        first = _FIRST_ID_QOS_1
        frames = (_publish_frame(packet, 0x02, id) for id, packet in enumerate(packets, first))
        self._exchange(frames, len(packets), first, _PUBACK)

    def close(self) -> None:
        """Say goodbye; the broker keeps the session."""
        with contextlib.suppress(OSError):
            self._socket.sendall(_packet(_DISCONNECT << 4, b""))
        self._socket.close()

    def _exchange(self, frames: Iterable[bytes], count: int, first: int, answer: int) -> None:
        """Send frames and wait for the answer to each of their ids."""
        waiting: set[int] = set()
        id = first
        with self._explained():
            for frame in frames:
                self._socket.sendall(frame)
                waiting.add(id)
                id += 1
                while len(waiting) >= WINDOW:
                    self._take_answer(waiting, answer)
            while waiting:
                self._take_answer(waiting, answer)
        assert id == first + count

    def _take_answer(self, waiting: set[int], answer: int) -> None:
        kind, body = self._receive()
        if kind >> 4 == answer and len(body) >= 2:
            waiting.discard(int.from_bytes(body[:2]))

    def _receive(self) -> tuple[int, bytes]:
        """The first byte of the next packet, and its body."""
        kind = self._take(1)[0]
        size = shift = 0
        while True:
            byte = self._take(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 21:
                raise UnavailableError(f"{self._where}: answered with no MQTT")
        if size > _PACKET_SIZE_MAX:
            raise UnavailableError(f"{self._where}: answered with too long a packet")
        return kind, self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self._socket.recv(4096)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"{self._where}: the connection broke ({error.strerror or error}); what is due"
                " goes with the next export"
            ) from error


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _packet(head: int, body: bytes) -> bytes:
    size = len(body)
    frame = bytearray([head])
    while True:
        frame.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes(frame + body)


def _publish_frame(packet: Packet, flags: int, id: int) -> bytes:
    head = _PUBLISH << 4 | flags | (1 if packet.retain else 0)
    return _packet(head, _string(packet.topic) + struct.pack(">H", id) + packet.payload)
