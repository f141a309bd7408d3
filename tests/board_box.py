"""One board as the demo runs it: a process of its own, with its folder, on 128 KB in place from an
image; on 256 KB from .mpy files."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drupelet.base.errors import OK
from drupelet.seal.record import install
from drupelet_host.keys.provision import FlashKeys, RamKeys
from drupelet_tools.demo import plan
from drupelet_tools.demo.child import Child, Event
from drupelet_tools.flash import rom
from drupelet_tools.flash.build import micropython_command

HEAP = 128 * 1024
MPY_HEAP = 256 * 1024
IDS = {"A": "a0000001", "B": "b0000002", "C": "c0000003", "host": "40000000"}
EPOCH_MS = 100
WAIT_S = 60.0


def command(firmware: Path, config: Path) -> list[str]:
    """firmware: an image, or a folder of .mpy files, which goes into MICROPYPATH, too."""
    if firmware.is_dir():
        heap = f"heapsize={MPY_HEAP // 1024}K"
        return [*micropython_command("x86"), "-X", heap, "-m", "boards.unix.main", str(config)]
    return rom.board_command(firmware, HEAP // 1024, [str(config)])


def give_keys(flash: Path, name: str, peer: str) -> None:
    """Keys of one board for a peer: what both have of one root, so that two boxes agree."""
    root = hashlib.sha256("".join(sorted((name, peer))).encode()).digest()
    port = RamKeys(bytes.fromhex(IDS[name]), bytes.fromhex(IDS[peer]))
    assert install(port, root, 0x1230, 0, 0) == OK
    file = FlashKeys(flash, port.own_id, port.peer_id)
    if not file.path.exists():
        assert file.save(port.records) == OK


class Box:
    """One board with its folder; `status` is what it said last, `start_status` as it started."""

    def __init__(self, name: str, folder: Path, firmware: Path) -> None:
        self.name = name
        self.folder = folder
        self.flash = folder / "flash"
        self.flash.mkdir(parents=True)
        self.status: Event = {}
        self.start_status: Event = {}
        self.boots: list[int] = []
        self.visits = 0
        self._firmware = firmware
        self.child: Child | None = None

    def configure(self, peers: dict[str, str], **more: object) -> None:
        config = {
            "name": self.name, "id": IDS[self.name], "flash": str(self.flash),
            "group": plan.GROUP, "epoch_ms": EPOCH_MS, "readings_max": 10_000, "rows": None,
            "heap_limit": MPY_HEAP if self._firmware.is_dir() else HEAP, "peers_max": 4,
            "messages_max": 64, "offers_max": 64, "filter_size": 2048,
            "telemetry_to": [IDS["host"]],
            "peers": [
                {"id": IDS[peer], "url": url, "mode": "batch"} for peer, url in peers.items()
            ],
        }  # fmt: skip
        (self.folder / "config.json").write_text(json.dumps({**config, **more}))
        for peer, url in peers.items():
            if "plain" not in url and self.flash.is_dir():
                give_keys(self.flash, self.name, peer)

    def change_peers(self, **more: object) -> None:
        """Give every peer of the configuration these settings, too."""
        path = self.folder / "config.json"
        config = json.loads(path.read_text())
        config["peers"] = [{**peer, **more} for peer in config["peers"]]
        path.write_text(json.dumps(config))

    def _heard(self, _name: str, event: Event) -> None:
        if event.get("event") == "stick":
            self.visits += 1
        elif "own" in event:
            self.status = event
            if event["event"] in ("started", "woke"):
                self.start_status = event
                self.boots.append(int(event["boot"]))

    def start(self) -> None:
        env = {"MICROPYPATH": os.path.relpath(self._firmware)} if self._firmware.is_dir() else None
        self.child = Child(
            self.name, command(self._firmware, self.folder / "config.json"),
            self.folder / "log", self._heard, env,
        )  # fmt: skip

    def wait_for(self, fact: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + WAIT_S
        assert self.child is not None
        while not fact():
            assert self.child.running, f"{self.name} ended: {self.child.last_words()}"
            assert time.monotonic() < until, f"{what}: {self.status}"
            time.sleep(0.01)

    def own(self, count: int) -> Callable[[], bool]:
        return lambda: int(self.status.get("own", -1)) >= count

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop()


@contextmanager
def box(name: str, tmp_path: Path, firmware: Path) -> Iterator[Box]:
    one = Box(name, tmp_path / name, firmware)
    try:
        yield one
    finally:
        one.stop()
