"""A board on MicroPython in 192 KB on a topic with two hosts: UDP multicast, and a broker."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

from drupelet_host.broker import Broker
from drupelet_host.home.config import Peer
from drupelet_host.keys import provision
from drupelet_tools.demo.child import Child, Event
from drupelet_tools.flash import rom
from host.conftest import Home, messages_sent, share_keys, wait_for

BOARD = 0xA0000001
HOSTS = {"h": 0x40000001, "i": 0x40000002}
READINGS = 6
HEAP_KB = 192


def configure(folder: Path, url: str, topic: str) -> Path:
    (folder / "flash").mkdir()
    peers = [f"{id:08x}" for id in HOSTS.values()]
    settings = {
        "name": "A", "id": f"{BOARD:08x}", "flash": str(folder / "flash"), "group": "orchard",
        "epoch_ms": 100, "readings_max": READINGS, "rows": None, "heap_limit": HEAP_KB * 1024,
        "telemetry_to": [], "peers_max": 2, "messages_max": 24, "offers_max": 24,
        "filter_size": 1024,
        "peers": [{"id": peer, "url": url, "mode": "interactive"} for peer in peers],
        "topics": [{"name": "field", "url": topic, "peers": peers}],
    }  # fmt: skip
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    return path


class World:
    """Two hosts and a board, running, on one topic."""

    def __init__(
        self, make_home: Callable[..., Home], folder: Path, full_image: Path, url: str, topic: str
    ) -> None:
        path = configure(folder, url.replace("localhost", "127.0.0.1"), topic)
        self.flash = folder / "flash"
        self.homes = []
        for own, other in (("h", "i"), ("i", "h")):
            home = make_home(
                own, HOSTS[own],
                Peer(other, HOSTS[other].to_bytes(4), url, "interactive", 100),
                Peer("A", BOARD.to_bytes(4), url, "interactive", 100, "board"),
            )  # fmt: skip
            with (home.path / "drupelet.toml").open("a") as file:
                file.write(f'\n[[topics]]\nname = "field"\nurl = "{topic}"\nepoch_ms = 100\n')
            sides = (
                provision.HomeKeys(home.path / "keys", home.id, BOARD.to_bytes(4)),
                provision.FlashKeys(self.flash, BOARD.to_bytes(4), home.id),
            )
            provision.provision(*sides, 8, issuer=True)
            self.homes.append(home)
        share_keys(*self.homes)
        for home in self.homes:
            home.start("--wait")
        self.said: list[Event] = []
        self.board = Child(
            "A", rom.board_command(full_image, HEAP_KB, [str(path)]), folder / "log",
            lambda _name, event: self.said.append(event),
        )  # fmt: skip

    @property
    def logged(self) -> int:
        """How many readings the board said last that its log has."""
        return next((row["logged"] for row in reversed(self.said) if "logged" in row), -1)

    def wait(self, fact: Callable[[], bool], what: str) -> None:
        """Until it is so, or the board ends."""
        wait_for(lambda: not self.board.running or fact(), what)
        assert self.board.running, self.board.last_words()

    def meet(self) -> int:
        """Keys change hands, then all have all readings: how many."""
        topics = [home.status for home in self.homes]
        self.wait(
            lambda: all(len(status()["topics"][0]["told"]) == 2 for status in topics), "keys"
        )
        self.homes[0].put("from h")
        count = READINGS + 1
        self.wait(lambda: all(len(home.log()) == count for home in self.homes), "all at hosts")
        self.wait(lambda: self.logged == count, "all at the board")
        return count


def test_multicast_goes_on_without_the_broker(
    make_home: Callable[..., Home], broker: Broker, tmp_path: Path, full_image: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    topic = f"udp://239.77.1.7:{port}?interface=127.0.0.1"
    world = World(make_home, tmp_path, full_image, broker.start() + "/t", topic)
    try:
        count = world.meet()
        broker.stop()
        world.homes[1].put("from i")
        world.wait(lambda: world.logged == count + 1, "it at the board")
    finally:
        world.board.stop()
    assert messages_sent(world.flash, BOARD.to_bytes(4)).get("udp", 0) > 0


def test_a_host_is_revoked_and_the_board_has_new_keys(
    make_home: Callable[..., Home], broker: Broker, tmp_path: Path, full_image: Path
) -> None:
    url = broker.start() + "/t"
    world = World(make_home, tmp_path, full_image, url, url)
    h, i = world.homes
    try:
        count = world.meet()
        sender = next(world.flash.glob("*.SND"))
        before = sender.read_bytes()[4:8]
        assert h.run("revoke", "i", "--json").returncode == 0
        world.wait(lambda: sender.read_bytes()[4:8] != before, "the board's new chain")
        h.put("after i")
        world.wait(lambda: world.logged == count + 1, "it at the board")
        world.wait(lambda: h.status()["topics"][0]["told"] == [f"{BOARD:08x}"], "its new key")
        assert len(i.log()) == count
    finally:
        world.board.stop()


def test_a_board_goes_on_without_the_network_of_its_topic(
    tmp_path: Path, full_image: Path
) -> None:
    topic = "udp://239.77.1.7:7447?interface=203.0.113.9"
    path = configure(tmp_path, "mqtt://127.0.0.1:9/t", topic)
    for id in HOSTS.values():
        sides = (
            provision.HomeKeys(tmp_path / f"{id:x}", id.to_bytes(4), BOARD.to_bytes(4)),
            provision.FlashKeys(tmp_path / "flash", BOARD.to_bytes(4), id.to_bytes(4)),
        )
        provision.provision(*sides, 8, issuer=True)
    said: list[Event] = []
    board = Child(
        "A", rom.board_command(full_image, HEAP_KB, [str(path)]), tmp_path / "log",
        lambda _name, event: said.append(event),
    )  # fmt: skip
    try:
        wait_for(
            lambda: not board.running or any(event.get("own", 0) >= READINGS for event in said),
            "readings",
        )
        assert board.running, board.last_words()
        why = "bring its network up"
        assert {"event": "absent", "carrier": topic, "why": why} in said
    finally:
        board.stop()
