"""Deep sleep: saves the state that must survive to RTC memory, and restores it at the wake.

Order at a wake: `wake` after `store.open` and before `node.boot`; `start` once the links exist.
The format is in docs/SPEC.md 10.3.
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

_DEEP_SLEEP = const(0)  # a power state of the black box
# After the snapshot, if the memory has room: size u16, state of the black box, crc32.
_BOX_AT = const(WAKE_STATE_SIZE_MAX + 2)
_CRC_SIZE = const(4)


class Sleeper:
    """Decides when a device sleeps deeply, and keeps its state over the sleep.

    window_ms: how long it stays awake at most, except in the windows of its wake plan. contact_ms:
    how long a peer that is always awake has to answer, since it was last heard.
    """

    def __init__(
        self, device_id: "bytes | bytearray", rtc: "RtcPort", window_ms: int, contact_ms: int,
        plan: "WakePlan | None",
    ) -> None:  # fmt: skip
        assert 0 < contact_ms <= window_ms
        self.plan = plan
        self.resumed = False
        self._snapshot = Snapshot(device_id)
        self._rtc = rtc
        self._window_ms = window_ms
        self._contact_ms = contact_ms
        self._buf = bytearray(min(max(rtc.size, WAKE_STATE_SIZE_MAX), RTC_SIZE_MAX))
        self._woke_ms = self._heard_ms = 0
        self._contacted = False

    # --- at a wake ---

    def wake(self, store: "StorePort", now_ms: int) -> None:
        """Read the snapshot of the sleep before this boot, if there is a valid one."""
        self._woke_ms = self._heard_ms = now_ms
        size = self._rtc.load_into(self._buf)
        self.resumed = self._snapshot.read(self._buf, size, store) == OK
        self.generation = self._snapshot.generation  # for `node.boot` to continue
        self._rtc.forget()  # a snapshot is good once: erase it before anything is sent

    def start(self, device: "DevicePort") -> None:
        """Restore clocks, back-off, wake plan and keys from the snapshot; set the next reading.

        A long snapshot continues a link's seal epoch, which saves a flash write per wake.
        """
        now_ms = device.due_ms = device.port.now_ms()
        if not self.resumed:
            return
        away_ms = self._away_ms(now_ms)
        device.due_ms = (now_ms + max(self._rtc.due_ms - away_ms, 0)) & 0x3FFFFFFF
        node = device.node
        self._snapshot.apply(self._buf, node.core, node.links, self.plan, now_ms, away_ms)
        seal = _live_seal(device)
        if seal is not None and self._buf[1]:  # it has rows of peers: the long form
            from drupelet.seal.sleep import import_from

            import_from(seal, self._buf, self._snapshot.keys_at, SNAPSHOT_KEYS_SIZE)
            seal.grow_old((away_ms >> 16) + 1)

    def go_on_box(self, box: "BlackBox", now_ms: int) -> bool:
        """Restore the black box; False: there is no valid state, so it begins anew."""
        buf = self._buf
        if not self.resumed or len(buf) <= _BOX_AT:
            return False
        end = _BOX_AT + get_u16(buf, _BOX_AT - 2)
        if not _BOX_AT < end <= len(buf) - _CRC_SIZE or not is_whole(buf, _BOX_AT - 2, end):
            return False
        wake_from(box, buf, _BOX_AT, end, now_ms, self._away_ms(now_ms))
        return True

    def _away_ms(self, now_ms: int) -> int:
        """Return the time since the sleep began, in ms: it includes the start so far."""
        return min(self._rtc.slept_ms + elapsed_ms(now_ms, self._woke_ms), WAIT_MS_MAX)

    # --- awake ---

    def heard(self, now_ms: int) -> None:
        """Note that a peer was heard."""
        self._heard_ms = now_ms
        self._contacted = True

    def awake(self, now_ms: int, outstanding: bool) -> bool:
        """Whether to stay awake: in a window of the wake plan, or for a peer that is always awake.

        If something is outstanding for the latter, it has until the end of the window to be heard
        first. After it was heard it has `contact_ms`: its messages follow its acknowledgement.
        """
        if self.plan is not None and self.plan.awake_ms(now_ms):
            return True
        if elapsed_ms(now_ms, self._woke_ms) >= self._window_ms:
            return False
        if outstanding and not self._contacted:
            return True
        return elapsed_ms(now_ms, self._heard_ms) < self._contact_ms

    def turn_ms(self, now_ms: int) -> int:
        """Return the time until the result of `rest_ms` may change without a frame, in ms."""
        left_ms = self._window_ms - elapsed_ms(now_ms, self._woke_ms)
        if left_ms <= 0:
            return WAIT_MS_MAX
        contact_ms = self._contact_ms - elapsed_ms(now_ms, self._heard_ms)
        return contact_ms if 0 < contact_ms < left_ms else left_ms

    def rest_ms(self, device: "DevicePort") -> int:
        """Return for how long a device may sleep deeply now, in ms; 0: it must stay awake."""
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
        """Save a device's state and sleep deeply, losing RAM; returns only if the store fails.

        The seal epoch of the first live link continues at the next wake; others begin a new one.
        """
        node = device.node
        core = node.core
        now_ms = device.port.now_ms()
        device.box.state(now_ms, _DEEP_SLEEP)
        device.tally()  # count what was synchronized since the reading
        device.drain()
        # Sleep loses what is not flushed, also of a long message that came in part.
        if core.store.spool.flush() != OK or core.store.barrier() != OK:
            return
        device.tally()  # count the barrier, in a black box whose state is kept
        left_ms = device.left_ms(now_ms)
        buf = self._buf
        size = 0
        if self._rtc.size >= WAKE_STATE_SIZE_MAX:
            fill(buf, self._snapshot.keys_at, SNAPSHOT_KEYS_SIZE, 0)
            seal = _live_seal(device)
            if seal is not None:
                from drupelet.seal.sleep import export_into

                export_into(seal, buf, self._snapshot.keys_at)
            state_size = pack(core, self._snapshot.state_room(core.members.peers))
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
        """Write the black box's state after the snapshot; return the size of both, 0: no room."""
        buf = self._buf
        end = rest_into(box, buf, _BOX_AT, len(buf) - _CRC_SIZE)
        if not end:
            return 0
        put_u16(buf, _BOX_AT - 2, end - _BOX_AT)
        crc32_into(buf, end, buf, _BOX_AT - 2, end - _BOX_AT + 2, True)
        return end + _CRC_SIZE


def _live_seal(device: "DevicePort") -> "Seal | None":
    """Return the seal of the first live link, whose epoch continues after deep sleep; or None."""
    for seal, link in device.seals:
        if not link.visits:
            return seal
    return None
