"""Profile `compact-1`: ids and states of bsp in the fewest bytes (docs/SPEC.md 3.5).

A link's codec is what it knows of the other end (`hello`) and the numbers between the two nodes
(`numbering`). One engine reads (`compact1_in`) and writes (`compact1_out`) for all links.
"""

from drupelet._compat import const
from drupelet.errors import OK
from drupelet.wire import bsp1
from drupelet.wire.compact1_out import CompactEngine
from drupelet.wire.hello import Contact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core
    from drupelet.ports import LinkPort

_KIND_PLAIN = const(0x40)
_KIND_COMPACT = const(0x44)


class Compact1(Contact):
    """The codec of one link; what it cannot say to the peer in compact-1 it says in bsp-1."""

    def __init__(self, core: "Core", peer: int) -> None:
        Contact.__init__(self)
        if core.compact is None:
            core.compact = CompactEngine(core)
        self.engine = core.compact
        self.numbering = self.engine.meet(core, peer)

    def parse(self, link: "LinkPort", frame: bytearray, at: int, end: int) -> int:
        """Hand each record to the engine; OK, or E_PEER at the first malformed one."""
        if frame[at - 1] != _KIND_PLAIN:
            return self.engine.use(self, self.numbering).parse_records(link, frame, at, end)
        code = bsp1.parse(link, frame, at, end)
        if code == OK:
            self.heard_plain(link.epoch)
            link.attention = True
        return code

    def fill(self, link: "LinkPort", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due from `at` on; the end (`at`: nothing). The kind is at frame[at-1]."""
        frame[at - 1] = _KIND_COMPACT
        end = at
        if not self.plain(link.epoch, link.every):
            end = self.engine.use(self, self.numbering).fill_records(link, frame, at, limit)
        elif self.probe_due(link.epoch):
            self.probed(link.epoch)
            end = self.engine.use(self, self.numbering).ask(link, frame, at)
        else:
            frame[at - 1] = _KIND_PLAIN
            end = bsp1.fill(link, frame, at, limit)
        if end == at:
            link.core.codec_wait = self.wait(link.epoch, link.every)
            if self.sketch is not None and self.sketch.holds(link):
                link.core.codec_wait = 1
        return end
