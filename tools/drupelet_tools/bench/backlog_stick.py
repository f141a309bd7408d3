"""The stick half of `drupelet bench wire --scenario backlog`: a peer that was away for long."""

from collections.abc import Iterator, Sequence

from drupelet.node import BATCH, CARRIER_STICK
from drupelet_tools.bench.columns import WIRE, Row
from drupelet_tools.bench.pipe import Pair
from drupelet_tools.bench.profiles import Profile

COUNTS = (1500, 5000)
VISITS = 4  # A, B, A, B: one round trip, and one in which nothing is new
BODY = 100
# Message slots and offered ids of a receiver with small tables: those of a small board.
SMALL_SLOTS = (16, 32)
HOST_SLOTS = (1024, 1024)
# What a backlog may cost more than a transfer in which nothing is lost.
_SHARE_MAX = 1.1
_DUPLICATES_MAX = 0.01
# A transfer costs the same per message from here on; a longer one takes the bench minutes.
_REFERENCE_COUNT = 1000


def stick_rows(
    profile: Profile, counts: Sequence[int] = COUNTS, body: int = BODY, sealed: bool = True
) -> Iterator[Row]:
    """Yield a row for each backlog and receiver. Raises BenchError.

    Columns of `transfer`, `visits` and `duplicates`; `budget` is 1.1 times what a live transfer of
    the same profile costs per message when nothing is lost. total_bytes: without the seal.
    """
    budget = round(_transfer_bytes(profile, body) * _SHARE_MAX)
    for count in counts:
        for slots, receiver in ((HOST_SLOTS, "a host"), (SMALL_SLOTS, "small tables")):
            row = _row(profile, count, body, sealed, slots)
            row |= {"budget": budget, "note": f"first contact; receiver: {receiver}"}
            yield row | {"over": is_over(row)}


def _transfer_bytes(profile: Profile, body: int) -> float:
    """Bytes per message of a live batch transfer in which nothing is lost."""
    with Pair(profile, BATCH) as pair:
        pair.connect()
        pair.publish(pair.bodies(1, body))
        pair.run()
        pair.mark()
        pair.publish(pair.bodies(_REFERENCE_COUNT, body))
        pair.run()
        return pair.total_bytes / _REFERENCE_COUNT


def _row(profile: Profile, count: int, body: int, sealed: bool, slots: tuple[int, int]) -> Row:
    with Pair(profile, BATCH, CARRIER_STICK, sealed=sealed, b_slots=slots) as pair:
        pair.connect()
        pair.publish(pair.bodies(count, body))
        size = pair.carry(VISITS)
        duplicates = pair.a.node.duplicates + pair.b.node.duplicates
        row: Row = {column.name: None for column in WIRE}
        return row | {
            "scenario": "backlog", "profile": profile.name, "mode": "batch",
            "messages": count, "body": body, "held": count, "missing": count, "sealed": sealed,
            "total_bytes": pair.total_bytes,
            "bytes_per_message": round(pair.total_bytes / count, 2), "carrier": "stick",
            "carrier_bytes_per_message": round(size / count, 2), "frames": len(pair.frames),
            "source": "measured", "visits": VISITS, "duplicates": duplicates,
        }  # fmt: skip


def is_over(row: Row) -> bool:
    """Whether a row of a backlog costs more than it may."""
    dear: bool = row["bytes_per_message"] > row["budget"]
    again: bool = row["duplicates"] > row["messages"] * _DUPLICATES_MAX
    return dear or again
