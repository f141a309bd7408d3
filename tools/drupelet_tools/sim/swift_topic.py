"""Topics and Bloom filters of a hundred people: numpy looks where the host's loops look.

As `swift`: the same records and filters as `drupelet.link.topic` and `drupelet.link.bloom_sync`
would send. A listener that is not there is looked at when it comes.
"""

import hashlib
import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from drupelet.base.errors import E_PEER, OK
from drupelet.engine.slots import PEER_ROW
from drupelet.engine.states import ACK, DO_ACK, HOLD, QUEUED, REQUEST, step
from drupelet.engine.window import _ROW_CHANGES
from drupelet.link.bloom_sync import BloomSync
from drupelet.link.link import Link
from drupelet.link.topic import Topic
from drupelet.node import Node
from drupelet.wire.bloom_available import (
    BITS_PER_ID,
    HASHES,
    SUM_ONLY,
    TIME_END,
    Available,
    Filter,
    Subset,
    put_into,
    read,
)

_RESEND_EPOCHS_MIN = 2  # of drupelet.engine.backoff
# A filter's salt is one of so many: what an id hashes to is worked out once for each.
_SALTS = 16
_OPEN = re.compile(
    b"[" + b"".join(re.escape(bytes((s,))) for s in range(256) if not s & HOLD) + b"]", re.S
)


class SwiftTopic(Topic):
    """A topic that walks over the listeners that are there; call `look` before each poll."""

    def __init__(
        self, node: Node, group: int, links: list[Link], ids: bytes, own_id: bytes,
        random_byte: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(node, group, links, ids, own_id, random_byte)
        self._all = links
        self._by_id = {ids[at * 4 : at * 4 + 4]: link for at, link in enumerate(links)}
        slots = node.core.slots
        shape = len(slots.states) // slots.count, slots.count
        self._states = np.frombuffer(slots.states, np.uint8).reshape(shape)
        cells = len(slots.states)
        self._counts = np.frombuffer(slots.send_counts, np.uint8, cells).reshape(shape)
        self._epochs = np.frombuffer(slots.send_counts, ">u2", offset=cells).reshape(shape)
        self._owed: dict[int, list[int]] | None = None

    def look(self, here: list[Link]) -> None:
        """These listeners are there."""
        self.links = here

    def _of(self, frame: bytearray) -> Link | None:
        return self._by_id.get(bytes(frame[1:5]))

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """As `Topic.on_message`."""
        here, self.links = self.links, []
        super().on_message(group, group_at, stamp, stamp_at, body, at, size)
        self.links = here
        slot = self.core.message_slot
        if slot >= 0:
            lacks = self._states[:, slot] & (HOLD | REQUEST) == 0
            lacks[self._speaker.peer] = False
            self._counts[lacks, slot] = 1
            self._epochs[lacks, slot] = self._speaker.epoch

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """As `Topic.poll_into`."""
        self._owed = None
        return super().poll_into(frame, now_ms)

    def _debts(self) -> dict[int, list[int]]:
        """For which slots acknowledgements are owed, and to whom; nothing is added in a poll."""
        if self._owed is None:
            self._owed = {}
            for peer, slot in np.argwhere(self._states & ACK).tolist():
                self._owed.setdefault(slot, []).append(peer)
        return self._owed

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """As `Topic.take_ack`."""
        debts = self._debts()
        slots = self.core.slots
        while self._ack_left and (slots.oldest - self._ack_left) % slots.count not in debts:
            self._ack_left -= 1
        return super().take_ack(buf, at)

    def _owes(self) -> bool:
        return bool(self._debts()) or any(self.core.offers.kinds[: self.core.offers.count])

    def _settle(self, slot: int) -> bool:
        states = self.core.slots.states
        owed = self._debts().pop(slot, [])
        for peer in owed:
            state = states[peer * self.core.slots.count + slot]
            self.core.window.set_state(slot, peer, step(state, DO_ACK))
        return bool(owed)

    def _listens(self, peer: int) -> bool:  # noqa: ARG002 - all do
        return True

    def next_message(self) -> bool:
        """As `Topic.next_message`."""
        left = self._message_left
        if not left or not self.links:
            self._message_left = 0
            return False
        slots = self.core.slots
        count = slots.count
        peers = [link.peer for link in self.links]
        states = self._states[peers]
        due = (states & HOLD == 0) & (states & (QUEUED | REQUEST) != 0)
        since = (self._now_epoch() - self._epochs[peers].astype(np.int32)) & 0xFFFF
        due &= (self._counts[peers] == 0) | (since >= _RESEND_EPOCHS_MIN)
        maybe = np.flatnonzero(due.any(axis=0))
        for slot in sorted(maybe.tolist(), key=lambda slot: (slot - slots.oldest) % count):
            mine = count - (slot - slots.oldest) % count
            if mine > left or self._waits(slot):
                continue
            if any(link.message_due(slot) for link in self.links):
                self._message_left = mine
                return super().next_message()
        self._message_left = 0
        return False

    def _changes(self) -> int:
        return sum(self.core.window.rows[_ROW_CHANGES::PEER_ROW]) & 0x3FFFFFFF


class IdBook:
    """What all ids of a world hash to, so that a filter is put together at once."""

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}
        self.ids: list[bytes] = []
        self._firsts: list[list[int]] = [[] for _ in range(_SALTS)]
        self._steps: list[list[int]] = [[] for _ in range(_SALTS)]
        self._tables: dict[int, tuple[int, NDArray[np.uint64], NDArray[np.uint64]]] = {}
        self.heads: list[int] = []

    def row(self, id: bytes) -> int:
        """The row of an id."""
        row = self._rows.setdefault(id, len(self.ids))
        if row == len(self.ids):
            self.ids.append(id)
            self.heads.append(int.from_bytes(id[:8]))
            for salt in range(_SALTS):
                key = bytes((salt,)) * 4
                digest = hashlib.blake2s(id, key=key, digest_size=16).digest()
                self._firsts[salt].append(int.from_bytes(digest[:8]))
                self._steps[salt].append(int.from_bytes(digest[8:]) | 1)
        return row

    def places(self, salt: int, rows: list[int], bits: int) -> NDArray[np.int64]:
        """The bits of each id in a filter of so many: `Filter._places`."""
        size, firsts, steps = self._tables.get(salt, (0, None, None))
        if size != len(self.ids) or firsts is None or steps is None:
            firsts = np.array(self._firsts[salt], np.uint64)
            steps = np.array(self._steps[salt], np.uint64)
            self._tables[salt] = len(self.ids), firsts, steps
        many = np.uint64(bits)
        turns = np.arange(HASHES, dtype=np.uint64)
        first, by = firsts[rows] % many, steps[rows] % many
        return ((first[:, None] + turns * by[:, None]) % many).astype(np.int64)


