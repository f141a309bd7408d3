"""A board on MicroPython in 128 KB, and an agent whose owner commands it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet_host.home.config import Peer
from drupelet_host.store import database
from drupelet_host.view.sent_commands import SentCommand
from drupelet_tools.demo.child import Child, Event
from drupelet_tools.flash import rom
from host.conftest import Cable, Home, wait_for

BOARD = 0xA0000001
HOST = 0x40000000
HEAP_KB = 128


def configure(folder: Path, url: str) -> Path:
    settings = {
        "name": "A", "id": f"{BOARD:08x}", "flash": str(folder / "flash"), "group": "orchard",
        "epoch_ms": 50, "readings_max": 10_000, "rows": None, "heap_limit": HEAP_KB * 1024,
        "telemetry_to": [], "peers_max": 2, "messages_max": 24, "offers_max": 24,
        "filter_size": 1024, "commands": True,
        "peers": [{"id": f"{HOST:08x}", "url": url, "mode": "interactive"}],
    }  # fmt: skip
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    return path


def told(home: Home) -> list[dict[str, Any]]:
    """What became of the commands."""
    said: list[dict[str, Any]] = json.loads(home.run("command", "A", "--json").stdout)
    return said


def answers(home: Home) -> int:
    """How many messages of the group of commands came from the board."""
    connection = database.connect(home.path / "store.db", read_only=True)
    try:
        descriptor, id = b"orchard", bytearray(ID_SIZE)
        group_id_into(id, COMMANDS_CLIENT_ID, descriptor, len(descriptor))
        row = connection.execute(
            "SELECT count(*) FROM log WHERE source != 0 AND member_group ="
            " (SELECT number FROM members WHERE key = ?)",
            (bytes(id),),
        ).fetchone()
        return int(row[0])
    finally:
        connection.close()


def tell(home: Home, *words: str) -> None:
    done = home.run("command", "A", *words)
    assert done.returncode == 0, done.stderr


class Board:
    """One board process after another on the same flash."""

    def __init__(self, full_image: Path, config: Path, log: Path) -> None:
        self.said: list[Event] = []
        self._start = full_image, config, log
        self.child = self._boot()

    def _boot(self) -> Child:
        full_image, config, log = self._start
        command = rom.board_command(full_image, HEAP_KB, [str(config)])
        return Child("A", command, log, lambda _name, event: self.said.append(event))

    def again(self) -> None:
        """The power goes, and comes back."""
        self.child.kill()
        before = len(self.said)
        self.child = self._boot()
        wait_for(lambda: any("own" in event for event in self.said[before:]), "a new boot")

    @property
    def own(self) -> int:
        """How many readings it said it has taken."""
        return max((int(event["own"]) for event in self.said if "own" in event), default=0)


def test_a_board_does_what_its_host_says_and_each_once(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, full_image: Path
) -> None:
    url = cable.url(0).replace("baud=115200&", "")
    peer = Peer("A", BOARD.to_bytes(4), cable.url(1), "interactive", 50, board="board")
    home = make_home("host", HOST, peer)
    (tmp_path / "flash").mkdir()
    assert home.run("command", "A", "--key-to", str(tmp_path / "flash")).returncode == 0
    home.start()
    board = Board(full_image, configure(tmp_path, url), tmp_path / "log")
    try:
        wait_for(lambda: board.own >= 3 or not board.child.running, "readings")
        assert board.child.running, board.child.last_words()
        tell(home, "sleep", "60000")
        tell(home, "flush")
        tell(home, "report")
        tell(home, "epoch", "3600000")
        wait_for(lambda: answers(home) == 4, "four answers")
        board.again()
        seen = board.own
        wait_for(lambda: board.own > seen, "readings: it has not done it again")
        tell(home, "epoch", "3600000")
        wait_for(lambda: answers(home) == 5, "the fifth answer")
    finally:
        board.child.stop()
    home.stop()
    done = told(home)
    assert msgspec.to_builtins(msgspec.convert(done, list[SentCommand])) == done
    assert [one["operation"] for one in done] == ["sleep", "flush", "report", "epoch", "epoch"]
    results = [one["result"] for one in done]
    assert results[:2] == [-1, 0]  # it has no deep sleep
    assert results[2] >= 3 and results[3:] == [3_600_000] * 2
    assert {one["board"] for one in done} == {"A"}
