"""A board while it runs: its device, its console, its broker connections."""

import json
import sys

from drupelet.schedule import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.device import Device
    from boards.unix.ports import Clock, Console, Waiter
    from drupelet.node import Node


class Board:
    """What `boards.unix.setup` put together; `run` until `stop`."""

    def __init__(
        self, node: "Node", device: "Device", clock: "Clock", console: "Console",
        waiter: "Waiter", epoch_ms: int, peers: "list[int]",
    ) -> None:  # fmt: skip
        self.node = node
        self.device = device
        self.clock = clock
        self.console = console
        self.waiter = waiter
        self.clients = []  # of (broker connection, its transport)
        self._epoch_ms = epoch_ms
        self._peers = peers

    def run(self) -> None:
        """Until `stop`, or the end of input."""
        device = self.device
        version = ".".join([str(part) for part in sys.implementation.version[:3]])
        bits = 32 if sys.maxsize < 1 << 32 else 64
        self.console.say(
            '{"event":"interpreter","interpreter":"micropython %s, %d-bit"}' % (version, bits)
        )
        sleeper = device.sleeper
        resumed = sleeper is not None and sleeper.resumed
        self._say_status("woke" if resumed else "started")
        said_ms = self.clock.now_ms()
        while True:
            command = self.console.command()
            if command == b"stop":
                break
            if command == b"flush":
                device.flush()
                self.console.say('{"event":"flushed"}')
            wait_ms = device.step()
            wait_ms = self._maintain(wait_ms)
            if elapsed_ms(self.clock.now_ms(), said_ms) >= self._epoch_ms:
                said_ms = self.clock.now_ms()
                self._say_status("status")
            rest_ms = device.rest_ms()
            if rest_ms:
                self._sleep(rest_ms)
            if wait_ms > 0:
                device.asleep(True)
                self.waiter.wait(wait_ms)
                device.asleep(False)
        device.flush()
        for client, _transport in self.clients:
            client.close()
        self._say_status("stopped")

    def _sleep(self, rest_ms: int) -> None:
        """Deep sleep: a broker is told, so that it does not take the board for lost."""
        for client, _transport in self.clients:
            client.close()
        self.console.say('{"event":"asleep","ms":%d}' % rest_ms)
        self.device.sleeper.rest(self.device, rest_ms)

    def _maintain(self, wait_ms: int) -> int:
        """Keep broker connections up; the shorter of `wait_ms` and what they need."""
        for client, transport in self.clients:
            before = transport.poll_object
            client.maintain(self.clock.now_ms())
            self.waiter.replace(before, transport.poll_object)
            wait_ms = min(wait_ms, client.wait_ms(self.clock.now_ms()))
        return wait_ms

    def _say_status(self, event: str) -> None:
        """What whoever started the board may want to know, without looking into its flash."""
        device, node = self.device, self.node
        said = {
            "event": event, "boot": device.box.boot, "own": device.own, "logged": device.logged,
            "delivered": node.delivered, "pending": node.pending_count(),
            "outstanding": sum([node.outstanding(number) for number in self._peers]),
            "heap_low": device.heap_low, "refused": node.refused, "malformed": node.malformed,
        }  # fmt: skip
        self.console.say(json.dumps(said))
