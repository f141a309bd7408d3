"""What ends a turn of a board does not end the board."""

import gc

import pytest

from boards.device import Device
from drupelet.base.events import CODE_ERROR
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.engine.members import GROUP_TELEMETRY
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox


class Port:
    """What a board asks of its port in these tests: its console, which is the port itself."""

    ms = 0

    @property
    def console(self) -> "Port":
        return self

    def say(self, line: str) -> None:
        pass

    def now_ms(self) -> int:
        return self.ms

    def timestamp_into(self, out: bytearray) -> None:
        out[:] = self.ms.to_bytes(8)


class Sensor:
    """Does not answer when it is asked for one of its readings."""

    failing: type[Exception] | None = OSError

    def ready(self, number: int) -> bool:
        return number < 3

    def size(self) -> int:
        if self.failing is not None:
            raise self.failing("no answer")
        return 2

    def read_into(self, buf: bytearray, at: int, size: int) -> None:
        buf[at : at + size] = b"ok"


class NotedBox(BlackBox):
    """A black box whose errors can be looked at."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        if code == CODE_ERROR:
            self.errors.append((a, b))
        BlackBox.log(self, now_ms, code, a, b, high, low)

    errors: list[tuple[int, int]]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(gc, "mem_free", lambda: 50_000, raising=False)
    store = FlashStore(RamFiles())
    store.open()
    box = NotedBox(b"DEVI", 1, 2)
    box.errors = []
    node = Node(store, lambda: 7, blackbox=box)
    readings = node.join(READINGS_CLIENT_ID, b"g")
    telemetry = node.join(TELEMETRY_CLIENT_ID, b"g", GROUP_TELEMETRY)
    node.boot(0)
    return Device(
        node, box, Port(), Sensor(), Author(node, readings), telemetry, 1000,
        bytearray(FRAME_SIZE_MAX), [],
    )  # fmt: skip


@pytest.mark.parametrize("failing", [OSError, ValueError])
def test_a_sensor_that_does_not_answer_is_asked_in_the_next_epoch(
    device: Device, failing: type[Exception]
) -> None:
    device.source.failing = failing
    device.step()
    assert device.own == 0 and device.box.errors == [(4, 1)]
    assert device.left_ms(device.port.now_ms()) == 1000, "not at once"
    device.source.failing = None
    device.port.ms = 1000
    device.step()
    assert device.own == 1 and len(device.box.errors) == 1


class Broker:
    """A broker's connection that counts."""

    said = ""

    def close(self) -> None:
        self.said += "closed "

    def reopen(self) -> None:
        self.said += "open "


class Sleeper:
    def rest(self, device: Device, rest_ms: int) -> None:
        """The store failed: there was no sleep."""


def test_a_turn_without_memory_is_one_of_many(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory() -> int:
        raise MemoryError

    monkeypatch.setattr(device, "step", no_memory)
    assert device._turn() == 1000 and device.box.errors == [(2, 3)]
    monkeypatch.undo()
    monkeypatch.setattr(gc, "mem_free", lambda: 50_000, raising=False)
    device.source.failing = None
    assert device._turn() == 1000 and device.own == 1


def test_a_sleep_that_fails_leaves_the_broker_reachable(device: Device) -> None:
    broker = Broker()
    device.brokers.append(broker)
    device.sleeper = Sleeper()
    device._sleep(5000)
    assert broker.said == "closed open "
