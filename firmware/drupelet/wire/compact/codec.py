"""Profile `compact-1`: ids and states of bsp in the fewest bytes (docs/SPEC.md 3.5).

One codec for all links of a node: what it knows of each other end (`hello`), the numbers between
the nodes (`numbering`), what reads (`compact1_in`) and what writes (`compact1_out`).
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.wire import bsp1
from drupelet.wire.compact.outlet import CompactEngine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import LinkPort

_KIND_PLAIN = const(0x40)
_KIND_COMPACT = const(0x44)


class Compact1(CompactEngine):
    """The codec; what it cannot say to a peer in compact-1 it says in bsp-1."""

    def parse(self, link: "LinkPort", frame: bytearray, at: int, end: int) -> int:
        """Hand each record to the engine; OK, or E_PEER at the first malformed one."""
        self.use(link)
        if frame[at - 1] != _KIND_PLAIN:
            return self.parse_records(link, frame, at, end)
        code = bsp1.parse(link, frame, at, end)
        if code == OK:
            self.heard_plain(link.epoch)
            link.attention = True
        return code

    def fill(self, link: "LinkPort", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due from `at` on; the end (`at`: nothing). The kind is at frame[at-1]."""
        self.use(link)
        frame[at - 1] = _KIND_COMPACT
        if not self.plain(link.epoch, link.every):
            return self.fill_records(link, frame, at, limit)
        if self.probe_due(link.epoch):
            self.probed(link.epoch)
            return self.ask(link, frame, at)
        frame[at - 1] = _KIND_PLAIN
        return bsp1.fill(link, frame, at, limit)

    def wait_epochs(self, link: "LinkPort") -> int:
        """Epochs after which it wants to be asked, though nothing is due; 0: never of itself."""
        self.use(link)
        sketch = self.sketch_of(link)
        if sketch is not None and sketch.holds(link):
            return 1
        return self.wait(link.epoch, link.every)
