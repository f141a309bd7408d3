"""Sets of numbers of `compact-1` that are put together (docs/SPEC.md 3.5)."""

from drupelet.wire.numbering import Cover

IDS = bytearray(range(64))


def test_a_number_that_is_owed_twice_counts_and_folds_once() -> None:
    """An ACK is owed for a slot and, since an offer came before it, in the offered pool."""
    cover = Cover()
    cover.open(5, 32)
    cover.add(5, IDS, 8)
    cover.add(6, IDS, 40)
    cover.add(5, IDS, 8)
    assert (cover.count, cover.first, cover.last) == (2, 5, 6)
    assert cover.bits[32:] == bytes(IDS[at] ^ IDS[at + 32] for at in range(8, 12))
