"""A board whose log is begun anew says so: it is shown everything again, nothing comes twice."""

import pytest

from drupelet.node import CARRIER_MQTT, PROFILE_BSP_1, PROFILE_COMPACT_1
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_host.base.aead import Aead
from drupelet_transports.common.in_process import pair as loop_pair
from drupelet_transports.seal.sealed_carrier import Sealed
from helpers import Draw, Member, Network, check_causal
from seal_ends import End, pair

MESSAGES = 12


def salted(salt: int, files: RamFiles) -> FlashStore:
    store = FlashStore(files, salt=salt)
    store.open()
    return store


def test_the_number_is_made_with_the_log_and_goes_with_it() -> None:
    files = RamFiles(1 << 20)
    store = salted(0x12345679, files)
    assert store.store_gen == 0x12345679
    assert store.save(b"state", 5) == 0 and store.barrier() == 0
    assert salted(0x7777777B, files).store_gen == 0x12345679
    left = RamFiles(1 << 20)
    left.close(left.open("12345679.SLT", True))
    assert salted(0x7777777B, left).store_gen == 0x7777777B, "what was beside the log is no log"
    assert [name for name in left.names() if name.endswith(".SLT")] == ["7777777B.SLT"]
    assert salted(0, RamFiles(1 << 20)).store_gen == 0, "a log without one"


def wipe(member: Member, salt: int) -> None:
    """Format the flash of a member; its keys are elsewhere."""
    member.files = RamFiles(1 << 22)
    member.store_options["salt"] = salt
    member.start()
    member.boot()


def members(draw: Draw) -> list[Member]:
    return [Member(name, draw, salt=0x10000001 * (1 + n)) for n, name in enumerate("AB")]


def check_all_there(a: Member, b: Member) -> None:
    assert sorted(a.log()) == sorted(b.log()) and len(set(b.log())) == len(b.log()) == MESSAGES
    check_causal(b)


def test_numbers_of_another_store_are_of_another_generation() -> None:
    """It counts its boots from 1, too: what its past was told may still be on its way."""
    member = members(Draw(3))[0]
    member.boot()
    first = member.node.core.clocks.generation
    wipe(member, 0x55555555)
    assert member.node.core.boot == 1 and 0 <= first <= 0xFFFF
    assert member.node.core.clocks.generation == first + 0x5554 & 0xFFFF


@pytest.mark.parametrize("loss", [0, 300])
def test_over_a_plain_cable_a_hello_tells(loss: int) -> None:
    draw = Draw(7 + loss)
    a, b = members(draw)
    net = Network(draw, [a, b], ["AB"], profile=PROFILE_COMPACT_1, loss=loss)
    for n in range(MESSAGES):
        (a, b)[n & 1].publish(b"%d" % n, net.now_ms)
        net.round()
    net.run(lambda: net.complete(MESSAGES), 4000)
    wipe(b, 0x55555555)
    net.connect(b)
    assert not b.log()
    net.run(lambda: net.complete(MESSAGES), 8000)
    check_all_there(a, b)


class Cable:
    """Two members with sealed links in between, and one clock."""

    def __init__(self, a: Member, b: Member, ends: tuple[End, End]) -> None:
        self.members = (a, b)
        self.ends = ends
        self.now_ms = 0
        self.wires = loop_pair(1024, 64)
        self.carriers: list[Sealed] = []
        for member, other in ((a, b), (b, a)):
            member.peers.append(other.name)
            member.add(other.name)
            member.boot()
        self.plug()

    def plug(self) -> None:
        """Links and seals after boots."""
        self.carriers = []
        for member, end, wire in zip(self.members, self.ends, self.wires, strict=True):
            # As boards/setup.py does.
            end.store_gen = member.store.store_gen.to_bytes(4)
            member.links["peer"] = member.node.link(
                member.numbers[member.peers[0]], PROFILE_BSP_1, CARRIER_MQTT, 1000, 0, self.now_ms
            )
            self.carriers.append(Sealed(wire, end.boot(), lambda: self.now_ms, bytearray(1024)))
            if not member.store.next(0):
                self.carriers[-1].seal.urgent = True

    def run(self, rounds: int) -> None:
        """What a board's loop does, at both ends in turn."""
        for _ in range(rounds):
            self.now_ms += 500
            for member, carrier in zip(self.members, self.carriers, strict=True):
                self.turn(member, carrier)

    def turn(self, member: Member, carrier: Sealed) -> None:
        link = member.links["peer"]
        frame = bytearray(carrier.frame_size_max)
        while (size := carrier.receive_into(frame)) > 0:
            link.receive(frame, size, self.now_ms)
        if carrier.seal.peer_lost:
            link.exchange.forget_holds()
            assert member.node.save(self.now_ms) == 0
            carrier.seal.settle()
        while size := link.poll_into(frame, self.now_ms):
            assert carrier.send(frame, size) == 0
        member.consume()


@pytest.mark.parametrize("both_boot", [False, True])
def test_over_a_sealed_link_a_status_tells_whatever_its_profile(both_boot: bool) -> None:
    """Also when the other end was off meanwhile: it knows the number from its record."""
    a, b = members(Draw(3))
    cable = Cable(a, b, pair(Aead()))
    for n in range(MESSAGES):
        (a, b)[n & 1].publish(b"%d" % n)
        cable.run(2)
    cable.run(20)
    check_all_there(a, b)
    cable.plug()  # a boot of both: what the peer told is in the record from here on
    cable.run(20)
    wipe(b, 0x55555555)
    if both_boot:
        assert a.node.save(cable.now_ms) == 0 and a.store.barrier() == 0
        a.start()
        a.boot()
    cable.plug()
    assert not b.log()
    cable.run(400)
    check_all_there(a, b)
    assert not any(carrier.seal.peer_lost for carrier in cable.carriers)
