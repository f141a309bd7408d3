"""Sealed carriers and sealed bundles: what the owner's loop sees, and what a stick can do."""

import struct
import zlib
from binascii import crc_hqx
from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import SEAL_ANEW_MS_MAX, SEAL_TELL_MS
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import Seal, SealContext
from drupelet_host.agent.issuing_visit import IssuingVisit
from drupelet_host.base.aead import Aead
from drupelet_transports.common.in_process import pair as loop_pair
from drupelet_transports.common.transport import E_CLOSED
from drupelet_transports.seal.sealed_carrier import Sealed
from drupelet_transports.stick.sealed_visit import SealedVisit
from drupelet_transports.stick.stick import Stick
from seal_ends import A_ID, B_ID, KID, Clock, End, Witness, install, pair
from transports.sealed_bundles import FakeLink, Member, bundles


class Ends:
    """Two sealed ends of a loop; `tap` sees sealed frames."""

    def __init__(self, frame_size_max=1024, frames=8):
        self.aead = Witness(Aead())
        self.clock = Clock()
        self.ends = pair(self.aead)
        self.carriers = loop_pair(frame_size_max, frames)
        buf = bytearray(1024)
        self.a, self.b = (
            Sealed(carrier, end.seal, self.clock, buf)
            for carrier, end in zip(self.carriers, self.ends, strict=True)
        )

    def pass_on(self, text, back=False):
        here, there = (self.b, self.a) if back else (self.a, self.b)
        code = here.send(bytearray(text), len(text))
        assert code == OK, code
        frame = bytearray(there.frame_size_max)
        size = there.receive_into(frame)
        return bytes(frame[:size]) if size > 0 else size

    def meet(self):
        for _ in range(3):
            assert self.pass_on(b"?") == b"?"
            assert self.pass_on(b"!", back=True) == b"!"


@pytest.fixture
def ends():
    made = Ends()
    yield made
    assert made.aead.reused == 0


DAY_MS = 86_400_000


