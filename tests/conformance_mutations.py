"""For rows of docs/conformance.md: what an implementer would get wrong there, as one edit.

`old` stands exactly once in the file. The row's tests must fail with `new` in its place.
"""

from typing import NamedTuple

CORE = "firmware/drupelet/"


class Mutation(NamedTuple):
    """The first number of a row, a file, and the edit that makes the row untrue."""

    row: str
    file: str
    old: str
    new: str


_MVDS_1 = "MVDS_1 = (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0)"
_NESTED = "MVDS_NESTED = (0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1)"
_EMPTY = "elif kind <= REQUEST and (length == 0 or length % ID_SIZE):"

MUTATIONS = [
    Mutation("M5-3.2-05", CORE + "wire/mvds.py", _MVDS_1,
             "MVDS_1 = (0, 1, 3, 2, 4, 0, 1, 2, 3, 4, 0)"),
    Mutation("M5-3.2-09", CORE + "wire/mvds.py", _MVDS_1,
             "MVDS_1 = (0, 1, 2, 3, 4, 0, 1, 2, 5, 4, 0)"),
    Mutation("P-3-03", CORE + "wire/mvds.py", _NESTED,
             "MVDS_NESTED = (0, 5, 2, 3, 4, 0, 1, 2, 3, 0, 1)"),
    Mutation("P-3-06", CORE + "wire/mvds.py", _NESTED,
             "MVDS_NESTED = (0, 1, 2, 3, 5, 0, 1, 2, 3, 0, 1)"),
    Mutation("B-3-10", CORE + "wire/bsp1.py", _EMPTY,
             "elif kind <= REQUEST and (length == 0 and kind != OFFER or length % ID_SIZE):"),
    Mutation("B-3-07", CORE + "wire/bsp1.py", _EMPTY,
             "elif kind <= REQUEST and (length == 0 and kind != ACK or length % ID_SIZE):"),
    Mutation("B-1.3-08", CORE + "hashes.py",
             "        self.update(_TIMESTAMP_LENGTH, 0, 4)\n", ""),
    Mutation("B-1.3-02", CORE + "memory.py",
             "buf[at] = value >> 8\n    buf[at + 1] = value & 255",
             "buf[at] = value & 255\n    buf[at + 1] = value >> 8 "),
    Mutation("S-8-01", CORE + "channel_keep.py",
             "return -1 if one < other else 1", "return 1 if one < other else -1"),
    Mutation("B-2.2-05", CORE + "node.py",
             "len(descriptor) > DESCRIPTOR_SIZE_MAX", "len(descriptor) > DESCRIPTOR_SIZE_MAX + 1"),
    Mutation("S-12-09", CORE + "channel_out.py", '_SYNC_ID = b"sync"', '_SYNC_ID = b"synk"'),
    Mutation("M5-4.2-09", CORE + "sync.py",
             "self._step(slot, GOT_MESSAGE)\n            core.trace(core.now_ms, CODE_RECEIVED",
             "core.trace(core.now_ms, CODE_RECEIVED"),
    Mutation("B-4.2-11", CORE + "sync.py",
             "core.slots.send_counts[cell] = 0  # due at once", "pass"),
    Mutation("B-1.1-07", CORE + "node.py",
             "members.set_visibility(group_slot, peer_slot, visibility)",
             "members.set_visibility(group_slot, peer_slot, max(before, visibility))"),
    Mutation("S-5-06", CORE + "channel.py",
             "            return E_CAPACITY\n        self.clock.tick(now_ms)",
             "            pass\n        self.clock.tick(now_ms)"),
]  # fmt: skip
