"""Homes with agents as processes, for `drupelet bench agent`, and the broker between them."""

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drupelet_host.base import clock
from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys import provision
from drupelet_host.requests.client import ask, live_status
from drupelet_host.requests.connection import poke
from drupelet_host.requests.shapes import VisitStick
from drupelet_host.store import database, outbox
from drupelet_tools.bench import process_tree
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.sim.broker import BrokerMissing, Mosquitto

# The agent as it is shipped; a profiler may stand in front of the module.
AGENT: Sequence[str] = (sys.executable, "-m", "drupelet_host")
GROUP = "bench"
IDS = {"a": b"\xa0\0\0\1", "b": b"\xb0\0\0\2"}
# Of the readings, which come first among a member's groups.
READINGS = 1
_LOOK_S = 0.02
# An agent that is asked for its status wakes and answers, which counts as its CPU time.
_ASK_S = 0.25
_STEP_S_MAX = 900.0
_STOP_S_MAX = 30.0
TAG_SIZE = 8
_OUTBOX = "INSERT INTO outbox (timestamp, payload) VALUES (?, ?)"
_BODIES = "SELECT count(*), count(DISTINCT id) FROM log WHERE member_group = ? AND state = 1"


def wait_for(
    fact: Callable[[], Any], what: str, wait_s: float = _STEP_S_MAX, look_s: float = _LOOK_S
) -> Any:  # noqa: ANN401
    """Look until `fact()` is true and return it; BenchError when that takes longer."""
    until_s = time.monotonic() + wait_s
    while not (value := fact()):
        if time.monotonic() > until_s:
            raise BenchError(f"no {what} within {wait_s:.0f} s")
        time.sleep(look_s)
    return value


@contextlib.contextmanager
def open_broker(folder: Path) -> Iterator[int]:
    """A broker in a process of its own that drops nothing: mosquitto, else amqtt. Its port."""
    try:
        mosquitto = Mosquitto(folder, "allow_anonymous true", "max_queued_messages 0")
        mosquitto.start()
    except BrokerMissing:
        embedded = Broker()
        embedded.start()
        try:
            yield embedded.port
        finally:
            embedded.stop()
        return
    try:
        yield mosquitto.port
    finally:
        mosquitto.stop(kill=False)


