"""A channel of four with losses, repair and a restart; prints what was sent and every log.

The same on CPython and on boards: run by test_channel_board.py.
"""

import sys

sys.path[:0] = sys.argv[1:]

from drupelet.base.memory import crc32_into  # noqa: E402
from drupelet.channel.channel import open_channel  # noqa: E402
from drupelet.channel.flash_keeper import FlashKeeper  # noqa: E402
from drupelet.channel.ram_keeper import RamKeeper  # noqa: E402
from drupelet.channel.settings import Settings  # noqa: E402
from drupelet.store.files import RamFiles  # noqa: E402
from drupelet.wire.sds.bloom import Bloom  # noqa: E402


class Draw:
    """Numbers of a seed, the same on every interpreter: small ints only."""

    def __init__(self, seed):
        self._state = seed

    def __call__(self, below):
        """Return a number 0 <= n < below (at most 2^12)."""
        state = self._state
        low = (state & 0x7FFF) * 0x3D09 + 0x1537
        high = (state >> 15) * 0x3D09 + (low >> 15)
        self._state = state = (low & 0x7FFF) | (high & 0x7FFF) << 15
        return ((state >> 12) & 0xFFF) * below >> 12


START = (1_790_000_000_000).to_bytes(8, "little")
NAMES = ("anna", "bén", "日本", "d" * 40)

draw = Draw(7)
frame = bytearray(512)
crc = bytearray(4)
files = RamFiles()


class World:
    now_ms = 0
    sent = 0
    bytes = 0


def make(index):
    settings = Settings()
    settings.lost_ms = 0
    keeper = RamKeeper(64, 512)
    if index == 0:
        keeper = FlashKeeper(files, Bloom(100, 10, 7), 512, 60, 4096)
        keeper.open()
    made = open_channel(
        b"same", NAMES[index].encode(), keeper, lambda: draw(256), settings, World.now_ms
    )
    made.clock.set_wall(START, 0, True)
    return made


def step(loss):
    World.now_ms = (World.now_ms + 5000) & 0x3FFFFFFF
    for here in channels:
        size = here.poll_into(frame, World.now_ms)
        while size:
            World.sent += 1
            World.bytes += size
            crc32_into(crc, 0, frame, 0, size, World.sent == 1)
            for there in channels:
                if there is not here and draw(100) >= loss:
                    there.receive(bytearray(frame[:size]), size, World.now_ms)
            size = here.poll_into(frame, World.now_ms)
    for here in channels:
        while here.next_event():
            pass


channels = [make(index) for index in range(4)]
for number in range(40):
    content = b"reading %d" % number
    channels[draw(4)].publish(content, 0, len(content), World.now_ms)
    step(30)
    if number == 20:
        channels[0] = make(0)
for _ in range(600):
    step(10)
print("sent", World.sent, World.bytes, bytes(crc))
for here in channels:
    ids = []
    for row in range(here.log.rows.count):
        size = here.keeper.load(here.log.rows.handle(row))
        at = 3 + here.keeper.work[1]
        ids.append(bytes(here.keeper.work[at + 1 : at + 9]))
        assert size
    counts = (here.delivered, here.syncs, here.repaired, here.outbox.resent)
    print(len(ids), here.outbox.rows.count, here.log.incoming.count, counts, b" ".join(ids))
