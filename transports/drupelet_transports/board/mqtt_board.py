"""MQTT carrier of a board: an MQTT 3.1.1 client in bounded memory, on MicroPython and CPython.

The client owns the socket; `transport(inbox, outbox)` returns a carrier for each peer. Topics are
`<prefix>/<name>`, QoS 0, never retained, clean session (docs/SPEC.md 7.2).
No call blocks except a name lookup, at the first connect and at every eighth failure. `maintain`
advances the connection; call it at least every `wait_ms`. Connecting allocates (at most 1 KB);
sending and receiving do not.
"""

import binascii
import errno
import select
import socket

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.base.memory import copy, equal
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.record import RENAMED
from drupelet_transports.board.mqtt_packet import (
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PUBLISH,
    PUBLISH_HEAD_SIZE_MAX,
    QOS_MASK,
    RETAIN,
    SUBACK,
    PacketReader,
    connect_into,
    payload_start,
    publish_into,
    short_into,
    subscribe_into,
)
from drupelet_transports.common.sockets import read, write
from drupelet_transports.common.transport import E_CLOSED, Transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drupelet.seal.seal import Seal

# Bytes per read: `readinto` has no offset, so bytes are copied from a small buffer.
_CHUNK_SIZE = const(64)
# Reads in one call: two frames of 1,024 bytes. More waits for the next call.
_CHUNKS_PER_CALL = const(34)
_KEEPALIVE_S = const(60)
# The longest time from connect to SUBACK, and from PINGREQ to its answer; enough for a slow mobile
# network.
_ANSWER_MS_MAX = const(10000)
# Back-off before a new connection: doubles with each failure up to 64 s, plus up to a quarter.
_BACKOFF_MS = const(1000)
_BACKOFF_DOUBLINGS_MAX = const(6)
# The name is resolved again after this many failures: the port's resolver may block for 10 s.
_ASKED_FAILURES = const(8)
# After a connection that lasted this long the back-off starts from the beginning.
_STEADY_MS = const(10000)
# The result of `wait_ms` while a connection is being made.
_CONNECT_POLL_MS = const(20)
# Random bytes of a client id, written in hexadecimal: no two devices have the same one.
_CLIENT_ID_SIZE = const(8)
# The longest name after the prefix: two numbers of 8 hexadecimal digits and a separator.
_NAME_SIZE_MAX = const(17)
# The broker closed the connection without an answer.
_HUNG_UP = "hung up: TLS expected?"

_DOWN = const(0)
_CONNECTING = const(1)
_GREETING = const(2)
_SUBSCRIBING = const(3)
_UP = const(4)
_CLOSED = const(5)