class SwiftBloom(BloomSync):
    """Filters over whole logs of at most as many messages as fit one."""

    def __init__(
        self, node: Node, group: int, link: Link, draw: Callable[[int], int], book: IdBook
    ) -> None:
        super().__init__(node, group, link, draw)
        self._book = book
        self._had: list[int] = []
        self._sum = 0

    def _have(self) -> list[int]:
        messages = self._messages()
        for _, id in messages[len(self._had) :]:
            row = self._book.row(id)
            self._had.append(row)
            self._sum += self._book.heads[row]
        return self._had

    def poll_into(self, frame: bytearray, size_max: int) -> int:
        """As `BloomSync.poll_into`."""
        if self._answer is not None:
            flags = self._answer_flags
            self._answer = None
        elif self._due:
            self._due, flags = False, SUM_ONLY
        else:
            return 0
        rows = self._have()
        size = 0 if flags & SUM_ONLY else (len(rows) * BITS_PER_ID + 7) // 8
        assert size <= size_max - 45
        salt = self._draw(_SALTS)
        bits = np.zeros(size * 8, np.uint8)
        if size:
            bits[self._book.places(salt, rows, size * 8)] = 1
        bloom = Filter(bytearray(np.packbits(bits, bitorder="little")), HASHES, bytes((salt,)) * 4)
        self.told += 1
        total = (self._sum & 0xFFFFFFFFFFFFFFFF).to_bytes(8)
        whole = Subset(0, TIME_END)
        return put_into(frame, Available(self._prefix, flags, whole, len(rows), total, bloom))

    def receive(self, frame: bytearray, size: int) -> int:
        """As `BloomSync.receive`; an id that the peer is known to hold is not looked at."""
        what = read(frame, size)
        if what is None or what.group != self._prefix:
            return E_PEER
        rows = self._have()
        same = len(rows) == what.count
        same = same and (self._sum & 0xFFFFFFFFFFFFFFFF).to_bytes(8) == what.sum
        self.equal += same
        slots = self._core.slots
        if same:
            base = self._link.peer * slots.count
            for found in _OPEN.finditer(slots.states, base, base + len(rows)):
                self._link.acked(found.start() - base)
        elif not what.flags & SUM_ONLY:
            bits = np.unpackbits(np.frombuffer(what.filter.bits, np.uint8), bitorder="little")
            lacks: NDArray[np.bool_] = np.ones(len(rows), np.bool_)
            if len(bits) and rows:
                salt = what.filter.salt[0]
                lacks = np.asarray(bits[self._book.places(salt, rows, len(bits))].min(axis=1) == 0)
            for at in np.flatnonzero(lacks).tolist():
                self._id[:] = self._book.ids[rows[at]]
                self.lacking += 1
                self._link.on_request(self._id, 0)
        self._answer_to(what, same)
        return OK
