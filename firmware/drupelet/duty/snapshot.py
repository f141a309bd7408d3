"""Snapshots: what a deep sleep must not lose, in RTC memory or scratch registers.

The long form has the wake state, and what is otherwise in RAM only: clocks, back-off, wake plan
and room for keys. The short form has what no WAKE record on flash has; it costs one flash write
per wake. Bytes: docs/SPEC.md 10.3. A snapshot is valid once: `read` marks it as used, and the
owner writes the mark back before it sends anything. If a snapshot is refused, messages are
repeated, but none is lost.
"""

import struct

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    EPOCH_MODULUS,
    SEND_COUNT_MAX,
    SNAPSHOT_KEYS_SIZE,
    SNAPSHOT_SHORT_SIZE,
    WAIT_MS_MAX,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.base.memory import copy, crc32_into, equal, fill, get_u16, get_u32, put_u16
from drupelet.base.time_ms import elapsed_ms, epochs_since
from drupelet.duty.wake_plan import PLAN_HEAD_SIZE, PLAN_OLD_SIZE, PLAN_PEER_SIZE, earlier_ms
from drupelet.engine.states import HOLD, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from drupelet.duty.ports import LivePort
    from drupelet.duty.wake_plan import WakePlan
    from drupelet.engine.core import Core
    from drupelet.store.ports import StorePort

_USED = const(0)  # it was read, or there is none
_LONG = const(3)  # forms 1 and 2 had no generation
_SHORT = const(4)
# Head of both forms: form u8, peers u8, boot u16, device [4], newest and consumed handle u32, plan
# (ff: none), generation of link numbers after the sleep u16.
_HEAD = ">BBH4sIIiHH"
_PLAN_AT = const(16)
_CRC_SIZE = const(4)
_GENERATION_AT = const(22)
# The long form continues: old anchor, keys, wake state size u16, peer rows, wake state, CRC.
_OLD_AT = const(24)
_KEYS_AT = const(29)
_SIZE_AT = const(123)
_ROWS_AT = const(125)
# A peer's row: number u8, send count u8, age u16, heard u16, newest handle u32, ms into the epoch
# u32, the peer's anchor in the plan u32; ff for none.
_ROW = ">BBHHii"
_ROW_TAKEN = ">BBHHII"
_ROW_SIZE = const(18)
_ROW_PLAN_AT = const(14)
_NEVER = const(0xFFFF)

assert _GENERATION_AT == _PLAN_AT + PLAN_HEAD_SIZE
assert _OLD_AT + _CRC_SIZE == SNAPSHOT_SHORT_SIZE
assert _KEYS_AT == _OLD_AT + PLAN_OLD_SIZE
assert _SIZE_AT == _KEYS_AT + SNAPSHOT_KEYS_SIZE and _ROWS_AT == _SIZE_AT + 2
assert _ROW_SIZE == _ROW_PLAN_AT + PLAN_PEER_SIZE


def is_whole(buf: bytearray, start: int, end: int) -> bool:
    """Return True if the CRC after buf[start:end] is right."""
    crc = bytearray(_CRC_SIZE)
    crc32_into(crc, 0, buf, start, end - start, True)
    return equal(buf, end, crc, 0, _CRC_SIZE)


