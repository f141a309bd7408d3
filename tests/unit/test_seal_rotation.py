"""New roots over both carrier classes, with cuts between any two writes of the key records."""

import random

import pytest

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy
from drupelet.seal.control import end_waiting
from drupelet.seal.issue import Issuer, rekey
from drupelet.seal.record import (
    FLAG_ISSUER,
    FLAG_WAITING,
    IN_EPOCH_AT,
    RECORD_SIZE,
    WHOLE_EPOCH_AT,
    install,
)
from drupelet.seal.seal import FINAL, TYPE_CONTROL, TYPE_DATA, Seal, SealContext
from drupelet_host.base.aead import Aead
from seal_ends import A_ID, B_ID, KID, ROOT, RamKeys, Witness

LIVE, STICK = 0, 1
CLASSES = (LIVE, STICK)
CHAINS = 4  # of a generation
FRAME = 1024
WALKS = 80
HEALING = 40  # contacts after which nothing may be left of a cut
MINUTE = 70_000


class Cut(Exception):
    """The power went."""


class CutKeys(RamKeys):
    """Keys whose `left`-th write from now on, or drop, is the last one before a cut."""

    def __init__(self, own_id, peer_id):
        super().__init__(own_id, peer_id)
        self.left = -1
        self.cut_after = False  # else before it is done

    def _write(self, write):
        self.left -= 1
        if self.left == -1 and not self.cut_after:
            raise Cut
        code = write()
        if self.left == -1:
            raise Cut
        return code

    def save(self, row, record):
        return self._write(lambda: super(CutKeys, self).save(row, record))

    def drop(self, row):
        return self._write(lambda: super(CutKeys, self).drop(row))

    def cut_at(self, left, after):
        self.left, self.cut_after = left, after

    @property
    def generations(self):
        """(row, generation, waiting) of each chain."""
        return sorted(
            (row, int.from_bytes(record[4:6]), bool(record[1] & FLAG_WAITING))
            for row, record in self.rows.items()
            if row < 2 * CHAINS
        )

    @property
    def newest(self):
        return max(generation for _, generation, _ in self.generations)


class Device:
    """Both seals of one end, and what a home keeps in its `.tell`: generation and root."""

    def __init__(self, own_id, peer_id, aead, draw, issuer):
        self.keys = CutKeys(own_id, peer_id)
        self.aead = aead
        self.draw = draw
        self.tell = None
        self.now_ms = draw.randrange(1 << 30)
        self.steps_max = 65536 if issuer else 1024
        assert install(self.keys, ROOT, KID, 0, 0 if issuer else FLAG_ISSUER) == OK
        self.boot()

    def boot(self):
        """As after a cut; another one may come meanwhile."""
        context = SealContext(
            self.aead, lambda: self.draw.randrange(256), b"\1\2\3\4", self.steps_max
        )
        self.seals = [Seal(context, self.keys, carrier_class) for carrier_class in CLASSES]
        self.issuers = [None, None]
        assert [seal.load() for seal in self.seals] == [OK, OK]
        try:
            self.prepare()
        except Cut:
            self.boot()

    def prepare(self):
        if self.tell is None:
            return
        generation, root = self.tell
        if sum(generation == other for _, other, _ in self.keys.generations) < CHAINS:
            assert rekey(self.keys, root, KID, generation, 0) == OK
        self.issuers = [Issuer(seal) for seal in self.seals]
        for issuer in self.issuers:
            issuer.rekey(root, generation)

    def rotate(self):
        if self.tell is not None:
            return
        self.tell = self.keys.newest + 1, self.draw.randbytes(32)
        try:
            self.prepare()
        except Cut:
            self.boot()

    def tick(self, ms):
        self.now_ms = self.now_ms + ms & 0x3FFFFFFF
        if self.tell is not None and any(issuer.rekeyed for issuer in self.issuers):
            self.tell = None
            self.issuers = [None, None]

    def _seal(self, carrier_class, text, kind=TYPE_DATA):
        out = bytearray(FRAME)
        size = self.seals[carrier_class].seal_into(out, text, len(text), kind)
        assert size > 0
        return bytes(out[:size])

    def _told(self, carrier_class):
        issuer = self.issuers[carrier_class]
        while issuer is not None and (text := issuer.due(self.now_ms)):
            yield self._seal(carrier_class, text, TYPE_CONTROL)

    def live(self, text):
        """Frames with all that is to be told, then one with `text`."""
        assert self.seals[LIVE].prepare() == OK
        return [*self._told(LIVE), self._seal(LIVE, text)]

    def bundle(self, text):
        """Frames of a bundle."""
        self.seals[STICK].renew = True
        frames = [self._seal(STICK, b"")]
        frames += [*self._told(STICK), self._seal(STICK, text), self._seal(STICK, bytes(8), FINAL)]
        return frames

    def take(self, carrier_class, frames):
        """What came of it for the link; a bundle that is whole is made durable."""
        seal = self.seals[carrier_class]
        got = []
        for frame in frames:
            buf = bytearray(FRAME)
            buf[: len(frame)] = frame
            size = seal.open(buf, len(frame), self.now_ms)
            if size <= 0:
                continue
            rows = seal.context.rows
            if seal.context.final:
                copy(rows, seal.at + WHOLE_EPOCH_AT, rows, seal.at + IN_EPOCH_AT, 3)
            else:
                got.append(bytes(buf[seal.context.at :][:size]))
        if carrier_class == STICK:
            seal.commit()
        return got


