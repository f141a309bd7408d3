"""Fleet health of a home for Prometheus: into a file or over HTTP on this machine alone."""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from drupelet.base.errors import StorageError
from drupelet_host.export import metrics_server, prometheus_text
from drupelet_host.export.prometheus_text import labels
from drupelet_host.export.reading import Reading, reading_of
from drupelet_host.member import family
from drupelet_host.store import database, log_counts
from drupelet_host.view.log_view import LogView
from drupelet_host.view.status_shapes import PeerStatus, Status

# The last messages, in which the batteries' readings are looked for.
_RECENT_MAX = 1000
# Values of a reading that are a battery's, and what makes volts of them.
_BATTERY_VALUES = {"supply_mv": 0.001, "battery_mv": 0.001, "battery_v": 1.0}


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
    page = prometheus_text.Page()
    us = labels({"home": status.name, "group": status.group})
    page.gauge("agent_running", "1 while the agent runs.", [(us, float(status.running))])
    page.gauge("log_messages", "Readings in the log.", [(us, status.delivered)])
    page.gauge("outbox_messages", "Messages that wait for the agent.", [(us, status.outbox)])
    page.gauge("waiting_messages", "Messages that wait for what they depend on.",
               [(us, status.pending)])  # fmt: skip
    page.gauge("store_bytes", "Size of the store on disk.", [(us, status.store_bytes)])
    heads = [(labels({"peer": row.name, "id": row.id}), row) for row in status.peers]

    def per_peer(name: str, text: str, value: Callable[[PeerStatus], float | None]) -> None:
        samples = ((inside, value(row)) for inside, row in heads)
        known = [(inside, number) for inside, number in samples if number is not None]
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
    samples = [(labels({"device": author}), value) for author, value in volts.items()]
    page.gauge("device_battery_volts", "Battery as the device's last reading says.", samples)
    return page.text()


def write_textfile(home: Path, path: Path) -> None:
    """Replace a file of node_exporter's textfile collector in one step; raises StorageError."""
    prometheus_text.write_textfile(path, render(home))


class MetricsServer(metrics_server.MetricsServer):
    """`/metrics` of a home."""

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(port, partial(render, home))