class Snapshot:
    """Writes and reads the snapshots of one device; the room for keys begins at `keys_at`."""

    def __init__(self, device_id: "bytes | bytearray") -> None:
        assert len(device_id) == 4
        self.keys_at = _KEYS_AT
        self.generation = -1  # of the snapshot that `read` accepted, for `node.boot`
        self._device = bytearray(device_id)

    def state_room(self, peers: int) -> int:
        """Return how long a wake state may be; message rows that do not fit are left out."""
        return WAKE_STATE_SIZE_MAX - _ROWS_AT - peers * _ROW_SIZE - _CRC_SIZE

    # --- before sleep ---

    def write(
        self, buf: bytearray, core: "Core", links: "Sequence[LivePort]", plan: "WakePlan | None",
        state_size: int, now_ms: int,
    ) -> int:  # fmt: skip
        """Write the long form; return its size, or E_CAPACITY if `buf` is too short.

        The wake state, `state_size` bytes, is in `core.store.saved`. The owner must have written
        the keys at `keys_at` before; they are left unchanged.
        """
        peers = core.members.peers
        end = _ROWS_AT + peers * _ROW_SIZE + state_size
        if state_size > self.state_room(peers) or end + _CRC_SIZE > len(buf):
            return E_CAPACITY
        self._head(buf, _LONG, peers, core, plan, now_ms)
        put_u16(buf, _SIZE_AT, state_size)
        fill(buf, _OLD_AT, PLAN_OLD_SIZE, 0)
        if plan is not None:
            plan.save_old_into(buf, _OLD_AT, now_ms)
        for peer in range(peers):
            at = _ROWS_AT + peer * _ROW_SIZE
            self._put_peer(buf, at, core, peer, _live(links, peer), now_ms)
            if plan is not None:
                plan.save_peer_into(peer, buf, at + _ROW_PLAN_AT, now_ms)
        copy(buf, end - state_size, core.store.saved, 0, state_size)
        crc32_into(buf, end, buf, 0, end, True)
        return end + _CRC_SIZE

    def write_short(
        self, buf: bytearray, core: "Core", plan: "WakePlan | None", now_ms: int
    ) -> int:
        """Write the short form, after `Node.save` has returned OK; return its size."""
        self._head(buf, _SHORT, 0, core, plan, now_ms)
        crc32_into(buf, _OLD_AT, buf, 0, _OLD_AT, True)
        return SNAPSHOT_SHORT_SIZE

    def _head(
        self, buf: bytearray, form: int, peers: int, core: "Core", plan: "WakePlan | None",
        now_ms: int,
    ) -> None:  # fmt: skip
        # Link numbers begin at 1 again after the sleep, so in a new generation.
        generation = (core.clocks.generation + 1) & 0xFFFF
        struct.pack_into(
            _HEAD, buf, 0, form, peers, core.boot, self._device, core.graph.newest, core.consumed,
            -1, _NEVER, generation,
        )  # fmt: skip
        if plan is not None:
            plan.save_into(buf, _PLAN_AT, now_ms)

    def _put_peer(
        self, buf: bytearray, at: int, core: "Core", peer: int, live: "Sequence[LivePort]",
        now_ms: int,
    ) -> None:  # fmt: skip
        """Write a peer's clock, its link's back-off, and when its oldest open message was sent.

        The newest one would not do: a message sent at each wake would put off the others for ever.
        """
        sends = 0
        age = heard = _NEVER
        newest = into_ms = -1
        if live:
            pace = live[0].exchange.pace
            epoch = core.clocks.advance(peer, now_ms)
            into_ms = elapsed_ms(now_ms, core.clocks.start_ms(peer))
            if pace.heard_epoch >= 0:
                heard = epochs_since(epoch, pace.heard_epoch)
            outbox = core.outboxes[peer]
            for row in range(outbox.count):
                if outbox.is_open(row) and outbox.sends(row):
                    if not sends:
                        sends = pace.probes or 1
                        age = epochs_since(epoch, outbox.epoch(row))
                    newest = outbox.handles[row]
        fill(buf, at, _ROW_SIZE, 255)
        number = core.members.peer_number(peer)
        struct.pack_into(_ROW, buf, at, number, sends, age, heard, newest, into_ms)

    # --- after sleep ---

    def read(self, buf: bytearray, size: int, store: "StorePort") -> int:
        """Take a snapshot, once; OK, or E_STORAGE: it is not valid.

        Call it between `store.open` and `node.boot`, which then uses the wake state of the
        snapshot in place of that on flash. Sets `buf[0]` to 0: write that back before sending
        anything.
        """
        if size < SNAPSHOT_SHORT_SIZE:
            return E_STORAGE
        is_good = self._whole(buf, size) and self._fits(buf, store)
        form = buf[0]
        buf[0] = _USED
        if not is_good:
            return E_STORAGE
        self.generation = get_u16(buf, _GENERATION_AT)
        if form == _LONG:
            store.saved_size = get_u16(buf, _SIZE_AT)
            copy(store.saved, 0, buf, _ROWS_AT + buf[1] * _ROW_SIZE, store.saved_size)
        else:
            copy(store.saved, 4, buf, 12, 4)
        return OK

    def _whole(self, buf: bytearray, size: int) -> bool:
        """Return True if form, size and CRC are right: it is complete and undamaged."""
        end = _OLD_AT
        if buf[0] == _LONG and size >= _ROWS_AT + _CRC_SIZE:
            end = _ROWS_AT + buf[1] * _ROW_SIZE + get_u16(buf, _SIZE_AT)
        elif buf[0] != _SHORT or buf[1]:
            return False  # the short form has no peer rows
        return end + _CRC_SIZE <= size and is_whole(buf, 0, end)

    def _fits(self, buf: bytearray, store: "StorePort") -> bool:
        """Return True if the snapshot is of this device, and of the present end of the log."""
        if not equal(buf, 4, self._device, 0, 4) or store.saved_size < 8:
            return False
        if not equal(buf, 2, store.saved, 2, 2):  # the number of the boot
            return False
        newest = get_u32(buf, 8)
        return (not newest or store.load(newest) == OK) and store.next(newest) == 0

    def apply(
        self, buf: bytearray, core: "Core", links: "Sequence[LivePort]", plan: "WakePlan | None",
        now_ms: int, slept_ms: int,
    ) -> None:  # fmt: skip
        """Restore clocks, back-off and plan as they are `slept_ms` (up to 2^28) later.

        `buf`: one that `read` accepted. Call this once links and plan are made, before using them.
        """
        assert 0 <= slept_ms <= WAIT_MS_MAX
        if plan is not None:
            if buf[1]:
                plan.restore_old_from(buf, _OLD_AT, now_ms, slept_ms)
            plan.restore_from(buf, _PLAN_AT, now_ms, slept_ms)
        for row in range(buf[1]):
            at = _ROWS_AT + row * _ROW_SIZE
            peer = core.members.peer_row(buf[at])
            if peer < 0:
                continue
            if plan is not None:
                plan.restore_peer_from(peer, buf, at + _ROW_PLAN_AT, now_ms, slept_ms)
            core.refill(peer)
            # A first byte above 16 means that there was no live link.
            if buf[at + 10] <= 16:
                self._take_peer(buf, at, core, peer, _live(links, peer), now_ms, slept_ms)

    def _take_peer(
        self, buf: bytearray, at: int, core: "Core", peer: int, live: "Sequence[LivePort]",
        now_ms: int, slept_ms: int,
    ) -> None:  # fmt: skip
        if not live:
            return
        _number, sends, age, heard, newest, into_ms = struct.unpack_from(_ROW_TAKEN, buf, at)
        epoch = live[0].exchange.epoch  # live links to one peer share it
        core.clocks.set_start(peer, earlier_ms(now_ms, slept_ms + into_ms))
        sent_epoch = (epoch - age) % EPOCH_MODULUS
        outbox = core.outboxes[peer]
        for row in range(outbox.count if sends else 0):
            # A message that the peer requested is due at once.
            is_open = not outbox.state(row) & (HOLD | REQUEST)
            if is_open and outbox.handles[row] <= newest:
                outbox.note_sent(row, min(sends, SEND_COUNT_MAX), sent_epoch)
        for link in live:
            link.count_anew()
            link.resume()
            if heard != _NEVER:
                link.exchange.pace.heard_epoch = (epoch - heard) % EPOCH_MODULUS
            if sends:
                link.exchange.pace.resume_probes(sends, sent_epoch)


def _live(links: "Sequence[LivePort]", peer: int) -> "Sequence[LivePort]":
    """Return the live links to a peer (row)."""
    return [link for link in links if link.peer == peer and not link.visits]
