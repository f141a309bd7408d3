"""The demo's members as processes, and the stick that is carried between them.

Events come from the children's output; `wait_for` is the only place that waits, and it is
bounded. The stick moves when the member that has it says that it is safe to unplug.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drupelet_host.home.config import Config, Peer, create, load
from drupelet_tools.demo import keys, plan
from drupelet_tools.demo.cable import Cable
from drupelet_tools.demo.child import STOP_S, Child, Event, run_to_end
from drupelet_tools.demo.pico import PicoMember
from drupelet_tools.demo.plan import BOARDS, EPOCH_MS, HOST, IDS, DemoError, Folders
from drupelet_tools.flash import rom
from drupelet_tools.flash.sets import Choice, build_set

# A board that says nothing for this long is hung: it tells its status every epoch.
SILENCE_S = 20.0
# `drupelet put` starts a Python and writes one row.
PUT_S_MAX = 30.0
_PEEK_S = 0.0005


class World:
    """Everything that runs; use as a context manager, so that nothing is left behind."""

    def __init__(
        self, folders: Folders, broker_url: str, readings: dict[str, int],
        pico_image: Path | None = None,
    ) -> None:  # fmt: skip
        """pico_image: what an emulated Pico runs; None: there is none."""
        self.folders = folders
        self.broker_url = broker_url
        self.readings = readings
        self.cables: dict[str, Cable] = {}
        self.children: dict[str, Child] = {}
        self.pico: PicoMember | None = None
        self._pico_image = pico_image
        self.status: dict[str, Event] = {}
        self.heap_low: dict[str, int] = {}
        self.visits: dict[str, int] = dict.fromkeys(IDS, 0)
        self.kills = 0
        self.pulls = 0
        self.flushed: set[str] = set()
        self._events: queue.Queue[tuple[str, Event]] = queue.Queue()
        self.stick_at = ""

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        # All at once: five that do not listen must not take five times as long.
        for child in self.children.values():
            child.ask()
        deadline_s = time.monotonic() + STOP_S
        for child in self.children.values():
            child.stop(deadline_s)
        if self.pico is not None:
            self.pico.close()
        for cable in self.cables.values():
            cable.close()

    # --- set-up ---

    def start(self) -> None:
        """Compile the firmware, lay the cables, hand out keys, start the host and the Pico."""
        build_set(self.folders.firmware, "x86", Choice("full"), in_place=True)
        self._image = rom.write(self.folders.firmware)
        self.cables = {"A-host": Cable(), "C-D": Cable()}
        if self._pico_image is not None:
            self.pico = PicoMember(self.folders, self._pico_image, self._tell)
        self._write_host_config()
        keys.provision_fleet(self.folders, {frozenset(pair) for pair in self._urls()})
        if self.pico is not None:
            self.pico.set_up(load(self.folders.host))
        command = [sys.executable, "-m", "drupelet_host", "agent", "--json", "--home"]
        self.children[HOST] = Child(
            HOST, [*command, str(self.folders.host)], self.folders.out / "host.log", self._tell,
            by_signal=True,
        )  # fmt: skip

    def switch_on_all(self) -> None:
        """Start all boards but the Pico."""
        for board in BOARDS:
            self._write_board_config(board)
            self.switch_on(board)

    def _urls(self) -> dict[tuple[str, str], str]:
        serial = {name: cable.ends for name, cable in self.cables.items()}
        return {
            ("A", HOST): f"serial://{serial['A-host'][0]}",
            (HOST, "A"): f"serial://{serial['A-host'][1]}?baud=115200",
            ("B", HOST): self.broker_url,
            (HOST, "B"): self.broker_url,
            ("C", HOST): f"stick://{self.folders.mount('C')}",
            (HOST, "C"): f"stick://{self.folders.mount(HOST)}",
            ("C", "D"): f"serial://{serial['C-D'][0]}",
            ("D", "C"): f"serial://{serial['C-D'][1]}",
        }

    def _write_host_config(self) -> None:
        peers = tuple(
            Peer(
                name=peer,
                id=bytes.fromhex(IDS[peer]),
                url=url,
                mode="interactive" if peer == "A" else "batch",
                epoch_ms=EPOCH_MS,
                board=plan.ENERGY[peer],
            )
            for (name, peer), url in self._urls().items()
            if name == HOST
        )
        if self.pico is not None:
            pico = Peer(
                plan.PICO, bytes.fromhex(IDS[plan.PICO]), self.pico.url, "batch",
                plan.PICO_PEER_EPOCH_MS, plan.ENERGY[plan.PICO],
            )  # fmt: skip
            peers = (*peers, pico)
        create(
            Config(
                home=self.folders.host, name=HOST, id=bytes.fromhex(IDS[HOST]), group=plan.GROUP,
                epoch_ms=EPOCH_MS, peers=peers,
            )
        )  # fmt: skip

    def _write_board_config(self, board: str) -> None:
        rows = self.folders.board(board) / "rows.ndjson"
        config = {
            "name": board,
            "id": IDS[board],
            "flash": str(self.folders.flash(board)),
            "group": plan.GROUP,
            "epoch_ms": EPOCH_MS,
            "readings_max": self.readings[board],
            "rows": str(rows) if rows.exists() else None,
            "heap_limit": plan.HEAP_LIMIT,
            **plan.TABLES,
            "telemetry_to": [IDS[name] for name in plan.TELEMETRY_TO[board]],
            "peers": [
                {
                    "id": IDS[peer],
                    "url": url,
                    "profile": "compact-1",
                    "mode": "interactive" if board == "A" else "batch",
                }
                for (name, peer), url in self._urls().items()
                if name == board
            ],
        }
        path = self.folders.board(board) / "config.json"
        path.write_text(json.dumps(config, indent=2))

    def switch_on(self, board: str) -> None:
        """Start a board, new or again after `kill`."""
        config = self.folders.board(board) / "config.json"
        self.children[board] = Child(
            board,
            rom.board_command(self._image, plan.HEAP_LIMIT // 1024, [str(config)]),
            self.folders.board(board) / "output.log",
            self._tell,
        )

    def kill(self, board: str) -> None:
        """No warning, as when a battery falls out (the page cache lives on: not a power cut)."""
        self.children[board].kill()
        self._drain()  # nothing that it said before counts as a sign of life
        self.status.pop(board, None)
        self.kills += 1

    # --- events ---

    def _tell(self, name: str, event: Event) -> None:
        self._events.put((name, event))

    def wait_for(self, what: str, is_done: Callable[[], bool], timeout_s: float) -> None:
        """Handle events until `is_done()`; raises DemoError when a child dies or time is up."""
        end = time.monotonic() + timeout_s
        while not is_done():
            left_s = end - time.monotonic()
            if left_s <= 0:
                raise DemoError(f"{what}: not within {timeout_s:.0f} s; {self.where()}")
            members: dict[str, Child | PicoMember] = {**self.children}
            if self.pico is not None:
                members[plan.PICO] = self.pico
            for name, child in members.items():
                if not child.running:
                    raise DemoError(f"{name} stopped by itself: {child.last_words()}")
            try:
                name, event = self._events.get(timeout=min(left_s, 0.1))
            except queue.Empty:
                continue
            self._handle(name, event)

    def _handle(self, name: str, event: Event) -> None:
        if event.get("event") == "stick":
            self.visits[name] += 1
        elif event.get("event") == "flushed":
            self.flushed.add(name)
            self.status[name]["outstanding"] = None  # its last report is out of date
        elif "outstanding" in event:
            self.status[name] = event
            low = int(event["heap_low"])
            self.heap_low[name] = min(low, self.heap_low.get(name, low))

    def where(self) -> str:
        """Who has what, for a message."""
        counts = (f"{name} has {event['logged']}" for name, event in sorted(self.status.items()))
        return ", ".join(counts) or "nobody has said anything"

    # --- the stick ---

    def plug(self, name: str) -> None:
        """Put the stick in at a member."""
        os.rename(self.folders.hand, self.folders.mount(name))
        self.stick_at = name

    def unplug(self) -> None:
        """Take it out; the member has said that it is safe."""
        os.rename(self.folders.mount(self.stick_at), self.folders.hand)
        self.stick_at = ""

    def visit(self, name: str, timeout_s: float = 30.0) -> None:
        """Plug in, wait until it is safe, unplug."""
        before = self.visits[name]
        self.plug(name)
        self.wait_for(f"stick at {name}", lambda: self.visits[name] > before, timeout_s)
        self.unplug()

    def pull(self, name: str, timeout_s: float = 30.0) -> bool:
        """Plug in and pull while a bundle is being written; False when it was too quick for us.

        The folder is not there any more from that instant on, so no file gets its final name. A
        copy of it goes on; what the member still writes is thrown away.
        """
        before = self.visits[name]
        self.plug(name)
        mount = self.folders.mount(name)
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            half = [path for path in mount.rglob("*.TMP") if _size(path)]
            if half:
                lost = mount.with_name("pulled")
                os.rename(mount, lost)
                self.stick_at = ""
                shutil.copytree(lost, self.folders.hand, dirs_exist_ok=True)
                is_torn = any(self.folders.hand.rglob("*.TMP"))
                self.pulls += is_torn
                self.wait_for(f"{name} notices", lambda: self.visits[name] > before, timeout_s)
                shutil.rmtree(lost)
                return is_torn
            self._drain()
            if self.visits[name] > before:
                self.unplug()
                return False
            time.sleep(_PEEK_S)
        raise DemoError(f"stick at {name}: no visit within {timeout_s:.0f} s")

    def _drain(self) -> None:
        while True:
            try:
                name, event = self._events.get_nowait()
            except queue.Empty:
                return
            self._handle(name, event)

    # --- the host ---

    def put(self, text: str) -> None:
        """Publish at the host, as a user would."""
        command = [sys.executable, "-m", "drupelet_host", "put", text, "--home"]
        try:
            code, error_text = run_to_end([*command, str(self.folders.host)], PUT_S_MAX)
        except subprocess.TimeoutExpired:
            raise DemoError(f"drupelet put: no end within {PUT_S_MAX:.0f} s") from None
        if code:
            raise DemoError(f"drupelet put: {error_text.strip()}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
