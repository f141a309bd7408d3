"""How far a stream of black boxes is: which segments it has given, by what they are.

A file's name, time and place say nothing of what is in it. So an offset names segments by device,
boot and number, and those of its own batch by their content, too: a batch that is read again
after a failure has the same rows, wherever its segments lie by then.

    {"seen": {"<device>": "<boots>:<numbers>;…"}, "batch": {"<device> <boot>": "<number>:<key> …"}}

Boots and numbers are ranges (`0-41,43`); boots that follow each other with the same numbers are
one entry, so a device whose every wake is a boot takes no more than one that never starts anew.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field

from drupelet_tools.telemetry.base.errors import TelemetryError

# Spark writes the offset to the checkpoint with each batch. A fleet of 1,000 devices without gaps
# takes 30 KB of it.
SEEN_SIZE_MAX = 8 << 20

Key = tuple[str, int, int]  # device, boot, number
_CONTENT = struct.Struct("<III")


def content_key(size: int, header_crc: int, first_crc: int) -> str:
    """Tells contents under one device, boot and number apart: 8 hexadecimal digits."""
    return f"{zlib.crc32(_CONTENT.pack(size, header_crc, first_crc)):08x}"


class Seen:
    """Segments by device, boot and number, as ranges of numbers."""

    def __init__(self) -> None:
        # The first numbers of a boot's ranges in order, and the last ones.
        self._ranges: dict[tuple[str, int], tuple[list[int], list[int]]] = {}

    def has(self, key: Key) -> bool:
        """Whether it is in."""
        firsts, lasts = self._ranges.get(key[:2], ([], []))
        at = bisect_right(firsts, key[2]) - 1
        return at >= 0 and key[2] <= lasts[at]

    def last(self, device: str, boot: int) -> int:
        """The highest number of a boot, -1 if there is none."""
        _, lasts = self._ranges.get((device, boot), ([], []))
        return lasts[-1] if lasts else -1

    def add(self, key: Key) -> None:
        """Take in a segment that is not in yet."""
        firsts, lasts = self._ranges.setdefault(key[:2], ([], []))
        number = key[2]
        at = bisect_right(firsts, number)
        joins_before = at > 0 and lasts[at - 1] + 1 == number
        joins_behind = at < len(firsts) and firsts[at] == number + 1
        if joins_before and joins_behind:
            lasts.pop(at - 1)
            firsts.pop(at)
        elif joins_before:
            lasts[at - 1] = number
        elif joins_behind:
            firsts[at] = number
        else:
            firsts.insert(at, number)
            lasts.insert(at, number)

    def text(self) -> dict[str, str]:
        """By device, as the offset has it. Raises TelemetryError: it is too long."""
        entries: dict[str, list[tuple[int, int, str]]] = {}
        for (device, boot), (firsts, lasts) in sorted(self._ranges.items()):
            numbers = ",".join(_range(*pair) for pair in zip(firsts, lasts, strict=True))
            own = entries.setdefault(device, [])
            if own and own[-1][1:] == (boot - 1, numbers):
                own[-1] = (own[-1][0], boot, numbers)
            else:
                own.append((boot, boot, numbers))
        texts = {
            device: ";".join(f"{_range(first, last)}:{numbers}" for first, last, numbers in own)
            for device, own in entries.items()
        }
        if sum(map(len, texts.values())) > SEEN_SIZE_MAX:
            raise TelemetryError(
                f"the stream's offset is longer than {SEEN_SIZE_MAX >> 20} MiB: too many gaps in"
                " too many boots; use `drupelet telemetry ingest` for this fleet"
            )
        return texts

    @classmethod
    def of(cls, texts: dict[str, str]) -> Seen:
        """What `text` gave."""
        seen = cls()
        for device, entries in texts.items():
            for entry in entries.split(";"):
                boots, _, numbers = entry.partition(":")
                pairs = [_pair(word) for word in numbers.split(",")]
                first, last = _pair(boots)
                for boot in range(first, last + 1):
                    ends = [one for one, _ in pairs], [other for _, other in pairs]
                    seen._ranges[device, boot] = ends
        return seen


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _pair(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


@dataclass(slots=True)
class Offset:
    """`seen` with the batch in it; `batch`: the content key of each segment of the batch."""

    seen: Seen = field(default_factory=Seen)
    batch: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: dict[str, dict[str, str]]) -> Offset:
        """Read what a checkpoint has.

        Raises:
            TelemetryError: it is another version's.
        """
        if set(fields) != {"seen", "batch"}:
            raise TelemetryError(
                "the stream's checkpoint is from another version of drupelet: give the query a"
                " new checkpointLocation; it then begins with the first segment"
            )
        batch = {}
        for unit, words in fields["batch"].items():
            device, _, boot = unit.partition(" ")
            for word in words.split():
                number, _, key = word.partition(":")
                batch[device, int(boot), int(number)] = key
        return cls(Seen.of(fields["seen"]), batch)

    def fields(self) -> dict[str, dict[str, str]]:
        """For the checkpoint. Raises TelemetryError: it is too long."""
        units: dict[str, list[str]] = {}
        for (device, boot, number), key in self.batch.items():
            units.setdefault(f"{device} {boot}", []).append(f"{number}:{key}")
        batch = {unit: " ".join(words) for unit, words in units.items()}
        return {"seen": self.seen.text(), "batch": batch}
