"""A micro board: one group, readings by the epoch, its lines; messages in RAM, ids on flash."""

import time

from boards.micro.flash import FlashMicro
from drupelet.base.compat import const
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.micro.link import MicroLink
from drupelet.micro.serial_line import MicroSerial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.micro.flash import Config

# Seconds from 1970, where timestamps begin, to where this port's clock does.
_ORIGIN_S = 946684800 if time.gmtime(0)[0] == 2000 else 0
_BACK_MS = const(1 << 29)


class Board:
    """Call `step` for ever; `config` is what `boards.micro.main` describes."""

    def __init__(self, config: "Config") -> None:
        self._due_ms = time.ticks_ms() & 0x3FFFFFFF
        self.node = FlashMicro(config, self._due_ms)
        self._config = config
        self.lines = []
        self.readings = 0
        self._stamp = bytearray(8)

    def add(self, stream: object, interactive: int) -> None:
        """Serve a peer over a stream that never waits."""
        self.lines.append(MicroSerial(MicroLink(self.node, interactive), stream))

    def step(self) -> int:
        """Everything that is due now; then how long to sleep at most, in ms."""
        now_ms = time.ticks_ms() & 0x3FFFFFFF
        if elapsed_ms(now_ms, self._due_ms) < _BACK_MS:
            self._due_ms = later_ms(now_ms, self._config.EPOCH_MS)
            try:
                payload = self._config.reading(self.readings)
            except (OSError, ValueError):
                payload = b""  # a sensor that does not answer may do so in the next epoch
            moment = (int(time.time()) + _ORIGIN_S) * 1000
            for at in range(7, -1, -1):
                self._stamp[at] = moment & 255
                moment >>= 8
            if payload and self.node.publish(payload, len(payload), self._stamp) >= 0:
                self.readings += 1
        wait_ms = elapsed_ms(self._due_ms, now_ms)
        for line in self.lines:
            wait_ms = min(wait_ms, line.pump(now_ms))
            row = self.node.next_event()
            while row >= 0:
                self._config.taken(self.node, row)
                self.node.done(row)
                wait_ms = 0  # it is to be acknowledged
                row = self.node.next_event()
        return wait_ms
