"""All seals of a device in one slab, with fewer ciphers than keys (docs/DESIGN.md 12)."""

import random

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import SEAL_OLD_MAX
from drupelet.seal.record import IN_AT, OLD_SIZE, OUT_AT, ROW_SIZE, install
from drupelet.seal.seal import Seal, SealContext
from drupelet_host.base.aead import Aead
from seal_ends import Bytes, End, RamKeys, Witness, meet

HUB = b"HUB_"
KID = 0x1000


class Hub:
    """One device with a seal for each of its peers, and those."""

    def __init__(self, peers: int, **settings: int) -> None:
        self.aead = Witness(Aead())
        self.context = SealContext(self.aead, Bytes(1), b"\0\0\0\1", **settings)
        self.ours: list[End] = []
        self.theirs: list[End] = []
        for n in range(peers):
            peer_id = b"PEE%c" % (65 + n)
            root = bytes([n]) * 32
            ends = []
            for own, other in ((HUB, peer_id), (peer_id, HUB)):
                end = End.__new__(End)
                end.keys = RamKeys(own, other)
                end.aead, end.random, end.carrier_class = self.aead, Bytes(n + 7), 0
                end.steps_max, end.store_gen = 1024, b"\0\0\0\2"
                assert install(end.keys, root, KID + 4 * n, 0, 0) == OK
                ends.append(end)
            ends[0].seal = Seal(self.context, ends[0].keys, 0)
            assert ends[0].seal.load() == OK
            ends[1].boot()
            self.ours.append(ends[0])
            self.theirs.append(ends[1])

    def ciphers(self) -> int:
        return sum(cipher is not None for cipher in self.context.ciphers)


def test_every_seal_has_a_row_of_its_own_and_one_cipher_at_most() -> None:
    for peers in (1, 2, 5, 9):
        hub = Hub(peers)
        assert len(hub.context.rows) == SEAL_OLD_MAX * OLD_SIZE + peers * ROW_SIZE
        draw = random.Random(peers)
        for ours, theirs in zip(hub.ours, hub.theirs, strict=True):
            meet(ours, theirs)
        for n in range(600):
            at = draw.randrange(peers)
            ours, theirs = hub.ours[at], hub.theirs[at]
            sender, receiver = (ours, theirs) if draw.randrange(2) else (theirs, ours)
            if draw.randrange(50) == 0:
                sender.seal.renew = True
            frame = sender.send(b"%d" % n)
            assert receiver.take(frame) == b"%d" % n
            assert receiver.take(frame) == E_PEER
            other = hub.ours[(at + 1) % peers]
            assert peers == 1 or other.take(frame) == E_PEER
            assert hub.ciphers() <= max(peers, 2)
        assert hub.aead.reused == 0


def test_a_key_is_not_made_again_while_one_peer_is_talked_to() -> None:
    hub = Hub(4)
    for ours, theirs in zip(hub.ours, hub.theirs, strict=True):
        meet(ours, theirs)
    made = []
    plain = hub.aead.cipher
    hub.aead.cipher = lambda key, at: made.append(at) or plain(key, at)  # type: ignore[func-returns-value]
    for ours, theirs in zip(hub.ours[:3], hub.theirs, strict=False):
        for _ in range(20):
            frame = theirs.send(b"?")
            before = len(made)
            assert ours.take(frame) == b"?"
            ours.send(b"!")
            assert len(made) - before <= (2 if _ == 0 else 0)


def test_a_straggler_is_lost_only_when_others_moved_on_too() -> None:
    hub = Hub(SEAL_OLD_MAX + 1)
    for ours, theirs in zip(hub.ours, hub.theirs, strict=True):
        meet(ours, theirs)
    late = [[theirs.send(b"late") for _ in range(2)] for theirs in hub.theirs]

    def move_on(n: int) -> None:
        hub.theirs[n].seal.renew = True
        assert hub.ours[n].take(hub.theirs[n].send(b"new")) == b"new"

    for n in range(SEAL_OLD_MAX):
        move_on(n)
    for n in range(SEAL_OLD_MAX):
        assert hub.ours[n].take(late[n][0]) == b"late"
        assert hub.ours[n].take(late[n][0]) == E_PEER and hub.ours[n].seal.replayed == 1
    # One more peer goes on: what was kept first makes room.
    move_on(SEAL_OLD_MAX)
    assert hub.ours[0].take(late[0][1]) == E_PEER and hub.ours[0].seal.closed_epoch == 1
    for n in range(1, SEAL_OLD_MAX + 1):
        assert hub.ours[n].take(late[n][1]) == b"late"
    # A peer keeps one: the next one takes its place, and nobody else's.
    move_on(1)
    assert hub.ours[SEAL_OLD_MAX].take(late[SEAL_OLD_MAX][0]) == b"late"


def test_what_is_closed_leaves_no_key_behind() -> None:
    hub = Hub(3)
    for ours, theirs in zip(hub.ours, hub.theirs, strict=True):
        meet(ours, theirs)
        theirs.seal.renew = True
        assert ours.take(theirs.send(b"x")) == b"x"  # and an old epoch
    seal = hub.ours[1].seal
    seal.close()
    context = hub.context
    assert context.rows[seal.at : seal.at + ROW_SIZE] == bytes(ROW_SIZE)
    assert not {seal.at + OUT_AT, seal.at + IN_AT} & set(context.places)
    olds = [context.rows[i * OLD_SIZE : (i + 1) * OLD_SIZE] for i in range(SEAL_OLD_MAX)]
    owners = {int.from_bytes(old[-3:]) for old in olds}
    assert seal.at not in owners
    meet(hub.ours[0], hub.theirs[0])
    meet(hub.ours[2], hub.theirs[2])
    assert hub.theirs[1].take(b"") == E_PEER and hub.ours[1].send(b"x") == E_PEER
