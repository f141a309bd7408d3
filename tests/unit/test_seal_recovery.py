"""Sealed links: set back, cloned, asleep, in bundles, with new roots (docs/SPEC.md 11)."""

import random

import pytest

from drupelet.base.errors import E_PEER, E_STORAGE, OK, CapacityError
from drupelet.base.limits import (
    SEAL_CONTROL_MS,
    SEAL_EPOCH_MAX,
    SEAL_JUMP,
    SEAL_JUMP_AFTER,
    SEAL_REVOKE_SENDS,
    SEAL_REVOKED_MAX,
    SEAL_SKIP_MS,
)
from drupelet.seal import record as seal_record
from drupelet.seal.issue import Issuer, rekey
from drupelet.seal.record import (
    FLAG_REVOKED,
    RECEIVE,
    RECORD_SIZE,
    SEND,
    finish,
    row_of,
)
from drupelet.seal.seal import FINAL, STATUS_SIZE, TYPE_CONTROL, TYPE_STATUS
from drupelet.seal.sleep import SLEEP_SIZE, export_into, import_from
from drupelet_host.base.aead import Aead
from seal_ends import A_ID, B_ID, KID, End, Witness, flipped, meet, pair

HEAD, SALT, STATUS, TAG = 7, 8, 9, 8


@pytest.fixture
def aead():
    made = Witness(Aead())
    yield made
    assert made.reused == 0


@pytest.fixture
def ends(aead):
    return pair(aead)


# --- rollback, clones, restore (trust 1.5) ---


def test_a_sender_that_was_set_back_reuses_no_nonce_and_recovers(ends):
    a, b = ends
    meet(a, b)
    image = dict(a.keys.rows)
    for _ in range(6):
        a.boot()
        meet(a, b)
    a.keys.rows = dict(image)  # an older copy of its flash
    a.boot()
    for n in range(20):
        frame = a.send(b"%d" % n)
        if b.take(frame) == b"%d" % n:
            break
        a.take(b.send(b""))
    assert n <= 2
    meet(a, b)  # the witness has seen no key and nonce twice


def test_a_sender_on_a_one_way_link_that_was_set_back_jumps_ahead(ends):
    a, b = ends
    image = dict(a.keys.rows)
    for n in range(1, 100):
        a.boot()
        a.seal.answered = n  # a link that once led both ways
        b.take(a.send(b"x"), n * SEAL_SKIP_MS)
    seen = b.seal.in_epoch
    assert seen >= 99
    a.keys.rows = dict(image)
    for n in range(SEAL_JUMP_AFTER + 1):
        a.boot()
        if b.take(a.send(b"back"), (100 + n) * SEAL_SKIP_MS) == b"back":
            break
    assert a.seal.out_epoch == SEAL_JUMP + SEAL_JUMP_AFTER
    assert b.seal.in_epoch == a.seal.out_epoch


def test_jumps_of_a_sender_that_nobody_answers_are_two_in_all(ends):
    a, b = ends
    for _ in range(400):
        a.boot()
        frame = a.send(b"x")
    assert a.seal.out_epoch == 400 + 2 * SEAL_JUMP
    assert b.take(frame) == b"x"  # and still within what a board follows


def test_who_was_set_back_to_the_epoch_that_is_kept_for_stragglers_hears_of_ours(ends):
    a, b = ends
    image = dict(a.keys.rows)
    assert b.take(a.send(b"x")) == b"x"
    a.boot()
    assert b.take(a.send(b"y")) == b"y"  # so the first one is the one before
    a.keys.rows = dict(image)
    a.boot()
    a.send(b"lost")  # a number that B has opened under the other salt
    b.seal.owes = b.seal.urgent = False
    assert b.take(a.send(b"?")) == E_PEER
    assert b.seal.urgent and b.seal.closed_epoch == 1
    a.take(b.send(b""))
    assert b.take(a.send(b"back")) == b"back"


