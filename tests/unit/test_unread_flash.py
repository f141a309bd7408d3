"""A flash that refuses a read now and then, as a card does: what it holds is there all the same.

Nothing is taken for absent, for known or for the end of the log because a read failed.
"""

from collections.abc import Callable

import pytest

from drupelet.base.errors import E_STORAGE, OK
from drupelet.node import (
    BATCH,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
)
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from helpers import Draw, Member, Network, check_causal, stamp
from unit.numbered_messages import SETTLED, message_id, put, reboot
from unit.stick_visits import Stick, link_of, pair, read, settle, write

SMALL = {"segment_size": 1024, "segments_max": 40}


class Card(RamFiles):
    """One read in `every` fails, as drawn; 0: none does. `refuses` may say which, too."""

    every = 0
    failed = 0
    refuses: Callable[[str, int], bool] | None = None  # name, size

    def __init__(self, draw: Draw) -> None:
        super().__init__(1 << 22)
        self._draw = draw

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        fails = self.every > 0 and self._draw(self.every) == 0
        if fails or (self.refuses is not None and self.refuses(self._open[fd], size)):
            self.failed += 1
            return E_STORAGE
        return super().read_into(fd, offset, buf, at, size)


def travel(a: Member, b: Member, stick: Stick) -> None:
    """Carry the stick from A to B and back, twice."""
    for _ in range(2):
        for writer, reader in ((a, b), (b, a)):
            write(writer, stick)
            read(reader, stick)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize(
    ("profile", "family"),
    [(PROFILE_BSP_1, FAMILY_BSP), (PROFILE_COMPACT_1, FAMILY_BSP), (PROFILE_MVDS_1, FAMILY_MVDS)],
)
@pytest.mark.parametrize("every", [4, 15])
def test_what_the_flash_gives_later_arrives_once(
    every: int, profile: int, family: int, mode: int
) -> None:
    draw = Draw(every)
    cards = [Card(draw) for _ in "AB"]
    members = [
        Member(name, draw, pool=4, offers=8, files=card, family=family, **SMALL)
        for name, card in zip("AB", cards, strict=True)
    ]
    net = Network(draw, members, ["AB"], mode, profile=profile)
    for number in range(50):
        assert members[0].publish(b"%d" % number + bytes(number % 3 * 300))
    for card in cards:
        card.every = every
    for _ in range(150):
        net.round()
    for card in cards:
        card.every = 0
    assert min(card.failed for card in cards) > 10
    net.run(lambda: net.complete(50), 500)
    a, b = members
    assert a.log() == b.log() and len(set(b.log())) == 50
    check_causal(b)
    assert b.node.delivered == 50 == a.node.delivered


def test_no_event_is_left_out() -> None:
    member = Member("A", Draw(1))
    member.boot()
    for number in range(3):
        assert member.publish(b"%d" % number)
    read_next = member.store.next
    member.store.next = lambda _handle: E_STORAGE  # type: ignore[method-assign]
    assert not member.node.next_event()
    member.store.next = read_next  # type: ignore[method-assign]
    given = []
    while member.node.next_event():
        given.append(member.node.event_handle)
        member.node.done(given[-1])
    assert len(given) == 3


@pytest.mark.parametrize("size", [20, 5_000])
@pytest.mark.parametrize("pool", [2, 64])
def test_a_bundle_does_not_stand_for_what_the_flash_did_not_give(pool: int, size: int) -> None:
    """With two rows most of the log goes from behind them."""
    a, b = pair(pool)
    for number in range(9):
        body = b"\0" + b"%d" % number * (size if number == 5 else 20)
        assert a.node.publish(a.group, body, len(body), stamp(number), 0) > 0
    handle = a.store.next(0)
    for _ in range(5):
        handle = a.store.next(handle)
    read_into = a.store.read_into
    offset_from = min(1_500, size)  # in the second piece, if there are some

    def refuse(at: int, offset: int, buf: bytearray, to: int, count: int) -> int:
        fails = at == handle and offset + count > offset_from
        return E_STORAGE if fails else read_into(at, offset, buf, to, count)

    a.store.read_into = refuse  # type: ignore[method-assign]
    stick = Stick()
    travel(a, b, stick)
    assert len(b.log()) < 9 and link_of(a).exchange.outbox.low() <= handle
    a.store.read_into = read_into  # type: ignore[method-assign]
    settle((a, b), stick)
    assert a.log() == b.log() and len(b.log()) == 9


def test_what_waits_does_not_go_with_its_segment_unread() -> None:
    card = Card(Draw(1))
    store = FlashStore(card, segment_size=1024, segments_max=8)
    assert store.open() == OK
    waits = put(store, 1, state=STATE_PENDING)
    store.settled_handle = SETTLED
    number = 10
    while store.log.count < store.own_max:
        number += put(store, number) > 0
    assert store.barrier() == OK
    store.settled_handle = SETTLED
    store.log.at = 0
    card.refuses = lambda name, _size: name == store.log.name(1)
    assert store.space.reclaim() == E_STORAGE
    card.refuses = None
    assert store.log.numbers[0] == 1
    for _ in range(100):
        number += put(store, number) > 0
    assert store.log.numbers[0] > 1
    assert store.find(message_id(1), 0) == waits == store.next_pending(0)
    assert store.barrier() == OK
    assert reboot(card, segment_size=1024, segments_max=8).next_pending(0) == waits


