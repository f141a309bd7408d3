"""A board while it runs: its device, its console, its broker connections."""

import gc
import json

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY
from drupelet.base.events import CODE_ERROR
from drupelet.base.time_ms import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import DevicePort, Port

# After a turn that failed for want of memory, or a sleep for want of a store.
_AGAIN_MS = const(1000)
_TURNING = const(3)  # what an error befell (docs/SPEC.md 6.1)


class Board:
    """What `boards.setup` put together on a port; `run` until `stop`."""

    def __init__(
        self, device: "DevicePort", port: "Port", epoch_ms: int, peers: "list[int]"
    ) -> None:
        self.device = device
        self.port = port
        self.console = port.console
        self.brokers = []
        # Of [who keeps a carrier up (KeeperPort), the carrier, what the port watches of it].
        self.served = []
        self._epoch_ms = epoch_ms
        self._peers = peers

    def run(self) -> None:
        """Until `stop`, or the end of input."""
        device = self.device
        port = self.port
        sleeper = device.sleeper
        resumed = sleeper is not None and sleeper.resumed
        self._say_status("woke" if resumed else "started")
        said_ms = port.now_ms()
        while True:
            command = self.console.command()
            if command == b"stop":
                break
            if command == b"flush":
                device.flush()
                self.console.say('{"event":"flushed"}')
            wait_ms = self._turn()
            if elapsed_ms(port.now_ms(), said_ms) >= self._epoch_ms:
                said_ms = port.now_ms()
                self._say_status("status")
            rest_ms = device.rest_ms()
            if rest_ms:
                self._sleep(rest_ms)
                wait_ms = _AGAIN_MS
            if wait_ms > 0:
                device.asleep(True)
            port.wait(wait_ms)
            if wait_ms > 0:
                device.asleep(False)
        device.flush()
        for client in self.brokers:
            client.close()
        self._say_status("stopped")

    def _turn(self) -> int:
        """Everything that is due; then how long to wait, in ms.

        What there was no memory for now is done in another turn.
        """
        try:
            return self._maintain(self.device.step())
        except MemoryError:
            gc.collect()
            now_ms = self.port.now_ms()
            self.device.box.log(now_ms, CODE_ERROR, -E_CAPACITY, _TURNING, 0, 0)
            return _AGAIN_MS

    def _sleep(self, rest_ms: int) -> None:
        """Deep sleep: a broker is told, so that it does not take the board for lost.

        Returns only where the store fails: the board stays awake and goes on.
        """
        for client in self.brokers:
            client.close()
        self.console.say('{"event":"asleep","ms":%d}' % rest_ms)
        self.device.sleeper.rest(self.device, rest_ms)
        for client in self.brokers:
            client.reopen()

    def _maintain(self, wait_ms: int) -> int:
        """Keep carriers up; the shorter of `wait_ms` and what they need."""
        for row in self.served:
            keeper = row[0]
            self.port.feed()  # asking for a broker's address takes seconds
            keeper.maintain(self.port.now_ms())
            # Whatever closed it since: what is closed must not be waited on, it is always ready.
            self.port.watch(row[2], row[1].poll_object)
            row[2] = row[1].poll_object
            wait_ms = min(wait_ms, keeper.wait_ms(self.port.now_ms()))
        return wait_ms

    def _say_status(self, event: str) -> None:
        """What whoever started the board may want to know, without looking into its flash."""
        device = self.device
        node = device.node
        said = {
            "event": event, "boot": device.box.boot, "own": device.own, "logged": device.logged,
            "delivered": node.delivered, "pending": node.pending_count(),
            "outstanding": sum([node.outstanding(number) for number in self._peers]),
            "heap_low": device.heap_low, "refused": node.refused, "malformed": node.malformed,
        }  # fmt: skip
        self.console.say(json.dumps(said))