def test_what_left_before_a_store_was_lost_comes_too_late_after_it(ends):
    a, b = ends
    a.store_gen = b"\x00\x00\x00\x07"
    a.boot()
    meet(a, b)
    late = [a.send(b"acknowledged"), a.send(b"mine")]
    a.boot()
    assert b.take(a.send(b"x")) == b"x"
    assert b.take(late[0]) == b"acknowledged", "a reboot has lost nothing"
    a.store_gen = b"\x00\x00\x00\x08"
    late.append(a.send(b"of the second life"))
    a.boot()
    assert b.take(a.send(b"wiped")) == b"wiped" and b.seal.peer_lost
    assert [b.take(frame) for frame in late[1:]] == [E_PEER, E_PEER]


def test_two_salts_under_one_epoch_raise_the_clone_alarm_once_authentic(ends):
    a, b = ends
    image = dict(a.keys.rows)
    assert b.take(a.send(b"real")) == b"real"
    clone = End(A_ID, B_ID, a.aead, 77)
    clone.keys.rows = image
    clone.boot()
    frame = clone.send(b"copy")
    assert b.take(flipped(frame, 8)) == E_PEER and b.seal.clones == 0  # anybody can make that
    assert b.take(frame, 64) == E_PEER and b.seal.clones == 1
    assert b.take(a.send(b"real")) == b"real"


def test_no_clone_alarm_without_a_clone(ends):
    a, b = ends
    draw = random.Random(5)
    for n in range(400):
        if draw.random() < 0.05:
            a.boot()
        if draw.random() < 0.05:
            b.boot()
        b.take(a.send(b"x"), n * 1000)
        a.take(b.send(b"y"), n * 1000)
    assert a.seal.clones == b.seal.clones == 0


def test_a_peer_with_another_store_is_shown_everything_again(ends):
    a, b = ends
    a.store_gen = b"\x00\x00\x00\x07"
    a.boot()
    meet(a, b)
    assert not b.seal.peer_lost  # the first that it ever told
    a.store_gen = b"\x00\x00\x00\x08"
    a.boot()
    b.take(a.send(b"restored"))
    assert b.seal.peer_lost
    b.boot()  # the power goes before anything was done about it
    a.take(b.send(b""))
    meet(a, b)
    assert b.seal.peer_lost
    b.seal.settle()
    a.boot()
    meet(a, b)
    b.boot()
    a.take(b.send(b""))
    meet(a, b)
    assert not b.seal.peer_lost


def test_what_a_peer_tells_first_outlives_a_reboot(ends):
    a, b = ends
    a.store_gen = b"\x00\x00\x00\x07"
    a.boot()
    assert b.take(a.send(b"x")) == b"x"
    b.boot()
    a.store_gen = b"\x00\x00\x00\x08"
    a.boot()
    b.take(a.send(b"y"))
    assert b.seal.peer_lost


def test_what_came_before_the_first_status_counts_as_lost_once_that_epoch_has_ended(ends):
    a, b = ends
    a.send(b"lost, and the status with it")
    late = a.send(b"late")
    assert b.take(a.send(b"of the first life")) == b"of the first life"
    assert not b.seal.peer_lost
    b.boot()  # that the store was not known is on flash
    a.store_gen = b"\x00\x00\x00\x08"
    a.boot()
    assert b.take(a.send(b"wiped")) == b"wiped" and b.seal.peer_lost
    assert b.take(late) == E_PEER


def test_the_status_of_the_first_epoch_is_not_a_loss(ends):
    a, b = ends
    a.send(b"lost, and the status with it")
    for n in range(8):
        b.take(a.send(b"%d" % n))
    assert not b.seal.peer_lost


