"""Power cuts at any moment of a network's life: exactly once, in causal order, on every member."""

import pytest

from drupelet import host_api
from drupelet.base.errors import E_STORAGE, OK
from drupelet.node import BATCH, INTERACTIVE
from helpers import Draw, Member, Network, check_causal, stamp
from repeats import few
from unit.cut_files import CutFiles, PowerCut

SEEDS = range(30)
READINGS = 12
ROUNDS_MAX = 1_500


class Unsteady(Network):
    """Members whose power goes at seeded steps of their flash; unsynced data goes with it."""

    def __init__(self, seed: int, cuts: int) -> None:
        draw = Draw(seed)
        self.published = dict.fromkeys("ABC", 0)
        self.given: dict[str, list[bytes]] = {name: [] for name in "ABC"}
        self.unconfirmed: dict[str, set[bytes]] = {name: set() for name in "ABC"}
        self.cuts = cuts
        members = [
            Member(name, draw, pool=8, offers=8, files=CutFiles(), pending_max=8,
                   segment_size=2048)
            for name in "ABC"
        ]  # fmt: skip
        mode = INTERACTIVE if seed % 2 else BATCH
        super().__init__(draw, members, ["AB", "BC"], mode, loss=150, repeat=50)
        for member in members:
            self._arm(member)

    def _arm(self, member: Member) -> None:
        files = member.files
        files.moment = self.draw(3)
        files.cut_at = files.steps + 5 + self.draw(150) if self.cuts else -1

    def reboot(self, member: Member) -> None:
        self.cuts -= 1
        while True:
            files = member.files
            files.power_on(kept=self.draw(3) * 30)
            if self.cuts > 0 and self.draw(4) == 0:
                files.cut_at = self.draw(6)
            try:
                member.start()
                member.boot(self.now_ms)
                files.cut_at = -1
                break
            except PowerCut:
                self.cuts -= 1
        self.connect(member)
        again = self.unconfirmed[member.name] & set(member.log())
        self.given[member.name].clear()
        self._take(member)
        assert again <= set(self.given[member.name]), "an unconfirmed event was not given again"
        self._arm(member)

    def step(self, member: Member, call) -> None:
        try:
            call()
        except PowerCut:
            self.reboot(member)

    def _take(self, member: Member) -> None:
        """Confirm what was given in the round before, then take what is new."""
        node = member.node
        if self.given[member.name]:
            # From here on it may be confirmed, whenever the power goes.
            self.unconfirmed[member.name].clear()
            node.done(member.store.find(self.given[member.name][-1], 0))
            node.save(self.now_ms)
        while node.next_event():
            member.store.load(node.event_handle)
            id = bytes(member.store.id)
            assert id not in self.given[member.name], "given twice in a boot"
            self.given[member.name].append(id)
            self.unconfirmed[member.name].add(id)
            member.author.saw(node.event_handle)

    def _publish(self, member: Member) -> None:
        number = self.published[member.name]
        if number < READINGS and self.draw(3) == 0:
            size = 1200 if number % 5 == 4 else 20
            body = member.name.encode() + b"%d/%d" % (number, member.boots) + bytes(size)
            if member.publish(body, self.now_ms) and member.store.barrier() == OK:
                self.published[member.name] += 1

    def round(self) -> None:
        self.now_ms += 250
        for member in list(self.members.values()):
            self.step(member, lambda m=member: self._publish(m))
        for here, there in sorted(self.lines):
            self.step(self.members[here], lambda h=here, t=there: self._send(h, t))
        for here, there in sorted(self.lines):
            for got in self.lines[here, there].take():
                self.step(
                    self.members[there], lambda h=here, t=there, g=got: self._receive(h, t, g)
                )
        for member in list(self.members.values()):
            self.step(member, lambda m=member: self._take(m))

    def _send(self, here: str, there: str) -> None:
        frame = bytearray(1024)
        for _ in range(70):
            size = self.members[here].links[there].poll_into(frame, self.now_ms)
            if not size:
                break
            self.lines[here, there].send(frame, size)

    def _receive(self, here: str, there: str, got: bytes) -> None:
        self.members[there].links[here].receive(bytearray(got), len(got), self.now_ms)

    def done(self) -> bool:
        if self.cuts > 0 or any(count < READINGS for count in self.published.values()):
            return False
        logs = [set(member.log()) for member in self.members.values()]
        return logs[0] == logs[1] == logs[2]


