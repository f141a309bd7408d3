"""What one peer told us: the ids that it offers, and the acknowledgements that it is owed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE, INBOX_OFFERS_MIN
from drupelet.engine.inbox import (
    BY_ROW,
    ENTRY_SIZE,
    OFFERED,
    OWED,
    OWED_BUNDLING,
    OWED_TWICE,
    REQUESTED,
    Inbox,
)

KINDS = (OFFERED, REQUESTED, OWED, OWED_TWICE)


def id_of(number: int) -> bytes:
    return bytes([number + 1]) * ID_SIZE


def prefix_of(number: int) -> bytes:
    """The first 8 bytes of an id and zeros, as a link knows it that was told no more."""
    return id_of(number)[:ID_PREFIX_SIZE] + bytes(ID_SIZE - ID_PREFIX_SIZE)


def make(offers_max: int = 4, owed_max: int = 4) -> Inbox:
    inbox = Inbox()
    inbox.resize(offers_max, owed_max)
    return inbox


def entries(inbox: Inbox) -> dict[bytes, int]:
    """Id -> kind, the register apart."""
    found: dict[bytes, int] = {}
    for entry in range(inbox.offers_max):
        if inbox.kind(entry):
            id = bytes(inbox.entries[entry * ENTRY_SIZE :][:ID_SIZE])
            assert id not in found, "an id twice"
            found[id] = inbox.kind(entry)
    return found


def register(inbox: Inbox) -> bytes | None:
    """The ancestor that is asked for although nobody offered it."""
    at = inbox.offers_max * ENTRY_SIZE
    return bytes(inbox.entries[at : at + ID_SIZE]) if inbox.kind(inbox.offers_max) else None


def take_all(inbox: Inbox, visits: bool = False) -> list[int]:
    """Write every acknowledgement that has a row; the handles."""
    handles = []
    for row in range(inbox.owed_end):
        if inbox.is_owed(row):
            handles.append(inbox.owed(row))
            inbox.take_owed(row, visits)
    return handles


# --- floors ---


def test_there_are_four_entries_at_least_and_the_register() -> None:
    assert INBOX_OFFERS_MIN == 4
    with pytest.raises(AssertionError):
        Inbox().resize(3, 2)
    inbox = make()
    for number in range(5):
        inbox.add(id_of(number), 0, OWED, 0)
    assert len(entries(inbox)) == 4 and register(inbox) is None
    inbox.ask(id_of(9), 0, 0)
    assert len(entries(inbox)) == 4 and register(inbox) == id_of(9)


def test_an_id_of_zeros_is_no_free_entry() -> None:
    inbox = make()
    assert inbox.find(bytes(ID_SIZE), 0) == -1
    inbox.add(id_of(1), 0, OFFERED, 0)
    assert inbox.find(bytes(ID_SIZE), 0) == -1
    assert inbox.find(b"__" + id_of(1), 2) == 0
    inbox.set_kind(0, 0)
    assert inbox.find(id_of(1), 0) == -1


# --- offers ---


def test_the_oldest_offer_is_replaced_but_not_by_one_of_its_epoch() -> None:
    inbox = make(4)
    for number in range(4):
        assert inbox.add(id_of(number), 0, OFFERED, 0xFFFF - number) >= 0
    inbox.add(id_of(3), 0, OFFERED, 0)  # again: it is not younger for that
    inbox.add(id_of(4), 0, OFFERED, 0)
    assert set(entries(inbox)) == {id_of(0), id_of(1), id_of(2), id_of(4)}
    for number in range(5, 8):
        inbox.add(id_of(number), 0, OFFERED, 0)
    assert set(entries(inbox)) == {id_of(number) for number in range(4, 8)}
    assert inbox.add(id_of(8), 0, OFFERED, 0) == -1, "the first of an epoch are asked for first"
    assert inbox.add(id_of(8), 0, OFFERED, 1) >= 0


def test_what_is_owed_goes_before_what_is_offered() -> None:
    """An offer is made again; who waits for an answer would send a whole message again."""
    inbox = make(4)
    for number in range(4):
        inbox.add(id_of(number), 0, OFFERED, 7)
    for number in range(4, 8):
        assert inbox.add(id_of(number), 0, OWED, 7) >= 0
    assert set(entries(inbox).values()) == {OWED}
    assert inbox.add(id_of(8), 0, OWED, 8) == -1 == inbox.add(id_of(8), 0, OFFERED, 8)
    assert id_of(8) not in entries(inbox)


def test_the_same_id_again_changes_no_less_than_it_knew() -> None:
    inbox = make(4)
    entry = inbox.add(id_of(1), 0, OFFERED, 1, 5)
    for kind in (OFFERED, REQUESTED, OFFERED, OWED, REQUESTED, OWED_TWICE, OWED):
        before = inbox.kind(entry)
        assert inbox.add(id_of(1), 0, kind, 9) == entry
        assert inbox.kind(entry) == max(before, kind)
        assert inbox.entry_number(entry) == 5, "no number tells nothing new"
    inbox.add(id_of(1), 0, OFFERED, 9, 6)
    assert inbox.entry_number(entry) == 6


adds = st.tuples(st.integers(0, 30), st.sampled_from(KINDS), st.integers(0, 3))


@given(st.integers(4, 12), st.lists(adds, max_size=80))
def test_only_what_may_be_offered_again_gives_way(
    offers_max: int, steps: list[tuple[int, int, int]]
) -> None:
    inbox = make(offers_max)
    epoch = 0xFFFE
    inbox.ask(id_of(200), 0, epoch)
    for number, kind, later in steps:
        epoch = (epoch + later) & 0xFFFF
        before = entries(inbox)
        entry = inbox.add(id_of(number), 0, kind, epoch)
        after = entries(inbox)
        gone = before.keys() - after.keys()
        assert len(after) <= offers_max and len(gone) <= 1
        assert not gone or len(before) == offers_max, "there was room"
        assert all(before[id] <= REQUESTED for id in gone)
        if entry >= 0:
            assert after[id_of(number)] == max(kind, before.get(id_of(number), 0))
        else:
            assert after == before
        assert register(inbox) == id_of(200)


# --- what was asked for ---


def test_asking_is_counted_within_a_byte() -> None:
    inbox = make()
    entry = inbox.add(id_of(1), 0, REQUESTED, 1)
    for epoch in range(300):
        inbox.note_asked(entry, epoch)
        assert 1 <= inbox.sends(entry) <= 255 and inbox.epoch(entry) == epoch
    inbox.set_kind(entry, 0)
    entry = inbox.add(id_of(2), 0, OFFERED, 1)
    assert inbox.sends(entry) == 0


def test_the_register_keeps_an_ancestor_until_it_was_asked_for_once() -> None:
    inbox = make()
    inbox.ask(id_of(1), 0, 3)
    inbox.ask(id_of(2), 0, 4)
    assert register(inbox) == id_of(1)
    assert inbox.kind(inbox.offers_max) == REQUESTED and inbox.epoch(inbox.offers_max) == 3
    inbox.note_asked(inbox.offers_max, 5)
    inbox.ask(id_of(2), 0, 6)
    assert register(inbox) == id_of(2) and inbox.sends(inbox.offers_max) == 0


def test_offers_do_not_take_the_register_nor_it_their_entries() -> None:
    inbox = make(4)
    for number in range(4):
        inbox.add(id_of(number), 0, OFFERED, 1)
    inbox.ask(id_of(9), 0, 1)
    for epoch in range(2, 40):
        inbox.add(id_of(10 + epoch), 0, OFFERED, epoch)
        inbox.add(id_of(60 + epoch), 0, OWED, epoch)
        assert register(inbox) == id_of(9)


def test_what_is_asked_for_already_needs_no_register() -> None:
    inbox = make()
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.ask(id_of(1), 0, 1)
    assert register(inbox) is None
    inbox.ask(id_of(2), 0, 1)
    assert inbox.find(id_of(2), 0) == inbox.offers_max
    assert inbox.add(id_of(2), 0, OFFERED, 1) == inbox.offers_max
    assert id_of(2) not in entries(inbox) and register(inbox) == id_of(2)


@pytest.mark.parametrize("kind", [OWED, OWED_TWICE])
def test_what_is_owed_of_the_ancestor_in_the_register_is_written(kind: int) -> None:
    """It turns out to be gone before it was asked for: then it is answered, not asked for."""
    inbox = make()
    inbox.ask(id_of(1), 0, 1)
    inbox.add(id_of(1), 0, kind, 1)
    assert entries(inbox) == {id_of(1): kind} and inbox.owes()
    inbox.ask(id_of(2), 0, 1)
    assert register(inbox) == id_of(2), "it is free for another one"


def test_what_came_is_asked_for_no_more() -> None:
    inbox = make(5)
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.add(id_of(2), 0, REQUESTED, 1)
    inbox.add(id_of(3), 0, OWED, 1)
    inbox.add(id_of(4), 0, OWED_TWICE, 1)
    inbox.ask(id_of(5), 0, 1)
    for number in range(1, 6):
        inbox.drop(id_of(number), 0)
    assert entries(inbox) == {id_of(3): OWED, id_of(4): OWED_TWICE}, "that is owed all the same"
    assert register(inbox) is None


def test_an_offer_by_prefix_ends_with_the_message_too() -> None:
    inbox = make()
    entry = inbox.add(prefix_of(1), 0, OFFERED, 1)
    assert not inbox.is_whole(entry)
    other = inbox.add(id_of(1)[:16] + bytes(16), 0, OFFERED, 1)
    assert inbox.is_whole(other)
    inbox.drop(id_of(1), 0)
    assert set(entries(inbox)) == {id_of(1)[:16] + bytes(16)}, "another message's"


def test_what_is_owed_completes_a_prefix() -> None:
    inbox = make()
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.add(id_of(2), 0, OWED, 1)
    for number in (1, 2):
        id = bytearray(b"__" + prefix_of(number))
        inbox.complete_id(id, 2)
        assert id[2:] == (id_of(2) if number == 2 else prefix_of(1))


def test_all_offers_are_forgotten_at_once() -> None:
    inbox = make()
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.ask(id_of(2), 0, 1)
    inbox.owe(5, 0, 0, 0)
    inbox.drop_offers()
    assert entries(inbox) == {} and register(inbox) is None
    assert take_all(inbox) == [5], "acknowledgements are no offers"


# --- acknowledgements by handle ---


def test_what_came_is_owed_once_in_the_order_of_arrival() -> None:
    inbox = make()
    assert not inbox.owes()
    for handle in (5, 9, 7):
        inbox.owe(handle, handle % 3, 0, 0)
    assert inbox.owes() and inbox.owed_low() == 5
    assert [inbox.owed_group(row) for row in range(3)] == [2, 0, 1]
    assert take_all(inbox) == [5, 9, 7]
    assert not inbox.owes() and inbox.owed_low() == 0


def test_full_rows_leave_it_to_the_log() -> None:
    inbox = make(owed_max=2)
    for handle in (3, 5, 7, 9):
        inbox.owe(handle, 0, 0, 0)
    assert inbox.owed_from == 7 and inbox.owed_low() == 3
    assert take_all(inbox) == [3, 5]
    assert inbox.owes() and inbox.owed_low() == 7
    inbox.owe(11, 0, 0, 0)
    assert inbox.owed_from == 7 and take_all(inbox) == [], "the log says that, too"
    inbox.owe(6, 0, 0, BY_ROW)
    assert take_all(inbox) == [6], "a copy of what the log has passed is answered by itself"


def test_rows_are_used_again_when_they_were_written() -> None:
    inbox = make(owed_max=3)
    for handle in (1, 2, 3):
        inbox.owe(handle, handle, 10 * handle, 0)
    assert inbox.take_owed(0, False) == 10 and inbox.take_owed(1, False) == 20
    inbox.owe(4, 4, 40, 0)
    assert inbox.owed_from == 0
    rows = [
        (inbox.owed(row), inbox.owed_group(row), inbox.take_owed(row, False))
        for row in range(inbox.owed_end)
    ]
    assert rows == [(3, 3, 30), (4, 4, 40)]


def test_a_copy_that_comes_again_is_answered_once() -> None:
    inbox = make(owed_max=2)
    inbox.owe(5, 0, 0, 0)
    inbox.owe(5, 0, 17, BY_ROW)
    assert inbox.owed_end == 1 and inbox.take_owed(0, False) == 17, "by its newest number"
    inbox.owe(5, 0, 18, BY_ROW)
    inbox.owe(6, 0, 0, BY_ROW)
    inbox.owe(7, 0, 0, BY_ROW)
    assert inbox.owed_from == 0, "the peer sends message 5 once more"
    assert take_all(inbox) == [6, 7]


def test_replies_for_a_link_that_is_down_do_not_keep_others_from_leaving() -> None:
    down, up = 1, 2
    inbox = make(owed_max=3)
    inbox.owe(3, down, 0, 0)
    for handle in range(5, 12):
        inbox.owe(handle, down, 0, BY_ROW)
    inbox.owe(12, up, 0, BY_ROW)
    rows = [(inbox.owed(row), inbox.owed_group(row)) for row in range(inbox.owed_end)]
    assert rows == [(3, down), (11, down), (12, up)], "the oldest reply goes, no first ACK"
    inbox = make(owed_max=2)
    inbox.begin_bundle()
    for handle in (5, 6):
        inbox.owe(handle, up, 0, BY_ROW)
        inbox.take_owed(inbox.owed_end - 1, True)
    inbox.owe(7, up, 0, BY_ROW)
    inbox.end_bundle(False)
    assert take_all(inbox) == [5, 6], "what an unfinished bundle holds stays"


def test_a_reply_does_not_say_from_where_on_the_log_owes() -> None:
    """Alone it is kept over a sleep by its handle, behind which mostly nothing else came."""
    inbox = make()
    inbox.owe(5, 0, 0, BY_ROW)
    inbox.owe(7, 0, 0, BY_ROW)
    assert inbox.owes() and inbox.owed_low() == 7
    inbox.owe(9, 0, 0, 0)
    assert inbox.owed_low() == 9
    inbox.owe(8, 0, 0, 0)
    assert inbox.owed_low() == 8


def test_what_is_owed_is_told_to_the_wake_state() -> None:
    for state in (0, BY_ROW):
        inbox = make(owed_max=2)
        assert not inbox.is_dirty
        inbox.owe(5, 0, 0, state)
        assert inbox.is_dirty
    inbox.owe(6, 0, 0, 0)
    inbox.is_dirty = False
    inbox.owe(7, 0, 0, 0)
    assert inbox.owed_from == 7 and inbox.is_dirty
    inbox.is_dirty = False
    inbox.owe(8, 0, 0, 0)
    assert not inbox.is_dirty, "the handle of the log says it"


def test_what_waited_is_owed_under_its_new_handle() -> None:
    inbox = make()
    inbox.owe(5, 0, 0, 0)
    inbox.owe(6, 0, 0, BY_ROW)
    inbox.move_handle(5, 15)
    inbox.move_handle(6, 16)
    inbox.move_handle(7, 17)
    assert take_all(inbox) == [15, 16]


def test_smaller_tables_leave_what_was_owed_to_the_log() -> None:
    inbox = make(owed_max=4)
    for handle, state in ((9, 0), (3, BY_ROW), (7, 0)):
        inbox.owe(handle, 0, 0, state)
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.resize(4, 2)
    assert inbox.owed_end == 0 and inbox.owed_from == 7 and entries(inbox) == {}
    inbox = make(owed_max=2)
    for handle in (3, 5, 7):
        inbox.owe(handle, 0, 0, 0)
    inbox.take_owed(0, False)
    inbox.resize(4, 4)
    assert inbox.owed_from == 5


def test_everything_that_came_is_acknowledged_whatever_the_room() -> None:
    """With the log behind it: the peer's messages are at every handle."""
    for owed_max in (2, 3, 8):
        inbox = make(owed_max=owed_max)
        acknowledged: set[int] = set()
        for handle in range(1, 60):
            inbox.owe(handle, 0, 0, 0)
            if handle % 7 == 0:
                acknowledged.update(take_all(inbox))
            if handle % 20 == 0 and inbox.owed_from:
                acknowledged.update(range(inbox.owed_from, handle + 1))
                inbox.owed_from = 0
        acknowledged.update(take_all(inbox))
        acknowledged.update(range(inbox.owed_from or 60, 60))
        assert acknowledged == set(range(1, 60))