def test_a_receiver_that_was_set_back_is_caught_up(ends):
    a, b = ends
    image = dict(b.keys.rows)
    for _ in range(5):
        a.boot()
        meet(a, b)
    b.keys.rows = dict(image)
    b.boot()
    for n in range(20):
        got = b.take(a.send(b"%d" % n), n * 20000)
        if got == b"%d" % n:
            break
        a.take(b.send(b""), n * 20000)
    assert n <= 4
    for _ in range(3):
        b.take(a.send(b"?"))
        a.take(b.send(b"!"))
    assert a.seal.confirmed and b.seal.confirmed


def test_a_peer_cannot_send_us_to_the_end_of_our_epochs(ends):
    a, b = ends
    meet(a, b)
    b.seal.in_epoch = SEAL_EPOCH_MAX - 5  # it lies
    b.seal.owes = True
    a.take(b.send(b""))
    assert a.send(b"x")[3:6] != b"\xff\xff\xfb" and a.seal.out_epoch < 10


# --- deep sleep (docs/SPEC.md 11.6) ---


def asleep(end):
    """What the snapshot holds, and the device after it woke up: keys, not yet imported."""
    kept = bytearray(SLEEP_SIZE + 5)
    size = export_into(end.seal, kept, 5)
    before = end.seal
    end.boot()
    return kept, size, before


def test_an_epoch_goes_on_after_a_deep_sleep_without_a_write(ends):
    a, b = ends
    meet(a, b)
    replay = b.send(b"once")
    assert a.take(replay) == b"once"
    for n in range(20):
        saves = a.keys.saves
        epoch = a.seal.out_epoch
        kept, size, _ = asleep(a)
        assert size == SLEEP_SIZE <= 100
        assert import_from(a.seal, kept, 5, size) == OK
        frame = a.send(b"reading %d" % n)
        assert len(frame) == HEAD + TAG + len(b"reading %d" % n)
        assert b.take(frame) == b"reading %d" % n
        assert a.take(b.send(b"ack")) == b"ack"
        b.seal.owes = n % 3 == 0  # a status has its salt
        assert a.take(b.send(b"ack")) == b"ack"
        assert a.take(replay) == E_PEER
        assert not a.seal.clones
        assert a.keys.saves == saves and a.seal.out_epoch == epoch


def test_an_epoch_ends_after_30_days_of_wakes(ends):
    """Its age goes through the snapshot; `Sleeper` adds how long it slept."""
    a, b = ends
    meet(a, b)
    epoch = a.seal.out_epoch
    for day in range(1, 31):
        kept, size, _ = asleep(a)
        assert import_from(a.seal, kept, 5, size) == OK
        a.seal.grow_old(86_400_000 >> 16)
        assert b.take(a.send(b"reading")) == b"reading"
        assert a.seal.out_epoch == epoch or day == 30
    kept, size, _ = asleep(a)
    a.seal.grow_old(1 << 14)  # whatever a clock says, one step is enough
    saves = a.keys.saves
    assert b.take(a.send(b"reading")) == b"reading"
    assert a.seal.out_epoch > epoch and a.keys.saves == saves + 1


def test_a_seal_that_was_put_to_sleep_opens_another_epoch(ends):
    a, b = ends
    meet(a, b)
    epoch = a.seal.out_epoch
    kept, size, before = asleep(a)
    assert size
    a.seal = before
    a.send(b"woken by something")
    assert a.seal.out_epoch == epoch + 1
    a.boot()
    assert import_from(a.seal, kept, 5, size) == E_PEER  # older than the record


def test_a_snapshot_of_an_older_epoch_is_refused(ends):
    a, b = ends
    meet(a, b)
    kept, size, _ = asleep(a)
    a.send(b"cold boot")
    a.boot()
    assert import_from(a.seal, kept, 5, size) == E_PEER
    assert import_from(a.seal, bytearray(size), 0, size) == E_PEER
    assert import_from(a.seal, kept, 5, size - 1) == E_PEER


# --- bundles ---