@pytest.mark.parametrize("seed", few(10, SEEDS))
def test_power_cuts(seed: int) -> None:
    net = Unsteady(seed, cuts=8)
    while not net.done():
        net.round()
        assert net.now_ms < ROUNDS_MAX * 250, net.published
        if net.now_ms > ROUNDS_MAX * 125:
            net.cuts = 0
            for member in net.members.values():
                member.files.cut_at = -1
    for member in net.members.values():
        log = member.log()
        assert len(log) == len(set(log)) >= 3 * READINGS
        check_causal(member)
        assert member.node.pending_count() == 0
    assert sum(member.boots for member in net.members.values()) > 6


def test_events_come_again_until_they_are_confirmed() -> None:
    member = Member("A", Draw(1))
    member.boot()
    ids = [member.publish(b"%d" % number) for number in range(5)]
    assert len(member.consume(keep=True)) == 5
    member.node.done(member.store.find(ids[1], 0))
    member.node.save(0)
    member.store.barrier()
    member.files.power_cut()
    member.start()
    member.boot()
    late = member.publish(b"late")
    handles = member.consume()
    assert [member.store.find(id, 0) for id in [*ids[2:], late]] == handles
    assert member.again == handles[:3]
    assert not member.node.next_event()


class Spy:
    """A store whose barrier is watched, and fails on demand."""

    def __init__(self, member: Member) -> None:
        self.dirty = False
        self.fails = False
        self.barriers = 0
        store = member.store
        self._barrier = store.barrier
        store.barrier = self.barrier
        for name in ("put", "put_part", "promote"):
            setattr(store, name, self._wrapped(getattr(store, name)))

    def _wrapped(self, call):
        def changes(*arguments):
            self.dirty = True
            return call(*arguments)

        return changes

    def barrier(self) -> int:
        self.barriers += 1
        if self.fails:
            return E_STORAGE
        self.dirty = False
        return self._barrier()


def kinds_of(frame: bytes) -> set[int]:
    """Types of a frame's records; 16 for a segment."""
    if frame[0] != 0x40:
        return {16} if frame[0] == 0x50 else set()
    found = set()
    at = 1
    while at < len(frame):
        found.add(frame[at + 1])
        at += 4 + (frame[at + 2] << 8 | frame[at + 3])
    return found


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_nothing_is_acknowledged_before_it_is_durable(mode: int) -> None:
    draw = Draw(3)
    members = [Member(name, draw, pool=8) for name in "AB"]
    net = Network(draw, members, ["AB"], mode, loss=100)
    spies = {member.name: Spy(member) for member in members}
    seen = set()
    for here, there in net.lines:
        send = net.lines[here, there].send

        def watch(frame, size, send=send, spy=spies[here]):
            kinds = kinds_of(bytes(frame[:size]))
            seen.update(kinds)
            if kinds & {0, 1, 16}:
                assert not spy.dirty, "before the barrier"
                assert not spy.fails, "after a barrier that failed"
            send(frame, size)

        net.lines[here, there].send = watch
    for number in range(40):
        for member in members:
            size = 2000 if number % 10 == 9 else 10
            body = b"\x00" + member.name.encode() + bytes(size)
            member.node.publish(member.group, body, len(body), stamp(number), 0)
            spies[member.name].dirty = True
            spies[member.name].fails = draw(3) == 0
        net.round()
    for spy in spies.values():
        spy.fails = False
    net.run(lambda: net.complete(80), 2_000)
    assert seen >= {0, 1, 16}
    programs = sum(member.store.programs for member in members)
    assert programs <= 2 * 160 + net.now_ms // 250, "two a message, and one a wake"


def test_what_left_is_not_forgotten_by_a_cut() -> None:
    """Nobody gives back what came from us: so it is durable before anybody may hold it."""
    draw = Draw(3)
    members = [Member(name, draw) for name in "AB"]
    net = Network(draw, members, ["AB"])
    a, b = members
    ids = [a.publish(b"%d" % number) for number in range(3)]
    net.run(lambda: len(b.log()) == 3, 40)
    a.files.power_cut()
    a.start()
    a.boot(net.now_ms)
    net.connect(a)
    assert a.log() == ids
    net.run(lambda: net.complete(3), 40)


def test_what_was_saved_survives_a_cut_right_after() -> None:
    """Else a peer that lost its store, as was told and saved, would not be shown it all again."""
    draw = Draw(4)
    members = [Member(name, draw) for name in "AB"]
    net = Network(draw, members, ["AB"])
    a = members[0]
    for number in range(3):
        a.publish(b"%d" % number)
    net.run(lambda: net.complete(3), 40)
    assert a.node.save(net.now_ms) == OK == a.store.barrier()
    assert host_api.is_current(a.node, a.numbers["B"])
    a.links["B"].exchange.forget_holds()
    assert a.node.save(net.now_ms) == OK
    a.files.power_cut()
    a.start()
    a.boot(net.now_ms)
    assert not host_api.is_current(a.node, a.numbers["B"])