def test_numbers_end_when_the_peer_begins_anew() -> None:
    inbox = make()
    entry = inbox.add(id_of(1), 0, OFFERED, 1, 5)
    inbox.owe(3, 0, 6, 0)
    inbox.forget_numbers()
    assert inbox.entry_number(entry) == 0 == inbox.take_owed(0, False)


# --- bundles ---


@pytest.mark.parametrize("is_written", [True, False])
def test_what_is_in_a_bundle_is_acknowledged_when_it_is_on_the_stick(is_written: bool) -> None:
    inbox = make(owed_max=2)
    for handle in (3, 5, 7):
        inbox.owe(handle, 0, 0, 0)
    entry = inbox.add(id_of(1), 0, OWED, 1)
    inbox.begin_bundle()
    assert take_all(inbox, visits=True) == [3, 5]
    inbox.set_kind(entry, OWED_BUNDLING)
    inbox.owed_from = 0
    assert not inbox.owes(), "nothing goes a second time"
    inbox.end_bundle(is_written)
    assert inbox.owes() != is_written
    if not is_written:
        assert take_all(inbox) == [3, 5] and inbox.owed_from == 7
        assert entries(inbox) == {id_of(1): OWED}
    assert is_written == (entries(inbox) == {})


@pytest.mark.parametrize("is_written", [True, False])
def test_one_frame_acknowledges_all(is_written: bool) -> None:
    inbox = make(owed_max=2)
    inbox.begin_bundle()
    assert not inbox.take_all_owed(), "nothing is owed"
    inbox.end_bundle(is_written)
    for handle in (3, 5, 7):
        inbox.owe(handle, 0, 0, 0)
    inbox.add(id_of(1), 0, OWED, 1)
    inbox.begin_bundle()
    assert inbox.take_all_owed() and not inbox.owes()
    inbox.end_bundle(is_written)
    assert inbox.owes() != is_written


