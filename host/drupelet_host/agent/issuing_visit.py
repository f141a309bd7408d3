"""A host's visit of a stick: its bundles also bring what peers are to be told of keys."""

from collections.abc import Callable

from drupelet.base.errors import OK
from drupelet.link.stick_visit import BundleLink
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import TYPE_CONTROL, Seal
from drupelet_transports.stick.sealed_visit import SealedVisit
from drupelet_transports.stick.stick import BundleWriter, Stick


class IssuingVisit(SealedVisit):
    """See `SealedVisit`; `issuers` has, by peer's id, what it is still to be told."""

    def __init__(
        self, stick: Stick, seals: dict[bytes, Seal], frame: bytearray,
        now_ms: Callable[[], int], after_frame: Callable[[], None], buf: bytearray,
    ) -> None:  # fmt: skip
        super().__init__(stick, seals, frame, now_ms, after_frame, buf)
        self.issuers: dict[bytes, Issuer] = {}
        self._heard: set[bytes] = set()  # who left something since the last visit
        self._last = 0  # our last bundle for the peer
        self._telling: list[Issuer] = []  # in the bundle that is being written

    def take_in(self, link: BundleLink, peer_id: bytes) -> None:
        """See SealedVisit."""
        before = self.bundles_in
        super().take_in(link, peer_id)
        if self.bundles_in > before:
            self._heard.add(peer_id)

    def waits(self, peer_id: bytes) -> bool:
        """See SealedVisit. A revocation that lies on this stick is told again only to who was here
        since; a new root at each visit, for its answer may have been lost with its power."""
        issuer = self.issuers.get(peer_id)
        if issuer is None or (issuer.rekeyed and not issuer.revoking):
            return False
        newest = self._stick.known_newest
        is_waiting = issuer.rekeyed and issuer.waiting_epoch and 0 < newest == self._last
        return not is_waiting or peer_id in self._heard

    def hand_out(self, link: BundleLink, peer_id: bytes) -> int:
        """See SealedVisit; what was to be told counts as told only once the bundle is there."""
        self._last = link.bundle_out
        self._telling.clear()
        return super().hand_out(link, peer_id)

    def take_back(self) -> None:
        """See SealedVisit."""
        for issuer in self._telling:
            issuer.take_back()
        self._telling.clear()

    def tell(self, writer: BundleWriter, seal: Seal, peer_id: bytes) -> int:
        """See SealedVisit."""
        issuer = self.issuers.get(peer_id)
        if issuer is None:
            return OK
        self._telling.append(issuer)
        code = OK
        while code == OK and (text := issuer.due(self._now_ms())):
            code = self._put(writer, seal, text, len(text), TYPE_CONTROL)
        return code
