"""What is on its way to one peer: the cursor over the log, and the rows behind it."""

import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drupelet.base.limits import ID_SIZE, OUTBOX_ROWS_MIN
from drupelet.engine.members import (
    FAMILY_BSP,
    FAMILY_MVDS,
    HEAD_EPHEMERAL,
    INVISIBLE,
    SHARED,
    VISIBLE,
    Members,
)
from drupelet.engine.outbox import NO_ROOM, NOT_SHARED, Outbox
from drupelet.engine.states import (
    BUNDLED,
    DO_OFFER,
    DO_SEND,
    EPHEMERAL,
    GOT_ACK,
    GOT_REQUEST,
    HOLD,
    REQUEST,
    WANTED,
)
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from ram_store import RamStore

PEER = 0
PEER_NUMBER = 7
GROUP_NUMBER = 3


class Node:
    """A log, and the outbox of its only peer."""

    def __init__(self, rows_max: int = 4, family: int = FAMILY_BSP) -> None:
        self.store = RamStore()
        self.members = Members(2, 2)
        self.members.add_group(GROUP_NUMBER, bytes(range(32)), family, 0)
        self.members.add_group(GROUP_NUMBER + 1, bytes(range(1, 33)), family, 0)
        assert self.members.add_peer(PEER_NUMBER) == PEER
        for group in range(2):
            self.members.set_visibility(group, PEER, SHARED)
        self.outbox = Outbox(PEER, self.store, self.members)
        self.outbox.resize(rows_max)
        self.newest = 0
        self.count = 0

    def put(
        self, source: int = 0, state: int = STATE_DELIVERED, body: bytes = b"body",
        id: bytes | None = None, enters: bool = True, group: int = 0,
    ) -> int:  # fmt: skip
        """A message comes into the store, and into the log if its state says so; its handle."""
        self.count += 1
        key = bytearray(id or hashlib.sha256(b"%d" % self.count).digest())
        handle = self.store.put(
            GROUP_NUMBER + group, source, key, 0, bytes(8), 0, body, 0, len(body), state
        )
        if state != STATE_PENDING:
            before = self.newest
            self.newest = handle
            if state == STATE_DELIVERED and enters:
                self.outbox.enter(before, handle, key, group, source)
        return handle

    def id(self, handle: int) -> bytes:
        id: bytes = self.store.rows[handle]["id"]
        return id

    def refill(self) -> bool:
        return self.outbox.refill(self.newest)

    def rows(self) -> list[int]:
        """The handles in the rows."""
        return self.outbox.handles[: self.outbox.count]

    def open_rows(self) -> list[int]:
        """The handles of what the peer is not known to hold."""
        outbox = self.outbox
        return [outbox.handles[row] for row in range(outbox.count) if outbox.is_open(row)]

    def hear_ack(self, *handles: int) -> None:
        """The peer acknowledges messages that have a row."""
        for handle in handles:
            self.outbox.step(self.outbox.row_of(handle), GOT_ACK)

    def ask(self, handle: int) -> int:
        """The peer asks for a message; what `want` says."""
        row = self.outbox.want(handle)
        if row >= 0:
            self.outbox.step(row, GOT_REQUEST)
            self.outbox.make_due(row)
        return row

    def check(self) -> None:
        """What is true of an outbox at any time."""
        outbox = self.outbox
        rows = self.rows()
        assert rows == sorted(set(rows)), "the log's order, each message once"
        assert len(rows) <= outbox.rows_max
        assert outbox.open_count == len(self.open_rows())
        assert outbox.room_left() == outbox.rows_max - outbox.open_count >= 0
        assert outbox.cursor <= self.newest
        for row, handle in enumerate(rows):
            assert outbox.row_of(handle) == row
            assert outbox.find(self.id(handle), 0) == row


# --- floors ---


def test_there_are_two_rows_at_least() -> None:
    assert OUTBOX_ROWS_MIN == 2
    outbox = Outbox(PEER, RamStore(), Members(1, 1))
    with pytest.raises(AssertionError):
        outbox.resize(1)
    outbox.resize(2)
    assert outbox.room_left() == 2


