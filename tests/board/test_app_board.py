"""The examples of an owner's program on MicroPython, 32 bits, with a `machine` of tests."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drupelet_host.home.config import Peer
from drupelet_tools.demo.child import Child, Event
from drupelet_tools.flash import rom
from host.conftest import Cable, Home, cable, make_home, wait_for

ROOT = Path(__file__).resolve().parents[2]
HOST = 0x40000000
HEAP_KB = 128
EPOCH_MS = 50
KILLS = 6

__all__ = ["cable", "make_home"]  # fixtures


class Board:
    """An example on a board of this machine, boot after boot."""

    def __init__(self, example: str, folder: Path, url: str, image: Path) -> None:
        self.folder = folder / example
        shutil.copytree(ROOT / "examples" / example, self.folder)
        (self.folder / "flash").mkdir()
        (self.folder / "adc").write_text("30000")
        (self.folder / "pins").touch()
        shutil.copy(Path(__file__).with_name("owner_machine.py"), self.folder / "machine.py")
        config = json.loads((self.folder / "drupelet.json").read_text())
        self.id = bytes.fromhex(config["id"])
        self.sleeps = "sleep" in config
        config |= {
            "app": str(self.folder / "app.py"), "flash": str(self.folder / "flash"),
            "heap_limit": HEAP_KB * 1024, "sample_ms": 2 * EPOCH_MS, "epoch_ms": EPOCH_MS,
        }  # fmt: skip
        config["peers"][0]["url"] = url
        if self.sleeps:
            times = {"period_ms": 1500, "window_ms": 1000, "contact_ms": 200}
            config |= {"sleep": {**times, "rtc": str(self.folder / "rtc"), "rtc_size": 2048}}
            config["sample_ms"] = 1500
        self.config = self.folder / "config.json"
        self.config.write_text(json.dumps(config))
        self._image = image
        self.events: list[Event] = []
        self.child: Child | None = None

    def start(self) -> None:
        self.child = Child(
            "A", rom.board_command(self._image, HEAP_KB, [str(self.config)]), self.folder / "log",
            lambda _name, event: self.events.append(event),
        )  # fmt: skip

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    def pins(self) -> list[str]:
        return (self.folder / "pins").read_text().splitlines()

    def errors(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("event") == "app"]


@contextmanager
def running(
    example: str, make_home: Callable[..., Home], cable: Cable, folder: Path, image: Path
) -> Iterator[tuple[Board, Home]]:
    """The example and an agent, on the two ends of a plain cable."""
    end = cable.url(0).replace("baud=115200&", "")
    board = Board(example, folder, end, image)
    home = make_home(
        "host", HOST, Peer("A", board.id, cable.url(1), "interactive", EPOCH_MS, board="board")
    )
    home.start()
    board.start()
    try:
        yield board, home
    finally:
        assert board.child is not None
        board.child.stop()


def texts(home: Home) -> list[str]:
    return [str(entry.get("text", "")) for entry in home.log()]


def test_a_well_is_measured_between_deep_sleeps(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, full_image: Path
) -> None:
    with running("well_level", make_home, cable, tmp_path, full_image) as (board, home):
        # 30,000 of 65,535 at 3.3 V are 1,510 mV: 910 of 2,400 above empty, of 5 m.
        wait_for(lambda: texts(home).count('{"level_mm":1895}') >= 3, "three levels")
        (board.folder / "adc").write_text("0")
        wait_for(board.errors, "an error of the program")
        (board.folder / "adc").write_text("45000")
        wait_for(lambda: '{"level_mm":3468}' in texts(home), "another level")
    error = board.errors()[0]
    assert error["in"] == "sample"
    assert error["error"].startswith("ValueError: the probe shows 0 mV: is it connected? (")
    assert 'app.py", line ' in error["error"] and "in sample)" in error["error"]
    assert sum(event.get("event") == "asleep" for event in board.events) >= 3
    pins = board.pins()
    assert pins[:4] == ["22 on", "22 off"] * 2 and pins.count("22 on") == pins.count("22 off")


def test_a_feeder_gives_a_portion_once_per_command_though_its_power_goes(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, full_image: Path
) -> None:
    with running("actuator", make_home, cable, tmp_path, full_image) as (board, home):
        for kill in range(KILLS):
            home.put("feeder-2 portion")
            home.put(f"no command {kill}")
            wait_for(lambda kill=kill: board.pins().count("15 on") > kill, "a portion")
            board.kill()
            board.start()
        home.put("feeder-2 portion")
        wait_for(lambda: board.pins().count("15 on") > KILLS, "the last portion")
        answer = "feeder-2 gave a portion for "
        wait_for(lambda: any(text.startswith(answer) for text in texts(home)), "an answer")
        boots = [event for event in board.events if event.get("event") == "started"]
        assert not board.errors() and len(boots) == KILLS + 1
    assert board.pins().count("15 on") == KILLS + 1, "each of the commands was done once"
