"""The AEAD port of a board: CCM with the AES of `cryptolib`, or of the core if there is none.

A firmware set contains one of them (`drupelet flash build --lacks cryptolib` takes the core's). If
this import fails with ImportError, the board has no sealed links and must not be used without.
"""

from drupelet.base.ccm import Ccm

_MODE_ECB = 1

try:
    from cryptolib import aes  # type: ignore[import-not-found]

    def _make_aes(key: bytes) -> object:
        return aes(key, _MODE_ECB)

except ImportError:
    from drupelet.base.aes import Aes

    _make_aes = Aes


class Aead(Ccm):
    """AES-CCM with keys of 16 bytes; see `drupelet.base.ccm.Ccm`."""

    def __init__(self) -> None:
        Ccm.__init__(self, _make_aes)
