"""MQTT carrier of a board: a bounded MQTT 3.1.1 client; runs on MicroPython and CPython.

The client owns the socket; `transport(inbox, outbox)` hands out one carrier per peer. Topics are
`<prefix>/<key id>`, QoS 0, never retained, clean session (docs/SPEC.md).
No call blocks, but for a name that is looked up: at the first connect and at every eighth that
fails. `maintain` moves the connection on and is to be called at least every `wait_ms`.
Connecting allocates (at most 1 KB); sending and receiving do not.
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
from drupelet_transports.base import E_CLOSED, Transport
from drupelet_transports.mqtt_packet import (
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
from drupelet_transports.sockets import read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drupelet.seal.seal import Seal

# What is read from the socket at once; `readinto` has no offset, so bytes pass through here.
_CHUNK_SIZE = const(64)
# Reads in one call: two frames of 1,024 bytes. More waits for the next call.
_CHUNKS_PER_CALL = const(34)
# From connect to SUBACK, and from PINGREQ to its answer: a slow mobile link answers in time.
_ANSWER_MS_MAX = const(10000)
# Wait before a new connection: doubles with each failure up to 64 s, plus up to a quarter.
_BACKOFF_MS = const(1000)
_BACKOFF_DOUBLINGS_MAX = const(6)
# A name is asked for again after so many failures: the port's resolver may block for 10 s.
_ASKED_FAILURES = const(8)
# A connection that lived this long was good: the next failure starts from the first wait again.
_STEADY_MS = const(10000)
# While a connection is being made, `wait_ms` asks to be back this soon.
_CONNECT_POLL_MS = const(20)
# Random bytes of a client id, written in hexadecimal: two devices never have the same one.
_CLIENT_ID_SIZE = const(8)
# The longest name behind the prefix: two numbers of 8 hexadecimal digits and what is between.
_NAME_SIZE_MAX = const(17)
# What hangs up without an answer: it may expect TLS.
_HUNG_UP = "hung up: TLS expected?"

_DOWN = const(0)
_CONNECTING = const(1)
_GREETING = const(2)
_SUBSCRIBING = const(3)
_UP = const(4)
_CLOSED = const(5)


class MqttClient:
    """One connection to a broker for all peers of a device.

    `random_byte` returns 0..255 and only spreads reconnects and client ids: nothing that a broker
    sees says who we are. Make the transports before the first `maintain`. A frame waits inside
    the client until its peer's transport is asked, so the owner asks all of them in turn.
    `login`: user and password, or nothing. `tls`: a tls.SSLContext of MicroPython's, or None.
    `say`, if it is set, is told what keeps the connection away, and "" once it is there.
    Counters: `connects`, `disconnects`, `retained` and `misdirected` frames that were dropped,
    `skipped` packets too long to be ours.
    """

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        random_byte: "Callable[[], int]",
        keepalive_s: int = 60,
        login: "tuple[bytes, ...]" = (),
        tls: "Any" = None,  # noqa: ANN401 - a class of MicroPython's
    ) -> None:
        self.say: Callable[[str], None] | None = None
        self._why = ""
        self._host = host
        self._login = login
        self._tls = tls
        # No resolver has a say in where this machine is.
        self._address = "127.0.0.1" if host == "localhost" else host
        self._port = port
        self._random_byte = random_byte
        self._keepalive_s = keepalive_s
        self._head = (prefix + "/").encode()
        self._client_id = binascii.hexlify(bytes([random_byte() for _ in range(_CLIENT_ID_SIZE)]))
        body_size_max = 2 + len(self._head) + _NAME_SIZE_MAX + FRAME_SIZE_MAX
        self._reader = PacketReader(body_size_max)
        self._chunk = bytearray(_CHUNK_SIZE)
        self._tx = bytearray(PUBLISH_HEAD_SIZE_MAX + body_size_max)
        self._poll = select.poll()
        self._sock: socket.socket | None = None
        self.poll_object: object | None = None  # the socket once it is connected
        self._where: list[Any] | None = None  # what the resolver said
        self._asked = False
        self._transports: list[MqttTransport] = []
        self._holder: MqttTransport | None = None
        self._state = _DOWN
        self._now_ms = self._since_ms = 0
        self._backoff_ms = 0
        self._failures = 0
        self._subscribed = 0  # topics that the broker was asked for
        self._at = self._end = 0
        self._tx_at = self._tx_end = 0
        self.connects = self.disconnects = 0
        self.retained = self.misdirected = 0
        self._reset()

    def transport(self, inbox: bytes, outbox: bytes) -> "MqttTransport":
        """The carrier to and from one peer; its frames come to `inbox`, ours go to `outbox`.

        Boards make all before they connect; one that is made later hears after the next connect.
        """
        transport = MqttTransport(self)
        self._name(transport, [inbox], outbox)
        self._transports.append(transport)
        return transport

    def transport_of(self, seal: "Seal") -> "MqttTransport":
        """The carrier of a sealed link, whose topics follow its keys: see `topic_names.topics`."""
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
        """Take the topics of the keys as they are now; the next connection asks for them."""
        from drupelet.seal.topic_names import topics

        seal = transport.seal
        seal.flags &= ~RENAMED
        inboxes, outbox = topics(seal)
        self._name(transport, inboxes, outbox)
        if self._state != _CLOSED:
            self._drop()
            self._backoff_ms = self._failures = 0

    @property
    def pending_size(self) -> int:
        """Bytes of a packet that the socket has not taken yet."""
        return self._tx_end - self._tx_at

    @property
    def skipped(self) -> int:
        """Packets longer than any frame of ours; they were read past."""
        return self._reader.skipped

    @property
    def up(self) -> bool:
        """Whether frames can be sent and received now."""
        return self._state == _UP

    def maintain(self, now_ms: int) -> int:
        """Connect, keep alive, reconnect; OK when the connection is up, else E_CLOSED."""
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
        """How long `maintain` may wait if no bytes arrive."""
        if self._state == _CLOSED:
            return self._keepalive_s * 1000
        if self._state == _DOWN:
            return max(0, self._backoff_ms - elapsed_ms(now_ms, self._since_ms))
        if self._state == _UP and self._tx_at == self._tx_end:
            if self._pinging:
                return max(0, _ANSWER_MS_MAX - elapsed_ms(now_ms, self._ping_ms))
            return max(0, self._keepalive_s * 500 - self._idle_ms(now_ms))
        return _CONNECT_POLL_MS

    def close(self) -> None:
        """Say DISCONNECT, as before deep sleep, and close; transports answer E_CLOSED from now."""
        if self._state > _CONNECTING and self._state != _CLOSED:
            self._flush()
            if self._sock is not None and self._tx_at == self._tx_end:
                self._queue(short_into(self._tx, DISCONNECT))
        self._drop()
        self._state = _CLOSED

    def reopen(self) -> None:
        """Connect again after `close`, with the next `maintain`."""
        if self._state == _CLOSED:
            self._state = _DOWN
            self._backoff_ms = self._failures = 0

    def publish(self, topic: bytes, frame: "bytes | bytearray", size: int) -> int:
        """Send one frame; the packet's size, or E_CLOSED or E_CAPACITY: nothing was sent."""
        if self._state != _UP:
            return E_CLOSED
        self._flush()
        if self._tx_at < self._tx_end:
            return E_CAPACITY
        count = publish_into(self._tx, topic, frame, size)
        self._queue(count)
        return count if self._state == _UP else E_CLOSED

    def take(self, transport: "MqttTransport", frame: bytearray) -> int:
        """The size of one frame from that transport's peer, now in `frame`; 0 for none."""
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
        """Drop what arrives for this peer from now on."""
        if self._holder is transport:
            self._holder = None
            self._reader.release()
        if transport in self._transports:
            self._transports.remove(transport)

    def pump(self) -> None:
        """Send what waits and read until a frame is held or nothing is left; bounded."""
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
        self._tx_at = self._tx_end = 0
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
            count = connect_into(self._tx, self._client_id, self._keepalive_s, self._login)
            self._queue(count)
            return

    def _tell(self, why: str) -> None:
        if self.say and why != self._why:
            self.say('{"event":"broker","why":"' + why + '"}')
        self._why = why

    def _fail(self, error: Exception) -> None:
        """The socket or TLS is broken."""
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
        """Close the socket and begin the wait before the next connection."""
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
        """How long one of the two directions has been silent."""
        return max(elapsed_ms(now_ms, self._heard_ms), elapsed_ms(now_ms, self._sent_ms))

    def _check_answers(self) -> None:
        if self._state == _DOWN or self._holder is not None:
            return  # a frame nobody has taken yet holds up the answers behind it
        now_ms = self._now_ms
        if self._state != _UP:
            if elapsed_ms(now_ms, self._since_ms) >= _ANSWER_MS_MAX:
                self._drop("no answer")
        elif self._pinging:
            if elapsed_ms(now_ms, self._ping_ms) >= _ANSWER_MS_MAX:
                self._drop()
        elif self._idle_ms(now_ms) >= self._keepalive_s * 500:
            self._pinging = True
            self._ping_ms = now_ms
            if self._tx_at == self._tx_end:
                self._queue(short_into(self._tx, PINGREQ))

    # --- bytes ---

    def _queue(self, size: int) -> None:
        self._tx_at = 0
        self._tx_end = size
        self._flush()

    def _flush(self) -> None:
        while self._tx_at < self._tx_end and self._sock is not None:
            try:
                count = write(self._sock, self._tx, self._tx_at, self._tx_end - self._tx_at)
            except (OSError, ValueError) as error:
                self._fail(error)
                return
            if not count:
                return
            self._tx_at += count
            self._sent_ms = self._now_ms

    def _fill(self) -> bool:
        """Read the next bytes; False when there are none."""
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
        """Act on the packet that is ready; a frame for a peer is held, the rest released."""
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
        """Ask for the next transport's topic; after the last one the connection is up."""
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
        """Whose frame the PUBLISH is that is ready; None when it is to be dropped."""
        reader = self._reader
        body = reader.body
        if reader.kind & RETAIN:
            self.retained += 1  # the broker's copy of something old: a replay
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
    """One peer behind the broker; see MqttClient."""

    def __init__(self, client: MqttClient) -> None:
        super().__init__(FRAME_SIZE_MAX)
        self.inboxes: list[bytes] = []
        self.topic = b""  # of what we send
        self.seal: Any = None  # whose keys say what the topics are
        self._client: MqttClient | None = client

    @property
    def up(self) -> bool:  # type: ignore[override]
        """Whether the broker has answered."""
        return self._client is not None and self._client.up

    @property
    def poll_object(self) -> "object | None":  # type: ignore[override]
        """The connection of all peers, where it is."""
        return None if self._client is None else self._client.poll_object

    @property
    def pending_size(self) -> int:  # type: ignore[override]
        """What waits for it, whoever's frame that is."""
        return 0 if self._client is None else self._client.pending_size

    def send(self, frame: bytearray, size: int) -> int:
        """OK once the frame is on its way; negative while the broker is away or busy."""
        if self._client is None:
            return E_CLOSED
        assert 0 < size <= self.frame_size_max
        code = self._client.publish(self.topic, frame, size)
        if code < 0:
            return code
        self.last_wire_size = code
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """The size of one frame from the peer, 0 for none, E_CLOSED after `close`."""
        if self._client is None:
            return E_CLOSED
        return self._client.take(self, frame)

    def close(self) -> None:
        """Stop using this peer; the client's connection stays."""
        if self._client is not None:
            self._client.forget(self)
            self._client = None
