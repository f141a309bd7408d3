# mypy: ignore-errors
"""What each sealed link keeps: its seal, and its share of the device's ciphers.

Runs on MicroPython. On standard input: nothing that it needs. Prints one JSON object of bytes.
"""

import gc
import sys

import meter

meter.settings()
__import__("boards.aead")  # not one of this room's packages

from drupelet.seal.record import install  # noqa: E402
from drupelet.seal.seal import Seal, SealContext  # noqa: E402

PEERS = 8
OUT_AT, IN_AT = 5, 45  # of drupelet.seal.record: compiled firmware has no names for them


class Keys:
    """Chain records in RAM."""

    own_id = b"OWN_"
    peer_id = b"PEER"

    def __init__(self) -> None:
        self._rows = {}

    def load(self, row: int, out: bytearray) -> int:
        """Put the record of `row` into `out`."""
        out[:] = self._rows.get(row, bytes(len(out)))
        return 0 if row in self._rows else -3

    def save(self, row: int, record: bytearray) -> int:
        """Keep a record."""
        self._rows[row] = bytes(record)
        return 0


def measure() -> "dict":
    """One device with a seal for each of its peers, all their keys used once."""
    aead = sys.modules["boards.aead"].Aead()
    keys = Keys()
    install(keys, bytes(32), 4, 0, 0)
    context = SealContext(aead, meter.no_random, bytes(4))
    seals = [None] * PEERS
    gc.collect()
    before = meter.used()
    for i in range(PEERS):
        seals[i] = Seal(context, keys, 0)
        assert seals[i].load() == 0
    gc.collect()
    rows = meter.used() - before
    for seal in seals:
        context.cipher(seal.at + OUT_AT)
        context.cipher(seal.at + IN_AT)
    gc.collect()
    return {
        "seal_per_peer": rows // PEERS,
        "cipher_per_peer": (meter.used() - before - rows) // PEERS,
    }


meter.say(measure())
