# mypy: ignore-errors
"""What an event of the black box takes, beside `struct.pack_into` of the same record.

On standard input: min_us (how long each measurement takes at least), events (under heap_lock).
Prints one JSON object: `pack_us`, and `rows` of [call, µs, bytes allocated]. What a call takes
has its part of the blocks in it: their CRC, and that each is taken.
"""

import gc
import struct

import meter
import stopwatch

from drupelet.telemetry.black_box import BlackBox

config = meter.settings()
RECORD = "<IBBHI"
SIZE = 12
EVENTS = 41  # of a block
MESSAGE_ID = bytearray(range(32))


class Packed:
    """The same record, packed into a block's bytes and nothing else."""

    def __init__(self) -> None:
        self.block = bytearray(EVENTS * SIZE)

    def run(self, times: int) -> None:
        """So many records, one behind the other."""
        block = self.block
        pack_into = struct.pack_into
        at = 0
        while times:
            times -= 1
            pack_into(RECORD, block, at, times & 0xFFFF, 13, 1, 2, 0x1020304)
            at += SIZE
            if at == EVENTS * SIZE:
                at = 0


class Boxed:
    """A black box that is told one kind of event after the other."""

    def __init__(self) -> None:
        self.box = BlackBox(b"BOX!", 1, 7)
        self.now_ms = 0

    def log(self, times: int) -> None:
        """Any event."""
        box = self.box
        while times:
            times -= 1
            self.now_ms = (self.now_ms + 1) & 0x3FFFFFFF
            box.log(self.now_ms, 13, 1, 2, 0x102, 0x304)
            if box.ready:
                box.take()

    def log_id(self, times: int) -> None:
        """A step of a message."""
        box = self.box
        while times:
            times -= 1
            self.now_ms = (self.now_ms + 1) & 0x3FFFFFFF
            box.log_id(self.now_ms, 13, 1, 2, MESSAGE_ID, 0)
            if box.ready:
                box.take()

    def state(self, times: int) -> None:
        """Another power state."""
        box = self.box
        while times:
            times -= 1
            self.now_ms = (self.now_ms + 1) & 0x3FFFFFFF
            box.state(self.now_ms, times & 3)
            if box.ready:
                box.take()

    def count(self, times: int) -> None:
        """A counter: no event, and no block of its own."""
        box = self.box
        while times:
            times -= 1
            box.count(70, 123)


def allocated(call: "object") -> "int | None":
    """Bytes that one of many calls allocates, None where nobody can tell.

    Collections are off, so that what is allocated stays in sight.
    """
    if not meter.MICROPYTHON:
        return None
    call(100)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    call(config["events"])
    after = gc.mem_alloc()
    gc.enable()
    return (after - before + config["events"] - 1) // config["events"]


boxed = Boxed()
CALLS = (
    ("log", boxed.log), ("log_id", boxed.log_id), ("state", boxed.state), ("count", boxed.count)
)  # fmt: skip
pack_us = stopwatch.best_us(Packed().run, config["min_us"])
rows = []
for name, call in CALLS:
    rows.append([name, stopwatch.best_us(call, config["min_us"]), allocated(call)])
meter.say({"pack_us": pack_us, "rows": rows})
