# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204
"""Feeds one parser mutated frames, on CPython and MicroPython alike.

stdin: {"parsers", "frames", "seed"}; a line of JSON per parser. Sound frames come from the real
thing: two nodes that talk, two seals, a COBS encoder. Each frame that is fed has been flipped,
cut, joined or made of noise; then most are given right checksums, lengths and seals again, so
that they get further in. What became of them is counted: `taken`, and `answered`, after which
something left or was obeyed. Heap in use after a collection is taken when a tenth is done and at
the end: it must not grow.
"""

import gc
import json
import sys
import time

from drupelet.base.memory import copy

# Where each parser is, and what makes it. Those of fuzz_host are for CPython only.
PARSERS = {
    "bsp-1": ("fuzz_links", "LinkFuzz"),
    "compact-1": ("fuzz_links", "LinkFuzz"),
    "mvds-1": ("fuzz_links", "LinkFuzz"),
    "mvds-nested": ("fuzz_links", "LinkFuzz"),
    "mvds-5001": ("fuzz_links", "LinkFuzz"),
    "topic": ("fuzz_links", "TopicFuzz"),
    "wake": ("fuzz_links", "WakeFuzz"),
    "sds": ("fuzz_sds", "SdsFuzz"),
    "channel": ("fuzz_sds", "ChannelFuzz"),
    "cobs": ("fuzz_lines", "CobsFuzz"),
    "mqtt": ("fuzz_lines", "MqttFuzz"),
    "mqtt-client": ("fuzz_lines", "ClientFuzz"),
    "stick": ("fuzz_lines", "StickFuzz"),
    "seal": ("fuzz_seals", "SealFuzz"),
    "seal-stick": ("fuzz_seals", "SealFuzz"),
    "sender-keys": ("fuzz_seals", "SenderKeysFuzz"),
    "handover": ("fuzz_seals", "HandoverFuzz"),
    "micro": ("fuzz_micro", "MicroFuzz"),
    "seal-sleep": ("fuzz_seals", "SleepFuzz"),
    "snapshot": ("fuzz_states", "SnapshotFuzz"),
    "provision": ("fuzz_states", "ProvisionFuzz"),
    "command": ("fuzz_states", "CommandFuzz"),
    "bsp-0": ("fuzz_host", "Bsp0Fuzz"),
    "sketch": ("fuzz_host", "SketchFuzz"),
    "sds-nim": ("fuzz_host", "NimFuzz"),
    "remote-log": ("fuzz_host", "RemoteLogFuzz"),
    "remote-store": ("fuzz_host", "RemoteStoreFuzz"),
    "black-box": ("fuzz_host", "BlackBoxFuzz"),
}
SIZE = 1024
cpu_s = getattr(time, "process_time", None) or time.clock
_EDGES = b"\x00\x01\x7f\x80\xff\xfe\x20\x40"


class Draw:
    """Numbers of a seed, the same on every interpreter; small ints of a 32-bit board."""

    def __init__(self, seed):
        self.state = (seed * 7919 + 12345) & 0x3FFFFFFF

    def word(self):
        """20 random bits; of few that are looked at, the highest are the best."""
        state = self.state
        low = (state & 0x7FFF) * 0x3D09 + 0x1537
        high = (state >> 15) * 0x3D09 + (low >> 15)
        self.state = state = (low & 0x7FFF) | (high & 0x7FFF) << 15
        return state >> 10

    def __call__(self, below):
        """A number 0 <= n < below (.. 2^12)."""
        return (self.word() >> 8) * below >> 12


def noise(draw, buf):
    """Fill the beginning of a buffer with up to 64 random bytes; how many."""
    size = 1 + draw(64)
    for at in range(0, size, 2):
        word = draw.word()
        buf[at] = word >> 12
        buf[at + 1] = word >> 4 & 255
    return size


def reshape(draw, how, sound, buf, size):
    """Cut a frame, join it to another, or leave out or repeat a piece; its new size."""
    at = draw(size)
    if how == 1:
        two = sound[draw(len(sound))]
        more = min(len(two), SIZE - at)
        copy(buf, at, two, 0, more)
        return max(at + more, 1)
    if how == 2:
        return at + 1
    count = 1 + draw(8)
    if how == 3:
        count = min(count, size - at, size - 1)
        copy(buf, at, buf, at + count, size - at - count)
        return size - count
    count = min(count, SIZE - size)
    copy(buf, at + count, buf, at, size - at)
    return size + count


def change(draw, buf, size):
    """Change one to three places: a bit, a byte, or a number at an edge."""
    word = draw.word()
    for _ in range(1 + (word >> 18)):
        word = draw.word()
        # Every other change is where heads are.
        below = min(size, 24) if word & 1 << 19 else size
        at = (word >> 7 & 0xFFF) * below >> 12
        how = word & 3
        if how == 0:
            buf[at] ^= 1 << (word >> 2 & 7)
        elif how == 1:
            buf[at] = draw.word() >> 12
        else:
            buf[at] = _EDGES[word >> 2 & 7]
            if how == 3 and at + 1 < size:
                buf[at + 1] = buf[at]


def mutate(draw, sound, buf):
    """Put a frame that was changed into the buffer; its size, at least 1."""
    word = draw.word()
    how = word >> 16
    if how == 0:
        return noise(draw, buf)
    frame = sound[(word & 0xFFFF) * len(sound) >> 16]
    size = len(frame)
    copy(buf, 0, frame, 0, size)
    if how < 5:
        size = reshape(draw, how, sound, buf, size)
    if how > 6 or how == 4:
        change(draw, buf, size)
    return size  # 5 and 6: as it was


def heap():
    """Bytes (CPython: blocks) in use after a collection."""
    gc.collect()
    if hasattr(gc, "mem_alloc"):
        return gc.mem_alloc()
    return sys.getallocatedblocks()


def run(target, frames, draw):
    """Feed so many frames; what became of them."""
    sound = target.sound
    feed = target.feed
    fix = target.fix
    buf = bytearray(SIZE + 64)
    taken = answered = early = 0
    tenth = max(1, frames // 10)
    warm = max(tenth, min(1000, frames // 2))  # what is loaded or made once is there by then
    spent_s = 0.0
    before_s = cpu_s()
    for number in range(frames):
        if number == warm:
            early = heap()
        if not number % tenth:
            # A count of 32 bits of microseconds goes round.
            now_s = cpu_s()
            spent_s += (now_s - before_s) % 4294.967296
            before_s = now_s
        size = mutate(draw, sound, buf)
        result = feed(buf, fix(buf, size, draw.word()))
        taken += result & 1
        answered += result >> 1
    spent_s += (cpu_s() - before_s) % 4294.967296
    return {
        "frames": frames,
        "taken": taken,
        "refused": frames - taken,
        "answered": answered,
        "frames_per_s": int(frames / (spent_s + 0.001)),
        "heap_early": early,
        "heap_late": heap(),
    }


# Not in a function: a board's stack ends soon where imports nest.
task = json.loads(sys.stdin.readline())
for parser in task["parsers"]:
    draw = Draw(task["seed"])
    target = getattr(__import__(PARSERS[parser][0]), PARSERS[parser][1])(parser, draw)
    row = run(target, task["frames"], draw)
    target = None
    row["parser"] = parser
    print(json.dumps(row))
