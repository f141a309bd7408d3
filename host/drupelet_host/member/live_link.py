"""A live link on a host: its profile, its budget, its contacts, and what it has seen.

A contact begins when the carrier comes up: a compact-1 link greets. If our store was put back to
an older state, it tells the peer by a sketch which messages are left (docs/SPEC.md 3.6), as soon
as the peer has answered in compact-1.
"""

import os
from typing import Any

from drupelet import host_api
from drupelet.base.limits import FRAME_SIZE_MAX, FRAME_SIZE_MIN
from drupelet.link.host_link import HostLink
from drupelet.node import (
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
    Node,
)
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.compact.hello import COMPACT, PLAIN
from drupelet.wire.profiles import PROFILE_BSP_0
from drupelet.wire.sketch.recovery import Recovery
from drupelet_host.home.config import Peer
from drupelet_host.member.byte_budget import ByteBudget
from drupelet_host.member.mode_policy import MODES, set_mode
from drupelet_transports.common.framing import wire_size_max
from drupelet_transports.common.url import Url

PROFILES = {
    "bsp-1": PROFILE_BSP_1,
    "compact-1": PROFILE_COMPACT_1,
    "mvds-1": PROFILE_MVDS_1,
    "mvds-nested": PROFILE_MVDS_NESTED,
    "mvds-5001": PROFILE_MVDS_5001,
    "bsp-0": PROFILE_BSP_0,
}
_SALT_SIZE = 4
# What a seal adds at most: header, salt, a status of 9 bytes and a tag of 16.
_SEAL_OVERHEAD_MAX = 40


def overhead_max(url: Url) -> int:
    """The most bytes that a carrier and its seal add to a frame."""
    sealed = 0 if url.plain else _SEAL_OVERHEAD_MAX
    if url.scheme == "mqtt":
        # PUBLISH: type, 2 bytes of length, 2 of the topic's, prefix/name.
        return 5 + len(url.path.encode()) + 9 + sealed
    return wire_size_max(FRAME_SIZE_MAX) - FRAME_SIZE_MAX + sealed


def budget_of(peer: Peer, url: Url) -> tuple[ByteBudget | None, int]:
    """The budget of a peer's live link, and the longest frame that it may send."""
    if not peer.budget_bytes_per_epoch:
        return None, FRAME_SIZE_MAX
    overhead = overhead_max(url)
    size = min(FRAME_SIZE_MAX, peer.budget_bytes_per_epoch) - overhead
    assert size >= FRAME_SIZE_MIN  # BUDGET_BYTES_MIN sees to it: prefixes of topics are short
    return ByteBudget(peer.epoch_ms, peer.budget_bytes_per_epoch, overhead), size


class LiveLink:
    """One link with epochs. `lost`: the peer may think that we hold what our store has lost."""

    def __init__(
        self, node: Node, link: HostLink, peer: Peer, url: Url, lost: bool, peer_gen: int
    ) -> None:
        self.link = link
        self._node = node
        self.set_mode(peer.mode)
        self.lost = lost
        self.duplicates = 0
        self.foreign = 0  # messages of groups that are not ours, or not shared with the peer
        link.budget, self.frame_size_max = budget_of(peer, url)
        self._recovery: Recovery | None = None  # of a link in compact-1
        self._begun = False
        if isinstance(link.codec, Compact1):
            if peer_gen >= 0:
                host_api.note_peer_store(link, peer_gen)
            self._recovery = Recovery(link, lambda: os.urandom(_SALT_SIZE))

    @property
    def peer_gen(self) -> int:
        """The peer's store_gen as it last said; -1: not known."""
        return host_api.peer_store_gen(self.link) if self._recovery is not None else -1

    @property
    def settled(self) -> bool:
        """True when the peer is known to hold all that it was shown anew."""
        return host_api.is_settled(self.link)

    def begin(self) -> None:
        """The carrier came up."""
        self.link.greet()
        self._begun = False
        if self.lost and self._recovery is not None:
            self._recovery.hold_back()  # until the sketch may go

    def receive(self, frame: bytearray, size: int, now_ms: int) -> None:
        """Hand a frame to the link."""
        node = self._node
        duplicates, unknown = node.duplicates, host_api.unknown_count(node)
        self.link.receive(frame, size, now_ms)
        self.duplicates += node.duplicates - duplicates
        self.foreign += host_api.unknown_count(node) - unknown
        if self.lost and self._recovery is not None:
            self._recover(self._recovery)

    def _recover(self, recovery: Recovery) -> None:
        if not self._begun:
            if host_api.spoken(self.link) != COMPACT:
                return
            recovery.begin()
            self._begun = True
        self.lost = recovery.is_open()

    def peer_lost(self) -> None:
        """The seal heard of another store, before HELLO tells it: the peer's sketch may come."""
        if self._recovery is not None and self.spoken() == "compact-1":
            self._recovery.hold_back()

    def set_mode(self, mode: str) -> None:
        """Another mode, from the next frame on."""
        self.mode = mode
        set_mode(self.link, MODES[mode])

    def status(self) -> dict[str, Any]:
        """For `drupelet status`; the round trip is what a peer needs at most, in whole epochs."""
        link = self.link
        return {
            "profile": self.spoken(),
            "mode": self.mode,
            "mode_now": "interactive" if host_api.is_interactive(link) else "batch",
            "duplicates": self.duplicates,
            "round_trip_ms": host_api.round_trip_ms(link),
            "recovering": self.lost,
        }

    def spoken(self) -> str:
        """The profile that goes out; with "?" until the peer was heard in it."""
        if self._recovery is None:
            return next(name for name, number in PROFILES.items() if number == self.link.profile)
        spoken = host_api.spoken(self.link)
        if spoken == PLAIN:
            return "bsp-1"
        return "compact-1" if spoken == COMPACT else "compact-1?"
