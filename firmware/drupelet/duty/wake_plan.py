"""The wake plan: when a device is awake, to meet peers without a common clock (docs/SPEC.md 10.2).

Every period begins at the anchor, with a window in which the device is awake. While it seeks a
peer, there is a second window, the probe, which moves on in each period, up to half a period after
the anchor: of two devices, one is less than half a period behind the other. WAKE frames tell a
peer when the next anchor comes. From then on, the device with the higher id opens its windows at
the anchors of the lower one, and one window per period is enough. A peer that was missed too often
is sought again.
"""

import struct

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK, CapacityError
from drupelet.base.limits import (
    CONTACTS_MISSED_MAX,
    DRIFT_PPM_MAX,
    NOW_MODULUS_MS,
    WAIT_MS_MAX,
    WAKE_PERIOD_MS_MAX,
)
from drupelet.base.memory import get_u16, get_u32
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms

KIND_WAKE = const(0x52)
WAKE_SIZE = const(10)  # kind, flags, ms to the next anchor u32, period u32
# Sizes of what a deep sleep saves: a head, the anchor that we moved away from, a row per peer.
PLAN_HEAD_SIZE = const(6)
PLAN_OLD_SIZE = const(5)
PLAN_PEER_SIZE = const(4)

_ASK = const(1)  # a flag: the sender does not know the receiver's anchor in this window
_ID_SIZE = const(4)
_ABSENT = const(0)
_SOUGHT = const(1)
_MET = const(2)


def earlier_ms(now_ms: int, wait_ms: int) -> int:
    """Return the time `wait_ms` (up to 2^30) before `now_ms`, modulo 2^30."""
    return (now_ms - wait_ms) & 0x3FFFFFFF


