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

from drupelet_tools.telemetry.analysis.group_costs import Groups, Ints, Messages
from drupelet_tools.telemetry.analysis.statistics import Floats, Survival, kaplan_meier

Row = dict[str, Any]

PAIRS_MAX = 4_000_000  # (message, receiver) pairs; above it every n-th message stands for all
QUANTILES = (0.5, 0.9, 0.99)
CURVE_POINTS_MAX = 60  # per device in the latency chart: it stays small with many devices


@dataclass(frozen=True, slots=True)
class Waits:
    """Pairs of a message and a receiver, in order of receiver: how long, whether it ended, and
    how sure.

    `wait_ms` is not a number where one of the two clocks is not known.
    """

    device: Ints
    born_ms: Floats  # when the message was created
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
            self.born_ms[mine],
            self.wait_ms[mine],
            self.ended[mine],
            self.uncertainty_ms[mine],
            self.every,
        )


def waits(told: Messages, log_ends_ms: Floats, groups: Groups) -> Waits:
    """All pairs of a message with a known author and a device that should have it.

    `log_ends_ms` is the newest time in each device's log, in order of `told.devices`.
    """
    count = len(told.devices)
    born = _first(told, told.having("created"), told.message, told.messages)
    pair_message, pair_device, every = sampled_pairs(groups)
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
        born_ms=start[keep],
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


def sampled_pairs(groups: Groups) -> tuple[Ints, Ints, int]:
    """Message and device of each delivery that is waited for; of more than PAIRS_MAX, those of
    each n-th message, and n."""
    known = np.flatnonzero((groups.author >= 0) & (groups.of_message >= 0))
    known = known[np.argsort(groups.of_message[known], kind="stable")]
    ends = np.cumsum(np.bincount(groups.of_message[known], minlength=len(groups.members)))
    own = np.split(known, ends[:-1]) if len(ends) else []
    wanted = sum(
        len(mine) * (len(group) - 1) for mine, group in zip(own, groups.members, strict=True)
    )
    every = max(1, -(-wanted // PAIRS_MAX))
    messages, devices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for mine, group in zip(own, groups.members, strict=True):
        taken = mine[::every]
        message, device = np.repeat(taken, len(group)), np.tile(group, len(taken))
        away = groups.author[message] != device
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
        "undelivered_since_ms": _earliest(told.born_ms[clock & ~told.ended]),
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


def _earliest(times_ms: Floats) -> float | None:
    return float(times_ms.min()) if len(times_ms) else None


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
