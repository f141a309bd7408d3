"""Runs on a board: duty cycle and back-off under `heap_lock`.

Each part is warmed up once and then run with the heap locked, over the wrap of the clock and with
frames of a peer that mean nothing. Prints the calls that each part saw.
"""

import micropython

from drupelet.duty.wake_plan import WakePlan
from drupelet.engine.backoff import counted, interval_epochs

PEERS = 4
PERIOD_MS = 60000
ROUNDS = 1500
# In a snapshot (docs/SPEC.md 10.3) they stand elsewhere.
OLD_AT = 6
PEER_AT = 11

plan = WakePlan(PERIOD_MS, 3000, 600, PEERS, b"zzzz", 0x3FFF0000, 100)
for row in range(PEERS):
    plan.seek(row, b"aaa" + bytes([row]), 0)
frame = bytearray(64)
junk = bytearray(range(10))
buf = bytearray(64)


class Clock:
    """Time of the run."""

    now_ms = 0x3FFF0000
    calls = 0


clock = Clock()


def run_plan(count):
    for turn in range(count):
        now_ms = clock.now_ms
        left = plan.awake_ms(now_ms)
        if left:
            for peer in range(PEERS):
                plan.wake_due_ms(peer, now_ms)
                size = plan.wake_into(frame, peer, now_ms)
                clock.calls += 1
                if size and (turn + peer) % 3 == 0:
                    frame[1] = turn & 1
                    frame[5] = turn & 255  # another anchor each time
                    plan.on_wake(peer, frame, size, now_ms)
            junk[0] = 0x52
            junk[turn % 10] = turn & 255
            plan.on_wake(turn % PEERS, junk, 10, now_ms)
            step = left if left < 500 else 500
        else:
            step = plan.next_wake_ms(now_ms)
        plan.save_into(buf, 0, now_ms)
        plan.save_old_into(buf, OLD_AT, now_ms)
        plan.save_peer_into(turn % PEERS, buf, PEER_AT, now_ms)
        clock.now_ms = now_ms - 0x3FFFFFFF - 1 + step & 0x3FFFFFFF


def run_back_off(count):
    sends = 0
    for turn in range(count):
        sends = counted(sends)
        interval_epochs(sends, turn % 9 == 0, turn & 1 == 0)
        clock.calls += 1


for name, run in (("plan", run_plan), ("backoff", run_back_off)):
    run(60)
    clock.calls = 0
    micropython.heap_lock()
    run(ROUNDS)
    micropython.heap_unlock()
    print(name, clock.calls)
print("foreign", plan.foreign)
