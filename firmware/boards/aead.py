"""The AEAD port of a board: AES of `cryptolib` under the core's CCM.

Importing it raises ImportError on a port without `cryptolib`: such a board has no sealed links,
and its owner must not start them in any other way.
"""

from cryptolib import aes  # type: ignore[import-not-found]

from drupelet.ccm import Ccm

_MODE_ECB = 1


def _make_aes(key: bytes) -> object:
    return aes(key, _MODE_ECB)


class Aead(Ccm):
    """AES-CCM with keys of 16 bytes; see `drupelet.ccm.Ccm`."""

    def __init__(self) -> None:
        Ccm.__init__(self, _make_aes)