class MqttClient:
    """One connection to a broker for all peers of a device.

    `random_byte` returns 0..255, for back-off and client id, which does not identify the device.
    Create the transports before the first `maintain`. The client holds one received frame until
    its peer's transport is read, so the owner must read all of them in turn.
    `login`: user and password, or empty. `tls`: a tls.SSLContext of MicroPython's, or None.
    `say`, if it is set, is called with an event that says why there is no connection; its `why` is
    "" once the connection is up.
    Counters: `connects`, `disconnects`; dropped frames `retained` and `misdirected`; `skipped`
    packets longer than any frame.
    """

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        random_byte: "Callable[[], int]",
        login: "tuple[bytes, ...]" = (),
        tls: "Any" = None,  # noqa: ANN401 - a class of MicroPython's
    ) -> None:
        self.say: Callable[[str], None] | None = None
        self._why = ""
        self._host = host
        self._login = login
        self._tls = tls
        # Do not ask a resolver for this machine.
        self._address = "127.0.0.1" if host == "localhost" else host
        self._port = port
        self._random_byte = random_byte
        self._head = (prefix + "/").encode()
        self._client_id = binascii.hexlify(bytes([random_byte() for _ in range(_CLIENT_ID_SIZE)]))
        body_size_max = 2 + len(self._head) + _NAME_SIZE_MAX + FRAME_SIZE_MAX
        self._reader = PacketReader(body_size_max)
        self._chunk = bytearray(_CHUNK_SIZE)
        self._tx = bytearray(PUBLISH_HEAD_SIZE_MAX + body_size_max)
        self._poll = select.poll()
        self._sock: socket.socket | None = None
        self.poll_object: object | None = None  # the socket once it is connected
        self._where: list[Any] | None = None  # the resolver's answer
        self._asked = False
        self._transports: list[MqttTransport] = []
        self._holder: MqttTransport | None = None
        self._state = _DOWN
        self._now_ms = self._since_ms = 0
        self._backoff_ms = 0
        self._failures = 0
        self._subscribed = 0  # how many topics were subscribed to
        self._at = self._end = 0
        self._tx_at = 0  # where the pending bytes begin
        self.connects = self.disconnects = 0
        self.retained = self.misdirected = 0
        self._reset()

    def transport(self, inbox: bytes, outbox: bytes) -> "MqttTransport":
        """Return a carrier for one peer, whose frames arrive on `inbox`; ours go to `outbox`.

        Create it before connecting; one that is created later receives after the next connect.
        """
        transport = MqttTransport(self)
        self._name(transport, [inbox], outbox)
        self._transports.append(transport)
        return transport

    def transport_of(self, seal: "Seal") -> "MqttTransport":
        """Return the carrier of a sealed link, whose topics come from its keys (`topic_names`)."""
        transport = self.transport(b"", b"")
        transport.seal = seal
        self._rename(transport)
        return transport

    def _name(self, transport: "MqttTransport", inboxes: "list[bytes]", outbox: bytes) -> None:
        for name in inboxes:
            assert len(name) <= _NAME_SIZE_MAX
        transport.inboxes = [self._head + name for name in inboxes]
        transport.topic = self._head + outbox

    def _rename(self, transport: "MqttTransport") -> None:
        """Set the topics of the current keys, and reconnect to subscribe to them."""
        from drupelet.seal.topic_names import topics

        seal = transport.seal
        seal.flags &= ~RENAMED
        inboxes, outbox = topics(seal)
        self._name(transport, inboxes, outbox)
        if self._state != _CLOSED:
            self._drop()
            self._backoff_ms = self._failures = 0

    @property
    def skipped(self) -> int:
        """Packets that were skipped, because they are longer than any frame."""
        return self._reader.skipped

    @property
    def up(self) -> bool:
        """Whether frames can be sent and received now."""
        return self._state == _UP

    def maintain(self, now_ms: int) -> int:
        """Connect, keep alive, reconnect; OK if the connection is up, else E_CLOSED."""
        self._now_ms = now_ms
        for transport in self._transports:
            if transport.seal and transport.seal.flags & RENAMED:
                self._rename(transport)
        if self._asked:
            self._asked = False
            self._since_ms = now_ms  # the resolver may have taken long
        if self._state == _DOWN:
            if elapsed_ms(now_ms, self._since_ms) >= self._backoff_ms:
                self._open()
        elif self._state != _CLOSED:
            if self._state == _CONNECTING:
                self._greet()
            self.pump()
            self._check_answers()
        return OK if self._state == _UP else E_CLOSED

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next call of `maintain` if no bytes arrive, in ms."""
        if self._state == _CLOSED:
            return _KEEPALIVE_S * 1000
        if self._state == _DOWN:
            return max(0, self._backoff_ms - elapsed_ms(now_ms, self._since_ms))
        if self._state == _UP and not self.pending_size:
            if self._pinging:
                return max(0, _ANSWER_MS_MAX - elapsed_ms(now_ms, self._ping_ms))
            return max(0, _KEEPALIVE_S * 500 - self._idle_ms(now_ms))
        return _CONNECT_POLL_MS

    def close(self) -> None:
        """Send DISCONNECT and close; from now on transports return E_CLOSED."""
        if self._state > _CONNECTING and self._state != _CLOSED:
            self._flush()
            if self._sock is not None and not self.pending_size:
                self._queue(short_into(self._tx, DISCONNECT))
        self._drop()
        self._state = _CLOSED

    def reopen(self) -> None:
        """Undo `close`: the next `maintain` connects again."""
        if self._state == _CLOSED:
            self._state = _DOWN
            self._backoff_ms = self._failures = 0

    def publish(self, topic: bytes, frame: "bytes | bytearray", size: int) -> int:
        """Send one frame; return the packet's size, or E_CLOSED or E_CAPACITY: nothing sent."""
        if self._state != _UP:
            return E_CLOSED
        self._flush()
        if self.pending_size:
            return E_CAPACITY
        count = publish_into(self._tx, topic, frame, size)
        self._queue(count)
        return count if self._state == _UP else E_CLOSED

    def take(self, transport: "MqttTransport", frame: bytearray) -> int:
        """Copy the next frame of a transport's peer to `frame`; its size, 0: none, or E_CLOSED."""
        if self._state == _CLOSED:
            return E_CLOSED
        if self._holder is None:
            self.pump()
        if self._holder is not transport:
            return 0
        reader = self._reader
        start = payload_start(reader.body, reader.size)
        count = reader.size - start
        copy(frame, 0, reader.body, start, count)
        transport.last_wire_size = reader.wire_size
        self._holder = None
        reader.release()
        return count

    def forget(self, transport: "MqttTransport") -> None:
        """Remove a transport, so that frames of its peer are dropped."""
        if self._holder is transport:
            self._holder = None
            self._reader.release()
        self._transports.remove(transport)

    def pump(self) -> None:
        """Write pending bytes; read until a frame is held or nothing is left, within a bound."""
        self._flush()
        chunks = 0
        while self._holder is None and self._sock is not None and self._state > _CONNECTING:
            if self._at == self._end:
                if chunks == _CHUNKS_PER_CALL or not self._fill():
                    return
                chunks += 1
            self._at = self._reader.feed(self._chunk, self._at, self._end)
            if self._reader.broken:
                self._drop()
            elif self._reader.ready:
                self._take_packet()

    # --- connection ---

    def _reset(self) -> None:
        self._reader.reset()
        self._holder = None
        self._at = self._end = 0
        self.pending_size = 0  # bytes of the last packet that the socket has not taken yet
        self._pinging = False
        self._heard_ms = self._sent_ms = self._ping_ms = self._now_ms

    def _open(self) -> None:
        self._since_ms = self._now_ms
        self._reset()
        try:
            if self._where is None or not self._failures % _ASKED_FAILURES:
                self._asked = True
                self._where = socket.getaddrinfo(self._address, self._port, 0, socket.SOCK_STREAM)
            info = self._where[0]
            self._sock = sock = socket.socket(info[0], info[1])
            sock.setblocking(False)
            sock.connect(info[-1])
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                self._drop("cannot be reached")
                return
        self._poll.register(sock, select.POLLOUT)
        self._state = _CONNECTING
        self._greet()

    def _greet(self) -> None:
        """Send CONNECT once the socket is connected."""
        assert self._sock is not None
        poll = getattr(self._poll, "ipoll", None) or self._poll.poll
        for _ in poll(0):
            self._poll.unregister(self._sock)
            self._state = _GREETING
            if self._tls:
                self._sock = self._tls.wrap_socket(
                    self._sock, server_hostname=self._host, do_handshake_on_connect=False
                )
            self.poll_object = self._sock
            self._queue(connect_into(self._tx, self._client_id, _KEEPALIVE_S, self._login))
            return

    def _tell(self, why: str) -> None:
        if self.say and why != self._why:
            self.say('{"event":"broker","why":"' + why + '"}')
        self._why = why

    def _fail(self, error: Exception) -> None:
        """Drop the connection after an error of the socket or of TLS."""
        if isinstance(error, ValueError):
            why = "certificate not trusted: look at ca_file"
        elif error.errno == errno.ECONNREFUSED:  # type: ignore[attr-defined]
            why = "nobody listens there"
        elif self._tls and self._state == _GREETING:
            why = "no TLS there, or it wants a client certificate"
        else:
            why = _HUNG_UP
        self._drop(why)

    def _drop(self, why: str = "") -> None:
        """Close the socket and begin the back-off before the next connection."""
        if why and self._state != _UP:
            self._tell(why)
        if self._sock is not None:
            if self._state == _CONNECTING:
                self._poll.unregister(self._sock)
            self._sock.close()
            self._sock = None
        if self._state == _UP:
            self.disconnects += 1
            if elapsed_ms(self._now_ms, self._since_ms) >= _STEADY_MS:
                self._failures = 0
        self.poll_object = None
        self._reset()
        self._state = _DOWN
        self._since_ms = self._now_ms
        wait_ms = _BACKOFF_MS << min(self._failures, _BACKOFF_DOUBLINGS_MAX)
        self._backoff_ms = wait_ms + ((wait_ms * self._random_byte()) >> 10)
        self._failures += 1

    def _idle_ms(self, now_ms: int) -> int:
        """Return how long the more silent direction has been silent, in ms."""
        return max(elapsed_ms(now_ms, self._heard_ms), elapsed_ms(now_ms, self._sent_ms))

    def _check_answers(self) -> None:
        if self._state == _DOWN or self._holder is not None:
            return  # answers cannot be read until the held frame is taken
        now_ms = self._now_ms
        if self._state != _UP:
            if elapsed_ms(now_ms, self._since_ms) >= _ANSWER_MS_MAX:
                self._drop("no answer")
        elif self._pinging:
            if elapsed_ms(now_ms, self._ping_ms) >= _ANSWER_MS_MAX:
                self._drop()
        elif self._idle_ms(now_ms) >= _KEEPALIVE_S * 500:
            self._pinging = True
            self._ping_ms = now_ms
            if not self.pending_size:
                self._queue(short_into(self._tx, PINGREQ))

    # --- bytes ---

    def _queue(self, size: int) -> None:
        self._tx_at = 0
        self.pending_size = size
        self._flush()

    def _flush(self) -> None:
        while self.pending_size > 0 and self._sock is not None:
            try:
                count = write(self._sock, self._tx, self._tx_at, self.pending_size)
            except (OSError, ValueError) as error:
                self._fail(error)
                return
            if not count:
                return
            self._tx_at += count
            self.pending_size -= count
            self._sent_ms = self._now_ms

    def _fill(self) -> bool:
        """Read the next bytes to the chunk; False if there are none."""
        assert self._sock is not None
        try:
            count = read(self._sock, self._chunk)
        except (OSError, ValueError) as error:
            self._fail(error)
            return False
        if count < 0:
            return False
        if count == 0:
            self._drop(_HUNG_UP)
            return False
        self._at = 0
        self._end = count
        return True

    def _take_packet(self) -> None:
        """Handle the packet that was read; hold a frame for its transport, release the rest."""
        reader = self._reader
        kind = reader.kind
        state = self._state
        self._heard_ms = self._now_ms
        self._pinging = False
        if kind & 0xF0 == PUBLISH:
            self._holder = self._addressee() if state == _UP else None
            if self._holder is not None:
                return
        elif kind == CONNACK and state == _GREETING:
            if reader.size != 2 or reader.body[1]:
                self._drop("not authorised" if reader.body[1] > 3 else "refused")
                return
            self._state = _SUBSCRIBING
            self._subscribed = 0
            self._subscribe()
        elif kind == SUBACK and state == _SUBSCRIBING:
            if reader.size != 3 or reader.body[2] & 0x80:
                self._drop("not authorised to read its topics")
                return
            self._subscribe()
        reader.release()

    def _subscribe(self) -> None:
        """Subscribe to the next topic; after the last one the connection is up."""
        left = self._subscribed
        for transport in self._transports:
            if left < len(transport.inboxes):
                self._subscribed += 1
                topic = transport.inboxes[left]
                self._queue(subscribe_into(self._tx, self._subscribed, topic))
                return
            left -= len(transport.inboxes)
        self._state = _UP
        self._tell("")
        self._since_ms = self._now_ms
        self.connects += 1

    def _addressee(self) -> "MqttTransport | None":
        """Return the transport for the PUBLISH that was read; None: drop it."""
        reader = self._reader
        body = reader.body
        if reader.kind & RETAIN:
            self.retained += 1  # an old message kept by the broker is a replay
            return None
        start = payload_start(body, reader.size)
        payload_size = reader.size - start
        if not reader.kind & QOS_MASK and start > 0 and 0 < payload_size <= FRAME_SIZE_MAX:
            for transport in self._transports:
                for inbox in transport.inboxes:
                    size = len(inbox)
                    if size == start - 2 and equal(body, 2, inbox, 0, size):
                        return transport
        self.misdirected += 1
        return None


