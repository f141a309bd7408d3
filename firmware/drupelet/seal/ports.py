# host only: a board reads the row itself
"""The shape of a seal for modules that may not import it, and its row's fields as attributes."""

from collections.abc import Sequence
from typing import Protocol

from drupelet.base.ports import KeyPort
from drupelet.seal import record as row


class ContextPort(Protocol):
    """What all seals of a device share; see `seal.SealContext`."""

    rows: bytearray
    record: bytearray

    @property
    def seals(self) -> "Sequence[SealFields]": ...


def _bit(mask: int) -> property:
    """Return an attribute for a flag of `Seal.flags`."""

    def get(seal: "SealFields") -> bool:
        return seal.flags & mask != 0

    def put(seal: "SealFields", value: bool) -> None:
        seal.flags = seal.flags | mask if value else seal.flags & ~mask

    return property(get, put)


def _number(place: int, size: int) -> property:
    """Return an attribute for the big-endian integer of `size` bytes at `place` of the row."""

    def get(seal: "SealFields") -> int:
        at = seal.at + place
        return int.from_bytes(seal.context.rows[at : at + size])

    def put(seal: "SealFields", value: int) -> None:
        at = seal.at + place
        seal.context.rows[at : at + size] = value.to_bytes(size)

    return property(get, put)


class SealFields:
    """Base class of `Seal` on a host: attributes for the flags and numbers of its row."""

    context: ContextPort
    keys: KeyPort
    at: int
    flags: int
    owes = _bit(row.OWES)
    renew = _bit(row.RENEW)
    urgent = _bit(row.URGENT)
    heard = _bit(row.HEARD)
    in_open = _bit(row.IN_OPEN)
    status_seen = _bit(row.STATUS_SEEN)
    issuer = _bit(row.ISSUER)
    closed = _bit(row.CLOSED)
    muted = _bit(row.MUTED)
    peer_lost = _bit(row.PEER_LOST)
    anew = _bit(row.ANEW)
    generation = _number(row.GENERATION_AT, 2)
    generation_in = _number(row.GENERATION_IN_AT, 2)
    kid_in = _number(row.KID_AT, 2)
    out_epoch = _number(row.OUT_EPOCH_AT, 3)
    answered = _number(row.ANSWERED_AT, 3)
    in_epoch = _number(row.IN_EPOCH_AT, 3)
    whole_epoch = _number(row.WHOLE_EPOCH_AT, 3)
    seq = _number(row.SEQ_AT, 1)
    forged = _number(row.FORGED_AT, 2)
    replayed = _number(row.REPLAYED_AT, 2)
    closed_epoch = _number(row.CLOSED_EPOCH_AT, 2)
    frame_size_max = _number(row.FRAME_SIZE_AT, 2)
    age = _number(row.AGE_AT, 2)

    def load(self) -> int:
        """As `Seal.load`."""
        raise NotImplementedError

    @property
    def confirmed(self) -> bool:
        """Whether the peer has confirmed that it has our epoch open."""
        return not self.flags & row.UNCONFIRMED
