# host only: paho-mqtt
"""MQTT carrier of a host: the interface of `mqtt_board.MqttClient` over paho-mqtt.

There is only the caller's thread: `maintain` and the transports' calls run paho's network loop.
Topics, QoS and the frames that are dropped are as on a board (docs/SPEC.md 7.2).
"""

import contextlib
import secrets
import select
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING, cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX, HOST_FRAME_SIZE_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.record import RENAMED
from drupelet.seal.topic_names import topics
from drupelet_transports.common.transport import E_CLOSED, Transport
from drupelet_transports.host import mqtt_access
from drupelet_transports.host.mqtt_access import Access

if TYPE_CHECKING:
    from drupelet.seal.seal import Seal

# Received frames that may wait for their link; a full queue drops the oldest.
_QUEUE_FRAMES_MAX = 256
# The same if frames may be longer than FRAME_SIZE_MAX: 4 MiB at most.
_QUEUE_LONG_FRAMES_MAX = 64
# A longer packet ends the connection; a frame with its topic is much shorter.
_PACKET_SIZE_MAX = 4 * FRAME_SIZE_MAX
# Packets read in one call, so that a broker cannot keep us busy.
_PACKETS_PER_CALL = 64
# How long a connect may block; a broker on this machine accepts at once or not at all.
_CONNECT_TIMEOUT_S = 2.0
# The longest time from connect to SUBACK.
_ANSWER_MS_MAX = 10_000
# Random bytes of a client id, which does not identify the host.
_CLIENT_ID_SIZE = 8
# Back-off before a new connection: doubles with each failure up to 32 s, plus up to a quarter.
_BACKOFF_MS = 500
_BACKOFF_DOUBLINGS_MAX = 6
# After a connection that lasted this long the back-off starts from the beginning.
_STEADY_MS = 10_000
# The result of `wait_ms` while a connection is being made.
_CONNECT_POLL_MS = 20
# How often to call `maintain`, in which paho's keepalive runs.
_KEEPALIVE_POLL_MS = 5_000


