"""Members learn from each other how they are reached (docs/SPEC.md 15.5), and the agent takes it.

    announce = ["mqtt://broker:1883/orchard"]   # how others reach this device
    learn = true                                # add members that say how they are reached

Only who has keys with us is taken; what is not taken, and why, is told once and stands in the
status.
"""

from collections.abc import Callable
from typing import Any

from drupelet.base.errors import DrupeletError
from drupelet_host.base import clock
from drupelet_host.clients.carriers import Carriers, new_peers
from drupelet_host.home import config
from drupelet_host.keys.provision import has_keys
from drupelet_host.member.member import Member
from drupelet_host.member.report_shapes import NotLearned


class Learner:
    """Call `turn` once per epoch. added: takes up what drupelet.toml has now; told: a line."""

    def __init__(
        self, member: Member, added: Callable[[], dict[str, Any]],
        on_learned: Callable[[str, str, str], None],
    ) -> None:  # fmt: skip
        self._member = member
        self._added = added
        self._on_learned = on_learned
        self._known: dict[bytes, Carriers] = {}
        self.refused: dict[bytes, str] = {}

    def turn(self) -> None:
        """Say how we are reached, and take what others say; each only when it changes."""
        settings = self._member.config
        if settings.announce:
            try:
                self._member.clients.announce(settings.announce, clock.now_ms())
            except DrupeletError as error:
                self._refuse(settings.id, settings.name, str(error))
        if not settings.learn:
            return
        known = self._member.clients.carriers.known()
        if known == self._known:
            return
        self._known = known
        usable = new_peers(settings, known)
        for peer in usable:
            self._take(peer)
        held = {peer.id for peer in self._member.config.peers} | {settings.id}
        for device in known.keys() - held - {peer.id for peer in usable}:
            carriers = known[device]
            why = f"says {', '.join(carriers.urls) or 'nothing'}: no broker, or its name is taken"
            self._refuse(device, carriers.name, why)

    def _take(self, peer: config.Peer) -> None:
        settings = self._member.config
        try:
            if not has_keys(settings, peer.id):
                self._refuse(
                    peer.id, peer.name,
                    f"is reached over {peer.url}, but has no keys here; bring the two together"
                    " with `drupelet provision`, then restart",
                )  # fmt: skip
                return
            config.add_peer(settings.home, peer)
            done = self._added()
            if "error" in done:
                config.remove_peer(settings.home, peer.name)
                self._refuse(peer.id, peer.name, str(done["error"]))
                return
        except DrupeletError as error:
            self._refuse(peer.id, peer.name, str(error))
            return
        self.refused.pop(peer.id, None)
        self._on_learned(peer.name, peer.url, "")

    def _refuse(self, device: bytes, name: str, why: str) -> None:
        if self.refused.get(device) != why:
            self.refused[device] = why
            self._on_learned(name, "", why)

    def status(self) -> list[NotLearned]:
        """Who was not taken."""
        return [NotLearned(id.hex(), why) for id, why in sorted(self.refused.items())]