def devices(draw, aead):
    return Device(A_ID, B_ID, aead, draw, True), Device(B_ID, A_ID, aead, draw, False)


class Walk:
    """Frames and sticks that are lost, late, cut short and out of order, rotations and cuts."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.aead = Witness(Aead())
        self.a, self.b = devices(self.draw, self.aead)
        self.sticks = {self.a: [], self.b: []}
        self.taken = set()
        self.cuts = self.draw.choice((0, 0.15, 0.4))
        for n in range(self.draw.randrange(20, 150)):
            ends = [self.a, self.b]
            self.draw.shuffle(ends)
            for end in ends:
                end.keys.left = -1
                if self.draw.random() < self.cuts:
                    end.keys.cut_at(self.draw.randrange(9), self.draw.random() < 0.5)
            self.turn(*ends, b"%d" % n)
        for end in ends:
            end.keys.left = -1

    def turn(self, sender, receiver, text):
        draw = self.draw
        what = draw.random()
        sender.tick(draw.choice((1, 1000, MINUTE)))
        if what < 0.1:
            self.a.rotate()
        elif what < 0.2:
            sender.boot()
        elif what < 0.6:
            frames = self.made(sender, sender.live, text)
            got = self.taken_by(receiver, LIVE, [f for f in frames if draw.random() < 0.8])
            assert not self.taken & set(got), "a frame came twice"
            self.taken |= set(got)
        else:
            sticks = self.sticks[sender]
            sticks.append(self.made(sender, sender.bundle, text))
            if draw.random() < 0.5:
                frames = sticks.pop(0 if draw.random() < 0.8 else -1)
                cut = draw.randrange(len(frames) + 1) if draw.random() < 0.2 else len(frames)
                self.taken_by(receiver, STICK, frames[:cut])

    def made(self, sender, make, text):
        try:
            return make(text)
        except Cut:
            sender.boot()
            return []

    def taken_by(self, receiver, carrier_class, frames):
        """What came of them; that the peer's store may be another one is settled at once."""
        try:
            texts = receiver.take(carrier_class, frames)
            receiver.seals[carrier_class].settle()
            return texts
        except Cut:
            receiver.boot()
            return []

    def heal(self):
        """Nothing is lost any more: both classes come to work both ways, with one root."""
        for n in range(HEALING):
            for sender, receiver in ((self.a, self.b), (self.b, self.a)):
                sender.tick(MINUTE)
                receiver.tick(MINUTE)
                live = self.taken_by(receiver, LIVE, sender.live(b"live"))
                stick = self.taken_by(receiver, STICK, sender.bundle(b"stick"))
                if n > HEALING - 10:
                    assert (live, stick) == ([b"live"], [b"stick"]), sender.keys.own_id


@pytest.mark.parametrize("first", range(0, WALKS, 20))
def test_whatever_is_lost_or_cut_the_link_goes_on_and_rotations_end(first):
    for seed in range(first, first + 20):
        walk = Walk(seed)
        walk.heal()
        assert walk.a.tell is None and not walk.aead.reused, seed
        newest = walk.a.keys.newest
        for end in (walk.a, walk.b):
            left = [(generation, waiting) for _, generation, waiting in end.keys.generations]
            assert {row for row in end.keys.rows if row >= 2 * CHAINS} == {8 | newest & 1}, seed
            assert left == [(newest, False)] * CHAINS, (seed, end.keys.generations)


def rotation(a, b):
    a.rotate()
    for carrier_class, frames in ((LIVE, a.live(b"?")), (STICK, a.bundle(b"?"))):
        b.take(carrier_class, frames)
    a.tick(MINUTE)


@pytest.mark.parametrize("carrier_class", CLASSES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(12))
def test_a_cut_while_a_rotation_ends_leaves_one_that_the_next_frame_ends(
    carrier_class, after, write
):
    aead = Witness(Aead())
    a, b = devices(random.Random(write), aead)
    rotation(a, b)
    frames = [b.live(b"!"), b.bundle(b"!")][carrier_class]
    a.keys.cut_at(write, after)
    try:
        a.take(carrier_class, frames)
    except Cut:
        a.boot()
    a.keys.left = -1
    for n in range(3):
        frames = [b.live(b"%d" % n), b.bundle(b"%d" % n)][carrier_class]
        # A cut behind all this closes the epoch that they came in, as one at any time does.
        assert a.take(carrier_class, frames)[-1:] == [b"%d" % n] or not n
        b.take(carrier_class, [a.live(b"?"), a.bundle(b"?")][carrier_class])
    a.tick(MINUTE)
    assert a.tell is None
    assert not any(waiting for _, _, waiting in a.keys.generations)
    rotation(a, b)
    assert a.take(LIVE, b.live(b"again")) == [b"again"]
    assert b.take(LIVE, a.live(b"again")) == [b"again"]
    a.tick(1)
    assert a.tell is None and a.seals[LIVE].generation == 2 and not aead.reused


