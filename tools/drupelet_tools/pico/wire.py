"""A cable from a terminal device of this machine to an emulated Pico's TCP port, as bad as asked.

Whoever opens `device` has the chip's USB console or UART at the other end. A frame, which is what
lies between two zero bytes, is damaged at the given rate: one of its bytes is changed. A chip that
loses its power ends the connection; the cable is plugged in again at once.
"""

import contextlib
import os
import random
import select
import socket
import threading

from drupelet_tools.terminal import Terminal

_CHUNK_SIZE = 4096
_POLL_S = 0.2
_CONNECT_S = 10
# A byte of a frame is changed within so many from its start: longer frames are hit as often.
_REACH = 64


class _Noise:
    """Damages frames of one direction, evenly: a short run has its part of damage, too."""

    def __init__(self, rng: random.Random) -> None:
        self.damaged = self.frames = 0
        self._rng = rng
        self._due = rng.random()  # frames that are to be damaged by now
        self._left = -1  # bytes before the one that is changed; below 0: none is
        self._within = False

    def spoil(self, data: bytes, rate: float) -> bytes:
        """The bytes as they arrive."""
        out = bytearray(data)
        for index, byte in enumerate(data):
            if byte == 0:
                self._within = False
                continue
            if not self._within:
                self._within = True
                self.frames += 1
                self._due += rate
                self._left = self._rng.randrange(_REACH) if self._due >= 1 else -1
            if self._left == 0:
                out[index] ^= self._rng.randrange(1, 256)
                self.damaged += 1
                self._due -= 1
            self._left -= 1
        return bytes(out)


class Wire:
    """`rate`: the part of the frames that are damaged; it may be changed at any time."""

    def __init__(self, port: int, seed: int = 1, rate: float = 0.0) -> None:
        self.rate = rate
        rng = random.Random(seed)
        self.to_board, self.from_board = _Noise(rng), _Noise(rng)
        self._terminal = Terminal()
        os.set_blocking(self._terminal.fd, False)
        self.device = self._terminal.path
        self._port = port
        self._socket = self._connect()
        self._over = False
        self._thread = threading.Thread(target=self._carry, daemon=True, name="wire")
        self._thread.start()

    def _connect(self) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._port), _CONNECT_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line

    def _carry(self) -> None:
        terminal = self._terminal.fd
        while not self._over:
            line = self._socket.fileno()
            readable, _, _ = select.select([terminal, line], [], [], _POLL_S)
            try:
                if terminal in readable:
                    data = os.read(terminal, _CHUNK_SIZE)
                    self._send(self.to_board.spoil(data, self.rate))
                if line in readable:
                    os.write(terminal, self.from_board.spoil(self._received(), self.rate))
            except BlockingIOError:
                continue  # nobody reads at that end: a cable drops what it cannot hold
            except OSError:
                return  # the emulator has ended

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # of a chip without power: it hears nothing
            self._socket.sendall(data)

    def _received(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            if data := self._socket.recv(_CHUNK_SIZE):
                return data
        self._socket.close()
        self._socket = self._connect()
        return b""

    def close(self) -> None:
        """Unplug."""
        self._over = True
        self._thread.join(timeout=_CONNECT_S)
        self._socket.close()
        self._terminal.close()