class MqttTransport(Transport):
    """The carrier of one peer; see MqttClient."""

    def __init__(self, client: MqttClient) -> None:
        super().__init__(FRAME_SIZE_MAX)
        self.inboxes: list[bytes] = []
        self.topic = b""  # the topic that we publish to
        self.seal: Any = None  # the seal from whose keys the topics are derived
        self._client: MqttClient | None = client

    @property
    def up(self) -> bool:  # type: ignore[override]
        """Whether the connection is up."""
        return self._client is not None and self._client.up

    @property
    def poll_object(self) -> "object | None":  # type: ignore[override]
        """The socket of the connection, which all peers share; None while there is none."""
        return None if self._client is None else self._client.poll_object

    @property
    def pending_size(self) -> int:  # type: ignore[override]
        """The bytes pending on the shared connection."""
        return 0 if self._client is None else self._client.pending_size

    def send(self, frame: bytearray, size: int) -> int:
        """Send one frame; see Transport.send."""
        if self._client is None:
            return E_CLOSED
        assert 0 < size <= self.frame_size_max
        code = self._client.publish(self.topic, frame, size)
        if code < 0:
            return code
        self.last_wire_size = code
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """Receive one frame of the peer; see Transport.receive_into."""
        if self._client is None:
            return E_CLOSED
        return self._client.take(self, frame)

    def close(self) -> None:
        """Stop serving this peer; the shared connection stays."""
        if self._client is not None:
            self._client.forget(self)
            self._client = None
