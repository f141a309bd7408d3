"""Contact traces: read from files, or drawn from statistics of real ones.

Files: CSV `t,a,b,up` or `t,a,b,down` (t in seconds, a header is allowed), and the connectivity
trace of the ONE simulator, `t CONN a b up`. A contact still open at the end lasts until the
last line's time; one that begins there is none, and counted as dropped.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# An industrial laboratory, 9 nodes, Bluetooth: a pair is in contact for 3.75 % of the time,
# contacts last 118 s in the median and 1,086 s at P90 (ONE's sample of real traces).
SHARE = 0.0375
MEDIAN_S = 118.0
P90_S = 1086.0
_Z90 = 1.2815515655
NODES_MAX = 10_000
LINES_MAX = 50_000_000
# A line of a trace names a time, two nodes and what happened.
LINE_SIZE_MAX = 4096


class TraceError(Exception):
    """A trace that cannot be used; one line that says what to do."""


@dataclass
class Trace:
    """Contacts of each pair, as (from, to) in ms, in order."""

    pairs: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    end_ms: int = 0
    dropped: int = 0

    @property
    def nodes(self) -> list[str]:
        """Everybody who meets somebody."""
        return sorted({name for pair in self.pairs for name in pair})

    @property
    def contacts(self) -> int:
        """How many there are."""
        return sum(len(times) for times in self.pairs.values())


def read(path: Path) -> Trace:
    """A trace file of either format; raises TraceError."""
    trace = Trace()
    open_since: dict[tuple[str, str], int] = {}
    last_ms = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LINE_SIZE_MAX + 1), ""), 1):
                if len(line) > LINE_SIZE_MAX or number > LINES_MAX:
                    raise TraceError(
                        f"{path}, line {number}: a line is at most {LINE_SIZE_MAX} characters,"
                        f" a trace {LINES_MAX:,} lines: name another file, or cut it"
                    )
                event = _parse(line, path, number)
                if event is None:
                    continue
                at_ms, pair, up = event
                if at_ms < last_ms:
                    raise TraceError(f"{path}, line {number}: time goes back: sort the file")
                last_ms = at_ms
                if up:
                    open_since.setdefault(pair, at_ms)
                elif pair in open_since:
                    trace.pairs.setdefault(pair, []).append((open_since.pop(pair), at_ms))
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    for pair, since in open_since.items():
        if since < last_ms:
            trace.pairs.setdefault(pair, []).append((since, last_ms))
        else:
            trace.dropped += 1
    trace.end_ms = last_ms
    if not trace.pairs:
        raise TraceError(f"{path} has no contact: lines are `t,a,b,up` or `t CONN a b up`")
    if len(trace.nodes) > NODES_MAX:
        raise TraceError(f"{path} has {len(trace.nodes)} nodes, at most {NODES_MAX}: cut it")
    return trace


def _parse(line: str, path: Path, number: int) -> tuple[int, tuple[str, str], bool] | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    if "," in text:
        parts = [part.strip() for part in text.split(",")]
    else:
        parts = text.split()
        if len(parts) > 1 and parts[1] != "CONN":
            return None  # ONE's reports hold events of other kinds, too
        parts = parts[:1] + parts[2:]
    if number == 1 and parts[0].lower() in ("t", "time"):
        return None
    try:
        at_s = float(parts[0])
        a, b, state = parts[1], parts[2], parts[3].lower()
    except (ValueError, IndexError):
        at_s, a, b, state = -1.0, "", "", ""
    if not 0 <= at_s < 1e9 or state not in ("up", "down") or not a or a == b:
        raise TraceError(
            f"{path}, line {number}: want `t,a,b,up` or `t CONN a b up`: {text[:60]!r}"
        )
    return int(at_s * 1000), (min(a, b), max(a, b)), state == "up"


def draw(rng: random.Random, end_ms: int, share: float = SHARE) -> Iterator[tuple[int, int]]:
    """Contacts of one pair: lognormal durations, pauses that make the share of time."""
    spread = math.log(P90_S / MEDIAN_S) / _Z90
    mean_s = MEDIAN_S * math.exp(spread * spread / 2)
    pause_s = mean_s * (1 - share) / share
    at_ms = int(rng.expovariate(1 / pause_s) * 1000)
    while at_ms < end_ms:
        last_ms = max(int(rng.lognormvariate(math.log(MEDIAN_S), spread) * 1000), 1000)
        yield at_ms, min(at_ms + last_ms, end_ms)
        at_ms += last_ms + max(int(rng.expovariate(1 / pause_s) * 1000), 1000)
