"""A serial cable: two pseudo-terminals and a thread that carries the bytes between them."""

import os
import pty
import select
import threading
import tty

_CHUNK_SIZE = 4096
_POLL_S = 0.2


class Cable:
    """`ends` are the two device paths, as /dev/ttyACM0 would be; `wire_bytes` went across."""

    def __init__(self) -> None:
        pairs = [pty.openpty(), pty.openpty()]
        for _, slave in pairs:
            tty.setraw(slave)
        self.ends = tuple(os.ttyname(slave) for _, slave in pairs)
        self.wire_bytes = 0
        self._masters = [master for master, _ in pairs]
        # Held open so that a board that is restarted finds the line as it left it.
        self._slaves = [slave for _, slave in pairs]
        self._stopping = False
        self._thread = threading.Thread(target=self._carry, daemon=True, name="cable")
        self._thread.start()

    def _carry(self) -> None:
        first, second = self._masters
        other = {first: second, second: first}
        for master in self._masters:
            os.set_blocking(master, False)
        while not self._stopping:
            readable, _, _ = select.select(self._masters, [], [], _POLL_S)
            for master in readable:
                try:
                    chunk = os.read(master, _CHUNK_SIZE)
                    self.wire_bytes += len(chunk)
                    os.write(other[master], chunk)
                except OSError:
                    continue  # the far end is full or gone: a real cable drops bytes too

    def close(self) -> None:
        """Unplug."""
        self._stopping = True
        self._thread.join(timeout=2 * _POLL_S)
        for descriptor in self._masters + self._slaves:
            os.close(descriptor)
