"""Sealed links, rule by rule (docs/SPEC.md 11)."""

import random
import re

import pytest

from drupelet.base.aes import Aes
from drupelet.base.ccm import Ccm
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import (
    SEAL_EPOCH_MAX,
    SEAL_FORGED_PER_SLICE,
    SEAL_SKIP_MS,
    SEAL_STEPS_HOST_MAX,
)
from drupelet.seal.record import (
    FLAG_ISSUER,
    FLAG_TAG16,
    RECORD_SIZE,
    SEND,
    finish,
    first_key,
    frame_key,
    install,
    is_sound,
    row_of,
    step,
)
from drupelet_host.base.aead import Aead
from repeats import few
from seal_ends import A_ID, B_ID, KID, ROOT, End, RamKeys, Witness, flipped, meet, pair
from spec import spec_text

HEAD, SALT, STATUS, TAG = 7, 8, 9, 8


@pytest.fixture
def aead():
    made = Witness(Aead())
    yield made
    assert made.reused == 0


@pytest.fixture
def ends(aead):
    return pair(aead)


# --- frames ---


def test_a_frame_costs_15_bytes_23_until_confirmed_and_9_for_a_status(ends):
    a, b = ends
    first = a.send(b"reading")
    assert len(first) - 7 == HEAD + SALT + STATUS + TAG
    a.send(b"")
    a.send(b"")
    assert len(a.send(b"reading")) - 7 == HEAD + SALT + TAG  # frame 3: no status
    meet(*ends)
    assert len(a.send(b"reading")) - 7 == HEAD + TAG
    assert len(b.send(b"reading")) - 7 == HEAD + TAG


def test_tags_of_16_bytes_are_a_matter_of_provisioning(aead):
    a = End(A_ID, B_ID, aead, 1, FLAG_TAG16)
    b = End(B_ID, A_ID, aead, 2, FLAG_TAG16)
    meet(a, b)
    frame = a.send(b"reading")
    assert len(frame) == HEAD + 7 + 16
    assert b.take(frame) == b"reading"
    assert b.take(a.send(b"more")[:-8]) == E_PEER


def test_every_bit_of_a_frame_counts(ends):
    a, b = ends
    meet(a, b)
    frame = a.send(b"r")
    now_ms = 0
    for at in range(len(frame)):
        for bit in range(8):
            now_ms += 1000  # the budget for wrong tags is full again
            assert b.take(flipped(frame, at, 1 << bit), now_ms) == E_PEER
    assert b.take(frame, now_ms + 1000) == b"r"
    for size in range(len(frame)):
        assert b.take(frame[:size], now_ms) == E_PEER


def test_a_frame_of_ours_is_not_taken_from_a_mirror(ends):
    a, b = ends
    frame = a.send(b"to b")
    assert a.take(frame) == E_PEER
    assert b.take(frame) == b"to b"


def test_a_sealed_frame_is_no_plain_frame_and_the_other_way_round(ends):
    a, b = ends
    assert a.send(b"x")[0] & 0xC0 == 0x80
    for kind in (0x40, 0x44, 0x50, 0x51, 0x52):
        assert b.take(bytes([kind]) + bytes(40)) == E_PEER


# --- our epochs (trust 1.4, rule 1) ---


def test_an_epoch_is_durable_before_its_first_frame(ends):
    a, b = ends
    a.keys.cut = "before"
    assert a.send(b"x") == E_STORAGE
    a.keys.cut = "after"  # written, but we were told that it failed
    assert a.send(b"x") == E_STORAGE
    a.keys.cut = ""
    assert b.take(a.send(b"x")) == b"x"
    assert a.seal.out_epoch == 2


def test_a_boot_never_resumes_an_epoch(ends):
    a, _ = ends
    epochs = set()
    for _ in range(5):
        a.send(b"x")
        epochs.add(a.seal.out_epoch)
        a.boot()
    assert len(epochs) == 5


def test_after_256_frames_comes_a_new_epoch(ends):
    a, b = ends
    meet(a, b)
    epoch = a.seal.out_epoch
    saves = a.keys.saves
    for n in range(600):
        text = b"%d" % n
        assert b.take(a.send(text), n) == text
        b_text = b.send(b"!")
        assert a.take(b_text, n) == b"!"
    assert a.seal.out_epoch == epoch + 2
    assert a.keys.saves - saves <= 5  # two of ours, two or three of the peer's