def test_an_outbox_that_has_no_rows_yet_has_nothing() -> None:
    outbox = Outbox(PEER, RamStore(), Members(1, 1))
    assert outbox.find(bytes(ID_SIZE), 0) == outbox.row_of(0) == outbox.row_of(1) == -1
    assert outbox.room_left() == 0 and outbox.low() == 1


# --- finding ---


def test_an_id_of_zeros_is_no_free_row() -> None:
    node = Node(3)
    outbox = node.outbox
    assert outbox.find(bytes(ID_SIZE), 0) == -1 and outbox.row_of(0) == -1
    handle = node.put()
    assert outbox.find(bytes(ID_SIZE), 0) == -1 and outbox.row_of(0) == -1
    assert outbox.find(b"__" + node.id(handle), 2) == 0
    assert outbox.find(node.id(handle)[:8], 0, 8) == 0
    outbox.drop(0)
    assert outbox.find(node.id(handle), 0) == outbox.row_of(handle) == -1


def test_ids_that_begin_alike_are_told_apart() -> None:
    """A row has 4 bytes of an id; the store has the rest, and what made room is nobody's."""
    node = Node(4)
    ids = [b"like" + bytes(28), b"like" + bytes(27) + b"1", b"like" + b"2" * 28]
    handles = [node.put(id=id) for id in ids]
    outbox = node.outbox
    assert [outbox.find(id, 0) for id in ids] == [0, 1, 2]
    assert outbox.find(b"like" + b"3" * 28, 0) == -1
    assert outbox.find(b"like2222", 0, 8) == 2
    assert outbox.find(b"like\0\0\0\0", 0, 8) == 0
    node.store.rows.pop(handles[0])
    assert outbox.find(ids[0], 0) == -1
    assert outbox.find(ids[1], 0) == 1


def test_taking_a_row_forgets_what_was_there() -> None:
    node = Node(2)
    outbox = node.outbox
    first = node.put()
    node.put()
    for row in range(2):
        outbox.note_sent(row, 255, 9)
        outbox.set_number(row, 77)
        outbox.mark(row, WANTED)
    assert outbox.sends(0) == 255 and outbox.epoch(0) == 9
    node.hear_ack(first)
    assert outbox.sends(0) == 255, "late answers find what was sent"
    third = node.put()
    row = outbox.row_of(third)
    assert outbox.row_of(first) == -1 and row == 1
    assert outbox.state(row) == outbox.sends(row) == outbox.epoch(row) == 0
    assert outbox.number(row) == 0


# --- the log is the queue ---


def test_what_enters_the_log_has_a_row_as_long_as_there_is_room() -> None:
    node = Node(4)
    handles = [node.put() for _ in range(6)]
    assert node.rows() == handles[:4] and node.outbox.cursor == handles[3]
    assert not node.refill(), "the others wait on flash"
    node.hear_ack(handles[1])
    assert node.refill()
    assert node.open_rows() == [handles[0], *handles[2:5]] and node.outbox.cursor == handles[4]
    node.hear_ack(*node.open_rows())
    assert node.refill() and node.open_rows() == handles[5:]
    assert not node.refill() and node.outbox.cursor == node.newest
    node.check()


def test_what_enters_behind_a_cursor_that_waits_is_left_to_it() -> None:
    """Else what is between them would have no row and no cursor in front of it."""
    node = Node(2)
    handles = [node.put() for _ in range(3)]
    node.hear_ack(handles[0])
    handles.append(node.put())
    assert node.rows() == handles[:2] and node.outbox.cursor == handles[1]
    node.refill()
    assert node.open_rows() == handles[1:3]


def test_what_came_from_the_peer_or_is_not_for_it_has_no_row() -> None:
    node = Node(4)
    theirs = node.put(source=PEER_NUMBER)
    node.put(source=9)
    node.put(state=STATE_PRIVATE)
    node.put(state=STATE_PENDING)
    node.members.set_visibility(0, PEER, VISIBLE)
    hidden = node.put()
    node.members.set_visibility(0, PEER, SHARED)
    last = node.put()
    node.refill()
    assert len(node.rows()) == 3 and theirs not in node.rows() and hidden in node.rows()
    assert node.outbox.cursor == last == node.newest
    node.check()


