"""What a message says: the text or bytes of its body, and the values that are in it.

A body is a JSON object (`{"board":"well","level_mm":1200}`), a number with or without a unit
(`21.5`, `21.5 C`), another text, or bytes. Anybody in the group may have written it.
"""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from drupelet_host.view.log_view import Entry

Value = float | bool | str

# Values that one message may have; the rest of a larger one is in its text alone.
VALUES_MAX = 64
# Of a JSON object within an object the name is `outer.inner`; deeper ones are their JSON text.
_DEPTH_MAX = 4
# Objects and lists in a body that is read for values. Python reads deep ones by recursion, and how
# deep it gets is another matter in each version.
_NESTED_MAX = 256
# What a number alone is called.
NUMBER_NAME = "value"
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d.,;:]{0,8})\s*")
# Who wrote it is a label of the message, not a value of it.
_AUTHOR_NAME = "board"


@dataclass(frozen=True)
class Reading:
    """A message for other programs.

    id: 64 hex digits. author: as the message says, else `via`, who handed it to us. text: None
    for a body that is not UTF-8. values: by name; unit: of a number alone, as it was written.
    """

    id: str
    group: str
    author: str
    via: str
    timestamp_ms: int
    time: str
    body: bytes
    text: str | None
    values: dict[str, Value] = field(default_factory=dict)
    unit: str = ""


def reading_of(entry: Entry, group: str) -> Reading:
    """What an entry of the log says."""
    try:
        text = entry.payload.decode()
    except UnicodeDecodeError:
        text = None
    values, unit = _values(text) if text is not None else ({}, "")
    shown = entry.fields()
    return Reading(
        entry.id.hex(), group, entry.author or entry.via, entry.via, shown["timestamp_ms"],
        shown["time"], entry.payload, text, values, unit,
    )  # fmt: skip


def _values(text: str) -> tuple[dict[str, Value], str]:
    """The values in a text, and the unit of a number alone."""
    number = _NUMBER.fullmatch(text)
    if number:
        value = float(number[1])
        return ({NUMBER_NAME: value} if math.isfinite(value) else {}), number[2]
    if not text.startswith("{") or text.count("{") + text.count("[") > _NESTED_MAX:
        return {}, ""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return {}, ""
    values: dict[str, Value] = {}
    if isinstance(document, dict):
        document.pop(_AUTHOR_NAME, None)
        _collect(values, "", document, 0)
    return values, ""


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _collect(values: dict[str, Value], prefix: str, document: dict[str, Any], depth: int) -> None:
    for name, value in document.items():
        if len(values) == VALUES_MAX:
            return
        whole = f"{prefix}{name}"
        if isinstance(value, dict) and depth < _DEPTH_MAX:
            _collect(values, f"{whole}.", value, depth + 1)
        elif isinstance(value, bool | str):
            values[whole] = value
        elif isinstance(value, int | float):
            if (number := _finite(value)) is not None:
                values[whole] = number
        elif isinstance(value, list | dict):
            values[whole] = json.dumps(value, ensure_ascii=False)


def _finite(value: float) -> float | None:
    """A number of JSON as a float; None for one that has none."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def clean(text: str) -> str:
    """A text that every encoder takes: JSON can say half of a UTF-16 pair."""
    return text.encode("utf-8", "replace").decode()