def test_an_epoch_ends_after_30_days_awake_and_is_durable_first(ends):
    """A fast clock, which wraps every 12 days; nothing is asked of it but differences."""
    ends.meet()
    seal, keys = ends.ends[0].seal, ends.ends[0].keys
    epoch = seal.out_epoch
    steps = 0
    while seal.out_epoch == epoch:
        steps += 1
        assert steps <= 30 * 24, "30 days and not an hour more"
        ends.clock.ms = (ends.clock.ms + DAY_MS // 24) & 0x3FFFFFFF
        assert receive(ends.a) == 0
        if steps % 12 == 0:
            saves = keys.saves
            assert ends.pass_on(b"reading") == b"reading"
            assert keys.saves == saves + (seal.out_epoch > epoch)
    assert 30 * 24 - 12 < steps
    ends.meet()
    assert seal.out_epoch == epoch + 1, "and the next one lasts as long"
    keys.cut = "before"
    for _ in range(31):
        ends.clock.ms = (ends.clock.ms + DAY_MS) & 0x3FFFFFFF
        receive(ends.a)
    assert ends.a.send(bytearray(b"x"), 1) == E_STORAGE, (
        "nothing leaves in one that is not durable"
    )


def receive(carrier):
    frame = bytearray(carrier.frame_size_max)
    size = carrier.receive_into(frame)
    return bytes(frame[:size]) if size > 0 else size


# --- live ---


def test_facts_are_the_carriers_less_the_seal(ends):
    a = ends.a
    assert a.frame_size_max == 1024 - 23 and a.duplex
    assert a.poll_object is None and a.pending_size == 0 and a.damaged == 0
    ends.carriers[0].pending_size = 7
    ends.carriers[0].damaged = 3
    assert a.pending_size == 7 and a.damaged == 3
    a.close()
    assert receive(ends.b) == E_CLOSED


@pytest.mark.parametrize("size", [1, 992, 993, 1001])
def test_frames_of_every_size_pass_in_any_state_of_the_epoch(ends, size):
    text = bytes(range(256)) * 4
    assert ends.pass_on(text[:size]) == text[:size]
    assert ends.pass_on(text[:size], back=True) == text[:size]
    ends.meet()
    assert ends.pass_on(text[:size]) == text[:size]


def test_a_status_that_does_not_fit_beside_a_frame_goes_before_it(ends):
    assert ends.pass_on(bytes(1000)) == bytes(1000)
    assert ends.a.last_wire_size == 32 + 1023
    assert ends.b.last_wire_size == 32 + 1023
    assert ends.b.seal.status_seen


def test_a_radio_with_short_frames():
    ends = Ends(222)
    assert ends.a.frame_size_max == 199
    ends.meet()
    assert ends.pass_on(bytes(199)) == bytes(199)


def test_wire_sizes_are_those_of_the_carrier(ends):
    ends.meet()
    assert ends.pass_on(b"reading") == b"reading"
    assert ends.a.last_wire_size == ends.b.last_wire_size == 22


def test_a_carrier_that_is_busy_or_gone_says_so(ends):
    for _ in range(8):
        assert ends.a.send(bytearray(b"x"), 1) == OK
    assert ends.a.send(bytearray(b"x"), 1) == E_CAPACITY
    ends.carriers[1].close()
    assert ends.a.send(bytearray(b"x"), 1) == E_CLOSED


def test_keys_that_cannot_be_saved_keep_the_frame_back(ends):
    ends.ends[0].keys.cut = "before"
    assert ends.a.send(bytearray(b"x"), 1) == E_STORAGE
    assert receive(ends.b) == 0
    ends.ends[0].keys.cut = ""
    assert ends.pass_on(b"x") == b"x"


def test_junk_is_skipped_and_the_next_good_frame_comes(ends):
    ends.meet()
    for junk in (b"\x40\x01\x00", bytes(30), b"\xff" * 1024):
        ends.carriers[0].send(bytearray(junk), len(junk))
    assert ends.pass_on(b"good") == b"good"
    assert ends.b.refused == 3


def test_a_flood_of_junk_ends_a_call(ends):
    ends = Ends(frames=100)
    for _ in range(100):
        ends.carriers[0].send(bytearray(30), 30)
    assert receive(ends.b) == 0 and ends.b.refused == 32


def reboot(ends, number):
    end = ends.ends[number]
    end.boot()
    buf = bytearray(1024)
    return Sealed(ends.carriers[number], end.seal, ends.clock, buf)


def test_who_rebooted_and_has_nothing_to_say_tells_that_the_epoch_is_closed(ends):
    ends.meet()
    ends.b = reboot(ends, 1)
    assert ends.pass_on(b"lost") == 0
    assert receive(ends.a) == 0  # the status that B sent by itself
    assert ends.pass_on(b"again") == b"again"


def test_a_status_leaves_by_itself_at_most_every_two_seconds(ends):
    ends.meet()
    old = [ends.ends[0].send(b"old") for _ in range(40)]
    ends.b = reboot(ends, 1)
    saves = ends.ends[1].keys.saves
    told = 0
    for n, frame in enumerate(old):
        ends.clock.ms = n * SEAL_TELL_MS // 4
        ends.carriers[0].send(bytearray(frame), len(frame))
        receive(ends.b)
        sealed = bytearray(1024)
        while ends.carriers[0].receive_into(sealed):
            told += 1
    # 0, 2, then after twice as long each time, and in a new epoch: 6 and 14 s.
    assert told == 4
    assert ends.ends[1].keys.saves - saves <= 4


def test_two_that_were_set_back_find_each_other(ends):
    ends.meet()
    images = [dict(end.keys.rows) for end in ends.ends]
    for _ in range(4):
        ends.a, ends.b = reboot(ends, 0), reboot(ends, 1)
        assert ends.pass_on(b"x") == b"x"
        ends.pass_on(b"y", back=True)
    ends.ends[0].keys.rows = images[0]
    ends.a = reboot(ends, 0)
    ends.b = reboot(ends, 1)
    passed = []
    for _ in range(4):
        ends.clock.ms += SEAL_TELL_MS
        passed = [ends.pass_on(b"?"), ends.pass_on(b"!", back=True)]
    assert passed == [b"?", b"!"]


@pytest.mark.parametrize("lost", [0, 1, 5])
def test_a_log_begun_anew_is_told_until_the_peer_has_heard_and_then_no_more(ends, lost):
    """Neither has anything else to say; `lost`: so many of its first frames."""
    b = ends.b
    ends.ends[0].store_gen = b"past"
    ends.a = reboot(ends, 0)
    ends.meet()
    ends.ends[0].store_gen = b"anew"
    ends.a = a = reboot(ends, 0)
    a.seal.anew = True
    saves = ends.ends[0].keys.saves
    told = answers = 0
    for _ in range(400):
        ends.clock.ms += SEAL_TELL_MS // 2
        assert receive(a) == 0
        sealed = bytearray(1024)
        size = ends.carriers[1].receive_into(sealed)
        told += size > 0
        if size and told > lost:
            ends.carriers[0].send(sealed, size)
        assert receive(b) == 0
        size = ends.carriers[0].receive_into(sealed)
        answers += size > 0
        if size:
            ends.carriers[1].send(sealed, size)
    assert b.seal.peer_lost and not a.seal.anew and a.seal.confirmed
    assert lost < told <= lost + 2 and 0 < answers <= 2
    assert ends.ends[0].keys.saves == saves + 2, "one epoch, and the peer's record"


def test_a_log_begun_anew_is_told_for_ever_to_nobody_but_seldom(ends):
    ends.a.seal.anew = True
    sealed = bytearray(1024)
    told = 0
    for _ in range(1800):
        ends.clock.ms += SEAL_TELL_MS
        receive(ends.a)
        while ends.carriers[1].receive_into(sealed):
            told += 1
    assert 3600_000 // SEAL_ANEW_MS_MAX < told <= 3600_000 // SEAL_ANEW_MS_MAX + 8
    assert ends.ends[0].seal.out_epoch == 1


def test_control_frames_do_not_reach_the_link(ends):
    ends.meet()
    issuer = Issuer(ends.a.seal)
    issuer.revoke(b"CCCC")
    ends.a.issuer = issuer
    assert ends.pass_on(b"reading") == b"reading"
    assert ends.ends[1].keys.revoked == [b"CCCC\0\0"]


# --- bundles ---


def test_bundles_there_and_back(members, tmp_path):
    a, b = members
    assert a.go([b"one", b"two", bytes(1001)]) == OK
    assert a.visit.frames_out == 5  # a status, three, FINAL
    assert b.go([b"back"]) == OK
    assert b.link.got == [b"one", b"two", bytes(1001)]
    assert b.visit.bundles_in == 1 and b.link.bundle_in == 1
    assert a.go() == OK
    assert a.link.got == [b"back"] and a.link.peer_seen == 1
    assert a.link.limits == {1001}
    for path in bundles(tmp_path):
        assert b"one" not in path.read_bytes() and b"back" not in path.read_bytes()


def test_a_log_begun_anew_is_told_once_on_each_stick_until_the_peer_has_read_it(members, tmp_path):
    a, b = members
    a.end.store_gen = b"past"
    a.end.boot()
    a.go([b"before"])
    assert b.go() == OK and not b.end.seal.peer_lost
    a.end.store_gen = b"anew"
    a.end.boot()
    a.end.seal.anew = True
    a.link = FakeLink()
    for _ in range(3):
        assert a.go() == OK
    assert [path.name[:8] for path in bundles(tmp_path)] == ["00000001", "00000002"]
    assert b.go() == OK
    assert b.end.seal.peer_lost and b.visit.bundles_in == 1 and b.visit.bundles_out == 0
    assert a.go() == OK and a.visit.bundles_out == 0
    b.go([b"again"])
    assert a.go() == OK and a.link.got == [b"again"] and not a.end.seal.anew


def test_each_bundle_is_readable_in_any_boot(members):
    a, b = members
    for n in range(6):
        a.go([b"%d" % n])
        if n & 1:
            a.end.boot()
        b.end.boot()
        b.go()
    assert b.link.got == [b"%d" % n for n in range(6)]


def test_a_long_bundle_of_many_epochs(members):
    a, b = members
    texts = [b"%d" % n for n in range(900)]
    a.go(texts)
    b.go()
    assert b.link.got == texts and b.visit.refused == 0 and b.visit.bundles_in == 1


@pytest.mark.parametrize("cut", [30, 60, 120, 200, -5, -10])
def test_a_bundle_that_was_cut_counts_as_far_as_it_goes_and_is_written_again(
    members, tmp_path, cut
):
    a, b = members
    texts = [b"%d" % n * 20 for n in range(8)]
    a.go(texts)
    path = bundles(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    b.go()
    assert b.link.got == texts[: len(b.link.got)] and b.link.bundle_in == 0
    # The stick's FINAL needs no seal, ours does: somebody else cannot end a bundle early.
    path.write_bytes(whole[:cut] + b"\x00\x00\x1d\x0f")
    b.end.boot()
    b.go()
    assert b.link.bundle_in == 0
    path.write_bytes(whole)
    b.end.boot()
    b.go()
    assert b.link.bundle_in == 1
    assert b.link.got[-8:] == texts


def test_power_goes_before_the_state_is_saved(members):
    a, b = members
    a.go([b"x"])
    b.go(save=False)
    assert b.link.got == [b"x"]
    b.end.boot()
    b.link = FakeLink()  # nothing of it was saved
    b.go()
    assert b.link.got == [b"x"] and b.link.bundle_in == 1


def test_after_the_state_was_saved_an_old_copy_of_the_stick_says_nothing(members, tmp_path):
    a, b = members
    a.go([b"x"])
    path = bundles(tmp_path)[0]
    old = path.read_bytes()
    b.go()
    b.end.boot()
    b.link = FakeLink()
    path.write_bytes(old)
    b.go()
    assert b.link.got == [] and b.visit.refused == 3 and b.link.bundle_in == 0


def forged(path, number, seen):
    """The bundle under another number: what its open header says is anybody's."""
    made = bytearray(path.read_bytes())
    made[12:20] = struct.pack(">II", number, seen)
    made[20:22] = crc_hqx(bytes(made[:20]), 0xFFFF).to_bytes(2)
    path.unlink()
    path.with_name(f"{number:08X}.DRP").write_bytes(made)


def test_nobody_else_says_which_bundle_it_is_or_what_was_seen(members, tmp_path):
    a, b = members
    a.go([b"x"])
    forged(bundles(tmp_path)[0], 0x3FFFFFFF, 0x3FFFFFFF)
    b.go()
    assert b.link.bundle_in == 0 and b.link.peer_seen == 0
    assert b.visit.truncated == 1
    # Nor does such a name use up our numbers, whatever is in it, here and on the next stick.
    for junk in (b"", b"any bytes", None):
        if junk is not None:
            for name in ("3FFFFFFE", "3FFFFFFF", "00200000"):
                bundles(tmp_path)[0].with_name(name + ".DRP").write_bytes(junk)
        assert a.go([b"y"]) == OK
        assert a.link.bundle_out < 10
        b.go()
        assert b.link.got[-1:] == [b"y"]
        b.link.got.clear()


def test_bundles_of_another_key_are_told_from_those_that_were_cut(members, tmp_path):
    a, b = members
    a.go([b"x"])
    whole = bundles(tmp_path)[0]
    content = whole.read_bytes()
    whole.write_bytes(content[:-30])
    b.go()
    assert (b.visit.bundles_in, b.visit.truncated, b.visit.unopened) == (0, 1, 0)
    whole.write_bytes(content)
    other = Member(tmp_path, End(B_ID, A_ID, a.end.aead, 7, carrier_class=1))
    assert install(other.end.keys, bytes(32), KID, 0, 0) == OK
    other.end.boot()
    other.go()
    assert (other.visit.bundles_in, other.visit.truncated, other.visit.unopened) == (0, 0, 1)
    assert other.link.got == []
    b.go()
    assert b.visit.bundles_in == 1 and b.link.got[-1:] == [b"x"]


def test_bundles_of_another_key_stand_in_nobodys_way(members, tmp_path):
    a, _ = members
    for n in range(66):
        a.go([b"%d" % n])
        a.link.bundle_out += 1  # it is forgotten: the next one is written all the same
    for number, end in enumerate((a.end, End(B_ID, A_ID, a.end.aead, 7, carrier_class=1))):
        assert install(end.keys, bytes(32), KID + 4, 0, 0) == OK
        end.boot()
        if not number:
            a.go([b"new"])
    b = Member(tmp_path, end)
    b.go()
    assert b.link.got == [b"new"] and (b.visit.bundles_in, b.visit.unopened) == (1, 66)


def test_a_bundle_without_anything_of_ours(members, tmp_path):
    _, b = members
    folder = tmp_path / "DRUPELET" / B_ID.hex().upper() / A_ID.hex().upper()
    folder.mkdir(parents=True)
    head = b"DRP1" + A_ID + B_ID + struct.pack(">II", 1, 0)
    made = head + crc_hqx(head, 0xFFFF).to_bytes(2)
    for text in (b"\x40plain", bytes(40)):
        sized = len(text).to_bytes(2) + text
        made += sized + crc_hqx(sized, 0xFFFF).to_bytes(2)
    (folder / "00000001.DRP").write_bytes(made + b"\x00\x00\x1d\x0f")
    b.go()
    assert b.link.got == [] and b.visit.refused == 2 and b.link.bundle_in == 0
    assert zlib.crc32(made)  # it was there


def test_a_peer_without_keys_is_left_alone(members):
    a, _ = members
    a.stick.present()
    visit = SealedVisit(a.stick, {}, bytearray(1024), a.clock, lambda: None, bytearray(1024))
    visit.take_in(a.link, B_ID)
    assert visit.hand_out(a.link, B_ID) == E_PEER
    assert visit.failed == 2 and visit.bundles_out == 0


def test_keys_that_cannot_be_saved_leave_no_bundle(members, tmp_path):
    a, b = members
    a.end.keys.cut = "before"
    assert a.go([b"x"]) == E_STORAGE
    assert a.link.aborted == 1 and bundles(tmp_path) == []
    a.end.keys.cut = ""
    assert a.go() == OK
    b.go()
    assert b.link.got == [b"x"]


def test_nothing_due_writes_nothing_and_opens_no_epoch(members, tmp_path):
    a, _ = members
    saves = a.end.keys.saves
    assert a.go() == OK
    assert bundles(tmp_path) == [] and a.end.keys.saves == saves


def test_a_revocation_goes_alone_if_it_must(members):
    a, b = members
    issuer = Issuer(a.end.seal)
    issuer.revoke(b"CCCC")
    a.stick.present()
    seals = {B_ID: a.end.seal}
    visit = IssuingVisit(a.stick, seals, bytearray(1024), a.clock, lambda: None, bytearray(1024))
    visit.issuers[B_ID] = issuer
    assert visit.hand_out(a.link, B_ID) == OK
    b.go()
    assert b.end.keys.revoked == [b"CCCC\0\0"] and b.link.bundle_in == 1


def test_the_seals_of_a_stick_are_not_those_of_a_line(members):
    a, b = members
    live = Seal(SealContext(b.end.aead, b.end.random, bytes(4)), b.end.keys, 0)
    assert live.load() == OK
    a.go([b"x"])
    b.end.seal = live
    b.go()
    assert b.link.got == []


def test_a_folder_that_is_no_stick(tmp_path: Path) -> None:
    end = End(A_ID, B_ID, Aead(), 1, carrier_class=1)
    stick = Stick(str(tmp_path / "none"), A_ID)
    assert not stick.present()
    visit = SealedVisit(
        stick, {B_ID: end.seal}, bytearray(1024), Clock(), lambda: None, bytearray(1024)
    )
    link = FakeLink([b"x"])
    visit.take_in(link, B_ID)
    assert visit.hand_out(link, B_ID) < 0 and visit.failed == 1