def test_a_message_that_is_not_shared_moves_the_cursor_alone() -> None:
    node = Node(2)
    node.members.set_visibility(0, PEER, VISIBLE)
    handle = node.put()
    assert node.rows() == [] and node.outbox.cursor == handle
    node.members.set_visibility(0, PEER, INVISIBLE)
    assert not node.refill()
    assert node.outbox.load_shared(handle) == -1


def test_a_row_that_the_peer_holds_stays_until_its_room_is_needed() -> None:
    """Late answers find it; then the older half of those goes."""
    node = Node(8)
    handles = [node.put() for _ in range(8)]
    node.hear_ack(*handles[:5])
    assert node.rows() == handles
    changes = node.outbox.changes
    more = node.put()
    assert node.rows() == [*handles[3:], more], "the older ones of five gave way"
    assert node.outbox.changes != changes
    node.check()


def test_rows_move_with_all_their_columns() -> None:
    node = Node(4)
    outbox = node.outbox
    handles = [node.put(group=number % 2) for number in range(4)]
    for row in range(4):
        outbox.note_sent(row, 10 + row, 20 + row)
        outbox.set_number(row, 30 + row)
    outbox.mark(2, BUNDLED)
    node.hear_ack(handles[1])
    outbox.drop(0)
    assert node.rows() == handles[1:]
    assert [outbox.sends(row) for row in range(3)] == [11, 12, 13]
    assert [outbox.epoch(row) for row in range(3)] == [21, 22, 23]
    assert [outbox.number(row) for row in range(3)] == [31, 32, 33]
    assert [outbox.group(row) for row in range(3)] == [1, 0, 1]
    assert [outbox.state(row) for row in range(3)] == [HOLD, BUNDLED, 0]
    node.check()


def test_room_that_is_reserved_is_left_free() -> None:
    """A long message that was passed over is to get a row as soon as it may."""
    node = Node(3)
    node.outbox.reserved_rows = 1
    handles = [node.put() for _ in range(4)]
    assert node.open_rows() == handles[:2] and not node.refill()
    node.outbox.reserved_rows = 0
    assert node.refill() and node.open_rows() == handles[:3]


def test_what_is_sent_once_says_so() -> None:
    node = Node(4, family=FAMILY_MVDS)
    node.put(body=b"\0kept")
    node.put(body=bytes([HEAD_EPHEMERAL]) + b"once")
    again = node.put(body=bytes([HEAD_EPHEMERAL]) + b"found by the cursor", enters=False)
    node.refill()
    states = [node.outbox.state(row) & EPHEMERAL for row in range(3)]
    assert states == [0, EPHEMERAL, EPHEMERAL]
    node.outbox.drop(node.outbox.row_of(again))
    node.ask(again)
    assert node.outbox.state(node.outbox.row_of(again)) & EPHEMERAL


# --- the state of a row ---


def test_the_count_of_open_rows_follows_the_states() -> None:
    node = Node(4)
    outbox = node.outbox
    first, second = node.put(), node.put()
    assert outbox.open_count == 2
    outbox.is_dirty = False
    outbox.step(0, DO_SEND)
    outbox.step(1, DO_OFFER)
    outbox.step(1, GOT_REQUEST)
    assert outbox.open_count == 2 and not outbox.is_dirty, "nothing that a reboot must know"
    node.hear_ack(first, second)
    assert outbox.open_count == 0 and outbox.is_dirty
    outbox.is_dirty = False
    node.hear_ack(first)
    assert outbox.open_count == 0 and not outbox.is_dirty
    outbox.note_sent(0, 5, 5)
    outbox.step(0, GOT_REQUEST)
    assert outbox.open_count == 1 and outbox.is_dirty
    assert outbox.sends(0) == 0, "as if it had never been sent"


@pytest.mark.parametrize("event", [DO_SEND, DO_OFFER])
def test_sending_to_who_holds_it_is_a_mistake(event: int) -> None:
    node = Node()
    node.hear_ack(node.put())
    with pytest.raises(AssertionError):
        node.outbox.step(0, event)


# --- what the peer asks for ---


