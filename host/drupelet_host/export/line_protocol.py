"""InfluxDB's line protocol: one point for each message, with the message's own time.

A point is measurement, tags and time: written twice it is there once. So that two messages of one
author and millisecond stay two points, the digits below the millisecond come from the message's
id.
"""

import base64
import re

from drupelet_host.export.reading import Reading, Value, clean

# What InfluxDB takes as a time: 64 bits of nanoseconds, without the two ends of the range.
_TIME_MS_MAX = (2**63 - 2) // 1_000_000 - 1
_NS_PER_MS = 1_000_000
# A string of a field has at most 64 KB, and so has a line's tag.
_TAG_SIZE_MAX = 256
_STEERS = re.compile(r"[\x00-\x1f\x7f]")
# InfluxDB knows the time by this name and refuses a field that has it.
_RESERVED = ("time", "_field", "_measurement")


def line(reading: Reading, measurement: str) -> bytes:
    """One line with its LF.

    Tags: author, via. Fields: each value by its name; numbers as floats, so that a value keeps one
    type; `text` for a text without values; `base64` for bytes; and `id`.
    """
    tags = f"author={_tag(reading.author)},via={_tag(reading.via)}"
    fields = [f"{_key(name)}={_field(value)}" for name, value in reading.values.items()]
    if reading.text is None:
        fields.append(f"base64={_field(base64.b64encode(reading.body).decode())}")
    elif not reading.values:
        fields.append(f"text={_field(reading.text)}")
    fields.append(f"id={_field(reading.id)}")
    name = _escaped(_one_line(measurement), ", ")
    return f"{name},{tags} {','.join(fields)} {_time_ns(reading)}\n".encode()


def _time_ns(reading: Reading) -> int:
    below = int(reading.id[:16], 16) % _NS_PER_MS
    return min(reading.timestamp_ms, _TIME_MS_MAX) * _NS_PER_MS + below


def _one_line(text: str) -> str:
    """Without control characters. A backslash at the end would escape what follows."""
    text = _STEERS.sub(" ", clean(text))[:_TAG_SIZE_MAX]
    return text.replace("\\", "/")


def _escaped(text: str, special: str) -> str:
    return "".join("\\" + c if c in special else c for c in text)


def _tag(text: str) -> str:
    return _escaped(_one_line(text), ",= ") or "-"  # an empty tag is none


def _key(name: str) -> str:
    name = _one_line(name)
    return _escaped(name + "_" if name in _RESERVED or not name else name, ",= ")


def _field(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    text = clean(value).replace("\0", "\\0")
    return '"' + _escaped(text, '"\\') + '"'