class MqttClient:
    """One connection to a broker for all peers of a host.

    Counters: `connects`, `disconnects`; dropped frames `retained`, `misdirected`, and `overflowed`
    (their link did not read them in time); `skipped` packets longer than any frame, which end the
    connection. `trouble` says why there is no connection, with the remedy; '' while it is up or
    being made for the first time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        keepalive_s: int = 60,
        queue_frames_max: int = _QUEUE_FRAMES_MAX,
        access: Access | None = None,
    ) -> None:
        self.trouble = ""
        self._prefix = prefix
        self._access = access or Access()
        self._head = f"{prefix}/"
        self._queue_frames_max = queue_frames_max
        self._peers: dict[str, MqttTransport] = {}
        self._packet_size_max = _PACKET_SIZE_MAX
        self._state = "down"
        self._lost = False
        self.is_drained = False  # since the last `maintain`, the socket had no more to read
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
        if self._access.user:
            self._paho.username_pw_set(self._access.user, self._access.password)
        if self._access.context is not None:
            self._paho.tls_set_context(self._access.context)
        # Do not ask a resolver for this machine.
        address = "127.0.0.1" if host == "localhost" else host
        self._paho.connect_async(address, port, keepalive_s)
        self._paho.on_connect = self._on_connect
        self._paho.on_subscribe = self._on_subscribe
        self._paho.on_message = self._on_message
        self._paho.on_disconnect = self._on_disconnect

    def transport(
        self, inbox: bytes, outbox: bytes, frame_size_max: int = FRAME_SIZE_MAX
    ) -> "MqttTransport":
        """Return a carrier for one peer, whose frames arrive on `inbox`; ours go to `outbox`.

        `frame_size_max`: up to HOST_FRAME_SIZE_MAX, for a peer that may not support segments.
        """
        assert frame_size_max <= HOST_FRAME_SIZE_MAX
        frames_max = self._queue_frames_max
        if frame_size_max > FRAME_SIZE_MAX:
            frames_max = min(frames_max, _QUEUE_LONG_FRAMES_MAX)
        carrier = MqttTransport(self, frames_max, frame_size_max)
        self._packet_size_max = max(self._packet_size_max, frame_size_max + _PACKET_SIZE_MAX)
        carrier.poll_object = self._paho.socket()
        self._name(carrier, [inbox], outbox)
        return carrier

    def transport_of(self, seal: "Seal") -> "MqttTransport":
        """Return the carrier of a sealed link, whose topics come from its keys (`topic_names`)."""
        seal.flags &= ~RENAMED
        inboxes, outbox = topics(seal)
        carrier = self.transport(inboxes[0], outbox)
        carrier.seal = seal
        self._name(carrier, inboxes, outbox)
        return carrier

    def _name(self, transport: "MqttTransport", inboxes: list[bytes], outbox: bytes) -> None:
        """Set a carrier's topics, replacing those that it has."""
        wanted = {self._head + inbox.decode(): transport for inbox in inboxes}
        before = {topic for topic, peer in self._peers.items() if peer is transport}
        for topic in before - wanted.keys():
            del self._peers[topic]
        self._peers |= wanted
        transport.topic = self._head + outbox.decode()
        if self._paho.is_connected():  # else `_on_connect` subscribes to them
            for topic in before - wanted.keys():
                self._paho.unsubscribe(topic)
            for topic in wanted.keys() - before:
                self._paho.subscribe(topic, qos=0)

    @property
    def up(self) -> bool:
        """Whether frames can be sent and received now."""
        return self._state == "up"

    @property
    def connecting(self) -> bool:
        """Whether a connection is being made; it fails by itself after a timeout."""
        return self._state == "connecting"

    def maintain(self, now_ms: int) -> int:
        """Connect, keep alive, reconnect; OK if the connection is up, else E_CLOSED."""
        self._now_ms = now_ms
        for peer in list(self._peers.values()):
            if peer.seal is not None and peer.seal.flags & RENAMED:
                peer.seal.flags &= ~RENAMED
                self._name(peer, *topics(peer.seal))
        if self._state == "down":
            if elapsed_ms(now_ms, self._since_ms) >= self._backoff_ms:
                self._open()
        elif self._state != "closed":
            self._paho.loop_misc()
            if self.connecting and elapsed_ms(now_ms, self._since_ms) >= _ANSWER_MS_MAX:
                self._lose(mqtt_access.NO_ANSWER)
            self.pump()
        return OK if self._state == "up" else E_CLOSED

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next call of `maintain` if no bytes arrive, in ms."""
        if self._state == "down":
            return max(0, self._backoff_ms - elapsed_ms(now_ms, self._since_ms))
        if self._state == "connecting" or self._paho.want_write():
            return _CONNECT_POLL_MS
        return _KEEPALIVE_POLL_MS

    def close(self) -> None:
        """Send DISCONNECT and close; from now on transports return E_CLOSED."""
        if self._state not in ("down", "closed"):
            self._paho.disconnect()
            self._paho.loop_write()
            self._drop()
        self._state = "closed"

    def publish(self, topic: str, frame: bytes) -> int:
        """Hand one frame to paho; OK, or E_CLOSED or E_CAPACITY: nothing was sent."""
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
        """1 while paho holds bytes that the socket has not taken yet, else 0."""
        return int(self._paho.want_write())

    def pump(self) -> None:
        """Write and read what is possible without waiting."""
        self.is_drained = False
        if self._paho.want_write():
            self._paho.loop_write()
        for _ in range(_PACKETS_PER_CALL):
            sock = self._paho.socket()
            if sock is None or not _readable(sock):
                self.is_drained = True
                break
            tls = self._access.context is not None
            if self.connecting and not tls and mqtt_access.said_tls(sock):
                self._lose(mqtt_access.HUNG_UP)
                break
            self._paho.loop_read()
            if self._incoming_size() > self._packet_size_max:
                # paho would collect the whole packet, up to 256 MiB.
                self.skipped += 1
                self._lose("sends packets longer than ours can be; is it an MQTT broker?")
                break
        if self._lost and self._state in ("up", "connecting"):
            self._drop()

    def _incoming_size(self) -> int:
        """Return the announced size of the packet that is being received; 0 between packets."""
        return int(self._paho._in_packet["remaining_length"])

    def forget(self, transport: "MqttTransport") -> None:
        """Remove a transport, so that frames of its peer are dropped."""
        self._peers = {topic: peer for topic, peer in self._peers.items() if peer is not transport}

    def _open(self) -> None:
        self._since_ms = self._now_ms
        self._lost = False
        self._state = "connecting"  # the broker may hang up before the call returns
        try:
            self._paho.reconnect()
        except (OSError, ValueError) as error:  # ValueError: not a host name
            self._lose(mqtt_access.failed_to_connect(error, self._access.context is not None))
            self._access.give_up()
            self._drop()
            return
        for peer in self._peers.values():
            peer.poll_object = self._paho.socket()

    def _lose(self, trouble: str) -> None:
        """Give the connection up and note why; later reasons follow from the first."""
        if not self._lost:
            self._lost = True
            self.trouble = trouble

    def _drop(self) -> None:
        """Close the connection and begin the back-off before the next one."""
        was_up = self._state == "up"
        self._state = "down"
        sock = self._paho.socket()
        if sock is not None:
            # loop_read then sees the end of the stream, and paho cleans up.
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
            user = self._access.user
            self._lose(mqtt_access.refused_us(reason.value, str(reason), user))
            return
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
        if any(reason.is_failure for reason in reasons):
            self._lose(mqtt_access.refused_topics(self._prefix))
        elif self.connecting:
            self._came_up()

    def _came_up(self) -> None:
        self._state = "up"
        self.trouble = ""
        self._since_ms = self._now_ms
        self.connects += 1

    def _on_disconnect(self, *_: object) -> None:
        # Only note it here: paho holds a lock and is in the middle of its cleanup.
        if self._state == "up":
            self._lose(mqtt_access.BROKE)
        elif self.connecting:
            tls = self._access.context is not None
            self._lose(mqtt_access.HUNG_UP_TLS if tls else mqtt_access.HUNG_UP)

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        if message.retain:
            self.retained += 1  # an old message kept by the broker is a replay
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:  # the property decodes the topic
            self.misdirected += 1
            return
        peer = self._peers.get(topic)
        size = len(message.payload)
        if peer is None or message.qos or not 0 < size <= peer.frame_size_max:
            self.misdirected += 1
            return
        self.overflowed += peer.put(bytes(message.payload))


def _readable(sock: object) -> bool:
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True  # bytes that TLS has read from the socket already
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)  # type: ignore[attr-defined]
    return bool(poll.poll(0))


def _length_size(remaining: int) -> int:
    """Return the size of an MQTT remaining length below 2,097,152, in bytes."""
    return 1 if remaining < 128 else 2 if remaining < 16_384 else 3


class MqttTransport(Transport):
    """The carrier of one peer; see MqttClient."""

    def __init__(self, client: MqttClient, queue_frames_max: int, frame_size_max: int) -> None:
        super().__init__(frame_size_max)
        self._client: MqttClient | None = client
        self.topic = ""  # the topic that we publish to
        self.seal: Seal | None = None  # the seal from whose keys the topics are derived
        self._frames: deque[bytes] = deque(maxlen=queue_frames_max)

    def send(self, frame: bytearray, size: int) -> int:
        """Send one frame; see Transport.send. OK: paho has it."""
        if self._client is None:
            return E_CLOSED
        assert 0 < size <= self.frame_size_max
        code = self._client.publish(self.topic, bytes(frame[:size]))
        self.pending_size = self._client.pending_size
        if code == OK:
            self.last_wire_size = self._wire_size(size)
        return code

    def receive_into(self, frame: bytearray) -> int:
        """The size of one frame from the peer, 0 for none, E_CLOSED after `close`."""
        if self._client is None or self._client._state == "closed":
            return E_CLOSED
        if not self._frames and not self._client.is_drained:
            self._client.pump()  # not for each of a host's peers: a look costs a system call
        self.pending_size = self._client.pending_size
        if not self._frames:
            return 0
        data = self._frames.popleft()
        frame[: len(data)] = data
        self.last_wire_size = self._wire_size(len(data))
        return len(data)

    @property
    def may_receive(self) -> bool:
        """Whether `receive_into` may return more than 0 before the next `MqttClient.maintain`."""
        return bool(self._frames) or (self._client is not None and not self._client.is_drained)

    def close(self) -> None:
        """Stop serving this peer; the shared connection stays."""
        if self._client is not None:
            self._client.forget(self)
            self._client = None
            self.poll_object = None

    def put(self, frame: bytes) -> int:
        """Queue a received frame; return 1 if the oldest one was dropped for it, else 0."""
        is_full = len(self._frames) == self._frames.maxlen
        self._frames.append(frame)
        return int(is_full)

    def _wire_size(self, size: int) -> int:
        """Return the size of a frame's PUBLISH packet; both topics are equally long."""
        remaining = 2 + len(self.topic) + size
        return 1 + _length_size(remaining) + remaining
