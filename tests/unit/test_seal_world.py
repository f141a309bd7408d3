"""Two sealed ends in a world that does everything at once to them, from seeds.

Frames are lost, repeated, swapped, spoilt and replayed much later; either end loses its power
before or after any save, is set back to an older copy, and gets a clone. Never may a key and a
nonce seal two frames or a frame be taken twice, and once the faults stop all must flow again.
"""

import random

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX, SEAL_TELL_MS_MAX
from drupelet.seal.record import FLAG_ISSUER, install
from drupelet.seal.seal import Seal, SealContext
from drupelet_host.base.aead import Aead
from drupelet_transports.common.transport import Transport
from drupelet_transports.seal.sealed_carrier import Sealed
from seal_ends import A_ID, B_ID, Bytes, Clock, RamKeys, Witness

SEEDS = 14
STEPS = 500
STEP_MS = 700
# Frames that an eavesdropper kept, to play them again at any time.
KEPT_MAX = 300
# After the faults: rounds until everything flows, each as long as the longest wait to tell.
CALM_ROUNDS = 12
# Of each step: set back to an older copy, a clone.
FAULTS = [(0, 0), (0.01, 0), (0.01, 0.01)]


class Air(Transport):
    """One way in and one way out; frames wait in `inbox` of the other."""

    def __init__(self, draw, kept):
        Transport.__init__(self)
        self.inbox = []
        self.other = None
        self.bad = True
        self._draw = draw
        self._kept = kept

    def send(self, frame, size):
        frame = bytes(frame[:size])
        draw = self._draw
        self.last_wire_size = size
        if not self.bad:
            self.other.inbox.append(frame)
            return OK
        if len(self._kept) < KEPT_MAX:
            self._kept.append((self.other, frame))
        else:
            self._kept[draw.randrange(KEPT_MAX)] = (self.other, frame)
        if draw.random() < 0.05:
            spoilt = bytearray(frame)
            spoilt[draw.randrange(size)] ^= 1 << draw.randrange(8)
            frame = bytes(spoilt)
        for _ in range(draw.choice((0, 1, 1, 1, 1, 2))):
            self.other.inbox.insert(draw.randrange(len(self.other.inbox) + 1), frame)
        if draw.random() < 0.05:
            target, old = draw.choice(self._kept)
            target.inbox.append(old)
        return OK

    def receive_into(self, frame):
        if not self.inbox:
            return 0
        got = self.inbox.pop(0)
        frame[: len(got)] = got
        return len(got)

    def close(self):
        pass


class SoundKeys(RamKeys):
    """What is saved is durable."""

    def settle(self):
        pass

    def forget(self):
        pass


class LateKeys(RamKeys):
    """The planted mistake: a save that is durable only when the next one comes."""

    def __init__(self, own_id, peer_id):
        RamKeys.__init__(self, own_id, peer_id)
        self.late = {}

    def settle(self):
        self.rows.update(self.late)
        self.forget()

    def forget(self):
        """The power goes."""
        self.late = {}

    def load(self, row, out):
        if row in self.late:
            out[:] = self.late[row]
            return OK
        return RamKeys.load(self, row, out)

    def save(self, row, record):
        if row in self.late:
            self.rows[row] = self.late[row]
        self.late[row] = bytes(record)
        return OK


class Device:
    """An end with its records, what its log holds, and its carrier."""

    def __init__(self, world, own_id, peer_id, flags, make_keys):
        self.world = world
        self.keys = make_keys(own_id, peer_id)
        assert install(self.keys, bytes(32), 0x40, 0, flags) == OK
        self.keys.settle()
        self.taken = set()
        self.air = Air(world.draw, world.kept)
        self.buf = bytearray(FRAME_SIZE_MAX)
        self.boot()

    def boot(self):
        self.keys.forget()
        world = self.world
        context = SealContext(world.aead, world.random_byte, b"\0\0\0\1")
        seal = Seal(context, self.keys, 0)
        assert seal.load() == OK
        self.sealed = Sealed(self.air, seal, world.clock, self.buf)

    def send(self):
        world = self.world
        world.sent += 1
        text = bytearray(b"%d" % world.sent)
        return self.sealed.send(text, len(text))

    def take(self):
        frame = bytearray(self.sealed.frame_size_max)
        count = 0
        while (size := self.sealed.receive_into(frame)) > 0:
            text = bytes(frame[:size])
            self.world.twice += text in self.taken
            self.taken.add(text)
            count += 1
        return count