def test_what_the_cursor_has_passed_is_wanted_in_its_place() -> None:
    node = Node(4)
    handles = [node.put() for _ in range(6)]
    for _ in range(3):
        node.hear_ack(*node.open_rows())
        node.refill()
    assert node.open_rows() == [] and handles[1] not in node.rows()
    assert node.ask(handles[5]) == node.outbox.row_of(handles[5])
    row = node.ask(handles[1])
    assert row == node.outbox.row_of(handles[1]) >= 0
    assert node.outbox.state(row) & (WANTED | REQUEST) == WANTED | REQUEST
    assert node.open_rows() == [handles[1], handles[5]]
    assert node.outbox.cursor == handles[5], "nothing else goes again"
    node.check()


def test_what_is_behind_the_cursor_comes_by_itself() -> None:
    node = Node(2)
    handles = [node.put() for _ in range(4)]
    assert node.ask(handles[3]) == NO_ROOM
    assert node.open_rows() == handles[:2]


def test_what_is_not_for_the_peer_is_not_wanted() -> None:
    node = Node(2)
    assert node.ask(node.put(state=STATE_PRIVATE)) == NOT_SHARED
    assert node.ask(node.put(state=STATE_PENDING)) == NOT_SHARED
    handle = node.put()
    node.members.set_visibility(0, PEER, VISIBLE)
    assert node.ask(handle) == NOT_SHARED
    assert node.ask(handle + 99) == NOT_SHARED


def test_what_came_from_the_peer_is_wanted_all_the_same() -> None:
    """It asks for it, so it has lost it."""
    node = Node(2)
    handle = node.put(source=PEER_NUMBER)
    assert node.rows() == []
    assert node.ask(handle) == 0 and node.open_rows() == [handle]


def test_full_rows_make_room_for_what_is_asked_for_and_lose_nothing() -> None:
    node = Node(2)
    handles = [node.put() for _ in range(4)]
    node.hear_ack(*handles[:2])
    node.refill()
    assert node.open_rows() == handles[2:]
    assert node.ask(handles[0]) == 0
    assert node.open_rows() == [handles[0], handles[2]]
    assert node.outbox.cursor == handles[2], "it comes to the last one again"
    assert node.ask(handles[1]) == 1
    assert node.open_rows() == handles[:2]
    assert node.outbox.cursor == handles[1], "and to the one before"
    assert node.ask(handles[3]) == NO_ROOM, "it comes by itself"
    node.hear_ack(handles[0])
    node.refill()
    assert node.open_rows() == handles[1:3]
    assert node.outbox.state(0) & WANTED, "the cursor does not come to it again"
    node.hear_ack(handles[1])
    node.refill()
    assert node.open_rows() == handles[2:]
    node.check()


def test_what_the_peer_holds_before_a_row_that_gave_way_is_not_sent_again() -> None:
    node = Node(2)
    handles = [node.put() for _ in range(12)]
    for _ in range(8):
        node.refill()
        node.hear_ack(node.open_rows()[-1])
    node.refill()
    assert node.open_rows() == [handles[0], handles[9]]
    assert node.ask(handles[2]) == 1
    assert node.open_rows() == [handles[0], handles[2]] and node.outbox.cursor == handles[8]
    node.hear_ack(handles[0], handles[2])
    node.refill()
    assert node.open_rows() == handles[9:11]
    node.check()


def test_of_what_is_asked_for_alone_the_newest_gives_way() -> None:
    """The peer asks for it again; it can take in what is older first."""
    node = Node(2)
    handles = [node.put() for _ in range(8)]
    while node.open_rows():
        node.hear_ack(*node.open_rows())
        node.refill()
    for number in (3, 5, 1):
        assert node.ask(handles[number]) >= 0
    assert node.open_rows() == [handles[1], handles[3]]
    assert node.ask(handles[5]) == NO_ROOM and node.open_rows() == [handles[1], handles[3]]
    assert node.outbox.cursor == handles[-1], "nothing else goes again"
    node.check()


def test_the_order_holds_where_the_cursor_went_back_before_what_was_asked_for() -> None:
    node = Node(2)
    handles = [node.put() for _ in range(8)]
    node.hear_ack(handles[0], handles[1])
    node.refill()
    for number in (3, 4, 5, 6, 7):
        if handles[number] in node.rows():
            node.hear_ack(handles[number])
        node.refill()
    assert node.ask(handles[5]) >= 0
    for _ in range(20):
        node.check()
        if node.open_rows():
            node.hear_ack(node.open_rows()[0])
        node.refill()
    assert node.open_rows() == [] and node.outbox.cursor == node.newest


