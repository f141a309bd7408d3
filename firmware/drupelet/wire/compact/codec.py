"""Profile `compact-1`: the records of `bsp-1` in fewer bytes (docs/SPEC.md 3.5).

All links of a node share one codec. Its layers, each a base class of the next: message numbers
(`numbering`), HELLOs and the peer's profile (`hello`), reader (`intake`), writer (`outlet`).
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.wire import bsp1
from drupelet.wire.compact.outlet import CompactEngine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange

_KIND_PLAIN = const(0x40)
_KIND_COMPACT = const(0x44)


class Compact1(CompactEngine):
    """The codec of `compact-1`; it falls back to bsp-1 for a peer that does not answer in it."""

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of frame[at:end] to the engine; OK, or E_PEER at a malformed one."""
        self.use(exchange)
        if frame[at - 1] != _KIND_PLAIN:
            return self.parse_records(exchange, frame, at, end)
        code = bsp1.parse(exchange, frame, at, end)
        if code == OK:
            self.heard_plain(exchange.epoch)
            exchange.attention = True
        return code

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due to frame[at:limit] and the frame's kind to frame[at-1].

        Returns the end of what was written; `at` if nothing is due.
        """
        self.use(exchange)
        frame[at - 1] = _KIND_COMPACT
        if not self.plain(exchange.epoch, exchange.pace.every):
            return self.fill_records(exchange, frame, at, limit)
        if self.probe_due(exchange.epoch):
            self.probed(exchange.epoch)
            return self.ask(exchange, frame, at)
        frame[at - 1] = _KIND_PLAIN
        return bsp1.fill(exchange, frame, at, limit)

    def wait_epochs(self, exchange: "Exchange") -> int:
        """Epochs until `fill` may have something to write of its own accord; 0: never."""
        self.use(exchange)
        sketch = self.sketch_of(exchange)
        if sketch is not None and sketch.holds(exchange):
            return 1
        return self.wait(exchange.epoch, exchange.pace.every)
