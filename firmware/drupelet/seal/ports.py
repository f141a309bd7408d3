# host only: a board reads the row itself
"""A seal for who may not import it: what its parts get, and its fields by their names."""

from collections.abc import Sequence
from typing import Protocol

from drupelet.base.ports import KeyPort
from drupelet.seal import record as row


class ContextPort(Protocol):
    """What all seals of a device share; `seal.SealContext`."""

    rows: bytearray
    record: bytearray

    @property
    def seals(self) -> "Sequence[SealFields]": ...


def _bit(mask: int) -> property:
    """A flag."""

    def get(seal: "SealFields") -> bool:
        return seal.flags & mask != 0

    def put(seal: "SealFields", value: bool) -> None:
        seal.flags = seal.flags | mask if value else seal.flags & ~mask

    return property(get, put)


def _number(place: int, size: int) -> property:
    """A number of the row."""

    def get(seal: "SealFields") -> int:
        at = seal.at + place
        return int.from_bytes(seal.context.rows[at : at + size])

    def put(seal: "SealFields", value: int) -> None:
        at = seal.at + place
        seal.context.rows[at : at + size] = value.to_bytes(size)

    return property(get, put)


class SealFields:
    """What `Seal` is on a host besides: a field for each number of its row."""

    context: ContextPort
    keys: KeyPort
    at: int
    flags: int
    owes = _bit(row.OWES)
    renew = _bit(row.RENEW)
    urgent = _bit(row.URGENT)
    heard = _bit(row.HEARD)
    out_open = _bit(row.OUT_OPEN)
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
        """The peer has our epoch open."""
        return not self.flags & row.UNCONFIRMED

    @property
    def kid_out(self) -> int:
        """The key id of what goes out."""
        return int(self.kid_in) ^ 1
