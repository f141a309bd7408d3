"""The walk: a Pico from its image to a member of a group, with damaged frames and power cuts.

An emulated Pico gets the image, its configuration and a file of rows that it replays as readings.
A real agent of this machine gives it keys over the USB console, then exchanges messages with it
over a sealed link, through a cable that damages frames, while its power fails in the middle of
flash operations. At the end both logs are read and held against what was written.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from drupelet_host.home import config
from drupelet_host.store import database, outbox
from drupelet_host.view.log_view import LogView
from drupelet_tools.demo.check import board_log, host_log, judge
from drupelet_tools.demo.plan import GROUP, DemoError
from drupelet_tools.image.build import symbols_of
from drupelet_tools.pico.emulator import Event, Pico
from drupelet_tools.pico.repl import copy_folder, interrupt, put
from drupelet_tools.pico.wire import Wire

BOARD_ID, HOST_ID = bytes.fromhex("a0000001"), bytes.fromhex("40000000")
BOARD, HOST = "A", "host"
# How the chip and the agent reach each other, by the name of the carrier.
URLS = {"console": "console:", "uart": "uart:1?tx=4&rx=5&baud=115200"}
_UART = 1
_EPOCH_MS = 300
_PROVISION_S = 120
_LOOK_S = 0.5
_LONG_EVERY = 25  # of so many messages one is long
_LONG_SIZE_MAX = 4096
_SHORT_SIZE_MAX = 200
# A cut comes within so many flash operations: a message takes about a dozen, a boot about twenty.
_CUT_WITHIN = 40
_PROGRAMS_PER_ERASE = 10
# One cut in eight is just before an operation, one in eight just behind it; the others tear it.
_AT_EDGE = 8
# Whatever is drawn, the first two cuts tear one of each.
_TORN_FIRST = ("program", "erase")
_TORN_WITHIN = (0.1, 0.9)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Plan:
    """What is walked: messages of each side, part of frames damaged, power cuts."""

    carrier: str = "console"
    messages: int = 50
    damage: float = 0.05
    cuts: int = 5
    seed: int = 1
    seconds: int = 280


@dataclass
class Walked:
    """What came of it."""

    expected: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    right: bool = False
    boots: list[int] = field(default_factory=list)  # numbers that the board gave its boots
    keyless: int = 0  # how often it asked for keys
    cuts: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    damaged: int = 0
    forged: int = 0
    counters: Event = field(default_factory=dict)
    seconds: float = 0.0


def walk(image: Path, folder: Path, plan: Plan, say: Callable[[str], None] = print) -> Walked:
    """Run the whole plan; raises DemoError when the time is up. `folder` is empty or missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        return _Walk(image, folder, plan, say, stack).run()


