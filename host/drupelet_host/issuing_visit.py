"""A host's visit of a stick: its bundles also bring what peers are to be told of keys."""

from collections.abc import Callable

from drupelet.errors import OK
from drupelet.link import Link
from drupelet.seal import TYPE_CONTROL, Seal
from drupelet.seal_issue import Issuer
from drupelet_transports.sealed_visit import SealedVisit
from drupelet_transports.stick import BundleWriter, Stick


class IssuingVisit(SealedVisit):
    """See `SealedVisit`; `issuers` has, by peer's id, what it is still to be told."""

    def __init__(
        self, stick: Stick, seals: dict[bytes, Seal], frame: bytearray,
        now_ms: Callable[[], int], after_frame: Callable[[], None], buf: bytearray,
    ) -> None:  # fmt: skip
        super().__init__(stick, seals, frame, now_ms, after_frame, buf)
        self.issuers: dict[bytes, Issuer] = {}
        self._told: list[bytes] = []  # in the bundle that is being written

    def waits(self, peer_id: bytes) -> bool:
        """See SealedVisit."""
        issuer = self.issuers.get(peer_id)
        return issuer is not None and (not issuer.rekeyed or issuer.revoking > 0)

    def hand_out(self, link: Link, peer_id: bytes) -> int:
        """See SealedVisit; what was to be told counts as told only once the bundle is there."""
        self._told = []
        code = super().hand_out(link, peer_id)
        if code != OK:
            for text in self._told:
                self.issuers[peer_id].take_back(text)
        return code

    def tell(self, writer: BundleWriter, seal: Seal, peer_id: bytes) -> int:
        """See SealedVisit."""
        issuer = self.issuers.get(peer_id)
        code = OK
        while issuer is not None and code == OK and (text := issuer.due(self._now_ms())):
            self._told.append(text)
            code = self._put(writer, seal, text, len(text), TYPE_CONTROL)
        return code