def bundle(end, texts):
    """The frames of one bundle."""
    end.seal.renew = True
    return [end.send(text) for text in texts] + [end.send(b"number..", FINAL)]


def read_whole(end):
    """What a visit does once the state is saved."""
    end.seal.whole_epoch = end.seal.in_epoch
    assert end.seal.commit() == OK


def test_a_bundle_can_be_read_again_until_the_state_is_saved(aead):
    a, b = pair(aead, carrier_class=1)
    frames = bundle(a, [b"1", b"2", b"3"])
    for cut in range(1, 4):
        for frame in frames[:cut]:
            assert b.take(frame) != E_PEER
        b.boot()  # in the middle of it
    for frame in frames:
        assert b.take(frame) != E_PEER
    assert b.seal.context.final
    read_whole(b)
    b.boot()
    for frame in frames:
        assert b.take(frame) == E_PEER


def test_only_a_bundles_first_frame_carries_the_salt(aead):
    a, b = pair(aead, carrier_class=1)
    frames = bundle(a, [b"r"] * 5)
    assert [len(frame) - 1 for frame in frames[:-1]] == [32, 15, 15, 15, 15]
    assert [b.take(frame) for frame in frames[:-1]] == [b"r"] * 5


def test_a_bundle_of_many_epochs_and_bundles_that_skip_some(aead):
    a, b = pair(aead, carrier_class=1)
    for frame in bundle(a, [b"%d" % n for n in range(1200)]):
        assert b.take(frame, 5) not in (E_PEER, E_STORAGE)
    for _ in range(4):
        lost = bundle(a, [b"x"])
    assert b.take(lost[0], SEAL_SKIP_MS + 6) == b"x"
    read_whole(b)
    record = bytearray(RECORD_SIZE)
    b.keys.load(row_of(1, RECEIVE, 0), record)
    assert int.from_bytes(record[8:12]) == a.seal.out_epoch


def test_classes_and_directions_have_chains_of_their_own(aead):
    live, _ = pair(aead)
    _, stick = pair(aead, carrier_class=1)
    assert stick.take(live.send(b"x")) == E_PEER
    records = [live.keys.rows[row] for row in sorted(live.keys.rows) if row < 8]
    assert len({record[16:48] for record in records}) == 4
    assert len({record[2:4] for record in records}) == 4


# --- new roots and revocations (docs/SPEC.md 11.7) ---

NEW_ROOT = bytes(range(100, 132))


def rotation(a):
    assert rekey(a.keys, NEW_ROOT, KID, 1, 0) == OK
    issuer = Issuer(a.seal)
    issuer.rekey(NEW_ROOT, 1)
    return issuer


def told(a, b, issuer, now_ms=0):
    """Everything that the issuer has to say now."""
    a.seal.prepare()
    codes = []
    while text := issuer.due(now_ms):
        codes.append(b.take(a.send(text, TYPE_CONTROL)))
    return codes


def test_rekey_over_a_link_that_leads_both_ways(ends):
    a, b = ends
    meet(a, b)
    issuer = rotation(a)
    assert told(a, b, issuer) == [b""]
    assert b.take(a.send(b"still the old root")) == b"still the old root"
    frame = b.send(b"new")
    assert frame[0] & 0x08 and b.seal.generation == 1
    assert a.take(frame) == b"new"
    assert issuer.rekeyed and issuer.due(1 << 20) == b""
    meet(a, b)
    assert a.seal.generation == b.seal.generation == a.seal.generation_in == 1
    live = {row_of(0, SEND, 1), row_of(0, RECEIVE, 1)}
    assert {row for row in a.keys.rows if row < 4} == live
    assert {row for row in b.keys.rows if row < 4} == live
    for end in ends:
        end.boot()
    meet(a, b)


