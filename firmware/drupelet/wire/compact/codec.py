"""Profile `compact-1`: ids and states of bsp in the fewest bytes (docs/SPEC.md 3.5).

One codec for all links of a node: what it knows of each other end (`hello`), the numbers between
the nodes (`numbering`), what reads (`intake`) and what writes (`outlet`).
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
    """The codec; what it cannot say to a peer in compact-1 it says in bsp-1."""

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record to the engine; OK, or E_PEER at the first malformed one."""
        self.use(exchange)
        if frame[at - 1] != _KIND_PLAIN:
            return self.parse_records(exchange, frame, at, end)
        code = bsp1.parse(exchange, frame, at, end)
        if code == OK:
            self.heard_plain(exchange.epoch)
            exchange.attention = True
        return code

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due from `at` on; the end (`at`: nothing). The kind is at frame[at-1]."""
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
        """Epochs after which it wants to be asked, though nothing is due; 0: never of itself."""
        self.use(exchange)
        sketch = self.sketch_of(exchange)
        if sketch is not None and sketch.holds(exchange):
            return 1
        return self.wait(exchange.epoch, exchange.pace.every)
