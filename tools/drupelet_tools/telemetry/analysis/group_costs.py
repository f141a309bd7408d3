"""Which group each message is of, who its members are, and what each group cost.

A board notes two bytes of the group's id (its tag) with what it created and delivered. Where a
log does not tell, devices that have delivered each other's messages are taken as one group, and
a device that has delivered nobody's belongs to the one group there is (with several it is left
out). Of two groups with the same tag nobody could tell: in a fleet of many groups a tag is
divided by who has delivered whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drupelet_tools.telemetry.analysis.statistics import Floats
from drupelet_tools.telemetry.blackbox import codes

Ints = NDArray[np.int64]
Row = dict[str, Any]

EVENTS = tuple(codes.MESSAGE_EVENTS.values())
# Up to so many tags, two groups of one tag are a chance of 3 in 100.
TAGS_SURE_MAX = 64
# What the bytes of a kind of record are shared out among groups by; the rest by all of it.
SHARED_BY = {
    "message": ("sent",),
    "segment": ("sent",),
    "ack": ("received", "duplicate", "delivered"),
    "offer": ("offered",),
    "request": ("requested",),
}
CONTENT_KINDS = ("message", "segment")
SENT_EVENTS = ("sent", "acked", "offered", "requested")


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
    first_sends: Ints
    group_tag: Ints  # 0 where the row does not tell one
    wall_ms: Floats
    uncertainty_ms: Floats

    def of(self, device: int) -> Messages:
        """The rows of one device; none for a place below 0."""
        first, last = np.searchsorted(self.device, [device, device + 1])
        return self.chosen(slice(int(first), int(last)) if device >= 0 else slice(0))

    def chosen(self, rows: slice | NDArray[np.bool_]) -> Messages:
        """Some of the rows."""
        return Messages(
            devices=self.devices,
            messages=self.messages,
            device=self.device[rows],
            message=self.message[rows],
            event=self.event[rows],
            peer=self.peer[rows],
            count=self.count[rows],
            sends_max=self.sends_max[rows],
            first_sends=self.first_sends[rows],
            group_tag=self.group_tag[rows],
            wall_ms=self.wall_ms[rows],
            uncertainty_ms=self.uncertainty_ms[rows],
        )

    def having(self, event: str) -> NDArray[np.bool_]:
        """The rows of one event."""
        return np.asarray(self.event == EVENTS.index(event))


@dataclass(frozen=True, slots=True)
class Period:
    """Later than `low_ms`, up to `high_ms`; ms since 1970."""

    low_ms: float
    high_ms: float

    def has(self, wall_ms: Floats) -> NDArray[np.bool_]:
        """Which of these times lie in it; none that is not a number."""
        return np.asarray((self.low_ms < wall_ms) & (wall_ms <= self.high_ms))


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a fleet.

    `author` and `of_message` say of each message its author's place in the devices and its
    group's in `members`, -1 where nobody knows. `tags` are 0 where deliveries tell the group.
    """

    author: Ints
    of_message: Ints
    members: list[Ints]
    tags: list[int]


