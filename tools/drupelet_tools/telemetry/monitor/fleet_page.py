"""A fleet for Prometheus: what the newest bins of a lake say of each device, as metrics.

Sums over a lake are gauges, not counters: `compact --keep` removes old boots, and a longer copy of
a segment may say less than the one before. For a counter Prometheus would take such a fall for a
restart from zero and count the whole sum once more. The number of a device's boot only rises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from drupelet_host.export.prometheus_text import Page, labels
from drupelet_tools.telemetry.analysis.attention import ALARM, NOTICE, WARNING
from drupelet_tools.telemetry.monitor.fleet_watch import Days, Device, Severities, Snapshot

# Devices with series of their own: some 30 each, so 60,000 and 7 MB a scrape. Of a larger fleet
# those with the highest ids have none; they still count in the fleet's figures.
DEVICES_MAX = 2_000
LEVELS = {NOTICE: 1, WARNING: 2, ALARM: 3}
_DAY_S = 86_400
_LEVELS_HELP = "0 nothing, 1 notice, 2 warning, 3 alarm."
_IN_LAKE = "as far back as the lake goes: it falls when old boots are removed."

Value = Callable[[Device], float | None]


def render(snapshot: Snapshot, now_ms: float, devices_max: int = DEVICES_MAX) -> str:
    """The text of a scrape at this time; at most `devices_max` devices have series."""
    devices = snapshot.devices(now_ms)
    page = Page()
    _fleet(page, snapshot, devices, devices_max)
    _devices(page, devices[:devices_max])
    return page.text()


def _fleet(page: Page, snapshot: Snapshot, devices: Sequence[Device], devices_max: int) -> None:
    def gauge(name: str, text: str, value: float | None) -> None:
        page.gauge(f"fleet_{name}", text, [] if value is None else [("", value)])

    def counter(name: str, text: str, value: float) -> None:
        page.counter(f"fleet_{name}", text, [("", value)])

    gauge("devices", "Devices that the lake has.", len(devices))
    gauge("silent_devices", "Devices that are silent by their own schedules.",
          sum(device.silent for device in devices))  # fmt: skip
    gauge("never_heard_devices", "Devices of the fleet file that the lake has nothing of.",
          len(snapshot.missing))  # fmt: skip
    gauge("devices_without_series", "Devices beyond the bound, which have no series of their own.",
          max(0, len(devices) - devices_max))  # fmt: skip
    heard = [device.last_ms for device in devices if device.last_ms is not None]
    gauge("newest_data_timestamp_seconds", "When the newest log of any device ends.",
          max(heard) / 1000 if heard else None)  # fmt: skip
    if snapshot.outlook is not None:
        levels = Counter(_level(device.severities) for device in devices)
        names = {0: "none", **{level: name for name, level in LEVELS.items()}}
        page.gauge(
            "fleet_attention_devices",
            "Devices by their most severe problem.",
            [(labels({"level": name}), levels[level]) for level, name in names.items()],
        )
        of_fleet = snapshot.fleet_severities(devices)
        gauge("attention_level", f"The most severe problem of all: {_LEVELS_HELP}",
              max([_level(of_fleet), *levels]))  # fmt: skip
        page.gauge("fleet_problem_level", f"Problems of no single device: {_LEVELS_HELP}",
                   [(labels({"problem": kind}), LEVELS[severity])
                    for kind, severity in sorted(of_fleet.items())])  # fmt: skip
        gauge("attention_lake_version", "The lake's version of which problems, batteries' days and"
              " undelivered messages are; they follow when that is worth the work.",
              snapshot.outlook.version)  # fmt: skip
    gauge("lake_version", "The lake's version of which all else is.", snapshot.version)
    counter("lake_reads_total", "How often this process has read the lake's tables.",
            snapshot.reads)  # fmt: skip
    counter("lake_read_seconds_total", "Time that reading them took.", snapshot.read_s)


def _level(severities: Severities) -> int:
    return max((LEVELS[severity] for severity in severities.values()), default=0)


def _devices(page: Page, devices: Sequence[Device]) -> None:
    own = [{"device": device.device, "name": device.name} for device in devices]
    heads = [labels(of_device) for of_device in own]

    def gauge(name: str, text: str, value: Value) -> None:
        samples = zip(heads, map(value, devices), strict=True)
        known = [(inside, number) for inside, number in samples if number is not None]
        page.gauge(f"fleet_device_{name}", text, known)

    def listed(
        name: str, text: str, values: Callable[[Device], Iterator[tuple[dict[str, str], float]]]
    ) -> None:
        """A metric with labels of its own behind the device's."""
        samples = [
            (f"{inside[:-1]},{labels(more)[1:]}", number)
            for inside, device in zip(heads, devices, strict=True)
            for more, number in values(device)
        ]
        page.gauge(f"fleet_device_{name}", text, samples)

    gauge(
        "attention_level",
        f"Its most severe problem: {_LEVELS_HELP}",
        lambda device: None if device.outlook is None else _level(device.severities),
    )
    listed("problem_level", f"A problem that it has: {_LEVELS_HELP}", _problems)
    gauge("last_heard_timestamp_seconds", "When its log ends; absent: no clock tells.",
          lambda device: None if device.last_ms is None else device.last_ms / 1000)  # fmt: skip
    gauge("silent", "1 while it is silent by its own schedule.",
          lambda device: None if device.outlook is None else float(device.silent))  # fmt: skip
    page.counter("fleet_device_boots_total", "The number of its newest boot.",
                 zip(heads, (device.bins.boot for device in devices), strict=True))  # fmt: skip
    gauge("resets", f"Boots that were no wake from deep sleep, {_IN_LAKE}",
          lambda device: device.bins.sums["resets"])  # fmt: skip
    gauge("battery_volts", "Battery at its last reading.",
          lambda device: _scaled(device.bins.battery_mv))  # fmt: skip
    _days(gauge, "battery_left", "Time until its battery is empty, by its readings",
          lambda device: None if device.outlook is None else device.outlook.left)  # fmt: skip
    _days(gauge, "battery_life", "Time that a full battery lasts, by the energy tables",
          lambda device: None if device.outlook is None else device.outlook.life)  # fmt: skip
    gauge("heap_low_bytes", "Least free memory in the newest boot that told it.",
          lambda device: device.bins.heap_low)  # fmt: skip
    gauge("messages_created", f"Messages that it made, {_IN_LAKE}",
          lambda device: device.bins.sums["messages_created"])  # fmt: skip
    gauge("messages_delivered", f"Messages that it has, its own among them, {_IN_LAKE}",
          lambda device: device.bins.sums["messages_delivered"])  # fmt: skip
    gauge(
        "messages_undelivered",
        "Messages of others that it should have and has not.",
        lambda device: None if device.outlook is None else device.outlook.undelivered,
    )
    gauge(
        "latency_median_seconds",
        "Half of the messages of others came to it within this time.",
        lambda device: None if device.outlook is None else _scaled(device.outlook.median_ms),
    )
    gauge(
        "latency_p90_seconds",
        "Nine of ten messages of others came to it within this time.",
        lambda device: None if device.outlook is None else _scaled(device.outlook.p90_ms),
    )
    listed("firmware_info", "1; the firmware that it runs, as its log or a fleet file says.",
           _firmware)  # fmt: skip
    listed("carrier_bytes", f"Bytes on its carriers with their framing, {_IN_LAKE}", _bytes)
    gauge("hour_timestamp_seconds", "When its newest whole hour began; absent: no clock tells.",
          lambda device: _scaled(device.bins.hour_ms))  # fmt: skip
    listed("state_seconds", "Time in each power state in its newest whole hour.", _states)