def test_rekey_is_told_in_every_epoch_until_the_answer_comes(ends):
    a, b = ends
    meet(a, b)
    issuer = rotation(a)
    sent = 0
    for n in range(10):
        a.seal.prepare()
        while text := issuer.due(n * 10):
            a.send(text, TYPE_CONTROL)  # lost
            sent += 1
        a.seal.renew = True
    assert sent == 10
    b.take(a.send(b"x"), SEAL_SKIP_MS)
    a.seal.renew = True
    assert told(a, b, issuer, 99) == [b""]
    assert told(a, b, issuer, 99 + SEAL_CONTROL_MS) == [b""]  # again: no harm
    assert a.take(b.send(b"new")) == b"new"
    assert issuer.rekeyed


def test_rekey_over_sticks_one_way_and_old_sticks_still_count(aead):
    a, b = pair(aead, carrier_class=1)
    issuer = rotation(a)
    a.seal.renew = True
    a.seal.prepare()
    assert b.take(a.send(b"")) == b""
    assert told(a, b, issuer) == [b""]
    read_whole(b)
    # Nothing ever comes back: A stays with the old root, B takes it for as long as need be.
    for n in range(5):
        for frame in bundle(a, [b"%d" % n]):
            assert b.take(frame, n) != E_PEER
        read_whole(b)
        b.boot()
        assert a.seal.generation == 0
    assert a.take(b.send(b"at last")) == b"at last"
    a.seal.renew = True
    assert b.take(a.send(b"new root")) == b"new root"
    assert a.seal.generation == 1


@pytest.mark.parametrize("saves", range(5))
def test_rekey_that_a_power_cut_interrupts_is_made_whole(ends, saves):
    a, b = ends
    meet(a, b)
    issuer = rotation(a)
    save = b.keys.save
    left = [saves]

    def failing(row, record):
        left[0] -= 1
        return save(row, record) if left[0] >= 0 else E_STORAGE

    b.keys.save = failing
    told(a, b, issuer)
    b.keys.save = save
    b.boot()
    a.take(b.send(b"hello"))
    a.seal.renew = True
    told(a, b, issuer, SEAL_CONTROL_MS)
    for n in range(4):
        b.take(a.send(b"x"), 1000 * n)
        a.take(b.send(b"y"), 1000 * n)
    assert issuer.rekeyed
    meet(a, b)
    assert a.seal.generation == b.seal.generation == 1


def test_only_the_issuer_may_rekey_or_revoke(ends):
    a, b = ends
    meet(a, b)
    rows = dict(a.keys.rows)
    assert a.take(b.send(b"\x01\x00\x01" + NEW_ROOT, TYPE_CONTROL)) == E_PEER
    assert a.take(b.send(b"\x02CCCC\0\0", TYPE_CONTROL)) == E_PEER
    assert a.keys.rows == rows and not a.keys.revoked


@pytest.mark.parametrize(
    "text", [b"", b"\x01", b"\x01\x00\x02" + NEW_ROOT, b"\x01\x00\x01" + NEW_ROOT[1:], b"\x02CCCC",
             b"\x03" + NEW_ROOT]
)  # fmt: skip
def test_a_control_frame_that_makes_no_sense_changes_nothing(ends, text):
    a, b = ends
    meet(a, b)
    rows = dict(b.keys.rows)
    assert b.take(a.send(text, TYPE_CONTROL)) == E_PEER
    assert b.keys.rows == rows


def test_rotation_after_rotation(ends):
    a, b = ends
    for generation in range(1, 6):
        root = bytes([generation]) * 32
        assert rekey(a.keys, root, KID, generation, 0) == OK
        issuer = Issuer(a.seal)
        issuer.rekey(root, generation)
        told(a, b, issuer)
        for _ in range(4):
            b.take(a.send(b"?"))
            a.take(b.send(b"!"))
        assert issuer.rekeyed and a.seal.generation == b.seal.generation == generation
        assert len([row for row in a.keys.rows if row < 4]) == 2