def test_the_last_epoch_is_the_end(ends):
    a, _ = ends
    a.send(b"x")
    record = bytearray(RECORD_SIZE)
    a.keys.load(row_of(0, SEND, 0), record)
    record[8:12] = SEAL_EPOCH_MAX.to_bytes(4)
    finish(record)
    a.keys.save(row_of(0, SEND, 0), record)
    a.boot()
    assert a.send(b"x") == E_CAPACITY


def test_a_peer_that_rebooted_gets_a_new_epoch(ends):
    a, b = ends
    meet(a, b)
    epoch = a.seal.out_epoch
    b.boot()
    assert a.take(b.send(b"hello again")) == b"hello again"
    assert b.take(a.send(b"x")) == b"x"
    assert a.seal.out_epoch == epoch + 1
    meet(a, b)


# --- the peer's epochs (rules 2, 3) ---


def test_nothing_is_durable_before_a_tag_was_right(ends):
    a, b = ends
    rows = dict(b.keys.rows)
    frame = a.send(b"x")
    for n in range(200):
        forged = flipped(frame, 15 + n % (len(frame) - 15))
        forged = forged[:4] + bytes([n % 4]) + forged[5:]
        assert b.take(forged, n * 10000) == E_PEER
    assert b.keys.rows == rows and b.seal.in_epoch == 0
    assert b.take(frame, 3 << 20) == b"x"


def test_nothing_is_handed_on_before_the_epoch_is_durable(ends):
    a, b = ends
    frame = a.send(b"x")
    b.keys.cut = "before"
    assert b.take(frame) == E_STORAGE
    assert b.seal.in_epoch == 0 and not b.seal.in_open
    b.keys.cut = ""
    assert b.take(a.send(b"y")) == b"y"
    assert b.take(frame) == b"x"  # it was lost, not seen


def test_stragglers_of_one_older_epoch_are_taken_once(ends):
    a, b = ends
    meet(a, b)
    late = [a.send(b"%d" % n) for n in range(3)]
    a.seal.renew = True
    assert b.take(a.send(b"new")) == b"new"
    assert b.take(late[2]) == b"2"
    assert b.take(late[0]) == b"0"
    assert b.take(late[2]) == E_PEER and b.seal.replayed == 1
    a.seal.renew = True
    assert b.take(a.send(b"newer")) == b"newer"
    assert b.take(late[1]) == E_PEER and b.seal.closed_epoch == 1


def test_what_was_open_before_a_reboot_is_closed_and_the_sender_learns_it(ends):
    a, b = ends
    meet(a, b)
    old = a.send(b"seen")
    assert b.take(old) == b"seen"
    b.boot()
    assert b.take(old) == E_PEER  # its window is gone: it could be a replay
    assert b.take(a.send(b"lost")) == E_PEER
    assert b.seal.urgent
    assert a.take(b.send(b"")) == b""  # a status alone
    assert b.take(a.send(b"again")) == b"again"
    meet(a, b)


def test_an_epoch_whose_first_frames_were_lost_opens_with_any(ends):
    a, b = ends
    frames = [a.send(b"%d" % n) for n in range(40)]
    for n in (37, 5, 39, 0):
        assert b.take(frames[n]) == b"%d" % n
    assert b.take(frames[37]) == E_PEER


def far_ahead(end, epochs):
    """A frame of an epoch that many further on, whatever came between."""
    record = bytearray(RECORD_SIZE)
    row = row_of(0, SEND, 0)
    end.keys.load(row, record)
    base = int.from_bytes(record[8:12])
    record[16:48] = step(record[16:48], base, epochs - 1)
    record[8:12] = record[12:16] = (base + epochs - 1).to_bytes(4)  # as if it had been answered
    finish(record)
    end.keys.save(row, record)
    end.boot()
    return end.send(b"x")