# --- shown late ---


def test_what_is_shown_late_goes_where_it_stands_in_the_log() -> None:
    node = Node(4)
    first = node.put()
    private = node.put(state=STATE_PRIVATE)
    last = node.put()
    node.refill()
    assert node.rows() == [first, last]
    node.store.load(private)
    node.outbox.show(private, 0)
    node.store.open_up(private)
    assert node.open_rows() == [first, private, last]
    assert not node.outbox.state(1) & WANTED, "a wake state says that it is lacked"
    node.check()


def test_what_is_shown_before_the_cursor_comes_is_left_to_it() -> None:
    node = Node(2)
    handles = [node.put(), node.put()]
    handles.append(node.put(state=STATE_PRIVATE))
    node.store.load(handles[2])
    node.outbox.show(handles[2], 0)
    assert node.rows() == handles[:2]


def test_who_does_not_see_the_group_is_shown_nothing_late() -> None:
    node = Node(4)
    private = node.put(state=STATE_PRIVATE)
    node.refill()
    node.members.set_visibility(0, PEER, VISIBLE)
    node.store.load(private)
    node.outbox.show(private, 0)
    assert node.rows() == []


def test_who_sent_it_is_not_shown_it_late() -> None:
    node = Node(4)
    private = node.put(source=PEER_NUMBER, state=STATE_PRIVATE)
    node.refill()
    node.store.load(private)
    node.outbox.show(private, 0)
    assert node.open_rows() == []


def test_a_bundle_that_went_without_it_does_not_stand_for_what_is_shown_late() -> None:
    node = Node(4)
    private = node.put(state=STATE_PRIVATE)
    node.put()
    node.refill()
    node.outbox.bundled_until = node.newest
    node.store.load(private)
    node.outbox.show(private, 0)
    assert not node.outbox.state(node.outbox.row_of(private)) & BUNDLED


def test_the_walk_begins_anew_where_there_is_no_room_for_what_is_shown() -> None:
    node = Node(2)
    private = node.put(state=STATE_PRIVATE)
    handles = [node.put() for _ in range(4)]
    for _ in range(4):
        node.refill()
        node.hear_ack(*node.open_rows())
    for handle in handles[2:]:
        assert node.ask(handle) >= 0
    node.store.load(private)
    node.outbox.show(private, 0)
    node.store.open_up(private)
    seen = []
    for _ in range(10):
        node.refill()
        seen += node.open_rows()
        node.hear_ack(*node.open_rows())
    assert private in seen


def test_who_sees_more_is_not_given_again_what_a_row_says_that_it_holds() -> None:
    node = Node(8)
    handles = [node.put() for _ in range(4)]
    node.hear_ack(handles[0], handles[2])
    node.outbox.restart(0)
    assert node.rows() == [handles[0], handles[2]] and node.outbox.cursor == 0
    node.check()
    node.refill()
    assert node.rows() == handles and node.open_rows() == [handles[1], handles[3]]
    assert node.outbox.low() == handles[1]


def test_what_the_peer_holds_before_its_turn_takes_a_free_row_and_is_not_sent() -> None:
    node = Node(4)
    node.members.set_visibility(0, PEER, VISIBLE)
    handles = [node.put() for _ in range(2)]
    node.refill()
    assert node.rows() == []
    for handle in handles:
        assert node.store.load(handle) == 0
        node.outbox.note_held(handle, 0, GOT_ACK)
    assert node.rows() == handles and node.open_rows() == []
    node.members.set_visibility(0, PEER, SHARED)
    node.outbox.restart(0)
    node.refill()
    assert node.open_rows() == [] and node.outbox.cursor == handles[-1]


def test_held_messages_take_no_room_from_others() -> None:
    node = Node(2)
    handles = [node.put() for _ in range(4)]
    assert node.store.load(handles[3]) == 0
    node.outbox.note_held(handles[3], 0, GOT_ACK)
    assert node.rows() == handles[:2]
    node.hear_ack(*handles[:2])
    node.refill()
    assert node.open_rows() == handles[2:]


