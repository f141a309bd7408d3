"""A carrier that is down for days: the core's clock goes round in twelve, ours must not."""

from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import OK
from drupelet_host.base import clock
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.member import Member

DAY_MS = 86_400_000
EPOCH_MS = 1000
NAMES = "ab"


class Pair:
    """Two homes and the line between them, at a time that the test tells."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_ms = 0
        monkeypatch.setattr(clock, "now_ms", self.now_ms)
        self.members: list[Member] = []
        self.lives: list[Any] = []
        for own, other in (NAMES, NAMES[::-1]):
            peer = Peer(other, other.encode() * 4, "serial:///dev/null", "batch")
            made = Config(folder / own, own, own.encode() * 4, "well", EPOCH_MS, None, (peer,))
            config.create(made)
            self.members.append(Member(made))
            self.lives.append(self.members[-1].live_link(peer, 1, self.now_ms()))

    def now_ms(self) -> int:
        return self.passed_ms & 0x3FFFFFFF

    def wait(self, days: int, step_ms: int) -> None:
        """The line is down: agents do what they do once per epoch, and less often here."""
        for _ in range(0, days * DAY_MS, step_ms):
            self.passed_ms += step_ms
            for member in self.members:
                member.epoch(self.now_ms())

    def speak(self, seconds: int, lost: bool = False) -> None:
        frame = bytearray(1024)
        for _ in range(seconds):
            self.passed_ms += 1000
            for live, other in zip(self.lives, self.lives[::-1], strict=True):
                while size := live.link.poll_into(frame, self.now_ms()):
                    assert lost or other.link.receive(frame, size, self.now_ms()) == OK

    def close(self) -> None:
        for member in self.members:
            member.close(self.now_ms())


def readings(member: Member) -> int:
    count = 0
    while events := member.events():
        for event in events:
            count += event.group == member.readings
            member.take_delivered(event)
    return count


@pytest.mark.parametrize("days", [1, 7, 11, 13])
def test_it_goes_on_where_it_was_whatever_the_outage(
    days: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path, monkeypatch)
    a, b = pair.members
    pair.speak(10)
    pair.wait(days, DAY_MS // 2)
    for number in range(40):
        body = b"\x00" + b"%d" % number * 200
        assert a.node.publish(a.readings, body, len(body), bytes(8), pair.now_ms()) > 0
    pair.speak(3, lost=True)
    pair.speak(60)
    assert readings(b) == 40
    assert a.node.outstanding(a.numbers[NAMES[1].encode() * 4]) == 0
    pair.close()