def find(told: Messages) -> Groups:
    """The groups that these messages are of."""
    count = max(len(told.devices), 1)
    author = np.full(told.messages, -1, dtype=np.int64)
    created = np.flatnonzero(told.having("created"))
    author[told.message[created][::-1]] = told.device[created][::-1]
    tag = np.zeros(told.messages, dtype=np.int64)
    np.maximum.at(tag, told.message, told.group_tag)
    delivered = np.flatnonzero(told.having("delivered"))
    taken = np.concatenate((created, delivered))
    place = tag[told.message] * count  # a node is a device in the groups of one tag
    nodes = np.unique(place[taken] + told.device[taken])
    # Another system's frames are only ever sent: such a device is in no group.
    others = np.setdiff1d(told.device[~told.having("sent")], nodes % count)
    nodes = np.union1d(nodes, others)
    writer = author[told.message[delivered]]
    foreign = delivered[(writer >= 0) & (writer != told.device[delivered])]
    one = np.searchsorted(nodes, place[foreign] + author[told.message[foreign]])
    other = np.searchsorted(nodes, place[foreign] + told.device[foreign])
    pieces = _pieces(len(nodes), one, other)
    group, tags = _grouped(nodes // count, pieces)
    of_message = np.full(told.messages, -1, dtype=np.int64)
    for rows in (delivered, created):  # the author's word goes before the receivers'
        at = np.searchsorted(nodes, place[rows] + told.device[rows])
        of_message[told.message[rows]] = group[at]
    members = [np.unique(nodes[group == at] % count) for at in range(len(tags))]
    return Groups(author, of_message, members, tags)


def within(messages: Messages, groups: Groups, period: Period) -> tuple[Messages, Groups]:
    """What counts in a period: the messages that were created in it, with all that happened to
    them, and of a message whose creation no log dates what happened in the period.

    Who is in which group does not change.
    """
    born_ms = np.full(messages.messages, np.nan)
    created = np.flatnonzero(messages.having("created") & ~np.isnan(messages.wall_ms))
    born_ms[messages.message[created][::-1]] = messages.wall_ms[created][::-1]
    is_undated = np.isnan(born_ms)[messages.message]
    rows = period.has(np.where(is_undated, messages.wall_ms, born_ms[messages.message]))
    counted = np.zeros(messages.messages, dtype=np.bool_)
    counted[messages.message[rows]] = True
    author = np.where(counted, groups.author, -1)
    return messages.chosen(rows), replace(groups, author=author)


def _pieces(count: int, one: Ints, other: Ints) -> Ints:
    """For each node the least node that it is joined with."""
    parent = np.arange(count)

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = int(parent[at])
        return at

    for pair in np.unique(one * count + other).tolist():
        low, high = sorted((root(pair // count), root(pair % count)))
        parent[high] = low
    return np.array([root(at) for at in range(count)], dtype=np.int64)


def _grouped(tag: Ints, pieces: Ints) -> tuple[Ints, list[int]]:
    """For each node its group, -1 for none; and each group's tag."""
    group = np.full(len(tag), -1, dtype=np.int64)
    tags: list[int] = []
    size = np.bincount(pieces, minlength=len(pieces))[pieces]
    begins = np.flatnonzero(np.diff(tag, prepend=-1))
    sure = len(begins) <= TAGS_SURE_MAX
    for begin, end in pairwise([*begins.tolist(), len(tag)]):
        rows = np.arange(begin, end)
        joined = np.unique(pieces[rows[size[rows] > 1]])
        if tag[begin] and (sure or len(joined) <= 1):
            group[rows] = len(tags)
            tags.append(int(tag[begin]))
            continue
        for piece in joined if tag[begin] == 0 else np.unique(pieces[rows]):
            group[rows[pieces[rows] == piece]] = len(tags)
            tags.append(int(tag[begin]))
    lone = group < 0
    if len(tags) <= 1 and lone.any():
        group[lone] = 0
        tags = tags or [0]
    return group, tags


# --- what each group cost ---


def by_group(told: Messages, groups: Groups, traffic: Mapping[str, Row]) -> list[Row]:
    """Bandwidth multiplier of each group, those that sent most first.

    By records it is counted. Bytes are counted per device and not per group: a device's bytes of
    each kind are shared out by its single messages of that kind, which is exact for a device
    with one group (`shared` says how many of the members have more).

    Args:
        told: the fleet's messages.
        groups: as `find` gives them.
        traffic: `sync_cost.traffic_figures` of each device that takes part.
    """
    rows = np.flatnonzero(groups.of_message[told.message] >= 0)
    if not len(rows):
        return []
    sums = _Sums(told, groups, rows)
    sent_bytes, content = sums.shared_out([traffic.get(name, {}) for name in told.devices])
    in_groups = np.bincount(np.concatenate(groups.members), minlength=len(told.devices))
    found: list[Row] = []
    for at, members in enumerate(groups.members):
        sent = int(sums.total["sent"][at])
        moved = sum(int(sums.total[event][at]) for event in SENT_EVENTS)
        away = int(sums.away[at])
        wanted = content[at] / sent * away if sent else 0.0
        found.append(
            {
                "group": f"{groups.tags[at]:04x}" if groups.tags[at] else None,
                "devices": [told.devices[member] for member in members],
                "shared": int((in_groups[members] > 1).sum()),
                "messages": int(sums.messages[at]),
                "deliveries": away,
                **{event: int(sums.total[event][at]) for event in SENT_EVENTS},
                "bytes": round(float(sent_bytes[at])),
                "multiplier_records": moved / away if away else None,
                "multiplier_bytes": float(sent_bytes[at] / wanted) if wanted else None,
            }
        )
    found.sort(key=lambda row: (-row["bytes"], -row["messages"], row["group"] or ""))
    return found


class _Sums:
    """Counts of single messages by group, and by device and group."""

    def __init__(self, told: Messages, groups: Groups, rows: Ints) -> None:
        self.groups = len(groups.members)
        self.devices = len(told.devices)
        self.event = told.event[rows]
        self.count = told.count[rows]
        device, message = told.device[rows], told.message[rows]
        group = groups.of_message[message]
        # The pairs of a device and a group that there are, and which of them a row is about.
        self.keys, self.key = np.unique(device * self.groups + group, return_inverse=True)
        self.device, self.group = np.divmod(self.keys, self.groups)
        self.total = {name: self._by_group(self.weights((name,))) for name in SENT_EVENTS}
        known = groups.of_message[groups.of_message >= 0]
        self.messages = np.bincount(known, minlength=self.groups)
        came = self.event == EVENTS.index("delivered")
        came &= np.where(
            groups.author[message] < 0, told.peer[rows] > 0, groups.author[message] != device
        )
        pairs = np.unique(message[came] * self.devices + device[came])
        away = groups.of_message[pairs // max(self.devices, 1)]
        self.away = np.bincount(away, minlength=self.groups)

    def weights(self, names: Iterable[str]) -> Floats:
        """Per device and group, how often any of these events happened."""
        chosen = np.isin(self.event, [EVENTS.index(name) for name in names])
        return _sums(self.key[chosen], self.count[chosen].astype(np.float64), len(self.keys))

    def _by_group(self, values: Floats) -> Floats:
        return _sums(self.group, values, self.groups)

    def shared_out(self, traffic: Sequence[Row]) -> tuple[Floats, Floats]:
        """Client bytes sent, and those of content in them, of each group."""
        whole, content = np.zeros(self.groups), np.zeros(self.groups)
        everything = self.weights(EVENTS)
        kinds: dict[str, Floats] = {}
        for at, row in enumerate(traffic):
            for line in row.get("lines", ()):
                if line["direction"] != "sent":
                    continue
                for kind, size in line.items():
                    if kind not in ("carrier", "direction", "bytes", "telemetry"):
                        kinds.setdefault(kind, np.zeros(self.devices))[at] += size
        for kind, sizes in kinds.items():
            weight = self.weights(SHARED_BY.get(kind, EVENTS))
            own = _sums(self.device, weight, self.devices)[self.device]
            weight = np.where(own > 0, weight, everything)
            own = _sums(self.device, weight, self.devices)[self.device]
            part = weight / np.maximum(own, 1) * sizes[self.device]
            whole += self._by_group(part)
            if kind in CONTENT_KINDS:
                content += self._by_group(part)
        return whole, content


def _sums(places: Ints, values: Floats, size: int) -> Floats:
    found: Floats = np.bincount(places, weights=values, minlength=size).astype(np.float64)
    return found