def test_what_is_held_before_its_turn_takes_the_row_of_what_has_been_held_longest() -> None:
    """Else who hears of a message from three peers sends it back to two of them."""
    node = Node(4)
    handles = [node.put() for _ in range(6)]
    node.hear_ack(*handles[:2])
    assert len(node.rows()) == 4
    assert node.store.load(handles[5]) == 0
    node.outbox.note_held(handles[5], 0, GOT_ACK)
    node.refill()
    assert node.open_rows() == handles[2:5] and node.outbox.cursor == handles[5]
    node.check()


# --- bundles ---


def test_what_a_bundle_reaches_is_on_the_stick_already() -> None:
    node = Node(4)
    handles = [node.put() for _ in range(2)]
    for handle in handles:
        node.outbox.drop(node.outbox.row_of(handle))
    node.outbox.bundled_until = handles[0]
    for handle in handles:
        assert node.ask(handle) >= 0
    states = [node.outbox.state(row) & BUNDLED for row in range(2)]
    assert states == [BUNDLED, 0]


# --- beginning anew ---


def test_a_restart_walks_the_whole_log() -> None:
    node = Node(2)
    outbox = node.outbox
    mine = [node.put() for _ in range(3)]
    theirs = node.put(source=PEER_NUMBER)
    while node.open_rows():
        node.hear_ack(*node.open_rows())
        node.refill()
    outbox.bundle_number = outbox.bundled_until = 5
    outbox.is_dirty = False
    changes = outbox.changes
    outbox.restart(node.newest - 1)
    assert outbox.cursor == outbox.count == outbox.open_count == 0
    assert outbox.is_dirty and outbox.changes != changes
    assert (outbox.bundled_until, outbox.void_until) == (0, 5), "its answers to bundles are void"
    seen: list[int] = []
    for _ in range(4):
        node.refill()
        seen += node.open_rows()
        node.hear_ack(*node.open_rows())
    assert seen == mine and theirs not in seen


def test_who_lost_its_store_is_given_back_what_came_from_it() -> None:
    node = Node(4)
    theirs = [node.put(source=PEER_NUMBER) for _ in range(2)]
    node.outbox.restart(theirs[1])
    later = node.put(source=PEER_NUMBER)
    node.refill()
    assert node.open_rows() == theirs and later not in node.rows()
    node.outbox.restart(theirs[0])
    node.refill()
    assert node.open_rows() == theirs, "what it lost once it may lack until it is known"


def test_another_peer_in_the_row_begins_with_nothing() -> None:
    node = Node(4)
    outbox = node.outbox
    node.put()
    outbox.restart(9)
    outbox.bundle_number = outbox.void_until = 3
    outbox.next_number = 40
    outbox.forget_peer()
    assert (outbox.count, outbox.cursor, outbox.lost_until) == (0, 0, 0)
    assert (outbox.bundle_number, outbox.void_until, outbox.next_number) == (0, 0, 1)


# --- the room changes ---


def test_more_rows_keep_what_is_open_and_what_is_known_of_it() -> None:
    node = Node(2)
    outbox = node.outbox
    handles = [node.put() for _ in range(4)]
    outbox.step(1, GOT_REQUEST)
    outbox.note_sent(1, 3, 8)
    outbox.set_number(1, 17)
    node.hear_ack(handles[0])
    outbox.resize(4)
    assert node.rows() == handles[1:2], "what is held needs no row"
    assert (outbox.state(0), outbox.sends(0), outbox.epoch(0)) == (REQUEST, 3, 8)
    assert outbox.number(0) == 17 and outbox.open_count == 1
    node.refill()
    assert node.open_rows() == handles[1:]
    node.check()
    outbox.resize(5)
    assert node.open_rows() == handles[1:] and outbox.number(0) == 17


def test_fewer_rows_lose_nothing() -> None:
    node = Node(6)
    handles = [node.put() for _ in range(6)]
    node.hear_ack(handles[0])
    node.outbox.resize(2)
    node.check()
    assert node.open_rows() == handles[1:3] and node.outbox.cursor == handles[2]
    node.hear_ack(*node.open_rows())
    node.refill()
    assert node.open_rows() == handles[3:5]


# --- from where on the peer may lack something ---