class _Walk:
    def __init__(
        self, image: Path, folder: Path, plan: Plan, say: Callable[[str], None], stack: ExitStack
    ) -> None:
        self.plan = plan
        self.say = say
        self.folder = folder
        self.home = folder / HOST
        self.started_s = time.monotonic()
        self.result = Walked(expected=2 * plan.messages)
        self.rng = random.Random(plan.seed)
        self.stack = stack
        self.pico = stack.enter_context(
            Pico(
                folder / "flash.bin",
                image,
                seconds=plan.seconds + 120,
                log=folder / "console.log",
                symbols=symbols_of(image),
            )
        )

    def run(self) -> Walked:
        self._configure()
        console = self._wire(self.pico.console_port)
        line = console
        if self.plan.carrier == "uart":
            line = self._wire(self.pico.uart_ports[_UART])
        self._provision(console, line)
        self._start_agent()
        line.rate = self.plan.damage
        for number in range(self.plan.messages):
            self._post(_text("host", number, self.rng))
        for number in range(self.plan.cuts):
            self._cut(number)
        self._finish()
        for noise in (line.to_board, line.from_board):
            self.result.frames += noise.frames
            self.result.damaged += noise.damaged
        console.close()
        if line is not console:
            line.close()
        self._judge()
        self.result.seconds = time.monotonic() - self.started_s
        return self.result

    def _wire(self, port: int) -> Wire:
        return Wire(port, self.plan.seed)

    def _configure(self) -> None:
        plan = self.plan
        rows = b"".join(
            _text("board", number, self.rng).encode() + b"\n" for number in range(plan.messages)
        )
        settings = {
            "name": BOARD, "id": BOARD_ID.hex(), "flash": "/log", "group": GROUP,
            "epoch_ms": _EPOCH_MS, "rows": "/rows", "readings_max": plan.messages,
            "telemetry_to": [], "peers_max": 2, "messages_max": 32, "offers_max": 32,
            "filter_size": 1024,
            "peers": [{"id": HOST_ID.hex(), "url": URLS[plan.carrier], "mode": "batch"}],
        }  # fmt: skip
        self.pico.wait("usb")
        put(self.pico, {"/drupelet.json": json.dumps(settings).encode(), "/rows": rows})
        self.pico.power_off()
        self.pico.power_on()
        self.pico.wait("usb")

    def _provision(self, console: Wire, line: Wire) -> None:
        peer = config.Peer(
            BOARD, BOARD_ID, f"serial://{line.device}", "batch", _EPOCH_MS, "rp2040"
        )
        config.create(config.Config(self.home, HOST, HOST_ID, GROUP, 50, None, (peer,)))
        completed = subprocess.run(
            _command(
                "provision", "--home", str(self.home), BOARD, "--to", f"serial://{console.device}"
            ),
            capture_output=True, text=True, check=False, timeout=_PROVISION_S,
        )  # fmt: skip
        if completed.returncode:
            raise DemoError(f"no keys for the Pico: {completed.stderr.strip()}")
        self.say(completed.stdout.strip())

    def _start_agent(self) -> None:
        output = self.stack.enter_context((self.folder / "agent.log").open("wb"))
        agent = subprocess.Popen(
            _command("agent", "--home", str(self.home), "--json"), stdout=output, stderr=output
        )
        self.stack.callback(agent.wait, 30)
        self.stack.callback(agent.terminate)
        self._until((self.home / "store.db").exists, "agent")

    def _post(self, text: str) -> None:
        connection = database.connect(self.home / "store.db")
        try:
            outbox.post(connection, text.encode())
        finally:
            connection.close()

    def _cut(self, number: int) -> None:
        """Have the power fail within some flash operations; tear most of them."""
        draw = self.rng.randrange(_AT_EDGE)
        torn = 0.0 if draw == 0 else 1.0 if draw == 1 else self.rng.random()
        kind = ""
        if number < len(_TORN_FIRST):
            kind, torn = _TORN_FIRST[number], self.rng.uniform(*_TORN_WITHIN)
        within = _CUT_WITHIN if kind != "erase" else _CUT_WITHIN // _PROGRAMS_PER_ERASE
        self.pico.cut(1 + self.rng.randrange(within), torn, kind)
        event = self._until(lambda: self.pico.poll("cut"), f"cut {number + 1}")
        part = "before" if not event["part"] else "after"
        if 0 < event["part"] < event["size"]:
            part = "torn"
        self.result.cuts[f"{event['kind']} {part}"] += 1
        self.say(
            f"{time.monotonic() - self.started_s:6.1f} s  power cut {number + 1}: {event['kind']}"
            f" at {event['at']:#x}, {event['part']} of {event['size']} bytes"
        )
        self.pico.power_on()
        # Until then the board does not react, and `_finish` may have nothing to wait for.
        self.pico.wait("usb")

    def _finish(self) -> None:
        def settled() -> bool:
            view = LogView(self.home)
            try:
                status = view.status()
                count = sum(1 for _ in view.entries("readings"))
            finally:
                view.close()
            peer = status.peers[0]
            self.result.forged = sum(seal.forged for seal in peer.seals.values())
            return count >= self.result.expected and not peer.outstanding

        self._until(settled, "delivery of all messages")

    def _judge(self) -> None:
        self.result.counters = self.pico.status()
        interrupt(self.pico)
        copy_folder(self.pico, "/log", self.folder / "board")
        logs = {BOARD: board_log(self.folder / "board"), HOST: host_log(self.home)}
        held = judge(logs)
        self.result.delivered = {name: log_state.delivered for name, log_state in held.items()}
        own = Counter({name: sum(message.own for message in log) for name, log in logs.items()})
        self.result.right = all(
            log_state.right and log_state.expected == self.result.expected
            for log_state in held.values()
        ) and set(own.values()) == {self.plan.messages}
        console = (self.folder / "console.log").read_bytes()
        for line in console.split(b"\n"):
            if b'"event": "keyless"' in line:
                self.result.keyless += 1
            if line.startswith(b"{") and b'"event": "started"' in line:
                self.result.boots.append(json.loads(line)["boot"])

    def _until(self, fact: Callable[[], _T | None], what: str) -> _T:
        while True:
            value = fact()
            if value:
                return value
            if time.monotonic() - self.started_s > self.plan.seconds:
                raise DemoError(f"no {what} within {self.plan.seconds} s")
            time.sleep(_LOOK_S)


def _text(writer: str, number: int, rng: random.Random) -> str:
    """A message that names its writer and its number; one in some is long."""
    size = rng.randrange(20, _SHORT_SIZE_MAX)
    if number % _LONG_EVERY == _LONG_EVERY // 2:
        # The first one is as long as they get.
        size = rng.randrange(_SHORT_SIZE_MAX, _LONG_SIZE_MAX) if number > _LONG_EVERY else 0
        size = size or _LONG_SIZE_MAX
    return f"{writer} {number} ".ljust(size, "x")


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "drupelet_host", *words]
