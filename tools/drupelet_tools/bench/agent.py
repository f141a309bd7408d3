"""`drupelet bench agent`: what the shipped agent takes of a host, beside a plain MQTT program.

Two homes with agents as processes, a broker in a process of its own, a folder as stick; links are
sealed and stores as durable as they are shipped. Publishing is part of stick-write and mqtt-live.
`load` has many homes: see `agent_load`.
"""

import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drupelet_tools.bench import agent_plain
from drupelet_tools.bench.agent_home import AGENT, AgentHome, open_broker, open_pair
from drupelet_tools.bench.agent_load import LoadPlan
from drupelet_tools.bench.agent_load import measure as measure_load
from drupelet_tools.bench.agent_meter import Meter
from drupelet_tools.bench.columns import AGENT as COLUMNS
from drupelet_tools.bench.columns import Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.mqtt_anchor import CountingProxy
from drupelet_tools.bench.table import Table

WORKS = (
    "stick-write", "stick-read", "mqtt-live", "mqtt-backlog", "start", "idle", "log", "put",
    "load",
)  # fmt: skip
# Until the agents have what they need to say to each other without a message.
_MESSAGES_FIRST = 1
# The agents have told each other all that they do not tell twice.
_CALM_S = 15.0


@dataclass(frozen=True)
class Plan:
    """What to measure, with how many messages, by which command the agent runs."""

    works: Sequence[str] = WORKS
    messages: int = 10_000
    body: int = 100
    idle_s: float = 600.0
    load: LoadPlan = field(default_factory=LoadPlan)
    command: Sequence[str] = AGENT


def _beside(row: Row, plain_cpu_s: float, plain_wall_s: float | None) -> Row:
    """The row with what the plain peer took for as many messages."""
    return row | {
        "ratio": round(row["cpu_s"] / plain_cpu_s, 2),
        "plain_cpu_s": round(plain_cpu_s, 3),
        "plain_wall_s": None if plain_wall_s is None else round(plain_wall_s, 2),
    }