class WakePlan:
    """The wake plan of one device; all devices of a group use the same three times.

    `period_ms`: up to 2^26. `window_ms`: how long a window is. `contact_ms`: how much of it two
    devices need together. Two devices that seek each other are awake together for `contact_ms`
    within `search_periods` periods, whatever their phases, if their clocks are at most 500 ppm
    off.
    """

    def __init__(
        self, period_ms: int, window_ms: int, contact_ms: int, peers_max: int,
        device_id: "bytes | bytearray", now_ms: int, phase_ms: int,
    ) -> None:  # fmt: skip
        """`phase_ms`: 0 to period_ms - 1, from now to the first anchor; best chosen at random.

        Raises CapacityError if the window is too short for the drift of clocks in a period.
        """
        assert 0 < contact_ms < window_ms <= period_ms <= WAKE_PERIOD_MS_MAX
        assert 0 <= phase_ms < period_ms and len(device_id) == _ID_SIZE
        self.period_ms = period_ms
        self.window_ms = window_ms
        self.contact_ms = contact_ms
        self.drift_ms = period_ms * DRIFT_PPM_MAX // 1_000_000 + 1
        # Windows shifted by this much still overlap for `contact_ms`.
        slack = window_ms - contact_ms
        self._step_ms = 2 * slack - self.drift_ms
        self.probes = 0
        self.search_periods = 2
        self._set_probes(slack)
        # The anchor of the present period.
        self.start_ms = earlier_ms(now_ms, period_ms - phase_ms)
        self.probe = 1 if self.probes else 0
        self.foreign = 0  # WAKE frames of another plan
        self._old_start_ms = 0  # the anchor before it moved
        self._old_left = 0  # for how many periods its windows are kept
        self._id = int.from_bytes(device_id, "big")
        self._ids = [0] * peers_max
        self._states = bytearray(peers_max)
        self._anchors_ms = [0] * peers_max  # the peer's anchor, from its last WAKE
        self._wake_seen_ms = [0] * peers_max  # when its last WAKE came
        self._asked_ms = [-1] * peers_max  # when our last WAKE was sent; -1: none
        self._answer = bytearray(peers_max)  # 1: the peer asked for a WAKE

    def _set_probes(self, slack: int) -> None:
        """Compute how many places the probe needs, and how long a search lasts at most.

        The probe moves on by a step that drift cannot jump over. A search that begins when the
        probe has passed the peer's place needs the rest of this sweep, and as much of the next one
        as it takes to catch up while the peer's anchor drifts away: never more than two sweeps. A
        sweep reaches half a period plus all that drift, or else the whole period. The 2: the
        period in which the search begins does not count, and divisions are rounded up.
        """
        gain = self._step_ms - self.drift_ms
        if gain <= 0:
            raise CapacityError(
                f"a window of {self.window_ms} ms for {self.contact_ms} ms of contact is too "
                f"short: clocks drift {self.drift_ms} ms in a period of {self.period_ms} ms"
            )
        # A step is longer than the drift of a period: there are never more than 1,000 places.
        reach = slack
        while reach < self.period_ms // 2 + 1 + self.search_periods * self.drift_ms:
            if reach + self.contact_ms >= self.period_ms:
                self.search_periods = 2 * self.probes + 2
                break
            self.probes += 1
            reach += self._step_ms
            behind = (self.probes * self.drift_ms + gain - 1) // gain
            self.search_periods = self.probes + min(behind, self.probes) + 2

    # --- peers ---

    def seek(self, peer: int, device_id: "bytes | bytearray", at: int) -> None:
        """Add a peer (row) to the plan, and seek it from now on."""
        self._ids[peer] = int.from_bytes(device_id[at : at + _ID_SIZE], "big")
        self._states[peer] = _SOUGHT
        self._asked_ms[peer] = -1
        self._answer[peer] = 0

    def met(self, peer: int) -> bool:
        """Return True while our windows meet the peer's, as far as we know."""
        return self._states[peer] == _MET

    def searches(self) -> bool:
        """Return True while the probe is on: a peer is sought, or waits for our answer."""
        for peer in range(len(self._states)):
            if self._states[peer] == _SOUGHT or self._answer[peer]:
                return True
        return False

    def _visits(self, peer: int) -> bool:
        """Return True if we open windows at the peer's anchors: it is met and has a lower id."""
        return self._states[peer] == _MET and self._ids[peer] < self._id

    # --- time ---

    def _latest(self, now_ms: int, start_ms: int) -> int:
        """Return the last time up to `now_ms` that is whole periods from `start_ms`."""
        passed_ms = elapsed_ms(now_ms, start_ms)
        if passed_ms < CLOCK_BACK_MS:
            return earlier_ms(now_ms, passed_ms % self.period_ms)
        back_ms = NOW_MODULUS_MS - 1 - passed_ms  # the clock went back by 1 more than this
        return earlier_ms(start_ms, (back_ms // self.period_ms + 1) * self.period_ms)

    def _advance(self, now_ms: int) -> None:
        passed_ms = elapsed_ms(now_ms, self.start_ms)
        if passed_ms < self.period_ms:
            return
        self.start_ms = self._latest(now_ms, self.start_ms)
        if passed_ms >= CLOCK_BACK_MS:
            self._old_start_ms = self._latest(now_ms, self._old_start_ms)
            return
        periods = passed_ms // self.period_ms
        self._sweep(periods)
        self._old_left = max(self._old_left - periods, 0)

    def _sweep(self, periods: int) -> None:
        if self.probes:
            self.probe = (self.probe - 1 + periods) % self.probes + 1

    def _forget(self, now_ms: int) -> None:
        """Seek peers again that were missed too often, or all after a clock went back."""
        most_ms = (CONTACTS_MISSED_MAX + 1) * self.period_ms
        for peer in range(len(self._states)):
            is_met = self._states[peer] == _MET
            if is_met and elapsed_ms(now_ms, self._anchors_ms[peer]) >= most_ms:
                self._states[peer] = _SOUGHT

    def _place_ms(self) -> int:
        """Return where in the period the probe is; 0: there is none."""
        if not self.probe or not self.searches():
            return 0
        return min(self.probe * self._step_ms, self.period_ms - self.window_ms)

    def _window_ms(self, now_ms: int, start_ms: int, drift_ms: int) -> int:
        """Return what is left of the window at `start_ms`, or whole periods later, in ms.

        Outside of a window: minus the ms until the next one. `start_ms`: not in the future.
        `drift_ms`: the drift of two clocks in a period; 0 for windows by our own clock. A window
        is long enough for the drift of one period; each period more since `start_ms` opens it
        earlier, and closes it later, by `drift_ms`.
        """
        passed_ms = elapsed_ms(now_ms, start_ms)
        periods = passed_ms // self.period_ms
        into_ms = passed_ms - periods * self.period_ms
        size_ms = self.window_ms + (periods - 1 if periods else 0) * drift_ms
        if into_ms < size_ms:
            return size_ms - into_ms
        early_ms = into_ms + periods * drift_ms - self.period_ms
        if early_ms < 0:
            return early_ms
        return self.window_ms + 2 * periods * drift_ms - early_ms

    def _nearest_ms(self, now_ms: int) -> int:
        """Return the longest rest of any window; negative: minus the ms until the first one."""
        self._advance(now_ms)
        self._forget(now_ms)
        nearest_ms = self._window_ms(now_ms, self.start_ms, 0)
        if self._old_left:
            nearest_ms = max(nearest_ms, self._window_ms(now_ms, self._old_start_ms, 0))
        place_ms = self._place_ms()
        if place_ms:
            # Whole periods before the probe's place, so that it is in the past.
            probe_ms = earlier_ms(self.start_ms, self.period_ms - place_ms)
            nearest_ms = max(nearest_ms, self._window_ms(now_ms, probe_ms, 0))
        for peer in range(len(self._states)):
            if self._visits(peer):
                anchor_ms = self._anchors_ms[peer]
                nearest_ms = max(nearest_ms, self._window_ms(now_ms, anchor_ms, self.drift_ms))
        return nearest_ms

    def awake_ms(self, now_ms: int) -> int:
        """Return how long to stay awake from now on; 0: sleep."""
        return max(self._nearest_ms(now_ms), 0)

    def next_wake_ms(self, now_ms: int) -> int:
        """Return the ms until the next window opens, at most a period; 0 while awake."""
        return max(-self._nearest_ms(now_ms), 0)

    # --- WAKE frames ---

    def wake_due_ms(self, peer: int, now_ms: int) -> int:
        """Return the ms until `wake_into` has a frame for the peer in this window.

        0: now. WAIT_MS_MAX: not in this window.
        """
        if self._states[peer] == _ABSENT or not self.awake_ms(now_ms):
            return WAIT_MS_MAX
        if self._answer[peer]:
            return 0
        if self.there(peer, now_ms):
            return WAIT_MS_MAX
        if self._asked_ms[peer] < 0:
            return 0
        half_ms = (self.contact_ms + 1) // 2
        return max(half_ms - elapsed_ms(now_ms, self._asked_ms[peer]), 0)

    def there(self, peer: int, now_ms: int) -> bool:
        """Return True if the peer is awake, as its WAKE came in this window."""
        if self._states[peer] != _MET:
            return False
        return elapsed_ms(now_ms, self._wake_seen_ms[peer]) <= self.window_ms

    def wake_into(self, frame: bytearray, peer: int, now_ms: int) -> int:
        """Write the WAKE frame that is due to the peer; return its size, or 0. Call while awake.

        If all peers hear one carrier, call this for each of them, but send one frame only.
        """
        if self.wake_due_ms(peer, now_ms):
            return 0
        ask = 0 if self.there(peer, now_ms) else _ASK
        wait_ms = self.period_ms - elapsed_ms(now_ms, self.start_ms)
        struct.pack_into(">BBII", frame, 0, KIND_WAKE, ask, wait_ms, self.period_ms)
        self._asked_ms[peer] = now_ms
        self._answer[peer] = 0
        return WAKE_SIZE

    def on_wake(self, peer: int, frame: "bytes | bytearray", size: int, now_ms: int) -> int:
        """Handle a WAKE frame of the peer; OK, or E_PEER: it is malformed, or of another plan."""
        # With a first byte above 16, the number is over 2^28, and might not be a small int.
        if size != WAKE_SIZE or frame[0] != KIND_WAKE or frame[2] > 16 or frame[6] > 16:
            return E_PEER
        wait_ms = get_u32(frame, 2)
        if get_u32(frame, 6) != self.period_ms or not 0 < wait_ms <= self.period_ms:
            self.foreign += 1
            return E_PEER
        if self._states[peer] == _ABSENT:
            return OK
        self._advance(now_ms)
        self._states[peer] = _MET
        self._wake_seen_ms[peer] = now_ms
        self._anchors_ms[peer] = earlier_ms(now_ms, self.period_ms - wait_ms)
        if frame[1] & _ASK:
            self._answer[peer] = 1
        self._follow(peer, now_ms)
        return OK

    def _follow(self, leader: int, now_ms: int) -> None:
        """Move our anchor to that of the leader with the lowest id, if that was just heard.

        For some periods, the windows at the old anchor are kept, so that peers that know it meet
        us there and learn the new one. There may be a peer that met us without our knowing it: its
        answer to our last frame was lost.
        """
        if not self._visits(leader):
            return
        for peer in range(len(self._states)):
            if self._visits(peer) and self._ids[peer] < self._ids[leader]:
                return
        target_ms = self._latest(now_ms, self._anchors_ms[leader])
        apart_ms = elapsed_ms(target_ms, self.start_ms)
        is_earlier = apart_ms >= CLOCK_BACK_MS
        if is_earlier:
            apart_ms = elapsed_ms(self.start_ms, target_ms)
        is_near = min(apart_ms, self.period_ms - apart_ms) <= self.window_ms - self.contact_ms
        if not is_near:
            if self._old_left:
                # One move at a time; meanwhile, we also open windows at the leader's anchors.
                return
            self._old_start_ms = self.start_ms
            self._old_left = CONTACTS_MISSED_MAX
        if apart_ms > self.period_ms // 2:
            # The leader's period began one earlier or later than ours: move the probe as well, or
            # it would stand still while other peers are sought.
            self._sweep(-1 if is_earlier else 1)
        self.start_ms = target_ms

    # --- deep sleep ---

    def save_into(self, buf: bytearray, at: int, now_ms: int) -> None:
        """Save the anchor and the probe before a deep sleep, PLAN_HEAD_SIZE bytes."""
        self._advance(now_ms)
        struct.pack_into(">IH", buf, at, elapsed_ms(now_ms, self.start_ms), self.probe)

    def restore_from(self, buf: "bytes | bytearray", at: int, now_ms: int, slept_ms: int) -> None:
        """Restore them after `slept_ms` (up to 2^28); ignore values that this plan cannot have."""
        if buf[at] > 16 or get_u32(buf, at) >= self.period_ms:
            return
        self.start_ms = earlier_ms(now_ms, slept_ms + get_u32(buf, at))
        if 0 < get_u16(buf, at + 4) <= self.probes:
            self.probe = get_u16(buf, at + 4)
        self._advance(now_ms)

    def save_old_into(self, buf: bytearray, at: int, now_ms: int) -> None:
        """Save the anchor that we moved away from, PLAN_OLD_SIZE bytes."""
        self._advance(now_ms)
        old_ms = elapsed_ms(now_ms, self._latest(now_ms, self._old_start_ms))
        struct.pack_into(">BI", buf, at, self._old_left, old_ms)

    def restore_old_from(
        self, buf: "bytes | bytearray", at: int, now_ms: int, slept_ms: int
    ) -> None:
        """Restore it; call this before `restore_from`, which counts the periods slept."""
        if buf[at] <= CONTACTS_MISSED_MAX and buf[at + 1] <= 16:
            self._old_left = buf[at]
            self._old_start_ms = earlier_ms(now_ms, slept_ms + get_u32(buf, at + 1))

    def save_peer_into(self, peer: int, buf: bytearray, at: int, now_ms: int) -> None:
        """Save a peer as the ms since its anchor, PLAN_PEER_SIZE bytes; all ff: not met."""
        anchor_ms = -1
        if self._states[peer] == _MET:
            anchor_ms = elapsed_ms(now_ms, self._anchors_ms[peer])
        struct.pack_into(">i", buf, at, anchor_ms)

    def restore_peer_from(
        self, peer: int, buf: "bytes | bytearray", at: int, now_ms: int, slept_ms: int
    ) -> None:
        """Restore a peer that is in the plan; call this after `restore_from`."""
        if self._states[peer] == _ABSENT or buf[at] > 31:
            return
        passed_ms = get_u32(buf, at) + slept_ms
        if passed_ms < (CONTACTS_MISSED_MAX + 1) * self.period_ms:
            self._states[peer] = _MET
            self._anchors_ms[peer] = earlier_ms(now_ms, passed_ms)
            self._wake_seen_ms[peer] = earlier_ms(now_ms, self.window_ms + 1)
