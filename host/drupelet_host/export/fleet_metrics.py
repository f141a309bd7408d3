"""Fleet health for Prometheus: text in its format, into a file or over HTTP on this machine alone.

https://prometheus.io/docs/instrumenting/exposition_formats/: a label's value escapes backslash,
quote and line feed.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.loopback_server import LOOPBACK, LoopbackHandler, LoopbackServer
from drupelet_host.export.reading import Reading, clean, reading_of
from drupelet_host.member import family
from drupelet_host.store import database, log_counts
from drupelet_host.view.log_view import LogView
from drupelet_host.view.status_shapes import PeerStatus, Status

# The last messages, in which the batteries' readings are looked for.
_RECENT_MAX = 1000
# Values of a reading that are a battery's, and what makes volts of them.
_BATTERY_VALUES = {"supply_mv": 0.001, "battery_mv": 0.001, "battery_v": 1.0}
CONTENT_TYPE = "text/plain; version=0.0.4"


def _label(text: str) -> str:
    text = clean(text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Page:
    """The lines of one page; each metric's come together, behind its help and type."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, samples: list[tuple[dict[str, str], float]]) -> None:
        """One metric and its samples; nothing when there are none."""
        if not samples:
            return
        self._lines += [f"# HELP drupelet_{name} {text}", f"# TYPE drupelet_{name} gauge"]
        for labels, value in samples:
            inside = ",".join(f'{key}="{_label(word)}"' for key, word in labels.items())
            shown = f"{value:.3f}" if value % 1 else f"{int(value)}"
            self._lines.append(f"drupelet_{name}{{{inside}}} {shown}")

    def text(self) -> str:
        """The whole page."""
        return "\n".join(self._lines) + "\n"


def render(home: Path) -> str:
    """The metrics of a home now. Raises ConfigError or StorageError with one line."""
    view = LogView(home)
    try:
        with closing(view):
            view.check_identity()
            status = view.status()
            group_id = family.group_id(view.config)
            counts = log_counts.by_peer(view.connection, group_id) if view.begun else {}
            recent = deque(_readings(view), _RECENT_MAX)
    except sqlite3.Error as error:
        raise StorageError(database.explain(view.config.store_path, error)) from error
    return _page(status, counts, recent)


def _readings(view: LogView) -> Iterator[Reading]:
    handle = log_counts.last_handle(view.connection)
    rows = view.entries("readings", max(0, handle - _RECENT_MAX))
    return (reading_of(entry, "readings") for entry in rows if not entry.is_damaged)


def _page(status: Status, counts: dict[bytes, int], recent: "deque[Reading]") -> str:
    page = _Page()
    us = {"home": status.name, "group": status.group}
    page.gauge("agent_running", "1 while the agent runs.", [(us, float(status.running))])
    page.gauge("log_messages", "Readings in the log.", [(us, status.delivered)])
    page.gauge("outbox_messages", "Messages that wait for the agent.", [(us, status.outbox)])
    page.gauge("waiting_messages", "Messages that wait for what they depend on.",
               [(us, status.pending)])  # fmt: skip
    page.gauge("store_bytes", "Size of the store on disk.", [(us, status.store_bytes)])
    heads = [({"peer": row.name, "id": row.id}, row) for row in status.peers]

    def per_peer(name: str, text: str, value: Callable[[PeerStatus], float | None]) -> None:
        samples = ((labels, value(row)) for labels, row in heads)
        known = [(labels, number) for labels, number in samples if number is not None]
        page.gauge(name, text, known)

    per_peer("peer_up", "1 while the carrier to the peer is up.",
             lambda row: float(row.state == "up"))  # fmt: skip
    per_peer("peer_last_heard_timestamp_seconds", "When it was last heard; absent: never.",
             lambda row: row.heard_ms / 1000 if row.heard_ms else None)  # fmt: skip
    per_peer("peer_owed_messages", "Messages that the peer is not known to have.",
             lambda row: row.outstanding)  # fmt: skip
    per_peer("peer_undeliverable_messages", "Messages too long for the peer's carrier.",
             lambda row: row.undeliverable)  # fmt: skip
    per_peer("peer_pending_messages", "Messages of the peer that wait for others.",
             lambda row: row.pending)  # fmt: skip
    per_peer("peer_delivered_messages", "Readings in the log that the peer handed over.",
             lambda row: counts.get(bytes.fromhex(row.id), 0))  # fmt: skip
    volts: dict[str, float] = {}
    for reading in recent:
        for name, scale in _BATTERY_VALUES.items():
            value = reading.values.get(name)
            if isinstance(value, float):
                volts[reading.author] = value * scale
    page.gauge("device_battery_volts", "Battery as the device's last reading says.",
               [({"device": author}, value) for author, value in volts.items()])  # fmt: skip
    return page.text()


def write_textfile(home: Path, path: Path) -> None:
    """Replace a file of node_exporter's textfile collector in one step; raises StorageError."""
    text = render(home)
    try:
        atomic_write(path, text, durable=False)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from error


class MetricsServer(LoopbackServer):
    """`/metrics` on 127.0.0.1, in a thread. port: 0 for any that is free; then `port` says it."""

    def __init__(self, home: Path, port: int) -> None:
        try:
            super().__init__(port, _Handler)
        except OSError as error:
            raise StorageError(
                f"{LOOPBACK}:{port}: cannot listen there ({error.strerror}); choose another port"
            ) from error
        self.home = home
        self.port = self.server_port
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(LoopbackHandler):
    server: MetricsServer

    def reply(self) -> None:
        """The metrics, or 404."""
        if self.path.partition("?")[0] != "/metrics":
            self.answer(HTTPStatus.NOT_FOUND, "only /metrics is here\n", "text/plain")
            return
        try:
            text = render(self.server.home)
        except DrupeletError as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")
        else:
            self.answer(HTTPStatus.OK, text, CONTENT_TYPE)
