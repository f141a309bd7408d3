"""The work `load` of `drupelet bench agent`: a fleet of devices behind a broker that goes away.

A home talks with so many peers at most, so a fleet is collected by as many homes as it needs, each
with an agent of its own, all on one mosquitto. Every device is a member of its home's group: the
home has what it publishes, and hands it on to the other devices of the home. While they publish,
the broker is killed and started again. At the end every message must be in the home's store
exactly once, and at every device of the home.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet_host.clients.default_body import split_body
from drupelet_host.home.config import PEERS_CONFIGURED_MAX, Peer
from drupelet_host.keys import provision
from drupelet_tools.bench import agent_devices
from drupelet_tools.bench.agent_devices import (
    DevicesPlan,
    device_id,
    own_messages,
    payload,
    write_plan,
)
from drupelet_tools.bench.agent_home import AGENT, GROUP, READINGS, TAG_SIZE, AgentHome, wait_for
from drupelet_tools.bench.agent_meter import Meter
from drupelet_tools.bench.columns import Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.sim.broker import BrokerMissing, Mosquitto

# Devices that one process serves: one core carries them at the rate of a fleet.
_PER_PROCESS = 250
# How long the broker is away: devices and agents have been refused once or twice.
_AWAY_S = 2.0
# After this part of the run memory counts as settled: a minute of ten.
_SETTLED_PART = 0.1
_UP_S_MAX = 300.0
# After the last message of the plan, everything is everywhere within this.
SETTLE_S_MAX = 1200.0
_LOOK_S = 2.0
_END_S_MAX = 10.0
_PREFIX = "load"
_PROFILE = "compact-1"
_MEMBER_PEER = 2
_LOG = (
    "SELECT key, body FROM log LEFT JOIN members ON number = source AND kind = ?"
    " WHERE member_group = ? AND state = 1"
)


@dataclass(frozen=True)
class LoadPlan:
    """How many devices, how many of them at one home, and what they publish for how long."""

    devices: int = 1000
    per_home: int = PEERS_CONFIGURED_MAX
    per_second: float = 100.0
    seconds: float = 600.0
    restarts: int = 3
    command: Sequence[str] = AGENT

    @property
    def messages(self) -> int:
        """Of all devices together."""
        return max(1, round(self.per_second * self.seconds))

    def own_messages(self, number: int) -> int:
        """How many of them a device publishes."""
        return own_messages(number, self.devices, self.messages)

    def members(self) -> list[range]:
        """The devices (numbers) of each home, about as many at each."""
        homes = -(-self.devices // self.per_home)
        edges = [self.devices * at // homes for at in range(homes + 1)]
        return [range(edges[at], edges[at + 1]) for at in range(homes)]


def measure(plan: LoadPlan, folder: Path, progress: Callable[[str], None]) -> Row:
    """The row of `load`. Raises BenchError, also when a message is missing or there twice."""
    folder.mkdir()
    with contextlib.ExitStack() as ends:
        broker = _broker(folder)
        ends.callback(broker.stop, kill=True)
        _start(broker)
        load = _Load(plan, folder, broker, progress, ends)
        return load.run()


def _broker(folder: Path) -> Mosquitto:
    """A mosquitto: no other broker is meant to carry a fleet."""
    try:
        return Mosquitto(folder, "allow_anonymous true", "max_queued_messages 0")
    except BrokerMissing as error:
        raise BenchError(f"load: {error}") from None


def _start(broker: Mosquitto) -> None:
    try:
        broker.start()
    except BrokerMissing as error:
        raise BenchError(f"load: {error}") from None


class _Load:
    """Homes, device processes and broker of one run."""

    def __init__(
        self, plan: LoadPlan, folder: Path, broker: Mosquitto, progress: Callable[[str], None],
        ends: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._folder = folder
        self._broker = broker
        self._progress = progress
        self._members = plan.members()
        url = f"mqtt://127.0.0.1:{broker.port}/{_PREFIX}"
        progress(f"load: keys for {plan.devices} devices of {len(self._members)} homes")
        self._homes = [self._home(at, url) for at in range(len(self._members))]
        progress("load: agents and devices start")
        for home in self._homes:
            ends.callback(home.stop)
        self._homes[0].start()  # alone, as it compiles the modules for all
        for home in self._homes[1:]:
            home.launch()
        for home in self._homes[1:]:
            home.wait_until_serving()
        self._processes = [ends.enter_context(opened) for opened in self._open_processes()]

    def _home(self, at: int, url: str) -> AgentHome:
        members = self._members[at]
        peers = [
            Peer(f"d{number}", device_id(number), url, mode="batch", profile=_PROFILE)
            for number in members
        ]
        id = b"\xa0" + at.to_bytes(3)
        home = AgentHome(self._folder, f"home{at}", id, peers, self._plan.command)
        for number in members:
            device = self._folder / device_id(number).hex()
            device.mkdir()
            keys = provision.FlashKeys(device, device_id(number), id)
            provision.provision(home.keys_for(keys.own_id), keys, TAG_SIZE, issuer=True)
        return home

    def _open_processes(self) -> "Iterator[contextlib.AbstractContextManager[_Process]]":
        plan = self._plan
        home_ids, foreign = [], []
        for home, members in zip(self._homes, self._members, strict=True):
            of_home = sum(plan.own_messages(number) for number in members)
            home_ids += [home.id.hex()] * len(members)
            foreign += [of_home - plan.own_messages(number) for number in members]
        for first in range(0, plan.devices, _PER_PROCESS):
            last = min(first + _PER_PROCESS, plan.devices)
            path = self._folder / f"devices{first}.json"
            write_plan(path, DevicesPlan(
                self._broker.port, _PREFIX, str(self._folder), _PROFILE, GROUP, plan.devices,
                plan.per_second, plan.messages, first, last, home_ids[first:last],
                foreign[first:last],
            ))  # fmt: skip
            yield _opened(path)

    def run(self) -> Row:
        """Publish, restart the broker, wait until everything is everywhere, check the stores."""
        plan = self._plan
        wait_for(
            lambda: self._figures()["up"] == plan.devices, f"{plan.devices} devices on the broker",
            _UP_S_MAX, _LOOK_S,
        )  # fmt: skip
        meter = Meter(*self._homes)
        for process in self._processes:
            process.ask("begin")
        settled_mb = self._keep_on(time.monotonic())
        size = self._settle()["bytes"]
        growth_mb = max(home.peak_mb - settled_mb[home.name] for home in self._homes)
        row = meter.row("load", plan.messages, size) | {
            "devices": plan.devices,
            "homes": len(self._homes),
            "restarts": plan.restarts,
            "rss_growth_mb": round(growth_mb, 1),
        }
        for home in self._homes:
            home.stop()
        for home, members in zip(self._homes, self._members, strict=True):
            check_store(home, {number: plan.own_messages(number) for number in members})
        return row

    def _keep_on(self, started_s: float) -> dict[str, float]:
        """Restart the broker until the time is over; the homes' memory once it had settled."""
        plan = self._plan
        settled_mb: dict[str, float] = {}
        parts = [at / (plan.restarts + 1) for at in range(1, plan.restarts + 1)]
        while (part := (time.monotonic() - started_s) / plan.seconds) < 1:
            if not settled_mb and part >= _SETTLED_PART:
                settled_mb = {home.name: home.peak_mb for home in self._homes}
            if parts and part >= parts[0]:
                del parts[0]
                self._broker.stop(kill=True)
                time.sleep(_AWAY_S)
                _start(self._broker)
            self._say(f"{100 * part:.0f} % of the time")
            time.sleep(min(_LOOK_S, plan.seconds * _SETTLED_PART / 2))
        return settled_mb or {home.name: home.peak_mb for home in self._homes}

    def _say(self, when: str) -> None:
        figures = self._figures()
        self._progress(
            f"load: {when}: {figures['published']:,.0f} published, {figures['delivered']:,.0f}"
            f" copies delivered, {figures['up']:.0f} devices up; CPU"
            f" {figures['cpu_s']:.0f} s of the devices, {sum(h.cpu_s for h in self._homes):.0f} s"
            " of the agents"
        )

    def _figures(self) -> "Counter[str]":
        """The figures of all devices together."""
        total: Counter[str] = Counter()
        for process in self._processes:
            total.update(process.ask("count"))
        return total

    def _settle(self) -> "Counter[str]":
        """Wait until all devices have everything; their figures."""
        plan = self._plan
        until_s = time.monotonic() + SETTLE_S_MAX
        while (figures := self._figures())["settled"] < plan.devices:
            if time.monotonic() >= until_s:
                raise BenchError(
                    f"load: after {SETTLE_S_MAX:.0f} s {plan.devices - figures['settled']} of"
                    f" {plan.devices} devices wait for messages or acknowledgements; try fewer"
                    " --per-second"
                )
            self._say(f"{figures['settled']} devices have everything")
            time.sleep(_LOOK_S)
        return figures


class _Process:
    """Devices in a process of their own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, word: str) -> dict[str, Any]:
        """Say a word; the figures that the process answers with."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BenchError("load: a process of devices ended; its error is above")
        figures: dict[str, Any] = json.loads(line)
        return figures


@contextlib.contextmanager
def _opened(plan: Path) -> Iterator[_Process]:
    process = subprocess.Popen(
        [sys.executable, "-m", agent_devices.__name__, str(plan)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield _Process(process)
    finally:
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write("end\n")
            process.stdin.flush()
        try:
            process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def check_store(home: AgentHome, messages: dict[int, int]) -> None:
    """Raise BenchError unless the home has every message of its devices exactly once.

    messages: how many each device (number) has published.
    """
    wanted = Counter(
        (device_id(number), payload(number, count))
        for number, own in messages.items()
        for count in range(own)
    )
    with home.open_store() as store:
        rows = store.execute(_LOG, (_MEMBER_PEER, READINGS))
        there = Counter((author, split_body(body)[1]) for author, body in rows)
    missing, more = wanted - there, there - wanted
    if missing or more:
        raise BenchError(
            f"load: {home.name} lacks {missing.total()} of {wanted.total()} messages and has"
            f" {more.total()} that are doubled or nobody's"
        )