def test_revoke_is_told_to_the_others_so_many_times(ends):
    a, b = ends
    meet(a, b)
    issuer = Issuer(a.seal)
    issuer.revoke(b"CCCC")
    for n in range(20):
        told(a, b, issuer, n)
        b.take(a.send(b"?"))
        a.take(b.send(b"!"))
    assert b.keys.revoked == [b"CCCC\0\0"] * SEAL_REVOKE_SENDS
    for n in range(SEAL_REVOKED_MAX):
        issuer.revoke(b"%4d" % n)
    with pytest.raises(CapacityError):
        issuer.revoke(b"9999")


def test_who_was_revoked_is_heard_no_more(ends):
    a, b = ends
    meet(a, b)
    frame = a.send(b"x")
    b.seal.close()
    assert b.take(frame) == E_PEER
    assert b.send(b"y") == E_PEER
    for row, kept in b.keys.rows.items():
        record = bytearray(kept)
        record[1] |= FLAG_REVOKED
        finish(record)
        b.keys.save(row, record)
    with pytest.raises(AssertionError):
        b.boot()


# --- a peer that lies ---


class LyingAead:
    """Seals other bytes than the status that it is given: the frame is authentic all the same."""

    def __init__(self, aead, draw):
        self._aead = aead
        self._draw = draw
        self.cipher = aead.cipher
        self.open = aead.open
        self.lies = 0

    def seal(self, cipher, nonce, buf, at, aad_size, size, tag_size):
        if buf[at] & TYPE_STATUS:
            for index in range(self._draw.randrange(STATUS_SIZE)):
                buf[at + aad_size + index] = self._draw.randrange(256)
                self.lies += 1
        self._aead.seal(cipher, nonce, buf, at, aad_size, size, tag_size)


@pytest.mark.parametrize("carrier_class", [0, 1])
def test_whatever_an_authentic_peer_says_we_go_on(aead, carrier_class):
    a, b = pair(aead, carrier_class=carrier_class)
    draw = random.Random(carrier_class)
    a.aead = LyingAead(aead, draw)
    liar = a.boot()
    for n in range(3000):
        now_ms = n * SEAL_SKIP_MS & 0x3FFFFFFF
        liar.owes = draw.random() < 0.3
        liar.renew = draw.random() < 0.02
        text = draw.randbytes(draw.randrange(40))
        got = b.take(a.send(text, draw.choice((0, 0, 1, 2, 3, 4, 7, FINAL))), now_ms)
        assert isinstance(got, bytes) or got in (E_PEER, E_STORAGE)
        a.take(b.send(b"!"), now_ms)
    assert a.aead.lies > 100
    assert len(b.keys.rows) == 5 and b.seal.out_epoch < SEAL_EPOCH_MAX


# --- no memory left ---


@pytest.mark.parametrize("failing", range(30))
def test_memory_that_runs_out_anywhere_costs_frames_only(ends, failing, monkeypatch):
    """The calls that allocate fail one after the other, in a life with reboots and new epochs."""
    a, b = ends
    left = [failing]

    def scarce(call):
        def wrapped(*arguments):
            left[0] -= 1
            if left[0] == -1:
                raise MemoryError
            return call(*arguments)

        return wrapped

    monkeypatch.setattr("drupelet.seal.record.hmac", scarce(seal_record.hmac))
    monkeypatch.setattr(a.aead, "cipher", scarce(a.aead.cipher))
    monkeypatch.setattr(a.aead, "seal", scarce(a.aead.seal))
    monkeypatch.setattr(a.aead, "open", scarce(a.aead.open))
    taken = set()
    for n in range(8):
        for here, there in ((a, b), (b, a)):
            try:
                got = there.take(here.send(b"%d" % n), n)
            except MemoryError:
                continue
            assert (there, got) not in taken or got == E_PEER
            taken.add((there, got))
        if n == 2:
            a.boot()
        if n == 4:
            b.seal.renew = True
    assert left[0] < -1
    meet(a, b)