class World:
    def __init__(self, seed, make_keys=SoundKeys, random_byte=None):
        self.draw = random.Random(seed)
        self.clock = Clock()
        self.random_byte = random_byte or Bytes(seed + 5)
        self.aead = Witness(Aead())
        self.kept = []
        self.sent = self.twice = self.boots = self.rollbacks = self.clones = 0
        self.a = Device(self, A_ID, B_ID, 0, make_keys)
        self.b = Device(self, B_ID, A_ID, FLAG_ISSUER, make_keys)
        self.a.air.other = self.b.air
        self.b.air.other = self.a.air
        self.images = {}

    def step(self, rollback, clone):
        draw = self.draw
        self.clock.ms = (self.clock.ms + draw.randrange(STEP_MS)) & 0x3FFFFFFF
        device = draw.choice((self.a, self.b))
        device.keys.cut = draw.choice(("before", "after", *[""] * 30))
        for _ in range(draw.randrange(4)):
            device.send()
        device.take()
        if device.keys.cut or draw.random() < 0.03:
            self.boots += 1
            device.keys.cut = ""
            device.boot()
        if draw.random() < 0.03:
            self.images[device] = (dict(device.keys.rows), set(device.taken))
        if draw.random() < rollback and device in self.images:
            rows, taken = self.images[device]
            device.keys.rows, device.taken = dict(rows), set(taken)
            self.rollbacks += 1
            device.boot()
        if draw.random() < clone:
            self._clone(device)

    def _clone(self, device):
        """A copy of the device's flash starts somewhere else and sends what it can."""
        self.clones += 1
        rows = dict(device.keys.rows)
        sealed = device.sealed
        device.boot()
        for _ in range(3):
            device.send()
        device.keys.rows, device.sealed = rows, sealed

    def calm(self):
        """No more faults: rounds until three frames in a row got through both ways."""
        for device in (self.a, self.b):
            device.air.bad = False
            device.air.inbox.clear()
        good = 0
        for rounds in range(CALM_ROUNDS):
            self.clock.ms = (self.clock.ms + SEAL_TELL_MS_MAX) & 0x3FFFFFFF
            got = 0
            for here, there in ((self.a, self.b), (self.b, self.a)):
                assert here.send() == OK
                got += there.take() > 0
            good = good + 1 if got == 2 else 0
            if good == 3:
                return rounds
        return None


@pytest.mark.parametrize("faults", FAULTS, ids=["cuts", "set back", "all"])
def test_no_nonce_twice_no_frame_twice_and_always_a_way_back(faults):
    boots = rollbacks = clones = alarms = taken = 0
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            world.step(*faults)
        assert world.aead.reused == 0, seed
        assert world.twice == 0, seed
        assert world.calm() is not None, seed
        for device in (world.a, world.b):
            seal = device.sealed.seal
            assert seal.confirmed and seal.forged < 400
            assert len(device.keys.rows) == 5
            alarms += seal.clones
            taken += len(device.taken)
        boots += world.boots
        rollbacks += world.rollbacks
        clones += world.clones
    assert boots > SEEDS * STEPS // 60 and taken > SEEDS * STEPS // 2
    assert (rollbacks > SEEDS) == (faults[0] > 0) and (clones > SEEDS) == (faults[1] > 0)
    assert faults != (0, 0) or alarms == 0


def test_counters_alone_hold_when_the_randomness_is_dead():
    for seed in range(SEEDS):
        world = World(seed, random_byte=lambda: 7)
        for _ in range(STEPS):
            world.step(0, 0)
        assert world.aead.reused == world.twice == 0, seed


def test_the_salt_alone_holds_when_the_counter_is_lost():
    for seed in range(SEEDS):
        world = World(seed, LateKeys)
        for _ in range(STEPS):
            world.step(0, 0)
        assert world.aead.reused == 0, seed


def test_a_save_after_the_send_is_caught():
    """Without both of them it goes wrong, and this world shows it."""
    reused = 0
    for seed in range(SEEDS):
        world = World(seed, LateKeys, lambda: 7)
        for _ in range(STEPS):
            world.step(0, 0)
        reused += world.aead.reused
    assert reused > SEEDS


def test_a_receiver_that_saves_after_it_took_frames_is_caught():
    twice = 0
    for seed in range(SEEDS):
        world = World(seed, LateKeys)
        for _ in range(STEPS):
            world.step(0, 0)
        twice += world.twice
    assert twice > 0
