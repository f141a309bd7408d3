"""The agent's end of its Unix socket: mode 0600 in the home, one JSON object a line.

Nothing waits for a client: reading and writing happen between two turns of the agent. Lines,
clients and the time that one takes are bounded; who hangs or sends what is no request loses its
connection, and nobody else does.
"""

import logging
import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from drupelet.base.errors import PeerError, StorageError
from drupelet.base.time_ms import elapsed_ms
from drupelet_host.requests.shapes import REQUEST_SIZE_MAX, AnyRequest, decode, encode
from drupelet_host.requests.socket_path import SOCKET_NAME, socket_address

# Connections at the same time; one more takes the place of the one that was silent longest.
CLIENTS_MAX = 16
# A client has so long for its request, and for taking the answer.
CLIENT_MS_MAX = 10_000
_MODE = 0o600
_READ_SIZE = 1 << 16

log = logging.getLogger("drupelet.requests")


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket, now_ms: int) -> None:
        self.connection = connection
        self.since_ms = now_ms  # when it came, or was answered last
        self.incoming = bytearray()
        self.outgoing = b""
        self.is_served = False  # its request is being done

    def fileno(self) -> int:
        """For the waiter."""
        return self.connection.fileno()

    @property
    def has_line(self) -> bool:
        """Whether a request waits here that can be answered."""
        return not self.outgoing and not self.is_served and b"\n" in self.incoming

    @property
    def is_waited_for(self) -> bool:
        """Whether it is the client's turn to do something."""
        return not self.has_line and not self.is_served

    def is_gone(self) -> bool:
        """Whether the other end has hung up: what it asked is not done then."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


class RequestServer:
    """Listens in a home whose lock the caller holds. Raises StorageError."""

    def __init__(self, home: Path) -> None:
        path = home / SOCKET_NAME
        self._path = path
        self._clients: list[Client] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # of an agent that was killed: the lock is ours now
            with socket_address(home) as address:
                self._listener.bind(address)
            os.chmod(path, _MODE)  # before anybody can connect
            self._listener.listen(CLIENTS_MAX)
            self._listener.setblocking(False)
        except OSError as error:
            self._listener.close()
            raise StorageError(
                f"{path}: commands cannot be listened to here ({error.strerror}); the home must"
                " be on a file system with Unix sockets"
            ) from error

    def descriptors(self) -> dict[int, int]:
        """What to wait on."""
        watched = {self._listener.fileno(): select.POLLIN}
        for client in self._clients:
            watched[client.fileno()] = select.POLLOUT if client.outgoing else select.POLLIN
        return watched

    def take_in(self, now_ms: int) -> bool:
        """Accept, read and write what is possible now; whether somebody came or said something."""
        is_active = self._accept(now_ms)
        for client in list(self._clients):
            if client.outgoing:
                self._write(client)
            elif client.is_waited_for:
                is_active |= self._read(client)
            is_late = elapsed_ms(now_ms, client.since_ms) > CLIENT_MS_MAX
            if is_late and client.is_waited_for:
                self._drop(client, "was silent for too long")
        return is_active

    def requests(self, now_ms: int) -> Iterator[tuple[Client, AnyRequest]]:
        """Each request that waits now, whoever asked still being there; `answer` it."""
        for client in list(self._clients):
            if client not in self._clients or not client.has_line:
                continue
            line, _, rest = bytes(client.incoming).partition(b"\n")
            client.incoming = bytearray(rest)
            if not rest and client.is_gone():
                self._drop(client, "hung up before its request was begun")
                continue
            try:
                request = decode(line)
            except PeerError as error:
                log.warning("refused: %s", error)
                self.answer(client, {"error": str(error)}, now_ms)
                continue
            client.is_served = True
            yield client, request

    def answer(self, client: Client, result: dict[str, Any], now_ms: int) -> None:
        """Send the answer, as much of it as goes at once."""
        client.is_served = False
        client.since_ms = now_ms
        client.outgoing = encode(result)
        self._write(client)

    def close(self) -> None:
        """Hang up on everybody, and leave no socket behind."""
        for client in list(self._clients):
            if client.outgoing:
                self._write(client)
            self._drop(client, "")
        self._listener.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _accept(self, now_ms: int) -> bool:
        is_active = False
        # Those that the kernel keeps in front of the door, and no more: others come next turn.
        for _ in range(CLIENTS_MAX):
            try:
                connection, _address = self._listener.accept()
            except OSError:  # nobody, somebody who has left already, or no descriptor for it
                break
            connection.setblocking(False)
            is_active = True
            self._clients.append(Client(connection, now_ms))
            if len(self._clients) > CLIENTS_MAX:
                silent = [client for client in self._clients[:-1] if client.is_waited_for]
                self._drop((silent or self._clients[-1:])[0], "gave way to a newer one")
        return is_active

    def _read(self, client: Client) -> bool:
        try:
            part = client.connection.recv(_READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if not part:
            self._drop(client, "")
            return True
        client.incoming += part
        if len(client.incoming) > REQUEST_SIZE_MAX and b"\n" not in client.incoming:
            self._drop(client, f"sent a line of more than {REQUEST_SIZE_MAX} bytes")
        return True

    def _write(self, client: Client) -> None:
        try:
            size = client.connection.send(client.outgoing)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client, "left before its answer")
            return
        client.outgoing = client.outgoing[size:]

    def _drop(self, client: Client, why: str) -> None:
        if client not in self._clients:
            return
        if why:
            log.warning("a client of %s %s", SOCKET_NAME, why)
        self._clients.remove(client)
        client.connection.close()
