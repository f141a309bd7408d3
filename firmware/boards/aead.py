"""The AEAD port of a board: AES of `cryptolib`, or the core's where a port has none, under CCM.

A firmware set has one of them (`drupelet flash build --lacks cryptolib` takes the core's). Where
importing this raises ImportError the board has no sealed links, and its owner must not start them
in any other way.
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
