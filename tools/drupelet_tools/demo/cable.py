"""A serial cable: two pseudo-terminals and a thread that carries the bytes between them."""

import os
import select
import threading

from drupelet_tools.terminal import Terminal

_CHUNK_SIZE = 4096
_POLL_S = 0.2


class Cable:
    """`ends` are the two device paths, as /dev/ttyACM0 would be; `wire_bytes` went across."""

    def __init__(self) -> None:
        self._terminals = Terminal(), Terminal()
        self.ends = tuple(terminal.path for terminal in self._terminals)
        self.wire_bytes = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._carry, daemon=True, name="cable")
        self._thread.start()

    def _carry(self) -> None:
        first, second = (terminal.fd for terminal in self._terminals)
        other = {first: second, second: first}
        for end in other:
            os.set_blocking(end, False)
        while not self._stopping:
            readable, _, _ = select.select(list(other), [], [], _POLL_S)
            for end in readable:
                try:
                    chunk = os.read(end, _CHUNK_SIZE)
                    self.wire_bytes += len(chunk)
                    os.write(other[end], chunk)
                except OSError:
                    continue  # the far end is full or gone: a real cable drops bytes too

    def close(self) -> None:
        """Unplug."""
        self._stopping = True
        self._thread.join(timeout=2 * _POLL_S)
        for terminal in self._terminals:
            terminal.close()
