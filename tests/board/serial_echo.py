"""A board on a serial line: sends every frame back with all bits turned over.

serial_echo.py MODULE_PATH:MODULE_PATH DEVICE FRAMES_MAX WAIT_MS

Reading and answering run with the heap locked: an allocation ends it with a traceback.
"""

import select
import sys
import time

import micropython

sys.path[:0] = sys.argv[1].split(":")

from drupelet_transports.board.terminal import SerialBoard  # noqa: E402

transport = SerialBoard(sys.argv[2])
frame = bytearray(transport.frame_size_max)
poll = select.poll()
poll.register(transport.poll_object, select.POLLIN)
wait_ms = int(sys.argv[4])
print("ready", sys.implementation.name)


def answer() -> int:
    """Serve what is there; 1 for a frame, 0 for none yet, below 0 for the end of the line."""
    size = transport.receive_into(frame)
    if size > 0:
        for i in range(size):
            frame[i] ^= 255
        for _ in range(1000):
            if transport.send(frame, size) != -2:
                return 1
            time.sleep_ms(5)  # type: ignore[attr-defined]
        return -2
    if size == 0:
        if transport.pending_size:
            time.sleep_ms(5)  # type: ignore[attr-defined]
            return 0
        for _ in poll.ipoll(wait_ms):  # type: ignore[attr-defined]
            return 0
        return -1  # nothing came for so long
    return size


left = int(sys.argv[3])
for _ in poll.ipoll(0):  # type: ignore[attr-defined]
    pass  # the first call ever allocates
code = 0  # a new name in a module allocates
micropython.heap_lock()
while left and code >= 0:
    code = answer()
    if code > 0:
        left -= 1
for _ in range(1000):
    if not transport.pending_size or transport.flush() == -11:
        break
    time.sleep_ms(5)  # type: ignore[attr-defined]
micropython.heap_unlock()
print("damaged", transport.damaged, "left", left, "code", code)
transport.close()
