"""Deep sleep: what must not be lost goes into memory that outlives RAM; all else goes.

Order at a wake: `wake` after `store.open` and before `node.boot`; `start` once the links are made.
docs/SPEC.md 10.3 has the bytes.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    DEEP_SLEEP_MS_MIN,
    RTC_SIZE_MAX,
    SNAPSHOT_KEYS_SIZE,
    WAIT_MS_MAX,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.base.memory import crc32_into, fill, get_u16, put_u16
from drupelet.base.time_ms import elapsed_ms
from drupelet.duty.snapshot import Snapshot, is_whole
from drupelet.engine.wake_state import pack
from drupelet.telemetry.sleep import rest_into, wake_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import DevicePort, RtcPort
    from drupelet.duty.wake_plan import WakePlan
    from drupelet.seal.seal import Seal
    from drupelet.store.ports import StorePort
    from drupelet.telemetry.black_box import BlackBox

_DEEP_SLEEP = const(0)  # a state of the black box
# Behind the snapshot, in memory with more room: size u16 and the black box, then a crc32.
_BOX_AT = const(WAKE_STATE_SIZE_MAX + 2)
_CRC_SIZE = const(4)


class Sleeper:
    """One device's sleep. `window_ms`: how long it listens at most when no plan says so.

    `contact_ms`: what a peer that is always awake gets to answer in, since the last sign of it.
    """

    def __init__(
        self, device_id: "bytes | bytearray", rtc: "RtcPort", window_ms: int, contact_ms: int,
        plan: "WakePlan | None",
    ) -> None:  # fmt: skip
        assert 0 < contact_ms <= window_ms
        self.plan = plan
        self.resumed = False
        self._slept_ms = 0
        self._snapshot = Snapshot(device_id)
        self._rtc = rtc
        self._window_ms = window_ms
        self._contact_ms = contact_ms
        self._buf = bytearray(min(max(rtc.size, WAKE_STATE_SIZE_MAX), RTC_SIZE_MAX))
        self._woke_ms = self._heard_ms = 0
        self._contacted = False

    # --- at a wake ---

    @property
    def generation(self) -> int:
        """What `node.boot` goes on with; -1: there is nothing to go on with."""
        return self._snapshot.generation

    def wake(self, store: "StorePort", now_ms: int) -> None:
        """Take up what the sleep before this boot left, if there was one and it is of use."""
        self._woke_ms = self._heard_ms = now_ms
        size = self._rtc.load_into(self._buf)
        if size:
            self._slept_ms = self._rtc.slept_ms
            self.resumed = self._snapshot.read(self._buf, size, store) == OK
        self._rtc.forget()  # good once: before anything is sent

    def start(self, device: "DevicePort") -> None:
        """Take up clocks, back-off, plan and keys; the next reading has its own time.

        A link's keys go on in their epoch where the snapshot was long: a wake without a write.
        """
        now_ms = device.port.now_ms()
        away_ms = self._away_ms(now_ms)
        device.due_ms = (now_ms + self._left_ms(away_ms)) & 0x3FFFFFFF
        if not self.resumed:
            return
        node = device.node
        self._snapshot.apply(self._buf, node.core, node.links, self.plan, now_ms, away_ms)
        seal = _live_seal(device)
        if seal is not None and self._buf[1]:  # rows of peers: it is the long form
            from drupelet.seal.sleep import import_from

            import_from(seal, self._buf, self._snapshot.keys_at, SNAPSHOT_KEYS_SIZE)
            seal.grow_old((away_ms >> 16) + 1)

    def go_on_box(self, box: "BlackBox", now_ms: int) -> bool:
        """Have the black box go on in its block; False: it begins anew, what it held is lost."""
        buf = self._buf
        if not self.resumed or len(buf) <= _BOX_AT:
            return False
        end = _BOX_AT + get_u16(buf, _BOX_AT - 2)
        if not _BOX_AT < end <= len(buf) - _CRC_SIZE or not is_whole(buf, _BOX_AT - 2, end):
            return False
        wake_from(box, buf, _BOX_AT, end, now_ms, self._away_ms(now_ms))
        return True

    def _away_ms(self, now_ms: int) -> int:
        """How long ago the sleep began: what the start took since the wake belongs to it."""
        return min(self._slept_ms + elapsed_ms(now_ms, self._woke_ms), WAIT_MS_MAX)

    def _left_ms(self, away_ms: int) -> int:
        """Milliseconds until the next reading is due."""
        return max(self._rtc.due_ms - away_ms, 0) if self.resumed else 0

    # --- awake ---

    def heard(self, now_ms: int) -> None:
        """A frame of a peer came in."""
        self._heard_ms = now_ms
        self._contacted = True

    def awake(self, now_ms: int, outstanding: bool) -> bool:
        """Whether a peer may come now: a window of the plan, or one that is always there.

        The latter has until the end of the window for its first sign if anything is outstanding to
        it, and `contact_ms` after each sign: what it has for us follows its acknowledgement.
        """
        if self.plan is not None and self.plan.awake_ms(now_ms):
            return True
        if elapsed_ms(now_ms, self._woke_ms) >= self._window_ms:
            return False
        if outstanding and not self._contacted:
            return True
        return elapsed_ms(now_ms, self._heard_ms) < self._contact_ms

    def turn_ms(self, now_ms: int) -> int:
        """Milliseconds until `rest_ms` may say something else, if nothing comes in."""
        left_ms = self._window_ms - elapsed_ms(now_ms, self._woke_ms)
        if left_ms <= 0:
            return WAIT_MS_MAX
        contact_ms = self._contact_ms - elapsed_ms(now_ms, self._heard_ms)
        return contact_ms if 0 < contact_ms < left_ms else left_ms

    def rest_ms(self, device: "DevicePort") -> int:
        """How long a device may sleep deeply from now on; 0: something keeps it awake."""
        now_ms = device.port.now_ms()
        outstanding = False
        for transport, link in device.live:
            if transport.pending_size and elapsed_ms(now_ms, self._woke_ms) < self._window_ms:
                return 0
            if link.plan is None and device.node.core.outboxes[link.peer].open_count:
                outstanding = True
        if self.awake(now_ms, outstanding):
            return 0
        rest_ms = device.left_ms(now_ms)
        if self.plan is not None:
            rest_ms = min(rest_ms, self.plan.next_wake_ms(now_ms))
        return rest_ms if rest_ms >= DEEP_SLEEP_MS_MIN else 0

    # --- asleep ---

    def rest(self, device: "DevicePort", rest_ms: int) -> None:
        """Deep sleep of a device: RAM is gone; returns only if the store fails, then awake.

        The keys of the first live link go on at the next wake; those of others begin an epoch.
        """
        node = device.node
        core = node.core
        now_ms = device.port.now_ms()
        device.box.state(now_ms, _DEEP_SLEEP)
        device.tally()  # what was synced since the reading
        device.drain()
        if core.store.barrier() != OK:
            return
        device.tally()  # goes along with a black box that is kept
        left_ms = device.left_ms(now_ms)
        buf = self._buf
        size = 0
        if self._rtc.size >= WAKE_STATE_SIZE_MAX:
            fill(buf, self._snapshot.keys_at, SNAPSHOT_KEYS_SIZE, 0)
            seal = _live_seal(device)
            if seal is not None:
                from drupelet.seal.sleep import export_into

                export_into(seal, buf, self._snapshot.keys_at)
            room = self._snapshot.state_room(core.members.peers)
            state_size = pack(core, room)
            size = self._snapshot.write(buf, core, node.links, self.plan, state_size, now_ms)
        if size <= 0:
            if node.save(now_ms) != OK:
                return
            size = self._snapshot.write_short(buf, core, self.plan, now_ms)
            if self._rtc.size < size:
                size = 0
        if size and len(buf) > _BOX_AT:
            size = self._rest_box(device.box) or size
        self._rtc.deep_sleep(buf, size, rest_ms, left_ms)

    def _rest_box(self, box: "BlackBox") -> int:
        """Put the black box behind the snapshot; the size of both, 0 if it has no room."""
        buf = self._buf
        end = rest_into(box, buf, _BOX_AT, len(buf) - _CRC_SIZE)
        if not end:
            return 0
        put_u16(buf, _BOX_AT - 2, end - _BOX_AT)
        crc32_into(buf, end, buf, _BOX_AT - 2, end - _BOX_AT + 2, True)
        return end + _CRC_SIZE


def _live_seal(device: "DevicePort") -> "Seal | None":
    """The seal whose keys go through deep sleep: that of the first live link."""
    for seal, link in device.seals:
        if not link.visits:
            return seal
    return None