def test_what_is_in_front_of_low_is_held() -> None:
    node = Node(4)
    assert node.outbox.low() == 1
    handles = [node.put() for _ in range(3)]
    assert node.outbox.low() == handles[0]
    node.hear_ack(handles[1])
    assert node.outbox.low() == handles[0]
    node.hear_ack(handles[0])
    assert node.outbox.low() == handles[2]
    node.hear_ack(handles[2])
    assert node.outbox.low() == handles[2] + 1


def test_what_is_wanted_again_keeps_no_flash() -> None:
    """It was acknowledged once: a peer cannot hold the log back by asking for old messages."""
    node = Node(2)
    handles = [node.put() for _ in range(6)]
    while node.open_rows():
        node.hear_ack(*node.open_rows())
        node.refill()
    assert handles[0] not in node.rows()
    low = node.outbox.low()
    assert node.ask(handles[0]) >= 0 and node.outbox.low() == low == handles[5] + 1


# --- everything at once ---

STEPS = ("own", "theirs", "private", "ack", "ask", "refill", "show", "restart", "lost", "delete",
         "resize")  # fmt: skip
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=60)


class Model(Node):
    """The same, with a plain account of what the peer may lack."""

    def __init__(self, rows_max: int) -> None:
        super().__init__(rows_max)
        self.mine: list[int] = []
        self.theirs: list[int] = []
        self.private: list[int] = []
        self.lacks: set[int] = set()

    def do(self, step: str, number: int) -> None:
        outbox = self.outbox
        known = [*self.mine, *self.theirs]
        if step == "own":
            self.mine.append(self.put())
            self.lacks.add(self.mine[-1])
        elif step == "theirs":
            self.theirs.append(self.put(source=PEER_NUMBER))
        elif step == "private":
            self.private.append(self.put(state=STATE_PRIVATE))
        elif step == "ack" and self.rows():
            handle = self.rows()[number % outbox.count]
            self.hear_ack(handle)
            self.lacks.discard(handle)
        elif step == "ask" and known:
            handle = sorted(known)[number % len(known)]
            row = self.ask(handle)
            assert row < 0 or self.rows()[row] == handle in self.open_rows()
        elif step == "refill":
            self.refill()
        elif step == "show" and self.private:
            handle = self.private.pop(number % len(self.private))
            self.store.load(handle)
            outbox.show(handle, 0)
            self.store.open_up(handle)
            self.mine.append(handle)
            self.lacks.add(handle)
        elif step in ("restart", "lost"):
            held = set(self.rows()) - set(self.open_rows()) if step == "restart" else set()
            outbox.restart(self.newest if step == "lost" else 0)
            self.lacks = set(self.mine)
            self.lacks |= {handle for handle in self.theirs if handle <= outbox.lost_until}
            self.lacks -= held
        elif step == "delete" and self.mine:
            handle = self.mine.pop(number % len(self.mine))
            self.store.entomb(handle, b"", 0)
            if outbox.row_of(handle) >= 0:
                outbox.drop(outbox.row_of(handle))
            self.lacks.discard(handle)
        elif step == "resize":
            outbox.resize(2 + number % 5)

    def check(self) -> None:
        super().check()
        for handle in self.lacks:
            assert handle > self.outbox.cursor or handle in self.open_rows(), "it would be lost"
            assert handle >= self.outbox.low(), "it could be dropped"


@settings(max_examples=400)
@given(st.integers(2, 5), steps)
@example(2, [("own", 0)] * 6 + [("ack", 1), ("refill", 0)] * 4 + [("ask", 4), ("ack", 0)] * 3)
def test_nothing_that_the_peer_lacks_is_lost(rows_max: int, todo: list[tuple[str, int]]) -> None:
    node = Model(rows_max)
    for step, number in todo:
        node.do(step, number)
        node.check()
    # Every message goes at most twice: the cursor went back, and what was asked for.
    for _ in range(2 * (node.count + node.outbox.rows_max)):
        node.refill()
        node.check()
        if not node.open_rows() and node.outbox.cursor == node.newest:
            break
        if node.open_rows():
            oldest = node.open_rows()[0]
            node.hear_ack(oldest)
            node.lacks.discard(oldest)
    assert not node.open_rows() and node.outbox.cursor == node.newest, "it comes to an end"
    assert not node.lacks