def _scaled(value_milli: float | None) -> float | None:
    return None if value_milli is None else value_milli / 1000


def _days(
    gauge: Callable[[str, str, Value], None],
    name: str,
    text: str,
    days: Callable[[Device], Days | None],
) -> None:
    for at, part, word in ((0, "", "likely"), (1, "_low", "at least"), (2, "_high", "at most")):

        def seconds(device: Device, at: int = at) -> float | None:
            known = days(device)
            return None if known is None else known[at] * _DAY_S

        gauge(f"{name}{part}_seconds", f"{text}: {word}.", seconds)


def _problems(device: Device) -> Iterator[tuple[dict[str, str], float]]:
    for kind, severity in sorted(device.severities.items()):
        yield {"problem": kind}, LEVELS[severity]


def _firmware(device: Device) -> Iterator[tuple[dict[str, str], float]]:
    if device.outlook is not None and device.outlook.firmware:
        yield {"firmware": device.outlook.firmware}, 1


def _bytes(device: Device) -> Iterator[tuple[dict[str, str], float]]:
    for (carrier, direction), count in sorted(device.bins.carrier_bytes.items()):
        yield {"carrier": carrier, "direction": direction}, count


def _states(device: Device) -> Iterator[tuple[dict[str, str], float]]:
    for name, spent_ms in (device.bins.state_ms or {}).items():
        yield {"state": name}, spent_ms / 1000
