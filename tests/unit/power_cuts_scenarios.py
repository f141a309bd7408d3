"""What a store goes through, for `power_cuts`: scenarios by name.

One yield per finished call; what comes before the first is not cut.
"""

from collections.abc import Callable, Iterator

from drupelet.base.errors import E_CAPACITY
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from unit.power_cuts_model import GROUP, PEER, Run, body_of, key_of, message_id


def begin(run: Run) -> None:
    run.boot()
    run.member(GROUP, key_of(1))
    run.member(PEER, b"peer")
    run.barrier()


def publish(run: Run) -> Iterator[None]:
    begin(run)
    for number in range(1, 4):
        yield run.put(number)
    yield run.barrier()
    yield run.put(4)
    yield run.save(b"woken")
    yield run.barrier()


def receive(run: Run) -> Iterator[None]:
    """Children before their parents."""
    begin(run)
    yield run.put(2, STATE_PENDING)
    yield run.put(4, STATE_PENDING)
    yield run.barrier()
    yield run.put(6)
    yield run.promote(4)
    yield run.promote(2)
    yield run.put(8)
    yield run.barrier()


def acknowledge(run: Run) -> Iterator[None]:
    """One barrier for each frame that acknowledges."""
    begin(run)
    for number in range(2, 10):
        yield run.put(number)
        yield run.barrier()


def again(run: Run) -> Iterator[None]:
    """What is there comes again, and what was pending enters the log."""
    begin(run)
    yield run.put(2)
    yield run.put(4, STATE_PENDING)
    yield run.barrier()
    yield run.put(2)
    yield run.promote(4)
    yield run.promote(4)  # again, if the flash refused it
    yield run.barrier()


def delete(run: Run) -> Iterator[None]:
    begin(run)
    yield run.put(2)
    yield run.put(4)
    yield run.delete(4)
    yield run.barrier()
    yield run.delete(2)
    yield run.barrier()


def tombstones(run: Run) -> Iterator[None]:
    """Deletions that somebody may not know of outlive their segments."""
    begin(run)
    for number in (2, 4, 6):
        run.put(number)
    yield run.barrier()
    yield run.delete(2, 3)
    yield run.delete(4, 1)
    yield run.delete(6)
    yield run.barrier()
    for number in range(10, 36):
        yield run.put(number)
        if number % 8 == 0:
            yield run.barrier()
            run.settle()
        if number == 26:
            yield run.keep(2, 1)
            yield run.keep(4, 0)


def roll(run: Run) -> Iterator[None]:
    begin(run)
    for number in range(1, 16):
        yield run.put(number)
    yield run.barrier()


def reclaim(run: Run) -> Iterator[None]:
    """Settled segments go; what is current in them is written again."""
    begin(run)
    run.put(80, STATE_PENDING)
    run.save(b"state")
    run.barrier()
    for number in range(1, 27):
        yield run.put(number)
        if number % 10 == 0:
            yield run.barrier()
            run.settle()
    yield run.promote(80)
    yield run.barrier()


def bury(run: Run) -> Iterator[None]:
    begin(run)
    yield run.put(2, STATE_PENDING)
    yield run.put(104, STATE_PENDING)
    yield run.barrier()
    yield run.bury(2)
    yield run.bury(6)
    yield run.bury(104)
    yield run.barrier()


def bury_moved(run: Run) -> Iterator[None]:
    """Pending messages whose records were moved are buried, deleted, promoted."""
    begin(run)
    for number in (80, 82, 84):
        run.put(number, STATE_PENDING)
    run.barrier()
    for number in range(1, 30):
        run.put(number)
        if number % 10 == 0:
            run.barrier()
            run.settle()
    run.settle()
    yield run.bury(80)
    yield run.promote(82)
    yield run.delete(84)
    for number in range(44, 58):
        yield run.put(number)
        if number % 10 == 0:
            yield run.barrier()
            run.settle()


def private(run: Run) -> Iterator[None]:
    begin(run)
    for number in (2, 4, 6):
        yield run.put(number, STATE_PRIVATE)
    yield run.barrier()
    yield run.open_up(2)
    yield run.delete(4)
    yield run.barrier()
    yield run.put(8, STATE_PENDING)
    yield run.promote(8, STATE_PRIVATE)
    yield run.open_up(8)
    yield run.delete(2)
    yield run.barrier()


def long_bodies(run: Run) -> Iterator[None]:
    begin(run)
    yield run.put(102)
    yield run.put(104, STATE_PENDING)
    yield run.barrier()
    yield run.promote(104)
    yield run.delete(102)
    yield run.put(106, STATE_PRIVATE)
    yield run.barrier()


def bodies_make_room(run: Run) -> Iterator[None]:
    begin(run)
    for number in (102, 104, 106):
        run.put(number)
    run.barrier()
    run.settle()
    yield run.put(108)
    yield run.barrier()
    yield run.put(110, STATE_PENDING)
    yield run.delete(110)
    yield run.barrier()


def descriptors(run: Run) -> Iterator[None]:
    begin(run)
    yield run.describe(1, b"first")
    yield run.put(2)
    yield run.describe(1, b"second" * 30)
    run.member(GROUP, key_of(2))
    yield run.describe(2, b"other")


