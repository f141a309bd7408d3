"""Created-to-delivered waits over a fleet, with what was not delivered counted as watched.

A message is expected at every device of its group but its author. Groups are not in the logs:
devices that have delivered each other's messages are taken as one group, and a device that has
delivered nobody's belongs to the one group there is (with several groups it is left out). A
pair without a delivery has waited until the receiver's log ends (Kaplan and Meier).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.analyses_stats import Floats, Survival, kaplan_meier

Ints = NDArray[np.int64]
Row = dict[str, Any]

PAIRS_MAX = 4_000_000  # (message, receiver) pairs; above it every n-th message stands for all
EVENTS = tuple(codes.MESSAGE_EVENTS.values())
QUANTILES = (0.5, 0.9, 0.99)
CURVE_POINTS_MAX = 60  # per device in the latency chart: it stays small with many devices


@dataclass(frozen=True, slots=True)
class Messages:
    """The lake's messages table by columns, in order of device; `device` is a place in
    `devices`, `message` a number below `messages`.

    Times are ms since 1970, not a number where the clock was not known.
    """

    devices: list[str]
    messages: int
    device: Ints
    message: Ints
    event: Ints  # place in EVENTS, -1 for others
    peer: Ints
    count: Ints
    sends_max: Ints
    wall_ms: Floats
    uncertainty_ms: Floats

    def of(self, device: int) -> Messages:
        """The rows of one device; none for a place below 0."""
        first, last = np.searchsorted(self.device, [device, device + 1])
        part = slice(int(first), int(last)) if device >= 0 else slice(0)
        return Messages(
            devices=self.devices,
            messages=self.messages,
            device=self.device[part],
            message=self.message[part],
            event=self.event[part],
            peer=self.peer[part],
            count=self.count[part],
            sends_max=self.sends_max[part],
            wall_ms=self.wall_ms[part],
            uncertainty_ms=self.uncertainty_ms[part],
        )

    def having(self, event: str) -> NDArray[np.bool_]:
        """The rows of one event."""
        return np.asarray(self.event == EVENTS.index(event))


@dataclass(frozen=True, slots=True)
class Waits:
    """Pairs of a message and a receiver, in order of receiver: how long, whether it ended, and
    how sure.

    `wait_ms` is not a number where one of the two clocks is not known.
    """

    device: Ints
    wait_ms: Floats
    ended: NDArray[np.bool_]
    uncertainty_ms: Floats
    every: int  # 1, or n where only each n-th message was taken

    def at(self, device: int) -> Waits:
        """Those of one receiver."""
        first, last = np.searchsorted(self.device, [device, device + 1])
        mine = slice(int(first), int(last)) if device >= 0 else slice(0)
        return Waits(
            self.device[mine],
            self.wait_ms[mine],
            self.ended[mine],
            self.uncertainty_ms[mine],
            self.every,
        )


def waits(told: Messages, log_ends_ms: Floats) -> Waits:
    """All pairs of a message with a known author and a device that should have it.

    `log_ends_ms` is the newest time in each device's log, in order of `told.devices`.
    """
    count = len(told.devices)
    born = _first(told, told.having("created"), told.message, told.messages)
    author = np.full(told.messages, -1, dtype=np.int64)
    rows = np.flatnonzero(told.having("created"))
    author[told.message[rows][::-1]] = told.device[rows][::-1]
    arrived = np.flatnonzero(told.having("delivered"))
    foreign = arrived[
        (author[told.message[arrived]] >= 0)
        & (author[told.message[arrived]] != told.device[arrived])
    ]
    # Another system's frames are only ever sent: such a device is in no group.
    taking_part = set(np.unique(told.device[~told.having("sent")]).tolist())
    groups = _groups(count, author[told.message[foreign]], told.device[foreign], taking_part)
    pair_message, pair_device, every = _pairs(author, groups)
    key = told.message * count + told.device
    came = _first(told, told.having("delivered"), key, told.messages * count, sparse=True)
    wanted = pair_message * count + pair_device
    place = np.searchsorted(came.key, wanted)
    place = np.minimum(place, max(len(came.key) - 1, 0))
    found = came.key[place] == wanted if len(came.key) else np.zeros(len(wanted), bool)
    arrival = np.where(found, came.wall[place] if len(came.key) else np.nan, np.nan)
    spread = np.where(found, came.spread[place] if len(came.key) else np.nan, np.nan)
    start = born.wall[pair_message]
    until = np.where(found, arrival, log_ends_ms[pair_device])
    watched = until - start
    # A log that ended before the message was there has not watched it at all.
    keep = np.flatnonzero(found | ~(watched <= 0))
    keep = keep[np.argsort(pair_device[keep], kind="stable")]
    return Waits(
        device=pair_device[keep],
        wait_ms=watched[keep],
        ended=found[keep],
        uncertainty_ms=(spread + born.spread[pair_message])[keep],
        every=every,
    )


@dataclass(frozen=True, slots=True)
class _Firsts:
    key: Ints
    wall: Floats
    spread: Floats


def _first(
    told: Messages, chosen: NDArray[np.bool_], key: Ints, size: int, *, sparse: bool = False
) -> _Firsts:
    """The earliest known time of each key among the chosen rows."""
    rows = np.flatnonzero(chosen)
    order = rows[np.lexsort((told.wall_ms[rows], key[rows]))]  # not-a-number sorts last
    keys, at = np.unique(key[order], return_index=True)
    picked = order[at]
    if sparse:
        return _Firsts(keys, told.wall_ms[picked], told.uncertainty_ms[picked])
    wall, spread = np.full(size, np.nan), np.full(size, np.nan)
    wall[keys], spread[keys] = told.wall_ms[picked], told.uncertainty_ms[picked]
    return _Firsts(np.arange(size), wall, spread)


def _groups(count: int, authors: Ints, receivers: Ints, taking_part: set[int]) -> list[Ints]:
    """Devices that are joined by deliveries; lone ones that take part join the only group."""
    parent = np.arange(count)

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = int(parent[at])
        return at

    for pair in np.unique(authors * count + receivers):
        parent[root(int(pair // count))] = root(int(pair % count))
    members: dict[int, list[int]] = {}
    for device in range(count):
        members.setdefault(root(device), []).append(device)
    joined = [group for group in members.values() if len(group) > 1]
    lone = [own[0] for own in members.values() if len(own) == 1 and own[0] in taking_part]
    if len(joined) <= 1:
        joined = [[*(joined[0] if joined else []), *lone]]
    return [np.array(sorted(group), dtype=np.int64) for group in joined]


def _pairs(author: Ints, groups: list[Ints]) -> tuple[Ints, Ints, int]:
    known = np.flatnonzero(author >= 0)
    sizes = np.zeros(len(groups), dtype=np.int64)
    own = []
    for at, group in enumerate(groups):
        mine = known[np.isin(author[known], group)]
        own.append(mine)
        sizes[at] = len(mine) * (len(group) - 1)
    every = max(1, -(-int(sizes.sum()) // PAIRS_MAX))
    messages, devices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for mine, group in zip(own, groups, strict=True):
        taken = mine[::every]
        message, device = np.repeat(taken, len(group)), np.tile(group, len(taken))
        away = author[message] != device
        messages.append(message[away])
        devices.append(device[away])
    return np.concatenate(messages), np.concatenate(devices), every


def figures(told: Waits, epoch_ms: float | None = None) -> Row:
    """Counts and quantiles of waits in ms, and in epochs where their length is known.

    A quantile that the curve never reaches is None.
    """
    clock = ~np.isnan(told.wait_ms)
    curve = kaplan_meier(told.wait_ms[clock], told.ended[clock])
    timed = clock & told.ended
    spreads = told.uncertainty_ms[timed]
    row: Row = {
        "messages": len(told.wait_ms),
        "timed": curve.seen,
        "undelivered": curve.censored,
        "no_clock": int((~clock).sum()),
        "uncertainty_ms": _largest(spreads),
        "every": told.every,
    }
    for share in QUANTILES:
        name = f"p{round(share * 100)}"
        row[f"{name}_ms"] = curve.quantile(share)
        row[f"{name}_low_ms"], row[f"{name}_high_ms"] = curve.interval(share)
        known = epoch_ms and row[f"{name}_ms"] is not None
        row[f"{name}_epochs"] = row[f"{name}_ms"] / epoch_ms if known else None
    row["curve"] = _curve(curve)
    return row


def _largest(spreads: Floats) -> float | None:
    if not len(spreads) or np.isnan(spreads).any():
        return None
    return float(spreads.max())


def _curve(curve: Survival) -> list[tuple[float, float]]:
    """(seconds, share delivered) at a bounded number of the curve's steps."""
    steps = len(curve.at)
    if not steps:
        return []
    picked = np.unique(np.linspace(0, steps - 1, min(steps, CURVE_POINTS_MAX)).astype(int))
    start = [(round(float(curve.at[0]) / 1000, 3), 0.0)]
    return start + [
        (round(float(curve.at[at]) / 1000, 3), round(float(1 - curve.waiting[at]), 5))
        for at in picked
    ]
