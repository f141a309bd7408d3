"""What ends a turn of a board does not end the board."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import boards.setup
from boards import start
from boards.device import Device
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
from drupelet.base.events import CODE_ERROR
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.engine.members import GROUP_TELEMETRY
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox


class Port:
    """What a board asks of its port in these tests: its console, which is the port itself.

    The command `stop` comes after `turns` turns. `waits` is how long the board waited after each
    of them, and `waited` is called then.
    """

    ms = 0
    turns = 1

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.waited: Callable[[], None] = lambda: None

    def command(self) -> bytes:
        self.turns -= 1
        return b"" if self.turns >= 0 else b"stop"

    def wait(self, wait_ms: int) -> None:
        self.waits.append(wait_ms)
        self.waited()

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

    def take(self, number: int) -> bytes | None:
        if self.failing is not None:
            raise self.failing("no answer")
        return b"ok" if number < 3 else None


class NotedBox(BlackBox):
    """A black box whose errors can be looked at."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        if code == CODE_ERROR:
            self.errors.append((a, b))
        BlackBox.log(self, now_ms, code, a, b, high, low)

    errors: list[tuple[int, int]]


@pytest.fixture
def sensor() -> Sensor:
    return Sensor()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, sensor: Sensor) -> Device:
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
        node, box, Port(), sensor.take, Author(node, readings), telemetry, 1000,
        bytearray(FRAME_SIZE_MAX), [],
    )  # fmt: skip


@pytest.mark.parametrize("failing", [OSError, ValueError])
def test_a_sensor_that_does_not_answer_is_asked_in_the_next_epoch(
    device: Device, sensor: Sensor, failing: type[Exception]
) -> None:
    sensor.failing = failing
    device.step()
    assert device.author.own == 0 and device.box.errors == [(4, 1)]
    assert device.left_ms(device.port.now_ms()) == 1000, "not at once"
    sensor.failing = None
    device.port.ms = 1000
    device.step()
    assert device.author.own == 1 and len(device.box.errors) == 1


def test_a_flash_that_keeps_nothing_for_three_epochs_ends_the_program(
    device: Device, sensor: Sensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor.failing = None
    codes = [E_STORAGE, E_STORAGE, OK, E_CAPACITY, E_STORAGE, E_STORAGE, E_STORAGE]
    monkeypatch.setattr(device.node, "save", lambda _now_ms: codes.pop(0))
    while len(codes) > 1:
        device.step()
        device.port.ms += 1000
    with pytest.raises(StorageError, match="kept nothing for 3 epochs"):
        device.step()
    assert [error for error in device.box.errors if error[1] == 2][-1] == (3, 2)


def test_a_board_whose_flash_failed_says_so_and_starts_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restarts = []

    class Board:
        class port:  # noqa: N801 - an attribute
            restart = staticmethod(lambda: restarts.append(1))

        def run(self) -> None:
            raise StorageError("the flash kept nothing for 3 epochs")

    (tmp_path / "config.json").write_text('{"name": "well"}')
    setup = ModuleType("boards.setup")
    setup.make = lambda _config, _port: Board()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "boards.setup", setup)
    monkeypatch.setattr(boards, "setup", setup)
    assert start.start(str(tmp_path / "config.json"), lambda _config: Port()) == 1
    assert restarts == [1]
    said = capsys.readouterr().err
    assert said == "board well: the flash kept nothing for 3 epochs; starting again\n"


class Broker:
    """A broker's connection that counts."""

    said = ""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def close(self) -> None:
        self.said += "closed "

    def reopen(self) -> None:
        self.said += "open "


class Sleeper:
    """Has the board sleep deeply once."""

    resumed = False
    rests: tuple[int, ...] = (0, 5000)

    def turn_ms(self, now_ms: int) -> int:  # noqa: ARG002
        return 1 << 29

    def rest_ms(self, device: Device) -> int:  # noqa: ARG002
        *self.rests, rest_ms = self.rests
        return rest_ms

    def rest(self, device: Device, rest_ms: int) -> None:  # noqa: ARG002
        """The store failed: there was no sleep."""
        assert rest_ms == 5000


def test_a_turn_without_memory_is_one_of_many(
    device: Device, sensor: Sensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [MemoryError()]
    step = device.step

    def without_memory() -> int:
        if left:
            raise left.pop()
        return step()

    monkeypatch.setattr(device, "step", without_memory)
    sensor.failing = None
    device.port.turns = 2
    device.run()
    assert device.port.waits == [1000, 1000] and device.box.errors == [(2, 3)]
    assert device.author.own == 1


def test_a_sleep_that_fails_leaves_the_broker_reachable(device: Device) -> None:
    broker = Broker()
    device.brokers.append(broker)
    device.sleeper = Sleeper()
    device.port.waited = lambda: broker.reached.append(broker.said)
    device.run()
    assert broker.reached == ["closed open "] and device.port.waits == [1000]


def test_an_event_is_handed_in_again_until_it_was_acted_on(device: Device, sensor: Sensor) -> None:
    """An epoch later, and nothing passes it meanwhile; at once where memory ran out."""
    handles: list[int] = []
    outcomes: list[int | type[Exception]] = [MemoryError, E_CAPACITY, OK]

    def act(handle: int) -> int:
        handles.append(handle)
        outcome = outcomes.pop(0) if outcomes else OK
        if isinstance(outcome, int):
            return outcome
        raise outcome

    sensor.failing = None
    device.acts[device.author.group] = act
    calls, events, consumed = [], [], []
    moments = [100, 200, 1000, 1200, 2000, 2000]

    def waited() -> None:
        calls.append(len(handles))
        events.append(len(set(handles)))
        consumed.append(device.node.core.consumed)
        device.port.ms = moments.pop(0)

    device.port.waited, device.port.turns = waited, len(moments)
    device.run()
    # Readings at 0, 1000 and 2000; what fails at 100 is handed in again from 1100 on.
    assert calls == [1, 2, 2, 2, 4, 5] and events == [1, 1, 1, 1, 2, 3]
    assert consumed[-1] == handles[-1]