def leave(run: Run) -> Iterator[None]:
    """A group with messages of every kind is left, and joined under another number."""
    begin(run)
    run.member(GROUP, key_of(2))
    run.put(60, group=2)
    run.describe(2, b"left")
    run.put(62, STATE_PENDING, 2)
    run.put(104, STATE_PENDING, 2)
    run.put(64, STATE_PRIVATE, 2)
    run.put(66, group=2)
    run.delete(66, 1)
    run.put(2)
    run.barrier()
    yield run.forget(GROUP, key_of(2))
    assert run.member(GROUP, key_of(2)) == 3 or not run.working
    yield run.put(68, STATE_PENDING, 3)
    yield run.barrier()


def remove_peer(run: Run) -> Iterator[None]:
    begin(run)
    run.put(2)
    run.barrier()
    yield run.forget(PEER, b"peer")
    yield run.member(PEER, b"peer")
    yield run.put(4)
    yield run.barrier()


def number_again(run: Run) -> Iterator[None]:
    """All numbers are taken; one that was given up goes to another group."""
    begin(run)
    for number in range(2, 6):
        run.member(GROUP, key_of(number))
    run.barrier()
    assert run.store.member(GROUP, key_of(6), 0, 32) == E_CAPACITY
    yield run.forget(GROUP, key_of(3))
    yield run.member(GROUP, key_of(9))
    yield run.put(60, STATE_PENDING, 3)
    yield run.barrier()


def quota(run: Run) -> Iterator[None]:
    """A group that waits for ever fills its quota; the other one goes on in its own."""
    begin(run)
    run.member(GROUP, key_of(2))
    run.store.quotas[2] = 2
    refused = 0
    for number in range(1, 37):
        if number % 3 == 0:
            body = body_of(number)
            id = message_id(number)
            code = run.store.put(2, 2, id, 0, number.to_bytes(8), 0, body, 0, len(body), 1)
            refused += code == E_CAPACITY
            if code > 0:
                run.groups[number] = 2
                run.becomes(number, STATE_DELIVERED)
                run.handles[number] = code
        yield run.put(number) if number % 3 else run.barrier()
        if number % 6 == 0:
            run.settle(0b11111011)
    assert refused or not run.working, "it has filled its quota"
    yield run.barrier()


def wake_states(run: Run) -> Iterator[None]:
    """A full log still saves; so much that its old states make room again and again."""
    begin(run)
    number = 1
    run.working = False  # it is filled up
    while number < 99:
        run.put(number)
        number += 1
    run.working = True
    for wake in range(16):
        yield run.save(bytes([wake]) * 90)
        if wake % 2:
            yield run.barrier()


def own_count(run: Run) -> Iterator[None]:
    """How many of our own there were is known for ever."""
    begin(run)
    for number in range(1, 59, 2):
        yield run.put(number)
        if number % 12 == 1:
            yield run.barrier()
            run.settle()


def parts(run: Run) -> Iterator[None]:
    begin(run)
    content = bytes(range(250)) * 6
    for _ in range(2):
        yield run.code(run.store.spool.part_open(2, b"whose-id", 0, len(content)))
        at = run.store.spool.part_size(2)
        yield run.code(run.store.spool.part_append(2, content, at, 700 if at < 700 else 100))
        run.boot()
    yield run.code(run.store.spool.part_open(2, b"another!", 0, 600))
    yield run.put(2)
    yield run.barrier()


def full_disk(run: Run) -> Iterator[None]:
    """The file system is full before the log is; then there is room again."""
    begin(run)
    run.files.capacity = 2000
    run.forgets = True
    run.working = False
    for number in range(1, 18):
        yield run.put(number)
    yield run.barrier()
    run.settle()
    for number in range(30, 37):
        yield run.put(number)
        if number % 5 == 0:
            yield run.barrier()
            run.settle()
    yield run.barrier()
    run.files.capacity = 1 << 20
    run.working = True
    yield run.put(70)
    yield run.barrier()


def meta_log(run: Run) -> Iterator[None]:
    """Members come and go between wake states, so that its segments are begun anew."""
    begin(run)
    yield run.put(2)
    for number in range(14):
        yield run.save(bytes([number]) * 30)
        if number % 3 == 0:
            yield run.member(PEER, bytes([number] * 4))
        if number % 5 == 4 and (PEER, bytes([number // 3 * 3] * 4)) in run.members:
            yield run.forget(PEER, bytes([number // 3 * 3] * 4))
        if number % 2:
            yield run.put(20 + number)
        if number % 4 == 3:
            yield run.barrier()
    yield run.barrier()


def everything(run: Run) -> Iterator[None]:
    """A bit of all, with reboots in between; there is not room for all of it."""
    begin(run)
    run.working = False
    for number in range(1, 25):
        state = (STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE, STATE_DELIVERED)[number % 4]
        yield run.put(number, state)
        yield run.promote(number - 3, STATE_DELIVERED if number & 8 else STATE_PRIVATE)
        yield run.open_up(number - 7)
        if number % 5 == 0:
            yield run.delete(number - 1, number % 4)
            yield run.keep(number - 11, 0)
        if number % 9 == 0:
            yield run.save(bytes([number]) * 40)
            yield run.barrier()
            run.settle()
        if number % 14 == 0:
            run.barrier()
            marks = list(run.store.settled)
            run.boot()
            run.store.settled[:] = marks


SCENARIOS: dict[str, Callable[[Run], Iterator[None]]] = {
    play.__name__: play
    for play in (
        publish, receive, acknowledge, again, delete, tombstones, roll, reclaim, bury, bury_moved,
        private, long_bodies, bodies_make_room, descriptors, leave, remove_peer, number_again,
        quota, wake_states, own_count, parts, full_disk, meta_log, everything,
    )
}  # fmt: skip