def test_what_a_request_is_answered_with_is_in_no_frame_for_all() -> None:
    """The peer asked for what is gone: that must be said by its id."""
    inbox = make()
    inbox.add(id_of(1), 0, OWED_TWICE, 1)
    inbox.begin_bundle()
    inbox.take_all_owed()
    assert inbox.owes() and entries(inbox) == {id_of(1): OWED_TWICE}


@pytest.mark.parametrize("is_written", [True, False])
def test_what_comes_while_a_bundle_is_made_is_owed_after_it(is_written: bool) -> None:
    inbox = make(owed_max=2)
    inbox.owe(3, 0, 0, 0)
    inbox.begin_bundle()
    take_all(inbox, visits=True)
    for handle in (5, 7):
        inbox.owe(handle, 0, 0, 0)
    inbox.end_bundle(is_written)
    assert inbox.owed_from == 7
    assert take_all(inbox) == ([5] if is_written else [3, 5])


def test_a_copy_while_a_bundle_is_made_is_answered_by_it() -> None:
    inbox = make()
    inbox.owe(3, 0, 0, 0)
    inbox.begin_bundle()
    take_all(inbox, visits=True)
    inbox.owe(3, 0, 0, BY_ROW)
    assert not inbox.owes()
    inbox.end_bundle(False)
    assert take_all(inbox) == [3], "the bundle failed"


