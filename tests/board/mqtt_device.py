"""A board on MQTT: echoes every frame of its one peer until a frame says `quit`; MicroPython.

argv: port, clock speed (its milliseconds per real one), real milliseconds to live.
Prints one line of JSON: the client's counters, frames echoed, and what was allocated.
"""

import gc
import json
import sys
import time

import micropython

from drupelet_transports.board.mqtt_board import MqttClient

INBOX, OUTBOX = b"000000a1/000000b2", b"000000b2/000000a1"
# Compiled firmware has its constants folded in and nothing to import them from.
FRAME_SIZE_MAX = 1024


class Device:
    def __init__(self, port: int, speed: int) -> None:
        self.speed = speed
        # From here on: 20 times what the machine is up may be no small int, and cost heap.
        self.began_ms = time.ticks_ms()
        self.client = MqttClient("127.0.0.1", port, "t", lambda: 7)
        self.link = self.client.transport(INBOX, OUTBOX)
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.frames = 0
        self.refused = 0

    def now_ms(self) -> int:
        return time.ticks_diff(time.ticks_ms(), self.began_ms) * self.speed

    def step(self) -> int:
        """Maintain the connection and echo at most one frame; its size."""
        self.client.maintain(self.now_ms())
        size = self.link.receive_into(self.frame)
        if size > 0:
            self.frames += 1
            if self.link.send(self.frame, size) < 0:
                self.refused += 1
        return size

    def is_quit(self, size: int) -> bool:
        return size == 4 and self.frame[0] == 113 and self.frame[3] == 116


def connect(device: Device, until: int) -> int:
    """Bytes allocated by the first connection that came up."""
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    while not device.client.up and time.ticks_diff(until, time.ticks_ms()) > 0:
        device.step()
    allocated = gc.mem_alloc() - before
    gc.enable()
    return allocated


def run(device: Device, until: int, locked: bool) -> int:
    """Echo until told to quit; frames handled with the heap locked while connected."""
    locked_frames = 0
    size = 0
    while not device.is_quit(size) and time.ticks_diff(until, time.ticks_ms()) > 0:
        if locked and device.client.up:
            micropython.heap_lock()
            try:
                size = device.step()
            finally:
                micropython.heap_unlock()
            locked_frames += size > 0
        else:
            size = device.step()
        if not size:
            time.sleep_ms(1)
    return locked_frames


def main() -> None:
    until = time.ticks_add(time.ticks_ms(), int(sys.argv[3]))
    device = Device(int(sys.argv[1]), int(sys.argv[2]))
    allocated = connect(device, until)
    locked_frames = run(device, until, len(sys.argv) > 4)
    client = device.client
    report = {
        "up": client.up,
        "connects": client.connects,
        "disconnects": client.disconnects,
        "retained": client.retained,
        "misdirected": client.misdirected,
        "skipped": client.skipped,
        "frames": device.frames,
        "refused": device.refused,
        "alloc_per_connect": allocated,
        "locked_frames": locked_frames,
        "waits": client.wait_ms(device.now_ms()),
    }
    client.close()
    gc.collect()
    report["heap"] = gc.mem_alloc()
    print(json.dumps(report))


main()
