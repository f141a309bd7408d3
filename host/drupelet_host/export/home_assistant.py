"""Home Assistant over MQTT: what is said of each value so that it becomes a sensor by itself.

A message is one state of its author's topic; each value of it is announced once, retained, under
`homeassistant/`. Names come from whoever wrote the message, and Home Assistant runs templates: so
a name in a topic or a template has letters, digits and `_` alone.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from drupelet_host.export.mqtt_sender import Packet
from drupelet_host.export.reading import NUMBER_NAME, Reading, Value, clean

DISCOVERY_PREFIX = "homeassistant"
# Any member can write any name: so many become sensors.
SENSORS_MAX = 1024
# Home Assistant takes no longer state.
_STATE_SIZE_MAX = 255
# A device whose reading failed to come so many times counts as gone.
_MISSED_READINGS = 3
_EXPIRE_S_MIN = 60
_INTERVALS_MAX = 16
_NO_SLUG = re.compile(r"[^a-z0-9_]")
# The end of a value's name -> its unit and Home Assistant's device class.
_BY_ENDING = {
    "_c": ("°C", "temperature"), "_mv": ("mV", "voltage"), "_v": ("V", "voltage"),
    "_mm": ("mm", "distance"), "_pct": ("%", ""), "_hpa": ("hPa", "atmospheric_pressure"),
    "_ma": ("mA", "current"), "_lx": ("lx", "illuminance"), "_s": ("s", "duration"),
    "_w": ("W", "power"), "_kb": ("kB", "data_size"), "_mb": ("MB", "data_size"),
}  # fmt: skip
_BY_UNIT = {"C": "_c", "°C": "_c", "mV": "_mv", "V": "_v", "mm": "_mm", "%": "_pct", "hPa": "_hpa"}


class Discovery:
    """What to publish for messages. prefix: of the state topics, from the URL.

    node: tells this home's sensors from another's. expire_s: after how long without a message a
    sensor is unavailable; 0: three of the intervals at which its author has sent.
    """

    def __init__(self, prefix: str, node: str, discovery_prefix: str, expire_s: int = 0) -> None:
        self._prefix = prefix
        self._node = node
        self._discovery_prefix = discovery_prefix
        self._expire_s = expire_s
        self._announced: dict[tuple[str, str], int] = {}
        self._times_ms: dict[str, list[int]] = {}
        self.left_out = 0

    def learn(self, readings: Iterable[Reading]) -> None:
        """Note how often the authors send."""
        for reading in readings:
            times = self._times_ms.setdefault(slug(reading.author), [])
            times.append(reading.timestamp_ms)
            del times[: -_INTERVALS_MAX - 1]

    def state(self, reading: Reading) -> Packet:
        """The state of an author's topic: values by their slugs, and what they are of."""
        state = {
            "id": reading.id, "time": reading.time, "author": clean(reading.author),
            "via": reading.via, "values": {slug(n): _state(v) for n, v in _values(reading)},
        }  # fmt: skip
        return Packet(self._topic(reading), json.dumps(state).encode())

    def _topic(self, reading: Reading) -> str:
        return f"{self._prefix}/{slug(reading.author)}/state"

    def announcements(self, readings: Iterable[Reading]) -> list[Packet]:
        """What is to be announced of messages, that was not announced before."""
        packets = []
        for reading in readings:
            expire_s = self._expire_of(slug(reading.author))
            for name, value in _values(reading):
                key = (slug(reading.author), slug(name))
                if self._announced.get(key, -1) == expire_s:
                    continue
                if key not in self._announced and len(self._announced) == SENSORS_MAX:
                    self.left_out += 1
                    continue
                self._announced[key] = expire_s
                packets.append(self._announcement(reading, name, value, expire_s))
        return packets

    def _expire_of(self, author: str) -> int:
        """Seconds, 0: not known yet. In steps, so that a jitter announces nothing anew."""
        if self._expire_s:
            return self._expire_s
        times = self._times_ms.get(author, [])
        gaps = [later - before for before, later in pairwise(times)]
        gaps = [gap for gap in gaps if gap > 0]
        if not gaps:
            return 0
        wanted = max(_EXPIRE_S_MIN, _MISSED_READINGS * median(gaps) / 1000)
        step = _EXPIRE_S_MIN
        while step < wanted:
            step *= 2
        return step

    def _announcement(self, reading: Reading, name: str, value: Value, expire_s: int) -> Packet:
        author, key = slug(reading.author), slug(name)
        is_switch = isinstance(value, bool)
        device = f"drupelet_{self._node}_{author}"
        values = "value_json['values']"
        settings: dict[str, Any] = {
            "name": clean(name),
            "unique_id": f"{device}_{key}",
            "state_topic": self._topic(reading),
            # A message may lack a value that others have: then its last state stays.
            "value_template": (
                f"{{{{ {values}['{key}'] if '{key}' in {values} else this.state }}}}"
            ),
            "device": {"identifiers": [device], "name": clean(reading.author)},
        }
        if expire_s:
            settings["expire_after"] = expire_s
        if isinstance(value, float):
            settings["state_class"] = "measurement"
            unit, kind = _unit(name, reading.unit)
            settings |= {"unit_of_measurement": unit} if unit else {}
            settings |= {"device_class": kind} if kind else {}
        if is_switch:
            settings |= {"payload_on": "on", "payload_off": "off"}
        kind = "binary_sensor" if is_switch else "sensor"
        topic = f"{self._discovery_prefix}/{kind}/{device}/{key}/config"
        return Packet(topic, json.dumps(settings).encode(), retain=True)


def _values(reading: Reading) -> list[tuple[str, Value]]:
    if reading.values:
        return list(reading.values.items())
    return [("text", reading.text)] if reading.text is not None else []


def _state(value: Value) -> Value:
    if isinstance(value, bool):
        return "on" if value else "off"
    return clean(value)[:_STATE_SIZE_MAX] if isinstance(value, str) else value


def _unit(name: str, unit: str) -> tuple[str, str]:
    if name == NUMBER_NAME:
        return _BY_ENDING[_BY_UNIT[unit]] if unit in _BY_UNIT else (clean(unit), "")
    lower = name.lower()
    return next(
        (value_class for end, value_class in _BY_ENDING.items() if lower.endswith(end)), ("", "")
    )


def slug(name: str) -> str:
    """A name for topics and templates; two names have two."""
    readable = _NO_SLUG.sub("_", name.lower())[:48]
    if readable == name:
        return readable
    tail = hashlib.blake2s(clean(name).encode(), digest_size=3).hexdigest()
    return f"{readable}_{tail}"
