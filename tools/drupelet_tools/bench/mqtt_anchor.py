"""What MQTT QoS 1 takes for the same messages.

Real paho clients, the embedded broker and a counting proxy before it: everything is real but the
distance. The connections and the subscription come before the count.
"""

import contextlib
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from drupelet_host.broker import Broker
from drupelet_tools.bench.errors import BenchError

_HOST = "127.0.0.1"
_CHUNK_SIZE = 65536
_STEP_S = 0.05
_WAIT_S_MAX = 20.0
# The count begins and ends when nothing has gone through for so long.
_QUIET_S = 0.2


class CountingProxy:
    """A TCP proxy on loopback that counts what goes through; one thread, any number of clients."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server((_HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self.bytes = 0
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it and every connection."""
        self._ended.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(_STEP_S):
                if key.data is None:
                    self._accept()
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.fileno() >= 0:  # the other end has not closed it just now
                    self._move(key.fileobj, key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        broker = socket.create_connection((_HOST, self._target))
        self._selector.register(client, selectors.EVENT_READ, broker)
        self._selector.register(broker, selectors.EVENT_READ, client)

    def _move(self, source: socket.socket, target: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(_CHUNK_SIZE)
            target.sendall(data)
        self.bytes += len(data)
        if not data:
            for end in (source, target):
                self._selector.unregister(end)
                end.close()

    def settle(self) -> int:
        """The count once nothing has gone through for a while."""
        before = -1
        while before != self.bytes:
            before = self.bytes
            time.sleep(_QUIET_S)
        return before


@contextlib.contextmanager
def _client(port: int, name: str) -> Iterator[paho.Client]:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=True)
    client.connect(_HOST, port, keepalive=600)
    client.loop_start()
    try:
        _wait(client.is_connected, "the broker does not answer")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def _wait(done: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + _WAIT_S_MAX
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"MQTT anchor: {complaint}")
        time.sleep(0.005)


def measure(topic: str, messages: int, body: int, seed: int = 1) -> tuple[int, int]:
    """Bytes for so many messages at QoS 1: (publisher to broker, broker to subscriber), both
    directions of each. Raises BenchError."""
    draw = random.Random(seed)
    bodies = [draw.randbytes(body) for _ in range(messages)]
    broker = Broker()
    broker.start()
    legs: list[CountingProxy] = []
    try:
        legs += [CountingProxy(broker.port), CountingProxy(broker.port)]
        got: list[bytes] = []
        with _client(legs[1].port, "subscriber") as reader, _client(legs[0].port, "p") as writer:
            granted = threading.Event()
            reader.on_subscribe = lambda *_: granted.set()
            reader.on_message = lambda _client, _data, message: got.append(bytes(message.payload))
            reader.subscribe(topic, qos=1)
            _wait(granted.is_set, "the broker grants no subscription")
            before = [leg.settle() for leg in legs]
            sent = [writer.publish(topic, payload, qos=1) for payload in bodies]
            _wait(
                lambda: all(item.is_published() for item in sent), "messages are not acknowledged"
            )
            _wait(lambda: len(got) >= messages, "messages do not arrive")
            after = [leg.settle() for leg in legs]
        if sorted(got) != sorted(bodies):
            raise BenchError("MQTT anchor: other messages arrive than were sent")
        return after[0] - before[0], after[1] - before[1]
    finally:
        for leg in legs:
            leg.close()
        broker.stop()
