"""After a restore a host keeps still until the peer has answered."""

from collections.abc import Callable

import pytest

from drupelet.base.limits import SEAL_JUMP_AFTER
from drupelet.node import CARRIER_SERIAL, PROFILE_BSP_1
from drupelet_host.agent.carrier_lines import Line
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.home.config import Peer
from drupelet_host.member.live_link import LiveLink
from drupelet_transports.common.in_process import pair as loop_pair
from drupelet_transports.common.url import parse_url
from drupelet_transports.host import serial_line
from drupelet_transports.seal.sealed_carrier import Sealed
from helpers import Draw, Member
from seal_ends import pair

URL = "serial:///dev/nothing"
STATUS_ALONE = 15 + 9 + 8


class World:
    """A host's line, the other end of it, and one clock. `lost`: the host was restored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
        self.now_ms = 1000
        monkeypatch.setattr(clock, "now_ms", lambda: self.now_ms)
        here, self.wire = loop_pair(1024, 64)
        monkeypatch.setattr(serial_line, "open_serial", lambda _url, _size: here)
        host, other = pair(Aead())
        host.store_gen, other.store_gen = b"\0\0\0\x02", b"\0\0\0\x03"
        self.host, self.other = (Member(name, Draw(n)) for n, name in enumerate("AB"))
        for member, peer in ((self.host, self.other), (self.other, self.host)):
            member.add(peer.name)
            member.boot()
        peer = Peer("b", b"B___", URL)
        live = LiveLink(self.host.node, self.link(self.host, "B"), peer, parse_url(URL), lost, -1)
        seal = host.boot()
        self.line = Line(
            peer, live, None, lambda _: None, lambda: None, lambda _: seal, lambda: None
        )  # type: ignore[arg-type]
        self.seal = seal
        self.far = Sealed(self.wire, other.boot(), lambda: self.now_ms, bytearray(1024))
        self.far_link = self.link(self.other, "A")
        self.sizes: list[int] = []

    def link(self, member: Member, name: str) -> "object":
        return member.node.link(
            member.numbers[name], PROFILE_BSP_1, CARRIER_SERIAL, 1000, 0, self.now_ms
        )

    def turn(self, answers: bool) -> None:
        """What an agent does, and what a board does."""
        self.now_ms = (self.now_ms + 500) & 0x3FFFFFFF
        self.line.maintain(self.now_ms)
        self.line.take_in(self.now_ms)
        self.line.hand_out(self.now_ms)
        if not answers:
            frame = bytearray(1024)
            while (size := self.wire.receive_into(frame)) > 0:
                self.sizes.append(size)
            return
        frame = bytearray(self.far.frame_size_max)
        while (size := self.far.receive_into(frame)) > 0:
            self.far_link.receive(frame, size, self.now_ms)
        if self.far.seal.peer_lost:
            self.far_link.exchange.forget_holds()
            self.far.seal.settle()
        while size := self.far_link.poll_into(frame, self.now_ms):
            self.far.send(frame, size)
        self.other.consume()

    def until(self, done: Callable[[], bool], answers: bool, turns_max: int) -> int:
        for turn in range(turns_max):
            if done():
                return turn
            self.turn(answers)
        raise AssertionError("not done in time")


def test_a_host_that_lost_nothing_sends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lost=False)
    world.host.publish(b"ours")
    world.turn(False)
    assert max(world.sizes) > STATUS_ALONE and not world.line.is_held


def test_nothing_but_a_status_leaves_until_the_peer_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, lost=True)
    world.host.publish(b"ours")
    world.other.publish(b"theirs")
    for _ in range(100):
        world.turn(False)
    assert world.line.is_held and set(world.sizes) == {STATUS_ALONE}
    assert 3 < len(world.sizes) < SEAL_JUMP_AFTER, "each after twice as long"
    assert world.host.node.outstanding(world.host.numbers["B"]) == 1
    world.until(lambda: len(world.other.log()) == 2, True, 400)
    assert world.seal.confirmed and not world.line.is_held


def test_who_hears_nothing_goes_on_after_eight_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lost=True)
    world.host.publish(b"ours")
    world.until(lambda: any(size > STATUS_ALONE for size in world.sizes), False, 4000)
    assert world.seal.out_epoch >= SEAL_JUMP_AFTER and not world.line.is_held
    # And the peer can still follow.
    world.until(lambda: len(world.other.log()) == 1, True, 8000)
