# host only: paho-mqtt
"""MQTT carrier of a host: the shape of `mqtt_board.MqttClient` over paho-mqtt.

One thread, the caller's: `maintain` and the transports' calls run paho's network step. Topics,
QoS and what is dropped are the board's (docs/SPEC.md).
"""

import contextlib
import secrets
import select
import socket
from collections import deque
from typing import cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from drupelet.errors import E_CAPACITY, OK
from drupelet.limits import FRAME_SIZE_MAX
from drupelet.schedule import elapsed_ms
from drupelet_transports.base import E_CLOSED, Transport

# Frames that may wait for their peer's link; then the oldest goes, as on any lossy carrier.
_QUEUE_FRAMES_MAX = 256
# A connection ends at a longer packet; a frame with its topic is shorter by far.
_PACKET_SIZE_MAX = 4 * FRAME_SIZE_MAX
# Packets taken from the socket in one call: bounded work while a broker floods us.
_PACKETS_PER_CALL = 64
# A broker on this machine accepts at once or not at all.
_CONNECT_TIMEOUT_S = 2.0
# From connect to SUBACK.
_ANSWER_MS_MAX = 10_000
# Random bytes of a client id: nothing that a broker sees says who we are.
_CLIENT_ID_SIZE = 8
# Wait before a new connection: doubles with each failure up to 32 s, plus up to a quarter.
_BACKOFF_MS = 500
_BACKOFF_DOUBLINGS_MAX = 6
# A connection that lived this long was good: the next failure starts from the first wait again.
_STEADY_MS = 10_000
# While a connection is being made, `wait_ms` asks to be back this soon.
_CONNECT_POLL_MS = 20
# paho's keepalive runs inside `maintain`.
_KEEPALIVE_POLL_MS = 5_000