# --- another peer ---


def test_another_peer_in_the_row_is_owed_nothing() -> None:
    inbox = make(owed_max=2)
    for handle in (3, 5, 7):
        inbox.owe(handle, 0, 0, 0)
    inbox.add(id_of(1), 0, OFFERED, 1)
    inbox.ask(id_of(2), 0, 1)
    inbox.bundle_number = inbox.taken_until = 4
    inbox.forget_peer()
    assert not inbox.owes() and entries(inbox) == {} and register(inbox) is None
    assert inbox.owed_low() == inbox.bundle_number == inbox.taken_until == 0


def test_entries_are_searched_up_to_the_last_one_that_is_used() -> None:
    inbox = make(offers_max=64)
    for number in range(3):
        inbox.add(id_of(number), 0, OFFERED, 1)
    assert inbox.end() == 3
    inbox.drop(id_of(1), 0)
    assert inbox.end() == 3
    assert inbox.find(id_of(2), 0) == 2
    inbox.drop(id_of(2), 0)
    assert inbox.end() == 1
    assert inbox.find(id_of(2), 0) == -1
    # In the order of the log, as offers come in; the register is behind them.
    assert inbox.add(id_of(4), 0, OFFERED, 1) == 1
    inbox.ask(id_of(5), 0, 1)
    assert inbox.end() == 65
    assert inbox.add(id_of(6), 0, OFFERED, 1) == 2
    inbox.drop_offers()
    assert inbox.end() == 0
