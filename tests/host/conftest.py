"""Homes, agents as processes, and a cable: two pseudo-terminals with a relay between them."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from drupelet.base.errors import StorageError
from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys import provision
from drupelet_host.member.status import last_status
from drupelet_host.store import database, outbox
from drupelet_host.view.log_view import LogView
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake.delta import open_lake
from drupelet_tools.terminal import Terminal
from host import forked

COMMAND = [sys.executable, "-m", "drupelet_host"]
# Two cores that others use too; nothing here waits for a time to pass, only for facts.
WAIT_S = 60.0
_LOOK_S_MAX = 0.25


def wait_for(fact: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    """Look until `fact()` is true and return it; fail after `wait_s`, with what the homes say.

    A look counts for so long at most: while the machine stands still, nobody could do anything.
    """
    left_s = wait_s
    while left_s > 0:
        begun = time.monotonic()
        value = fact()
        if value:
            return value
        time.sleep(0.05)
        left_s -= min(time.monotonic() - begun, _LOOK_S_MAX)
    said = "".join(home.report() for home in Home.made)
    raise AssertionError(f"no {what} within {wait_s} s{said}")


def placed(words: tuple[str, ...], home: Path) -> list[str]:
    """The words with --home behind the verb, which has two words in a group of commands."""
    verb = 2 if words[0] in ("peer", "group", "channel", "chat") else 1
    return [*words[:verb], "--home", str(home), *words[verb:]]


def messages_sent(boxes: Path, device: bytes) -> dict[str, int]:
    """Message records that black boxes in a folder say a device has sent, by carrier."""
    lake = boxes.with_name(f"{boxes.name}-lake")
    job.ingest([boxes], lake, {}, None)
    rows = open_lake(lake).read("traffic").to_pylist()
    return {
        row["carrier"]: row["value"]
        for row in rows
        if (row["device"], row["direction"], row["kind"], row["unit"])
        == (device.hex(), "sent", "message", "records")
    }


class Home:
    """A home folder and the commands on it."""

    made: ClassVar[list["Home"]] = []  # by the running test

    def __init__(self, folder: Path, name: str, id: bytes, peers: tuple[Peer, ...] = ()) -> None:
        self.path = folder
        self.name = name
        self.id = id
        self.process: forked.Command | None = None
        config.create(Config(folder, name, id, "orchard", 50, None, peers))

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; with options of subprocess.run, from the interpreter on."""
        if not options:
            return forked.run(placed(words, self.path), WAIT_S)
        return subprocess.run(
            [*COMMAND, *placed(words, self.path)],
            capture_output=True, text=True, timeout=WAIT_S, check=False, **options,
        )  # fmt: skip

    def put(self, text: str) -> None:
        """As `drupelet put`, without the cost of a process."""
        connection = database.connect(self.path / "store.db")
        try:
            outbox.post(connection, text.encode())
        finally:
            connection.close()

    def log(self) -> list[dict[str, Any]]:
        """The log as `drupelet log --json` shows it, without the cost of a process."""
        try:
            view = LogView(self.path)
        except StorageError:
            return []  # the agent has not made its store yet
        try:
            return [entry.fields() for entry in view.entries()]
        finally:
            view.close()

    def status(self) -> dict[str, Any]:
        """As `drupelet status --json`."""
        view = LogView(self.path)
        try:
            report: dict[str, Any] = msgspec.to_builtins(view.status())
            return report
        finally:
            view.close()

    def settle(self) -> None:
        """Wait until the agent knows all its peers to hold what it has now.

        What it said before the call may be of a time when it had less.
        """
        begun_ms = time.time_ns() // 1_000_000

        def settled() -> bool:
            status = self.status()
            owed = [peer["outstanding"] for peer in status["peers"]]
            return status["said_ms"] > begun_ms and not any(owed) and not status["outbox"]

        wait_for(settled, f"acknowledgements of what {self.name} has")

    def start(self, *words: str, **constants: object) -> None:
        """Start the agent and wait for what it first says of itself.

        Without `--wait` all its carriers are up by then, and what an agent before it said is gone.
        constants: as a forked.Command has them.
        """
        assert self.process is None
        begun_ms = time.time_ns() // 1_000_000
        with (self.path / "out.txt").open("ab") as out, (self.path / "err.txt").open("ab") as err:
            agent = ["agent", "--home", str(self.path), "--json", *words]
            self.process = forked.Command(agent, out, err, constants)
        said = self.path / "status.json"
        wait_for(lambda: last_status(said).said_ms > begun_ms or self.check_alive(), "agent")

    def check_alive(self) -> bool:
        """Fail with what the agent said last when it has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError((self.path / "err.txt").read_text())
        return False

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the agents of this home printed so far."""
        path = self.path / "out.txt"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == kind]

    def report(self) -> str:
        """For whoever reads why a test failed: is the agent there, and what did it say last?"""
        code = "none" if self.process is None else self.process.poll()
        said = [f"\n{self.name}: agent's exit code {code}"]
        for name, tail in (("err.txt", 500), ("out.txt", 1000), ("status.json", 3000)):
            path = self.path / name
            if path.exists():
                said.append(f"  {name}: {path.read_text(errors='replace')[-tail:].strip()}")
        return "\n".join(said)

    def kill(self) -> None:
        """End the agent with no warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self) -> float:
        """End the agent the clean way; returns how long it took."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self.process = None
        assert code == 0, (self.path / "err.txt").read_text()
        return time.monotonic() - begun


def share_keys(one: Home, other: Home) -> None:
    """Pair two homes, as `drupelet provision NAME --to HOME` does."""
    sides = [
        provision.HomeKeys(home.path / "keys", home.id, peer.id)
        for home, peer in ((one, other), (other, one))
    ]
    provision.provision(sides[0], sides[1], 8, issuer=True)


class Cable:
    """Two serial devices that are joined; bytes flow while it is plugged."""

    def __init__(self) -> None:
        self._terminals = Terminal(), Terminal()
        self._ends = [terminal.fd for terminal in self._terminals]
        self.devices = [terminal.path for terminal in self._terminals]
        for end in self._ends:
            os.set_blocking(end, False)
        self.plugged = True
        self._over = False
        self._thread = threading.Thread(target=self._relay)
        self._thread.start()

    def url(self, end: int, plain: bool = True) -> str:
        return f"serial://{self.devices[end]}?baud=115200" + ("&plain=1" if plain else "")

    def device_fd(self, end: int) -> int:
        """The descriptor of one device, for its settings."""
        return self._terminals[end].device_fd

    def _relay(self) -> None:
        poll = select.poll()
        for end in self._ends:
            poll.register(end, select.POLLIN)
        while not self._over:
            for fd, _ in poll.poll(50):
                data = os.read(fd, 4096)
                other = self._ends[1 - self._ends.index(fd)]
                if self.plugged:
                    self._push(other, data)

    @staticmethod
    def _push(fd: int, data: bytes) -> None:
        try:
            os.write(fd, data)
        except BlockingIOError:
            return  # nobody reads at that end: a cable drops what it cannot hold

    def close(self) -> None:
        self._over = True
        self._thread.join()
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def cable() -> Iterator[Cable]:
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.stop()


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[Callable[..., Home]]:
    """Make homes; agents that still run at the end are killed."""
    homes = Home.made
    homes.clear()

    def make(name: str, number: int, *peers: Peer) -> Home:
        homes.append(Home(tmp_path / name, name, number.to_bytes(4), peers))
        return homes[-1]

    yield make
    for home in homes:
        if home.process is not None:
            home.kill()
