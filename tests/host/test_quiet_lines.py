"""An agent with many peers leaves those alone of whom nothing came and for whom nothing is due."""

import pytest

from drupelet.base.errors import OK
from drupelet_host.agent.carrier_lines import LOOK_MS, Line
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.home.config import Peer
from drupelet_transports.common.transport import Transport
from seal_ends import pair

NOW_MS = 1000


class Wire(Transport):
    """The carrier of one peer on a broker, to which nothing comes; it counts who looks."""

    def __init__(self) -> None:
        super().__init__()
        self.may_receive = False
        self.looks = self.frames = 0

    def receive_into(self, _frame: bytearray) -> int:
        self.looks += 1
        return 0

    def send(self, _frame: bytearray, _size: int) -> int:
        self.frames += 1
        return OK

    def close(self) -> None:
        """Nothing is open."""


class Client:
    """A connection to a broker, which is up."""

    up = True
    trouble = ""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def client(self, _url: object) -> "Client":
        return self

    def transport_of(self, _seal: object) -> Wire:
        return self._wire


class Link:
    """A link whose next frame is due after a while; it counts who polls."""

    def __init__(self) -> None:
        self.due_ms = 0
        self.polls = 0

    def wake_ms(self, now_ms: int) -> int:
        return max(0, self.due_ms - now_ms)

    def poll_into(self, _frame: bytearray, now_ms: int) -> int:
        self.polls += 1
        self.due_ms = now_ms + 500
        return 0


class Live:
    """What a line needs of a live link."""

    lost = False
    frame_size_max = 1024

    def __init__(self, link: Link) -> None:
        self.link = link

    def begin(self) -> None:
        """A contact begins."""


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> tuple[Line, Link, Wire]:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS)
    monkeypatch.setattr("drupelet.host_api.note_reads_segments", lambda _: None)
    wire, link = Wire(), Link()
    seal = pair(Aead())[0].boot()
    line = Line(
        Peer("b", b"B___", "mqtt://localhost/t"), Live(link), Client(wire), lambda _: None,
        lambda: None, lambda _: seal, lambda: None,
    )  # type: ignore[arg-type] # fmt: skip
    line.maintain(NOW_MS)
    return line, link, wire


def test_a_link_is_polled_when_it_is_due(parts: tuple[Line, Link, Wire]) -> None:
    line, link, _ = parts
    link.due_ms = NOW_MS + 30
    for now_ms in (NOW_MS, NOW_MS + 29):
        assert not line.hand_out(now_ms)
    assert link.polls == 0 and line.wait_ms(NOW_MS + 29, NOW_MS + 29) == 1
    line.hand_out(NOW_MS + 30)
    assert link.polls == 1 and line.wait_ms(NOW_MS + 40, NOW_MS + 30) == 490


def test_a_carrier_is_read_when_something_came(parts: tuple[Line, Link, Wire]) -> None:
    line, _, wire = parts
    for now_ms in range(NOW_MS, NOW_MS + LOOK_MS):
        line.take_in(now_ms)
    assert wire.looks == 1, "the seal may have something to tell"
    wire.may_receive = True
    line.take_in(NOW_MS + LOOK_MS - 1)
    assert wire.looks == 2
    wire.may_receive = False
    line.take_in(NOW_MS + LOOK_MS)
    assert wire.looks == 3
