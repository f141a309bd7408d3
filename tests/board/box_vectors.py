"""The calls of a vector on standard input, a line each, told to a black box; prints its bytes.

The first line: device id (hex), boot, blocks of a segment. Runs on MicroPython and on CPython.
"""

import sys

from drupelet.telemetry.black_box import BlackBox


def tell(box: BlackBox, words: "list[str]") -> None:
    """One call: its name, then its arguments, decimal but for a message's id."""
    call = words[0]
    values = [int(word) for word in words[1:] if len(word) < 32]
    if call == "wall":
        box.wall(values[0], values[1].to_bytes(6, "little"), values[2])
    elif call == "state":
        box.state(values[0], values[1])
    elif call == "log":
        now_ms, code, a, b, c = values
        box.log(now_ms, code, a, b, c >> 16, c & 0xFFFF)
    elif call == "log_id":
        now_ms, code, a, b = values
        box.log_id(now_ms, code, a, b, bytes.fromhex(words[5]), 0)
    elif call == "count":
        # In steps below 2^29, as a board counts.
        while values[1]:
            step = min(values[1], (1 << 29) - 1)
            box.count(values[0], step)
            values[1] -= step
    elif call == "flush_counters":
        assert box.flush_counters(values[0])
    else:
        assert call == "finish"
        assert box.finish()


device, boot, blocks = sys.stdin.readline().split()
box = BlackBox(bytes.fromhex(device), int(boot), int(blocks))
for line in sys.stdin:
    tell(box, line.split())
    if box.ready:
        if box.starts:
            print(bytes(box.header).hex())
        print(bytes(box.block).hex())
        box.take()