def test_records_that_cannot_be_written_leave_the_rotation_under_way():
    a, b = devices(random.Random(1), Witness(Aead()))
    rotation(a, b)
    before = a.keys.generations
    for n in range(4):
        a.keys.cut = "before"
        assert a.take(LIVE, b.live(b"lost")) == []
        a.keys.cut = ""
        assert a.keys.generations == before and a.seals[LIVE].generation_in == 0
        a.tick(1)
        assert a.tell is not None, n
    assert a.take(LIVE, b.live(b"!")) == [b"!"]
    a.tick(1)
    assert a.tell is None


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("reboots", [False, True])
def test_two_rotations_over_a_cable_leave_the_stick_what_it_needs(between, reboots):
    a, b = devices(random.Random(2), Witness(Aead()))
    assert b.take(STICK, a.bundle(b"0")) == [b"0"] and a.take(STICK, b.bundle(b"0")) == [b"0"]
    late = []
    for generation in (1, 2):
        a.rotate()
        b.take(LIVE, a.live(b"?"))
        assert a.take(LIVE, b.live(b"!")) == [b"!"]
        b.take(LIVE, a.live(b"?"))
        a.tick(1)
        assert a.tell is None and a.seals[LIVE].generation == generation
        late.append((a.bundle(b"%d" % generation), b.bundle(b"%d" % generation)))
    for generation in (1, 2) if between else (2,):
        for end in (a, b) if reboots else ():
            end.boot()
        to_b, to_a = late[generation - 1]
        assert b.take(STICK, to_b)[-1:] == a.take(STICK, to_a)[-1:] == [b"%d" % generation]
    for end in (a, b):
        assert {generation for _, generation, _ in end.keys.generations} == {2}


def test_a_live_epoch_ends_when_a_rotation_went_over_sticks():
    a, b = devices(random.Random(3), Witness(Aead()))
    for _ in range(2):
        assert b.take(LIVE, a.live(b"?")) == [b"?"] and a.take(LIVE, b.live(b"!")) == [b"!"]
    a.rotate()
    b.take(STICK, a.bundle(b"?"))
    a.take(STICK, b.bundle(b"!"))
    assert a.take(LIVE, b.live(b"new")) == [b"new"] and b.seals[LIVE].generation == 1
    assert b.take(LIVE, a.live(b"new")) == [b"new"] and a.seals[LIVE].generation == 1


def test_a_store_that_was_known_is_known_after_a_rotation():
    a, b = devices(random.Random(4), Witness(Aead()))
    assert b.take(LIVE, a.live(b"?")) == [b"?"]
    b.seals[LIVE].renew = True
    assert a.take(LIVE, b.live(b"!")) == [b"!"]
    rotation(a, b)
    frames = b.live(b"!")
    a.keys.cut_at(6, False)  # all is done but the record of the epoch that it was heard in
    with pytest.raises(Cut):
        a.take(LIVE, frames)
    a.keys.left = -1
    a.boot()
    assert a.seals[LIVE].generation_in == 1 and not a.seals[LIVE].peer_lost
    b.seals[LIVE].context.store_gen = b"lost"
    b.boot()
    b.seals[LIVE].context.store_gen = b"lost"
    assert a.take(LIVE, b.live(b"!")) == [b"!"]
    assert a.seals[LIVE].peer_lost


def test_a_new_root_that_could_not_be_kept_may_come_again():
    a, b = devices(random.Random(5), Witness(Aead()))
    a.rotate()
    seal = b.seals[LIVE]
    told, _ = frames = a.live(b"?")
    assert len(frames) == 2
    b.keys.cut = "before"
    buf = bytearray(told)
    assert seal.open(buf, len(told), 0) == E_STORAGE
    b.keys.cut = ""
    buf = bytearray(told)
    assert seal.open(buf, len(told), 0) == 0 and seal.anew
    buf = bytearray(told)
    assert seal.open(buf, len(told), 0) == E_PEER
    assert b.keys.newest == 1


def test_no_record_of_a_newer_generation_is_dropped_for_an_older_one():
    keys = RamKeys(A_ID, B_ID)
    for generation in (1, 2):
        assert install(keys, bytes([generation]) * 32, KID, generation, FLAG_WAITING) == OK
    assert end_waiting(keys, bytearray(RECORD_SIZE), 1) == OK
    assert len(keys.rows) == 2 * (CHAINS + 1)
    assert end_waiting(keys, bytearray(RECORD_SIZE), 2) == OK
    sends = [row for row in keys.rows if not row & 2 and row < 2 * CHAINS]
    assert sorted(sends) == [0, 4]
