"""The slot table and the shared pool of offered ids."""

from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.limits import ID_SIZE
from drupelet.engine.backoff import drawn
from drupelet.engine.control import drop_peer
from drupelet.engine.slots import (
    OFFERED,
    OWED,
    OWED_BUNDLING,
    REQUESTED,
    WANTED,
    MessageSlots,
    OfferPool,
)
from ram_store import RamStore

KINDS = (OFFERED, WANTED, OWED)
PEERS = 3


def id_of(number: int) -> bytes:
    return bytes([number + 1]) * ID_SIZE


def ids_of(known: dict[int, bytes]) -> RamStore:
    """A store in which these handles have these ids."""
    store = RamStore()
    store.rows = {handle: {"id": id} for handle, id in known.items()}
    return store


def entries(pool: OfferPool) -> dict[tuple[int, bytes], int]:
    found = {}
    for entry in range(pool.count):
        if pool.kinds[entry]:
            id = bytes(pool.ids[entry * ID_SIZE : (entry + 1) * ID_SIZE])
            key = (pool.peer_of(entry), id)
            assert key not in found, "an id twice at one peer"
            found[key] = pool.kinds[entry]
    return found


adds = st.tuples(
    st.integers(0, PEERS - 1), st.integers(0, 30), st.sampled_from(KINDS), st.integers(0, 3)
)


Step = tuple[int, int, int, int]