def test_what_cannot_be_read_is_neither_the_end_nor_unknown() -> None:
    card = Card(Draw(1))
    store = FlashStore(card, segment_size=512, segments_max=12)
    assert store.open() == OK
    handles = [put(store, number) for number in range(1, 30)]
    card.refuses = lambda name, _size: name == store.log.name(2)
    in_second = next(handle for handle in handles if handle > 1024)
    before = handles[handles.index(in_second) - 1]
    assert store.next(before) == E_STORAGE
    assert store.find(message_id(handles.index(in_second) + 1), 0) == E_STORAGE
    assert put(store, handles.index(in_second) + 1) == E_STORAGE, "it would be in the log twice"
    card.refuses = None
    assert store.next(before) == in_second
    assert store.find(message_id(handles.index(in_second) + 1), 0) == in_second


def test_a_member_that_cannot_be_read_gets_no_second_number() -> None:
    """What was stored under the second one would be of a group that no boot knows again."""
    card = Card(Draw(1))
    store = FlashStore(card)
    assert store.open() == OK
    numbers = [store.member(1, message_id(number), 0, 32) for number in (1, 2)]
    assert store.barrier() == OK
    store = reboot(card)
    card.refuses = lambda name, _size: name.endswith(".MET")
    assert store.member(1, message_id(1), 0, 32) == E_STORAGE
    card.refuses = None
    assert [store.member(1, message_id(number), 0, 32) for number in (1, 2)] == numbers
    assert store.member(1, message_id(3), 0, 32) == max(numbers) + 1


def test_a_message_without_a_pending_row_that_cannot_be_read_stays_out_of_the_log() -> None:
    """What waits for its parents is read twice then; the second time the flash refuses."""
    draw = Draw(3)
    author, member = Member("A", draw), Member("B", draw)
    net = Network(draw, [author, member], ["AB"])
    parent = bytes(range(32))
    for number in range(3):
        body = b"\1" + parent + b"%d" % number
        record = author.node.core.members.group_ids[:32] + bytes(8) + body
        head = b"\x40\x01\x01" + len(record).to_bytes(2, "big")
        member.links["A"].receive(bytearray(head + record), 5 + len(record), net.now_ms)
    assert member.node.pending_count() == 3
    member.store.barrier()
    member.files.power_cut()
    member.pool = 2
    member.start()
    load = member.store.load
    loaded: list[int] = []

    def refuse(handle: int) -> int:
        loaded.append(handle)
        return E_STORAGE if loaded.count(handle) == 2 and len(set(loaded)) == 3 else load(handle)

    member.store.load = refuse  # type: ignore[method-assign]
    member.boot()
    assert member.node.pending_count() == 2 and len(set(loaded)) == 3
    member.store.load = load  # type: ignore[method-assign]
    assert member.log() == []
    assert member.node.core.graph.must_look_again


@pytest.mark.parametrize("pool", [2, 64])
def test_a_message_that_cannot_be_loaded_is_not_passed_over(pool: int) -> None:
    """Not by the cursor of a peer, not by that of a bundle, and not by the events."""
    a, b = pair(pool)
    handles = []
    for number in range(9):
        assert a.node.publish(a.group, b"\0%d" % number, 2, stamp(number), 0) > 0
        handles.append(a.store.next(handles[-1] if handles else 0))
    load = a.store.load

    def refuse(handle: int) -> int:
        return E_STORAGE if handle == handles[5] else load(handle)

    a.store.load = refuse  # type: ignore[method-assign]
    given = []
    while a.node.next_event():
        given.append(a.node.event_handle)
    assert given == handles[:5]
    stick = Stick()
    travel(a, b, stick)
    assert 0 < len(b.log()) < 9
    a.store.load = load  # type: ignore[method-assign]
    while a.node.next_event():
        given.append(a.node.event_handle)
    assert given == handles
    settle((a, b), stick)
    assert sorted(a.log()) == sorted(b.log()) and len(set(b.log())) == 9


def test_a_message_is_not_private_because_its_opening_cannot_be_read() -> None:
    card = Card(Draw(1))
    store = FlashStore(card, segment_size=512, segments_max=12)
    assert store.open() == OK
    handle = put(store, 1, state=STATE_PRIVATE)
    number = 1
    while store.log.count < 3:
        number += put(store, number + 1) > 0
    assert store.open_up(handle) == OK == store.barrier()
    opened_in = store.log.name(store.log.numbers[store.log.count - 1])
    card.refuses = lambda name, _size: name == opened_in
    assert store.load(handle) == E_STORAGE
    card.refuses = None
    assert store.load(handle) == OK and store.state == STATE_DELIVERED