class AgentHome:
    """A home and the agent on it."""

    def __init__(
        self, folder: Path, name: str, id: bytes, peers: Sequence[Peer], command: Sequence[str]
    ) -> None:
        self.path = folder / name
        self.id = id
        self.name = name
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        config.create(Config(self.path, name, id, GROUP, peers=tuple(peers)))
        self._printed = self.path / "printed.txt"

    def keys_for(self, peer_id: bytes) -> provision.HomeKeys:
        """Where the keys for a peer go."""
        return provision.HomeKeys(self.path / "keys", self.id, peer_id)

    # --- the agent's process ---

    def start(self) -> None:
        """Start the agent, and return when it has begun to serve."""
        self.launch()
        self.wait_until_serving()

    def launch(self) -> None:
        """Start the agent, and do not wait for it."""
        with self._printed.open("wb") as out:
            self._process = subprocess.Popen(
                [*self._command, "agent", "--home", str(self.path), "--wait"],
                stdout=out, stderr=subprocess.STDOUT, env=self._environment(),
            )  # fmt: skip

    def wait_until_serving(self) -> None:
        """Return when the agent has begun to serve."""
        wait_for(self._is_serving, f"start of the agent of {self.name}")

    def _environment(self) -> dict[str, str]:
        """As installed: modules are compiled by the first start only; lines are gathered."""
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=str(self.path.parent / "pycache"))
        for variable in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
            environment.pop(variable, None)
        return environment

    def run(self, verb: str, *words: str) -> "tuple[resource.struct_rusage, Path]":
        """Run a command on this home; return its resource usage and the file of its output."""
        printed = self.path / f"{verb}.txt"
        with printed.open("wb") as out:
            process = subprocess.Popen(
                [*self._command, verb, "--home", str(self.path), *words],
                stdout=out, stderr=subprocess.STDOUT, env=self._environment(),
            )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise BenchError(f"{verb}: {printed.read_text(errors='replace')[-500:]}")
        return usage, printed

    def _is_serving(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            last_lines = self._printed.read_text(errors="replace")[-500:]
            raise BenchError(f"the agent of {self.name} ended: {last_lines}")
        with self._printed.open("rb") as file:
            return file.read(7) == b"started"

    def stop(self) -> None:
        """End the agent, the clean way if it can."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the agent so far; 0.0 when none runs."""
        if self._process is None:
            return 0.0
        return process_tree.cpu_s(self._process.pid)

    @property
    def peak_mb(self) -> float:
        """The agent's highest resident memory so far."""
        assert self._process is not None
        return process_tree.peak_mb(self._process.pid)

    @property
    def written_bytes(self) -> int:
        """Bytes that the agent wrote to the disk so far; 0 when none runs."""
        return process_tree.written_bytes(self._process.pid) if self._process else 0

    @property
    def wakes(self) -> int:
        """How often the agent was woken so far; 0 when none runs."""
        return process_tree.wakes(self._process.pid) if self._process else 0

    # --- what goes in and what is there ---

    @contextlib.contextmanager
    def open_store(self) -> Iterator[sqlite3.Connection]:
        """The home's store, also while the agent is up."""
        connection = database.connect(self.path / "store.db")
        try:
            yield connection
        finally:
            connection.close()

    def post(self, payloads: Sequence[bytes]) -> None:
        """Leave messages for the agent as fast as it takes them, until it has the last one."""
        with self.open_store() as store:
            at = 0
            while at < len(payloads):
                # One transaction: the bench does not measure what commits cost the poster.
                room = outbox.OUTBOX_MAX - outbox.waiting(store)
                rows = [
                    (clock.timestamp8(clock.wall_ms() + number), payload)
                    for number, payload in enumerate(payloads[at : at + room], at)
                ]
                store.execute("BEGIN IMMEDIATE")
                store.executemany(_OUTBOX, rows)
                store.execute("COMMIT")
                at += len(rows)
                poke(self.path)
                wait_for(lambda: outbox.waiting(store) < outbox.OUTBOX_MAX, "room in the outbox")
            wait_for(lambda: not outbox.waiting(store), "empty outbox")

    def visit(self, stick: Path) -> dict[str, Any]:
        """Have the agent visit a stick; the report's fields. Raises BenchError."""
        report = ask(config.load(self.path), VisitStick(str(stick)), str(stick), _STEP_S_MAX)
        if not report.get("safe_to_unplug"):
            raise BenchError(f"the visit of {self.name} failed: {report}")
        return report

    def wait_for_deliveries(self, count: int) -> None:
        """Wait until the agent has printed so many messages."""
        wait_for(
            lambda: self._printed.read_bytes().count(b"\ndelivered ") >= count,
            f"word of {count} messages from the agent of {self.name}",
        )

    def check_log(self, count: int) -> None:
        """Raise BenchError unless the log has exactly so many messages, each once."""
        with self.open_store() as store:
            rows = tuple(store.execute(_BODIES, (READINGS,)).fetchone())
        if rows != (count, count):
            raise BenchError(f"{self.name} has {rows[1]} of {count} messages, {rows[0]} rows")

    def settle(self) -> None:
        """Wait until the agent reports that its peer has everything; it reports once per epoch."""
        started_ms = clock.wall_ms()
        settings = config.load(self.path)

        def is_settled() -> bool:
            self._is_serving()  # raises if it has ended
            status = live_status(settings)
            owed = [peer for peer in status.peers if peer.outstanding or peer.more_outstanding]
            return status.said_ms > started_ms and not owed

        wait_for(is_settled, f"acknowledgement of what {self.name} has", look_s=_ASK_S)


@contextlib.contextmanager
def open_pair(
    folder: Path, urls: tuple[str, str], command: Sequence[str]
) -> Iterator[tuple[AgentHome, AgentHome]]:
    """Homes `a` and `b` in a new folder, with keys for each other; their agents end with it."""
    os.mkdir(folder)
    a, b = IDS["a"], IDS["b"]
    homes = (
        AgentHome(folder, "a", a, [Peer("b", b, urls[0])], command),
        AgentHome(folder, "b", b, [Peer("a", a, urls[1])], command),
    )
    provision.provision(homes[0].keys_for(b), homes[1].keys_for(a), TAG_SIZE, issuer=True)
    try:
        yield homes
    finally:
        for home in homes:
            home.stop()
