"""Two terminals joined by a cable that may spoil what it carries."""

import os
import select
import threading
from collections.abc import Callable

from drupelet_tools.terminal import Terminal

DEADLINE_S = 10.0
Spoil = Callable[[bytes], bytes]


def intact(data: bytes) -> bytes:
    return data


class Cable:
    """Two terminals joined by a thread each way that copies bytes and may spoil them."""

    def __init__(self) -> None:
        self.spoil: Spoil = intact
        self._terminals = [Terminal(), Terminal()]
        self._ends = [terminal.fd for terminal in self._terminals]
        self.names = [terminal.path for terminal in self._terminals]
        for end in self._ends:
            os.set_blocking(end, False)
        self._stop_read, self._stop_write = os.pipe()
        # One thread each way: on a real line a full direction does not hold up the other.
        self._threads = [
            threading.Thread(target=self._carry, args=ends)
            for ends in (self._ends, self._ends[::-1])
        ]
        for thread in self._threads:
            thread.start()

    def _carry(self, source: int, target: int) -> None:
        stop = self._stop_read
        data = b""
        while True:
            wanted = ([stop], [target]) if data else ([source, stop], [])
            readable, writable, _ = select.select(*wanted, [])
            if stop in readable:
                return
            if writable:
                data = data[os.write(target, data) :]
            elif readable:
                data = self.spoil(os.read(source, 256))

    def inject(self, end: int, data: bytes) -> None:
        """Let bytes appear at one end as if the line had made them."""
        assert os.write(self._ends[end], data) == len(data)

    def pull(self) -> None:
        """Hang both terminals up."""
        os.write(self._stop_write, b"x")
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        for terminal in self._terminals:
            terminal.close()
        self._terminals = []

    def close(self) -> None:
        if self._terminals:
            self.pull()
        os.close(self._stop_read)
        os.close(self._stop_write)
