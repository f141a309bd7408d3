"""Sets of numbers of `compact-1` that are put together (docs/SPEC.md 3.5)."""

from drupelet.wire.compact.numbering import STAMP_AT, add_to_set, begin_set

IDS = bytearray(range(64))


def test_a_number_that_is_owed_twice_counts_and_folds_once() -> None:
    """An ACK is owed for a slot and, since an offer came before it, in the offered pool."""
    scratch = bytearray(STAMP_AT)
    begin_set(scratch)
    added = []
    for bit in (5, 6, 5):
        scratch[:32] = IDS[:32] if bit == 5 else IDS[32:]
        added.append(add_to_set(scratch, bit, 8))
    assert added == [True, True, False]
    assert scratch[32:64] == bytes([0b1100000]) + bytes(31)
    assert scratch[64:] == bytes(IDS[at] ^ IDS[at + 32] for at in range(8, 12))
