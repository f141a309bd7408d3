"""Rules of our own formats (docs/SPEC.md) as rows like those of docs/conformance.md, and edits.

A number is D, section of docs/SPEC.md, place in this list.
"""

from conformance_mutation import CORE, Mutation
from conformance_table import Row

_SETS = "tests/unit/test_compact1_sets.py::"
_RECORDS = "tests/unit/test_compact1_records.py::"

ROWS = [
    Row(
        ["D-3.5-01"],
        "a range that is written names the numbers of its ids and no other",
        "`Compact1`",
        f"`{_SETS}test_what_came_is_acknowledged_and_nothing_that_was_sent_behind_it`",
    ),
    Row(
        ["D-3.5-02"],
        "a range without gaps has its first number and how many there are, and no bits",
        "`Compact1`",
        f"`{_RECORDS}test_a_range_names_no_number_more_than_is_acknowledged`",
    ),
    Row(
        ["D-3.5-03"],
        "a range that is read does what it says to each of its numbers, and to no other",
        "`Compact1`",
        f"`{_SETS}test_a_range_does_what_it_says_to_each_of_its_numbers_and_to_no_other`",
    ),
    Row(
        ["D-3.5-04"],
        "a range whose fold is that of fewer or other ids does nothing",
        "`Compact1`",
        f"`{_SETS}test_a_range_that_is_one_too_long_does_nothing`",
    ),
    Row(
        ["D-3.5-05"],
        "a range with a number that has no message does nothing",
        "`Compact1`",
        f"`{_SETS}test_a_range_that_ends_with_a_number_that_was_never_given_does_nothing`",
    ),
]

OWN = [
    Mutation("D-3.5-01", CORE + "wire/compact/codec.py",
             "frame[begin] |= span << 2", "frame[begin] |= span + 1 << 2"),
    Mutation("D-3.5-01", CORE + "wire/compact/codec.py",
             "at = put_varint(frame, at, span)", "at = put_varint(frame, at, span + 1)"),
    Mutation("D-3.5-02", CORE + "wire/compact/codec.py",
             "frame[begin] |= span << 2", "frame[begin] |= span + 1 << 2"),
    Mutation("D-3.5-02", CORE + "wire/compact/codec.py",
             "at = put_varint(frame, at, span)", "at = put_varint(frame, at, span + 1)"),
    Mutation("D-3.5-02", CORE + "wire/compact/codec.py",
             "        if count < span:\n", "        if count <= span:\n"),
    Mutation("D-3.5-03", CORE + "wire/compact/codec.py",
             "        count = flags >> 2\n        if form >= FORM_IDS:\n",
             "        count = (flags >> 2) + (form == FORM_RANGE and flags >> 2 > 0)\n"
             "        if form >= FORM_IDS:\n"),
    Mutation("D-3.5-03", CORE + "wire/compact/codec.py",
             "            if count <= 0 or count > COMPACT_COVER_SIZE * 8:\n",
             "            count += 1\n"
             "            if count <= 0 or count > COMPACT_COVER_SIZE * 8:\n"),
    Mutation("D-3.5-03", CORE + "wire/compact/codec.py",
             "                row = self.row_of(first + offset)\n"
             "                if row < 0:\n"
             "                    continue",
             "                row = self.row_of(first + offset + 1)\n"
             "                if row < 0:\n"
             "                    continue"),
    Mutation("D-3.5-04", CORE + "wire/compact/codec.py",
             "        if not folds_to(self._slab, frame, fold_at):\n",
             "        if bits_at >= 0 and not folds_to(self._slab, frame, fold_at):\n"),
    Mutation("D-3.5-05", CORE + "wire/compact/codec.py",
             "                if row < 0 or not "
             "store.id_into(outbox.handles[row], self._slab, 0):\n",
             "                if row < 0 and bits_at < 0:\n"
             "                    continue\n"
             "                if row < 0 or not "
             "store.id_into(outbox.handles[row], self._slab, 0):\n"),
]  # fmt: skip