class MqttClient:
    """One connection to a broker for all peers of a host.

    Counters: `connects`, `disconnects`; `retained` and `misdirected` frames that were dropped;
    `overflowed` frames that their link did not take in time; `skipped` packets too long to be
    ours, which end the connection.
    """

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        keepalive_s: int = 60,
        queue_frames_max: int = _QUEUE_FRAMES_MAX,
    ) -> None:
        self._head = f"{prefix}/"
        self._queue_frames_max = queue_frames_max
        self._peers: dict[str, MqttTransport] = {}
        self._state = "down"
        self._lost = False
        self._now_ms = self._since_ms = 0
        self._backoff_ms = 0
        self._failures = 0
        self.connects = self.disconnects = 0
        self.retained = self.misdirected = self.overflowed = self.skipped = 0
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=secrets.token_hex(_CLIENT_ID_SIZE),
            clean_session=True,
            reconnect_on_failure=False,
        )
        self._paho.connect_timeout = _CONNECT_TIMEOUT_S
        # No resolver has a say in where this machine is.
        address = "127.0.0.1" if host == "localhost" else host
        self._paho.connect_async(address, port, keepalive_s)
        self._paho.on_connect = self._on_connect
        self._paho.on_subscribe = self._on_subscribe
        self._paho.on_message = self._on_message
        self._paho.on_disconnect = self._on_disconnect

    def transport(self, inbox: bytes, outbox: bytes) -> "MqttTransport":
        """The carrier to and from one peer; its frames come to `inbox`, ours go to `outbox`."""
        made = MqttTransport(self, self._head + outbox.decode(), self._queue_frames_max)
        made.poll_object = self._paho.socket()
        topic = self._head + inbox.decode()
        self._peers[topic] = made
        if self._paho.is_connected():  # else it is among those that `_on_connect` asks for
            self._paho.subscribe(topic, qos=0)
        return made

    @property
    def up(self) -> bool:
        """Whether frames can be sent and received now."""
        return self._state == "up"

    @property
    def connecting(self) -> bool:
        """Whether somebody took our call and has not answered yet; it ends by itself."""
        return self._state == "connecting"

    def maintain(self, now_ms: int) -> int:
        """Connect, keep alive, reconnect; OK when the connection is up, else E_CLOSED."""
        self._now_ms = now_ms
        if self._state == "down":
            if elapsed_ms(now_ms, self._since_ms) >= self._backoff_ms:
                self._open()
        elif self._state != "closed":
            self._paho.loop_misc()
            late = elapsed_ms(now_ms, self._since_ms) >= _ANSWER_MS_MAX
            self._lost = self._lost or (self._state == "connecting" and late)
            self.pump()
        return OK if self._state == "up" else E_CLOSED

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may wait if no bytes arrive."""
        if self._state == "down":
            return max(0, self._backoff_ms - elapsed_ms(now_ms, self._since_ms))
        if self._state == "connecting" or self._paho.want_write():
            return _CONNECT_POLL_MS
        return _KEEPALIVE_POLL_MS

    def close(self) -> None:
        """Say DISCONNECT and close; the transports answer E_CLOSED from now on."""
        if self._state not in ("down", "closed"):
            self._paho.disconnect()
            self._paho.loop_write()
            self._drop()
        self._state = "closed"

    def publish(self, topic: str, frame: bytes) -> int:
        """Hand one frame to paho: OK, or E_CLOSED or E_CAPACITY and nothing was sent."""
        if self._state == "up" and self._paho.want_write():
            self._paho.loop_write()
        if self._state != "up":
            return E_CLOSED
        if self._paho.want_write():
            return E_CAPACITY
        info = self._paho.publish(topic, frame, qos=0)
        return OK if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else E_CLOSED

    @property
    def pending_size(self) -> int:
        """Above 0 while paho holds bytes that the socket did not take yet."""
        return int(self._paho.want_write())

    def pump(self) -> None:
        """Move bytes in both directions without waiting."""
        if self._paho.want_write():
            self._paho.loop_write()
        for _ in range(_PACKETS_PER_CALL):
            sock = self._paho.socket()
            if sock is None or not _readable(sock.fileno()):
                break
            self._paho.loop_read()
            if self._incoming_size() > _PACKET_SIZE_MAX:
                # paho would gather all of it, up to 256 MiB.
                self.skipped += 1
                self._lost = True
                break
        if self._lost and self._state in ("up", "connecting"):
            self._drop()

    def _incoming_size(self) -> int:
        """How long the packet says it is that is coming in; 0 between packets."""
        return int(self._paho._in_packet["remaining_length"])

    def forget(self, transport: "MqttTransport") -> None:
        """Drop what arrives for this peer from now on."""
        self._peers = {topic: peer for topic, peer in self._peers.items() if peer is not transport}

    def _open(self) -> None:
        self._since_ms = self._now_ms
        self._lost = False
        try:
            self._paho.reconnect()
        except (OSError, ValueError):  # the latter: Python finds no form of the name to look up
            self._drop()
            return
        self._state = "connecting"
        for peer in self._peers.values():
            peer.poll_object = self._paho.socket()

    def _drop(self) -> None:
        """Note that the connection is gone and begin the wait before the next one."""
        was_up = self._state == "up"
        self._state = "down"
        sock = self._paho.socket()
        if sock is not None:
            # loop_read then finds the end of the stream and paho tidies up after itself.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(cast(socket.socket, sock), socket.SHUT_RDWR)
            self._paho.loop_read()
        if was_up:
            self.disconnects += 1
            if elapsed_ms(self._now_ms, self._since_ms) >= _STEADY_MS:
                self._failures = 0
        for peer in self._peers.values():
            peer.poll_object = None
        self._since_ms = self._now_ms
        wait_ms = _BACKOFF_MS << min(self._failures, _BACKOFF_DOUBLINGS_MAX)
        self._backoff_ms = wait_ms + secrets.randbelow(wait_ms // 4)
        self._failures += 1

    # --- paho's callbacks, all from inside loop_read or loop_misc ---

    def _on_connect(
        self,
        client: paho.Client,
        _data: object,
        _flags: object,
        reason: ReasonCode,
        _properties: object,
    ) -> None:
        if reason.is_failure:
            return  # the broker closes the connection next, or _ANSWER_MS_MAX passes
        if self._peers:
            client.subscribe([(topic, 0) for topic in self._peers])
        else:
            self._came_up()

    def _on_subscribe(
        self,
        _client: paho.Client,
        _data: object,
        _mid: int,
        reasons: list[ReasonCode],
        _properties: object,
    ) -> None:
        if self._state == "connecting" and not any(reason.is_failure for reason in reasons):
            self._came_up()

    def _came_up(self) -> None:
        self._state = "up"
        self._since_ms = self._now_ms
        self.connects += 1

    def _on_disconnect(self, *_: object) -> None:
        # Nothing more from here: paho holds a lock and is in the middle of its own tidying.
        self._lost = True

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        if message.retain:
            self.retained += 1  # the broker's copy of something old: a replay
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:  # paho decodes it only now
            self.misdirected += 1
            return
        peer = self._peers.get(topic)
        if peer is None or message.qos or not 0 < len(message.payload) <= FRAME_SIZE_MAX:
            self.misdirected += 1
            return
        self.overflowed += peer.put(bytes(message.payload))


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _length_size(remaining: int) -> int:
    """Bytes of an MQTT remaining length below 16,384."""
    return 1 if remaining < 128 else 2


class MqttTransport(Transport):
    """One peer behind the broker; see MqttClient."""

    def __init__(self, client: MqttClient, topic: str, queue_frames_max: int) -> None:
        super().__init__(FRAME_SIZE_MAX)
        self._client: MqttClient | None = client
        self._topic = topic
        self._frames: deque[bytes] = deque(maxlen=queue_frames_max)

    def send(self, frame: bytearray, size: int) -> int:
        """OK once paho has the frame; negative while the broker is away or busy."""
        if self._client is None:
            return E_CLOSED
        assert 0 < size <= self.frame_size_max
        code = self._client.publish(self._topic, bytes(frame[:size]))
        self.pending_size = self._client.pending_size
        if code == OK:
            self.last_wire_size = self._wire_size(size)
        return code

    def receive_into(self, frame: bytearray) -> int:
        """The size of one frame from the peer, 0 for none, E_CLOSED after `close`."""
        if self._client is None or self._client._state == "closed":
            return E_CLOSED
        if not self._frames:
            self._client.pump()
        self.pending_size = self._client.pending_size
        if not self._frames:
            return 0
        data = self._frames.popleft()
        frame[: len(data)] = data
        self.last_wire_size = self._wire_size(len(data))
        return len(data)

    def close(self) -> None:
        """Stop using this peer; the client's connection stays."""
        if self._client is not None:
            self._client.forget(self)
            self._client = None
            self.poll_object = None

    def put(self, frame: bytes) -> int:
        """Queue a frame that arrived; 1 when the oldest had to go for it, else 0."""
        full = len(self._frames) == self._frames.maxlen
        self._frames.append(frame)
        return int(full)

    def _wire_size(self, size: int) -> int:
        """Bytes of the PUBLISH packet around a frame; both directions have equally long topics."""
        remaining = 2 + len(self._topic) + size
        return 1 + _length_size(remaining) + remaining