def test_what_is_far_ahead_is_reached_in_some_steps(ends):
    a, b = ends
    frame = far_ahead(a, 4000)
    rows = dict(b.keys.rows)
    for n in range(3):
        assert b.take(frame, n * SEAL_SKIP_MS) == E_PEER and b.keys.rows == rows
        assert b.take(frame, n * SEAL_SKIP_MS + 5000) == E_PEER
    assert b.take(frame, 3 * SEAL_SKIP_MS) == b"x"
    assert b.seal.ahead is None and b.seal.in_epoch == 4000
    meet(a, b, 1 << 20)


def test_a_forger_far_ahead_does_not_hide_who_is_nearer(ends):
    a, b = ends
    frame = far_ahead(a, 500)
    forged = frame[:3] + (9000).to_bytes(3) + frame[6:]
    for n in range(4):
        assert b.take(forged, n * SEAL_SKIP_MS) == E_PEER
    assert b.take(frame, 4 * SEAL_SKIP_MS) == b"x"


def test_a_device_of_many_wakes_is_heard_however_long_we_were_away(ends):
    """Each wake of one that keeps no keys over its sleep is an epoch: 45 days of minutes."""
    a, b = ends
    frame = far_ahead(a, SEAL_STEPS_HOST_MAX + 1)
    b.seal.context.steps_max = SEAL_STEPS_HOST_MAX
    assert b.take(frame, 0) == E_PEER  # as far as it goes at once
    assert b.take(frame, SEAL_SKIP_MS) == b"x"


def test_long_skips_are_rare_so_that_forgers_cannot_take_our_time(ends):
    a, b = ends
    meet(a, b)
    frame = a.send(b"x")
    far = bytes([frame[0] | 0x20]) + frame[1:3] + b"\x00\x01\x00" + bytes(40)
    derived = b.aead.cipher
    calls = []
    b.aead.cipher = lambda key, at: calls.append(1) or derived(key, at)
    for now_ms in range(5000, 25000, 10):
        assert b.take(far, now_ms) == E_PEER
    assert 2 <= len(calls) <= 20000 // SEAL_SKIP_MS + 1


# --- replays (rule 4) ---


def test_no_number_is_taken_twice_in_any_order(ends):
    a, b = ends
    meet(a, b)
    draw = random.Random(3)
    first = a.seal.seq
    frames = [a.send(b"%d" % n) for n in range(256 - first)]
    order = list(range(len(frames))) * 3
    draw.shuffle(order)
    taken = [n for n in order if b.take(frames[n]) != E_PEER]
    assert sorted(taken) == list(range(len(frames)))
    assert b.seal.replayed == len(order) - len(frames)


def test_a_replay_after_a_wrong_tag_is_still_a_first_time(ends):
    a, b = ends
    meet(a, b)
    frame = a.send(b"x")
    assert b.take(flipped(frame, 9)) == E_PEER
    assert b.take(frame) == b"x"


def test_frames_of_types_that_nobody_has_yet_are_counted_and_do_nothing(ends):
    """Type 3 is kept for firmware, of which there is none over a link."""
    a, b = ends
    meet(a, b)
    seen = b.seal.in_epoch
    for n, kind in enumerate((3, 4, 5, 6, 7, 3 | 0x10)):
        assert b.take(a.send(b"image", kind)) == E_PEER
        assert b.seal.unknown == n + 1
    assert b.seal.in_epoch == seen and not b.seal.forged
    assert b.take(a.send(b"x")) == b"x"
    assert b.take(flipped(a.send(b"image", 3), 12)) == E_PEER
    assert b.seal.unknown == 6 and b.seal.forged == 1, "only what is authentic"


# --- forgers (trust 1.1, 1.4 rule 5) ---


def test_few_wrong_tags_in_a_slice_then_nothing_is_tried(ends):
    a, b = ends
    meet(a, b)
    frame = a.send(b"x")
    for _ in range(100):
        assert b.take(flipped(frame, 9), 5 << 10) == E_PEER
    assert b.seal.forged == SEAL_FORGED_PER_SLICE
    assert b.take(frame, (5 << 10) + 63) == E_PEER
    assert b.take(frame, (5 << 10) + 64) == b"x"


