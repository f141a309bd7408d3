"""The plain peer of `drupelet bench agent`: paho at QoS 1, one committed INSERT per message.

    python -m drupelet_tools.bench.agent_plain receive|send|send-kept PORT FOLDER MESSAGES BODY

One process for each end, so that each can tell its own CPU time. `send` stores a message before it
publishes it, as an agent does with a letter; `send-kept` publishes what was stored before.
"""

import contextlib
import json
import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet_host.store import database
from drupelet_tools.bench.errors import BenchError

_HOST = "127.0.0.1"
_TOPIC = "bench/plain"
_SCHEMA = "CREATE TABLE message (entry INTEGER PRIMARY KEY, body BLOB NOT NULL)"
_INSERT = "INSERT INTO message (body) VALUES (?)"
_WAIT_S_MAX = 600.0
_LOOK_S = 0.01


@dataclass(frozen=True)
class PlainCost:
    """CPU seconds of both ends, of the receiver alone, and the seconds until all was there."""

    cpu_s: float
    receive_cpu_s: float
    wall_s: float


def measure(port: int, folder: Path, messages: int, body: int, kept: bool) -> PlainCost:
    """Send so many messages through a broker to a store of their own. Raises BenchError.

    kept: they are in the sender's store before the measurement begins.
    """
    with contextlib.ExitStack() as ends:
        receiver = ends.enter_context(_end("receive", port, folder, messages, body))
        _expect(receiver, "ready")
        started_s = time.monotonic()
        sender = ends.enter_context(
            _end("send-kept" if kept else "send", port, folder, messages, body)
        )
        _expect(sender, "ready")
        started_s = time.monotonic()
        sent = _expect(sender, "done")
        received = _expect(receiver, "done")
        wall_s = time.monotonic() - started_s
    if received["messages"] != messages:
        raise BenchError(f"plain peer: {received['messages']} of {messages} messages arrived")
    return PlainCost(sent["cpu_s"] + received["cpu_s"], received["cpu_s"], wall_s)


@contextlib.contextmanager
def _end(
    role: str, port: int, folder: Path, messages: int, body: int
) -> Iterator["subprocess.Popen[str]"]:
    words = [role, str(port), str(folder), str(messages), str(body)]
    process = subprocess.Popen(
        [sys.executable, "-m", "drupelet_tools.bench.agent_plain", *words],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _expect(process: "subprocess.Popen[str]", state: str) -> dict[str, Any]:
    """The process's next line, which says that it is in this state."""
    assert process.stdout is not None
    line = process.stdout.readline()
    report: dict[str, Any] = json.loads(line) if line else {}
    if report.get("state") != state:
        raise BenchError(f"plain peer: {report or 'it ended'} instead of {state!r}")
    return report


# --- in the processes ---


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _report(state: str, **figures: float) -> None:
    print(json.dumps({"state": state, **figures}), flush=True)


def _store(path: Path) -> sqlite3.Connection:
    """A database as durable as an agent's."""
    connection = database.open_file(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        connection.execute(_SCHEMA)
    return connection


def _bodies(messages: int, body: int) -> list[bytes]:
    draw = random.Random(1)
    return [draw.randbytes(body) for _ in range(messages)]


def _loop(client: Any, done: Callable[[], bool]) -> None:  # noqa: ANN401 - paho's client
    """Run the network of one thread until it is done, as long as it may take."""
    until_s = time.monotonic() + _WAIT_S_MAX
    while not done():
        client.loop(_LOOK_S)
        if time.monotonic() > until_s:
            raise SystemExit("plain peer: it takes too long")


def _client(port: int, name: str) -> Any:  # noqa: ANN401 - paho's client
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=True)
    client.connect(_HOST, port, keepalive=600)
    _loop(client, client.is_connected)
    return client


def _receive(port: int, store: sqlite3.Connection, messages: int) -> int:
    """Store what arrives, each with a commit, until so many are there; how many there are."""
    count = 0
    granted: list[bool] = []

    def take(_client: object, _data: object, message: Any) -> None:  # noqa: ANN401
        nonlocal count
        store.execute(_INSERT, (message.payload,))  # autocommit: durable when it returns
        count += 1

    client = _client(port, "receiver")
    client.on_message = take
    client.on_subscribe = lambda *_: granted.append(True)
    client.subscribe(_TOPIC, qos=1)
    _loop(client, lambda: bool(granted))
    _report("ready")
    before_s = _cpu_s()
    _loop(client, lambda: count >= messages)
    rows = store.execute("SELECT count(DISTINCT body) FROM message").fetchone()[0]
    _report("done", cpu_s=_cpu_s() - before_s, messages=rows)
    return count


def _send(port: int, store: sqlite3.Connection, bodies: Sequence[bytes], kept: bool) -> None:
    """Publish all, and wait until the broker has acknowledged each."""
    if kept:
        store.execute("BEGIN")
        store.executemany(_INSERT, [(body,) for body in bodies])
        store.execute("COMMIT")
    client = _client(port, "sender")
    acknowledged = 0

    def note(*_: object) -> None:
        nonlocal acknowledged
        acknowledged += 1

    client.on_publish = note
    _report("ready")
    before_s = _cpu_s()
    if kept:
        for (body,) in store.execute("SELECT body FROM message ORDER BY entry"):
            client.publish(_TOPIC, body, qos=1)
            client.loop(0)
    else:
        for body in bodies:
            store.execute(_INSERT, (body,))
            client.publish(_TOPIC, body, qos=1)
            client.loop(0)
    _loop(client, lambda: acknowledged >= len(bodies))
    _report("done", cpu_s=_cpu_s() - before_s)


def _main() -> None:
    role, port, folder, messages, body = sys.argv[1:]
    store = _store(Path(folder) / f"plain-{role}.db")
    if role == "receive":
        _receive(int(port), store, int(messages))
    else:
        _send(int(port), store, _bodies(int(messages), int(body)), role == "send-kept")
    sys.stdin.read()  # the measurement ends us


if __name__ == "__main__":
    _main()
