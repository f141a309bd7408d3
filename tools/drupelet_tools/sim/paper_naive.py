"""What the paper calls naive: MVDS that sends a message at every tick until it is acknowledged.

Nobody knows who is online; a sender that is sends all that is not acknowledged to everybody whom
it is not known to have reached, and a receiver that is acknowledges each copy in the same tick.
Bytes are those of `mvds-1` payloads of one record, as the peers write them.
"""

from drupelet_tools.sim.paper_world import (
    TICKS_MAX,
    Outcome,
    Setting,
    availability_of,
    draw_messages,
    next_tick,
)

# One frame kind byte; a MESSAGE of a 32-byte group, a time in ms (6 B varint) and a body of 100 B;
# an ACK of one id (docs/SPEC.md 3.4).
MESSAGE_BYTES = 1 + 3 + (2 + 32) + (1 + 6) + (2 + 100)
ACK_BYTES = 1 + 2 + 32


def run(setting: Setting, seed: int) -> Outcome:
    """The same contacts and messages as `PaperWorld` has for this seed."""
    count = setting.people + setting.relay
    devices = [availability_of(setting, seed, number) for number in range(count)]
    plan = draw_messages(setting, seed)
    messages = len(plan)
    outcome = Outcome(messages, messages * (setting.people - 1))
    # Each pair (sender, receiver, message) that is not known to be settled.
    open_pairs: dict[int, list[tuple[int, int]]] = {number: [] for number in range(count)}
    written: list[int] = []
    holders: list[set[int]] = []
    tick = 0
    while tick < TICKS_MAX:
        while plan and plan[-1][0] <= tick:
            at, author = plan.pop()
            written.append(at)
            holders.append({author})
            _add(open_pairs, author, len(written) - 1, count, author)
        online = [number for number in range(count) if devices[number].at(tick)]
        here = set(online)
        for sender in online:
            still = []
            for receiver, message in open_pairs[sender]:
                outcome.copies += 1
                outcome.records += 1
                outcome.bytes += MESSAGE_BYTES
                if receiver not in here:
                    still.append((receiver, message))
                    continue
                outcome.records += 1
                outcome.bytes += ACK_BYTES
                if receiver not in holders[message]:
                    holders[message].add(receiver)
                    if receiver < setting.people:
                        outcome.latencies.append(tick - written[message])
                    else:
                        _add(open_pairs, receiver, message, setting.people, sender)
            open_pairs[sender] = still
        if not plan and not any(open_pairs.values()):
            break
        tick = next_tick(tick, devices, plan)
    outcome.ticks = tick
    return outcome


def _add(
    pairs: dict[int, list[tuple[int, int]]], sender: int, message: int, count: int, source: int
) -> None:
    """From now on `sender` sends a message to all others; not back to where it came from."""
    pairs[sender] += [(other, message) for other in range(count) if other not in (sender, source)]