@given(st.integers(1, 12), st.lists(adds, max_size=80))
def test_pool_keeps_quota_and_what_matters(count: int, steps: list[Step]) -> None:
    pool = OfferPool(count)
    pool.quota = max(1, count // PEERS)
    epoch = 0xFFFE
    for peer, number, kind, later in steps:
        epoch = (epoch + later) & 0xFFFF
        before = entries(pool)
        entry = pool.add(id_of(number), 0, peer, kind, epoch)
        after = entries(pool)
        none_of_its_own = not any(key[0] == peer for key in before)
        for other in range(PEERS):
            assert sum(key[0] == other for key in after) <= pool.quota
            if other != peer and not (kind == OWED and none_of_its_own):
                mine = {k: v for k, v in before.items() if k[0] == other}
                assert mine == {k: v for k, v in after.items() if k[0] == other}
        gone = before.keys() - after.keys()
        assert len(gone) <= 1
        for key in gone:
            # Offers give way to all, what is owed to a wanted parent, a young want to nothing,
            # but where there is one entry for all of them.
            good = before[key] == OFFERED or (before[key] == OWED and kind == WANTED)
            good = good or (pool.quota == 1 and before[key] == WANTED)
            assert good or (
                before[key] == OWED == kind and none_of_its_own and len(before) == count
            )
        if entry >= 0:
            kept = before.get((peer, id_of(number)))
            stays = kept == WANTED and kind != OWED
            assert after[peer, id_of(number)] == (WANTED if stays else kind)
        else:
            assert after == before


def test_more_peers_than_entries_are_all_acknowledged() -> None:
    """What is owed over a stick may wait for weeks: it is owed again when that comes."""
    pool = OfferPool(2)
    pool.quota = 1
    assert pool.add(id_of(0), 0, 0, OWED, 0) >= 0 and pool.add(id_of(1), 0, 1, WANTED, 0) >= 0
    assert pool.add(id_of(2), 0, 2, OFFERED, 0) == pool.add(id_of(2), 0, 2, WANTED, 0) == -1
    assert pool.add(id_of(2), 0, 2, OWED, 0) >= 0
    assert entries(pool) == {(2, id_of(2)): OWED, (1, id_of(1)): WANTED}
    assert pool.add(id_of(3), 0, 2, OWED, 0) == -1, "it has one of its own"


def test_the_oldest_offer_is_replaced_but_not_by_one_of_its_epoch() -> None:
    pool = OfferPool(4)
    pool.quota = 3
    for number in range(3):
        assert pool.add(id_of(number), 0, 0, OFFERED, 0xFFFF - number) >= 0
    pool.add(id_of(2), 0, 0, OFFERED, 0)  # again: it is not younger for that
    pool.add(id_of(3), 0, 0, OFFERED, 0)
    assert {id for _, id in entries(pool)} == {id_of(0), id_of(1), id_of(3)}
    pool.add(id_of(4), 0, 0, OFFERED, 0)
    pool.add(id_of(5), 0, 0, OFFERED, 0)
    pool.add(id_of(6), 0, 0, OFFERED, 0)
    assert {id for _, id in entries(pool)} == {id_of(3), id_of(4), id_of(5)}
    assert pool.add(id_of(7), 0, 0, WANTED, 0) >= 0, "a wanted parent waits for no epoch"


def test_a_wanted_parent_gives_way_after_eight_requests_in_vain() -> None:
    pool = OfferPool(2)
    entry = pool.add(id_of(1), 0, 0, WANTED, 1)
    assert pool.add(id_of(3), 0, 0, OWED, 1) >= 0
    for epoch in range(7):
        pool.sent(entry, epoch)
        assert pool.add(id_of(2), 0, 0, OFFERED, 100) == -1
    pool.sent(entry, 7)
    assert pool.add(id_of(2), 0, 0, OFFERED, 1) == entry
    assert pool.send_count(entry) == 0
    for epoch in range(300):
        pool.sent(entry, epoch)
        assert 1 <= pool.send_count(entry) <= 255


def test_wanted_parents_leave_one_entry_to_an_offer() -> None:
    """Parents that come too early are wanted anew: what could enter is asked for, too."""
    pool = OfferPool(2)
    first = pool.add(id_of(1), 0, 0, WANTED, 1)
    assert pool.add(id_of(2), 0, 0, OFFERED, 1) >= 0
    for epoch in range(2, 10):
        assert pool.add(id_of(3), 0, 0, WANTED, epoch) == -1
        pool.sent(first, epoch)
    assert pool.add(id_of(3), 0, 0, WANTED, 10) == first, "it was asked for in vain"
    assert entries(pool) == {(0, id_of(2)): OFFERED, (0, id_of(3)): WANTED}


def test_a_step_to_the_first_in_a_past_waits_until_it_was_asked_for() -> None:
    """It stays whatever comes; then it gives way, and to parents when it was asked for in vain."""
    pool = OfferPool(2)
    step = pool.add(id_of(1), 0, 0, REQUESTED, 1)
    other = pool.add(id_of(2), 0, 0, WANTED, 1)
    pool.sent(other, 1)
    for epoch in range(2, 200):
        for kind in (OFFERED, WANTED, OWED):
            assert pool.add(id_of(3), 0, 0, kind, epoch) == -1, (epoch, kind)
    for epoch in range(200, 208):
        assert pool.add(id_of(3), 0, 0, WANTED, epoch) == -1
        pool.sent(step, epoch)
    assert pool.add(id_of(3), 0, 0, WANTED, 208) == step
    pool.put(step, 0, REQUESTED, 208)
    pool.sent(step, 208)
    assert pool.add(id_of(4), 0, 0, OFFERED, 208) == -1, "it came in the same epoch"
    assert pool.add(id_of(4), 0, 0, OFFERED, 209) == step
    turns = 0
    for epoch in range(200):
        pool.put(step, 0, REQUESTED, epoch)
        turns += pool.add(id_of(4 + epoch % 2), 0, 0, REQUESTED, epoch) == step
    assert 50 < turns < 150, "of two ways neither keeps the other from its next step"


def test_the_only_entry_is_for_each_in_turn() -> None:
    """What is wanted, owed or offered has its turn, then it gives way: each of them goes on."""
    pool = OfferPool(2)
    pool.quota = 1
    stays = next(epoch for epoch in range(9) if drawn(epoch))
    entry = pool.add(id_of(1), 0, 0, WANTED, stays)
    for kind in (OWED, OFFERED):
        assert pool.add(id_of(2), 0, 0, kind, stays) == -1, "it was not asked for yet"
    pool.sent(entry, stays)
    assert pool.add(id_of(2), 0, 0, OWED, stays) == entry
    assert pool.add(id_of(1), 0, 0, WANTED, 3) == -1, "first it is acknowledged"
    pool.kinds[entry] = 0
    assert pool.add(id_of(3), 0, 0, OFFERED, 3) == entry
    assert pool.add(id_of(1), 0, 0, WANTED, 4) == -1, "first it is asked for"
    pool.kinds[entry] = REQUESTED
    assert pool.add(id_of(1), 0, 0, WANTED, 4) == -1, "it waits until then"
    pool.sent(entry, 4)
    assert pool.add(id_of(1), 0, 0, WANTED, 4) == entry
    pool.sent(entry, 5)
    assert pool.add(id_of(3), 0, 0, OFFERED, 5) == entry


def test_of_parents_each_one_has_the_only_entry_at_times() -> None:
    """Whichever is offered it first: what has its whole past may be the last of them."""
    first: dict[bytes, int] = {}
    for epoch in range(400):
        pool = OfferPool(1)
        for number in range(4):
            pool.add(id_of(number), 0, 0, WANTED, epoch)
        first[bytes(pool.ids)] = first.get(bytes(pool.ids), 0) + 1
    assert len(first) == 4 and min(first.values()) > 20


def test_the_only_entry_is_drawn_between_what_is_wanted_and_what_comes_in() -> None:
    """Else offers may come for ever when an answer to what is wanted has just taken the turn."""
    for period in (1, 2, 3, 6, 64):
        for kind in (OFFERED, OWED, WANTED):
            turns = 0
            for epoch in range(0, 200 * period, period):
                pool = OfferPool(1)
                entry = pool.add(id_of(1), 0, 0, WANTED, epoch)
                turns += pool.add(id_of(2), 0, 0, kind, epoch) == entry
            assert 50 < turns < 150, (period, kind)
    pool = OfferPool(4)
    pool.quota = 2
    pool.add(id_of(1), 0, 0, WANTED, 1)
    for epoch in range(200):
        pool.add(id_of(3), 0, 0, OFFERED, epoch)
        assert (0, id_of(1)) in entries(pool), "with two entries nothing need be drawn"


def test_drops() -> None:
    pool = OfferPool(6)
    for peer, kind in ((0, OFFERED), (1, WANTED), (2, OWED)):
        pool.add(id_of(1), 0, peer, kind, 1)
        pool.add(id_of(2), 0, peer, kind, 1)
    pool.drop_id(id_of(1), 0)
    assert entries(pool) == {
        (0, id_of(2)): OFFERED, (1, id_of(2)): WANTED, (2, id_of(1)): OWED, (2, id_of(2)): OWED,
    }  # fmt: skip
    drop_peer(pool, 2)
    assert entries(pool) == {(0, id_of(2)): OFFERED, (1, id_of(2)): WANTED}
    pool.add(id_of(3), 0, 1, OWED, 1)
    pool.kinds[pool.add(id_of(4), 0, 1, OWED, 1)] = OWED_BUNDLING
    pool.add(id_of(4), 0, 1, OWED, 1)
    assert entries(pool)[1, id_of(4)] == OWED


def test_an_id_of_zeros_is_no_free_slot() -> None:
    slots = MessageSlots(3, 2, ids_of({77: id_of(5)}))
    assert slots.find(bytes(ID_SIZE), 0) == -1
    assert slots.find_prefix(bytes(8), 0, 8) == -1
    slots.take(1, id_of(5), 0, 77, 0)
    assert slots.find(bytes(ID_SIZE), 0) == -1
    assert slots.find(b"__" + id_of(5), 2) == 1
    assert slots.find_prefix(id_of(5)[:8], 0, 8) == 1
    assert (slots.handles[1], slots.oldest) == (77, 2)
    slots.free(1)
    assert slots.find(id_of(5), 0) == -1


def test_ids_that_begin_alike_are_told_apart() -> None:
    """A slot has 4 bytes of an id; the store has the rest, and what made room is nobody's."""
    ids = {7: b"like" + bytes(28), 8: b"like" + bytes(27) + b"1", 9: b"like" + b"2" * 28}
    known = ids_of(ids)
    slots = MessageSlots(4, 1, known)
    for slot, handle in ((0, 9), (2, 7), (3, 8)):
        slots.take(slot, ids[handle], 0, handle, 0)
    assert [slots.find(ids[handle], 0) for handle in (7, 8, 9)] == [2, 3, 0]
    assert slots.find(b"like" + b"3" * 28, 0) == -1
    assert slots.find_prefix(b"like2222", 0, 8) == 0
    assert slots.find_prefix(b"like\0\0\0\0", 0, 8) == 2
    buf = bytearray(34)
    assert slots.id_into(3, buf, 2) and buf[2:] == ids[8]
    known.rows.pop(7)
    assert slots.find(ids[7], 0) == -1 and not slots.id_into(2, buf, 0)
    assert slots.find(ids[8], 0) == 3


def test_taking_a_slot_forgets_what_was_there() -> None:
    slots = MessageSlots(2, 2, ids_of({}))
    slots.take(0, id_of(1), 0, 1, 0)
    slots.states[0] = slots.states[2] = 255
    slots.sent(2, 255, 9)
    assert slots.send_counts[2] == 255 and slots.send_epoch(2) == 9
    slots.free(0)
    slots.take(0, id_of(2), 0, (1 << 30) - 1, 0)
    assert slots.states[0] == slots.states[2] == slots.send_counts[2] == 0
    assert slots.handles[0] == (1 << 30) - 1