def test_frames_of_invented_epochs_use_up_nothing_of_the_open_one(ends):
    """Whoever knows no more than the key id: nothing genuine is lost, however many come."""
    a, b = ends
    meet(a, b)
    invented = bytearray(a.send(bytes(40)))
    invented[0] |= 0x20
    for n in range(1000):
        invented[3:6] = (n % 7 + b.seal.in_epoch + 1).to_bytes(3)
        assert b.take(bytes(invented), 5 << 10) == E_PEER
    assert b.seal.forged == SEAL_FORGED_PER_SLICE >> 2
    assert b.take(a.send(b"x"), 5 << 10) == b"x"


def test_after_65535_wrong_tags_only_a_new_epoch_is_heard(ends, monkeypatch):
    monkeypatch.setattr("drupelet.seal.seal.SEAL_FORGED_MAX", 64)
    a, b = ends
    meet(a, b)
    frame = a.send(b"x")
    now_ms = 0
    for n in range(64):
        now_ms = n * 1000
        assert b.take(flipped(frame, 9), now_ms) == E_PEER
    assert b.seal.muted and b.seal.urgent
    assert b.take(frame, now_ms + 1000) == E_PEER
    assert a.take(b.send(b"")) == b""  # tells that the epoch is closed
    assert b.take(a.send(b"new epoch"), now_ms + 1000) == b"new epoch"
    assert not b.seal.muted


# --- records ---


def test_without_keys_nothing_is_sealed(aead):
    end = End(A_ID, B_ID, aead, 1)
    end.keys.rows.clear()
    with pytest.raises(AssertionError):
        end.boot()
    assert end.seal.load() == E_STORAGE
    assert end.send(b"x") == E_STORAGE


def test_every_bit_of_a_record_counts():
    keys = RamKeys(A_ID, B_ID)
    assert install(keys, ROOT, KID, 0, FLAG_ISSUER) == OK
    for record in keys.rows.values():
        assert is_sound(record)
        for at in range(RECORD_SIZE):
            assert not is_sound(flipped(record, at))


def test_keys_do_not_stay_in_the_shared_record(ends):
    a, b = ends
    meet(a, b)
    for end in ends:
        assert end.seal.context.record[16:48] == bytes(32)


# --- anything may come ---


@pytest.mark.parametrize("frames", few(1, (25_000, 100_000)))
def test_frames_of_noise_change_nothing(ends, frames):
    a, b = ends
    meet(a, b)
    draw = random.Random(9)
    good = [a.send(bytes(draw.randrange(80))) for _ in range(40)]
    rows = dict(b.keys.rows)
    buf = bytearray(1024)
    for n in range(frames):
        if n & 1:
            frame = bytearray(draw.choice(good))
            for _ in range(draw.randrange(1, 4)):
                frame[draw.randrange(len(frame))] = draw.randrange(256)
            frame = frame[: draw.randrange(len(frame) + 1)]
        else:
            frame = draw.randbytes(draw.randrange(60))
            if len(frame) > 3:
                frame = bytes([0x80 | frame[0] & 0x3F]) + good[0][1:3] + frame[3:]
        buf[: len(frame)] = frame
        code = b.seal.open(buf, len(frame), n * 100 & 0x3FFFFFFF)
        assert code == E_PEER or (code >= 0 and bytes(frame) in good)
    assert b.keys.rows == rows


# --- the example of docs/SPEC.md 11.8 ---


def test_the_example_of_the_specification():
    page = spec_text()
    example = page[page.index("### 11.8") :].split("```")[1]
    words = [word for word in example.split() if re.fullmatch("[0-9a-f]{42,}", word)]
    ck0, ck1, okm, record, first, second = words
    assert first_key(ROOT, 0, A_ID, B_ID).hex() == ck0
    assert bytes(step(bytes.fromhex(ck0), 0, 1)).hex() == ck1
    salt = bytes(range(0xA0, 0xA8))
    assert frame_key(bytes.fromhex(ck1), salt).hex() == okm
    a, b = pair(Ccm(Aes))
    a.seal.context.random_byte = iter(salt).__next__
    a.seal.context.store_gen = bytes((1, 2, 3, 4))
    assert a.send(b"21.5 C").hex() == first
    assert a.keys.rows[0].hex() == record
    assert b.take(bytes.fromhex(first)) == b"21.5 C"
    a.take(b.send(b""))
    a.seal.owes = False
    assert a.send(b"21.6 C").hex() == second
