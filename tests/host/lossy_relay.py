"""A relay between MQTT clients and their broker that loses published frames, a seeded share."""

import contextlib
import random
import socket
import threading

_PUBLISH = 3


class LossyRelay:
    """Listens on `port` of this machine; each subscriber loses frames of its own.

    lost, carried: publications toward clients.
    """

    def __init__(self, broker_port: int, loss: float, seed: int = 1) -> None:
        self.loss = loss
        self.lost = self.carried = 0
        self._broker_port = broker_port
        self._draw = random.Random(seed)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._open += [client, broker]
                for source, target, loses in ((client, broker, False), (broker, client, True)):
                    threading.Thread(
                        target=self._pump, args=(source, target, loses), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, loses: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            rest = b""
            while data := source.recv(65536):
                rest += data
                while size := _packet_size(rest):
                    packet, rest = rest[:size], rest[size:]
                    if not (loses and packet[0] >> 4 == _PUBLISH and self._is_lost()):
                        target.sendall(packet)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

    def _is_lost(self) -> bool:
        is_lost = self._draw.random() < self.loss
        self.lost += is_lost
        self.carried += not is_lost
        return is_lost

    def close(self) -> None:
        """Hang up on everybody."""
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _packet_size(data: bytes) -> int:
    """The bytes of the first packet, 0 while it is not there whole."""
    length = 0
    for place, byte in enumerate(data[1:5]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            size = 2 + place + length
            return size if len(data) >= size else 0
    return 0
