"""Runs on a board: an MVDS link to a peer that knows no segments, under `heap_lock`.

Prints how many frames left, how many of them ask whether the peer reads segments, and what is
passed over; any allocation under the lock ends the program with an exception.
"""

import heap_check

from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore

# Named constants are numbers in compiled firmware: their names are not there.
FAMILY_MVDS = 1
PROFILE_MVDS_1 = 1
SHARED = 2
BATCH = 0
EPOCHS = 600

store = FlashStore(RamFiles(1 << 21, 65535, 24), segment_size=65535, segments_max=4)
store.open()
node = Node(store, lambda: 7, 2, 2, 16, 16)
group = node.join_id(bytes(range(32)), FAMILY_MVDS)
peer = node.add_peer(b"BBBB")
node.share(group, peer, SHARED)
node.boot(0)
link = node.link(peer, PROFILE_MVDS_1, 0, 1000, BATCH)
frame = bytearray(1024)


class Clock:
    """Of the run."""

    now_ms = 0
    frames = asked = 0


clock = Clock()


def run(count):
    """Poll for so many epochs."""
    for _ in range(count):
        clock.now_ms += 1000
        size = link.poll_into(frame, clock.now_ms)
        while size:
            clock.frames += 1
            clock.asked += frame[0] == 0x50
            size = link.poll_into(frame, clock.now_ms)
        node.wake_ms(clock.now_ms)


for number in range(30):
    body = bytes((0, number)) * (1000 if number % 2 else 10)
    assert node.publish(group, body, len(body), bytes(8), 0) > 0
run(100)
clock.frames = clock.asked = 0
heap_check.locked(run, EPOCHS)
print(clock.frames, clock.asked, node.core.passed_over.firsts[0] > 0, node.outstanding(peer))