def measure(plan: Plan, progress: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row for each work. Raises BenchError, also when a message did not arrive."""
    draw = random.Random(1)
    payloads = [draw.randbytes(plan.body) for _ in range(plan.messages)]
    with (
        tempfile.TemporaryDirectory(prefix="drupelet-bench-") as name,
        open_broker(Path(name)) as port,
    ):
        bench = _Bench(plan, payloads, Path(name), port, progress)
        yield from bench.stick()
        if "mqtt-live" in plan.works:
            yield bench.live()
        if "mqtt-backlog" in plan.works:
            yield bench.backlog()
        if "start" in plan.works:
            yield bench.start()
        if "idle" in plan.works:
            yield bench.idle()
        yield from bench.commands()
        if "load" in plan.works:
            yield measure_load(plan.load, Path(name) / "load", progress)


class _Bench:
    def __init__(
        self, plan: Plan, payloads: Sequence[bytes], folder: Path, port: int,
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._payloads = payloads
        self._folder = folder
        self._port = port
        self._progress = progress

    def _plain(self, name: str, kept: bool) -> agent_plain.PlainCost:
        self._progress(f"{name}: the plain peer")
        folder = self._folder / f"plain-{name}"
        folder.mkdir()
        return agent_plain.measure(self._port, folder, self._plan.messages, self._plan.body, kept)

    def stick(self) -> Iterator[Row]:
        """A stick on its way from an agent to which all was posted to one that has nothing."""
        works = [work for work in ("stick-write", "stick-read") if work in self._plan.works]
        if not works:
            return
        count = self._plan.messages
        plain = self._plain("stick", kept=False)
        stick = self._folder / "usb"
        stick.mkdir()
        with open_pair(self._folder / "stick", ("stick:", "stick:"), self._plan.command) as homes:
            a, b = homes
            for work, home in (("stick-write", a), ("stick-read", b)):
                self._progress(work)
                home.start()
                meter = Meter(home)
                if home is a:
                    a.post(self._payloads)
                report = home.visit(stick)
                home.wait_for_deliveries(count)
                row = meter.row(work, count, _size_of(stick))
                if report["waiting"] or (home is b and report["messages"] < count):
                    raise BenchError(f"{work}: not all messages: {report}")
                home.stop()
                home.check_log(count)
                if work in works:
                    yield _beside(row, plain.receive_cpu_s, None)

    def live(self) -> Row:
        """Both agents are up while a program posts messages to one of them."""
        plain = self._plain("mqtt-live", kept=False)
        self._progress("mqtt-live")
        proxy = CountingProxy(self._port)
        try:
            with self._behind_broker("live", proxy) as (a, b):
                a.start()
                b.start()
                a.post(self._payloads[:_MESSAGES_FIRST])
                a.settle()
                meter, before = Meter(a, b), proxy.bytes
                a.post(self._payloads[_MESSAGES_FIRST:])
                b.wait_for_deliveries(len(self._payloads))
                a.settle()
                row = meter.row("mqtt-live", len(self._payloads), proxy.bytes - before)
                self._check(a, b)
        finally:
            proxy.close()
        return _beside(row, plain.cpu_s, plain.wall_s)

    def backlog(self) -> Row:
        """One agent has published all when the other one starts for the first time."""
        plain = self._plain("mqtt-backlog", kept=True)
        self._progress("mqtt-backlog")
        proxy = CountingProxy(self._port)
        try:
            with self._behind_broker("backlog", proxy) as (a, b):
                a.start()
                a.post(self._payloads)
                # The start of an agent has a row of its own, and that of the plain peer is not
                # counted.
                b.start()
                meter, before = Meter(a, b), proxy.bytes
                b.wait_for_deliveries(len(self._payloads))
                a.settle()
                row = meter.row("mqtt-backlog", len(self._payloads), proxy.bytes - before)
                self._check(a, b)
        finally:
            proxy.close()
        return _beside(row, plain.cpu_s, plain.wall_s)

    def _behind_broker(
        self, name: str, proxy: CountingProxy
    ) -> contextlib.AbstractContextManager[tuple[AgentHome, AgentHome]]:
        urls = (f"mqtt://127.0.0.1:{proxy.port}/{name}", f"mqtt://127.0.0.1:{self._port}/{name}")
        return open_pair(self._folder / name, urls, self._plan.command)

    def _check(self, *homes: AgentHome) -> None:
        for home in homes:
            home.stop()
            home.check_log(self._plan.messages)

    def start(self) -> Row:
        """An agent starts that has all messages in its store and a peer that has none."""
        self._progress("start")
        with open_pair(self._folder / "start", ("stick:", "stick:"), self._plan.command) as homes:
            home = homes[0]
            home.start()
            home.post(self._payloads)
            home.stop()
            meter = Meter(home)
            home.start()
            row = meter.row("start", self._plan.messages, None)
            self._check(home)
        return row

    def commands(self) -> Iterator[Row]:
        """A command shows the whole log as text; another one leaves one message."""
        works = [work for work in ("log", "put") if work in self._plan.works]
        if not works:
            return
        folder = self._folder / "commands"
        with open_pair(folder, ("stick:", "stick:"), self._plan.command) as (home, _):
            home.start()
            home.post(self._payloads)
            home.stop()
            for work, words, count in (("log", (), self._plan.messages), ("put", ("x",), 1)):
                if work not in works:
                    continue
                self._progress(work)
                home.run(work, *words)  # compiles the modules that it needs
                meter = Meter()
                usage, printed = home.run(work, *words)
                # A line for each message, and above them the names of the columns.
                if work == "log" and printed.read_bytes().count(b"\n") != count + 1:
                    raise BenchError("log: not a line for each message")
                yield meter.row(work, count, None) | {
                    "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
                    # The system counts what this process has, too.
                    **dict.fromkeys(("rss_mb", "write_kb", "wakes_per_s")),
                }

    def idle(self) -> Row:
        """Both agents are up behind the broker, and nobody has anything to send."""
        self._progress(f"idle: {self._plan.idle_s / 60:g} minutes")
        url = f"mqtt://127.0.0.1:{self._port}/idle"
        with open_pair(self._folder / "idle", (url, url), self._plan.command) as (a, b):
            for home in (a, b):
                home.start()
                home.stop()  # a start that compiles its modules takes 7 MB more
                home.start()
            a.post(self._payloads[:_MESSAGES_FIRST])
            a.settle()
            b.wait_for_deliveries(_MESSAGES_FIRST)
            time.sleep(min(_CALM_S, self._plan.idle_s))
            meter = Meter(a, b)
            time.sleep(self._plan.idle_s)
            return meter.row("idle", 0, None)


def _size_of(stick: Path) -> int:
    return sum(path.stat().st_size for path in stick.rglob("*") if path.is_file())


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table of all rows."""
    cells = {name: _hundredths(name) for name in ("cpu_s", "ratio", "plain_cpu_s")}
    return [Table("Agents on this host", COLUMNS, rows, cells)]


def _hundredths(name: str) -> Callable[[Row], str]:
    """Shows a column with two digits behind the point."""
    return lambda row: "-" if row[name] is None else f"{row[name]:.2f}"
