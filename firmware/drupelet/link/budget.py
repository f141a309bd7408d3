"""What a link or a radio may send per epoch: bytes, and milliseconds on the air.

A payload is a train of frames inside the budget (docs/SPEC.md 10.1). What an epoch leaves over is
lost. Airtime follows Semtech's formula for LoRa, in integers, rounded up.
"""

from drupelet.base.compat import const
from drupelet.base.errors import CapacityError
from drupelet.base.limits import FRAME_SIZE_MAX, LORA_FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms

# A longer time between two calls means that the clock was set back.
_BACK_MS = const(1 << 29)


class LoRaAir:
    """The airtime of one LoRa setting: SX1276 data sheet 4.1.1.7, explicit header, CRC on."""

    def __init__(self, spreading: int, bandwidth_hz: int, coding: int, preamble: int) -> None:
        """`spreading`: 7 to 12; `coding`: 5 to 8, for 4/5 to 4/8; `preamble`: symbols, often 8.

        Raises CapacityError for a setting that no radio has.
        """
        if not (7 <= spreading <= 12 and 5 <= coding <= 8 and 6 <= preamble <= 1024):
            raise CapacityError("no LoRa setting: spreading 7..12, coding 5..8, preamble 6..1024")
        if not 7_800 <= bandwidth_hz <= 500_000:
            raise CapacityError("no LoRa setting: bandwidth 7,800..500,000 Hz")
        self.frame_size_max = LORA_FRAME_SIZE_MAX
        self._symbol_us = ((1_000_000 << spreading) + bandwidth_hz - 1) // bandwidth_hz
        # From 16 ms per symbol on, low data rate optimisation is needed: 2 bits less per symbol.
        slow = 2 if self._symbol_us >= 16_000 else 0
        self._bits = 4 * (spreading - slow)  # payload bits per block of symbols
        self._coding = coding
        self._spare = 28 + 16 - 4 * spreading  # header 28, CRC 16
        self._quarters = 4 * (preamble + 8) + 17  # quarter symbols in every frame

    def airtime_ms(self, size: int) -> int:
        """Return the ms on the air of a frame of `size` bytes (0 to 255), rounded up."""
        bits = 8 * size + self._spare
        quarters = self._quarters
        if bits > 0:
            quarters += 4 * self._coding * ((bits + self._bits - 1) // self._bits)
        # In two parts: the longest frame of the slowest setting would not be a small int.
        symbol_us = self._symbol_us
        whole_ms = quarters * (symbol_us // 4000)
        return whole_ms + (quarters * (symbol_us % 4000) + 3999) // 4000


class NoAir:
    """A carrier whose airtime costs nothing: a cable, a network, a stick."""

    def __init__(self) -> None:
        self.frame_size_max = FRAME_SIZE_MAX

    def airtime_ms(self, size: int) -> int:  # noqa: ARG002 - the shape of a radio's
        """Return 0."""
        return 0


def duty_airtime_ms(epoch_ms: int, per_mille: int, observed_ms: int) -> int:
    """Return the airtime per epoch that keeps a legal duty cycle in every span of `observed_ms`.

    A span overlaps one epoch more than fit into it. Example: 1 % of an hour (10, 3,600,000), in
    epochs of 15 minutes, gives 36,000 ms / 5 = 7,200 ms.
    """
    assert epoch_ms > 0 and 0 < per_mille <= 1000 and observed_ms > 0
    touched = (observed_ms + epoch_ms - 1) // epoch_ms + 1
    return observed_ms // 1000 * per_mille // touched


class Budget:
    """The bytes and the airtime of one epoch. Links that use the same radio share its budget.

    A maximum of 0 means no limit. The budget counts epochs of its own: any link may call
    `begin_epoch` at any time, which refills the budget at most once per `epoch_ms`.
    """

    def __init__(
        self, epoch_ms: int, bytes_max: int, airtime_ms_max: int, air: "LoRaAir | NoAir",
        overhead: int, frame_size_max: int,
    ) -> None:  # fmt: skip
        """`overhead`: bytes that the carrier adds to each frame. `frame_size_max`: the carrier's
        longest frame. Raises CapacityError if an epoch has no room for such a frame."""
        assert 0 < epoch_ms <= WAIT_MS_MAX and bytes_max >= 0 and airtime_ms_max >= 0
        size = frame_size_max + overhead
        if size > air.frame_size_max:
            raise CapacityError(f"a frame of {size} B is longer than the radio's longest")
        airtime = air.airtime_ms(size)
        if (bytes_max and size > bytes_max) or (airtime_ms_max and airtime > airtime_ms_max):
            raise CapacityError(
                f"a frame of {size} B, {airtime} ms on the air, is more than the whole budget of "
                f"an epoch ({bytes_max} B, {airtime_ms_max} ms; 0 is no bound)"
            )
        self.epoch_ms = epoch_ms
        self.bytes_max = bytes_max
        self.airtime_ms_max = airtime_ms_max
        self.bytes_left = bytes_max
        self.airtime_ms_left = airtime_ms_max
        self.refused = 0  # frames that had to wait for another epoch
        self._air = air
        self._overhead = overhead
        self._began_ms = 0
        self._running = False

    def begin_epoch(self, now_ms: int) -> bool:
        """Refill the budget if an epoch has passed since the last refill; return True if so."""
        if self._running:
            passed_ms = elapsed_ms(now_ms, self._began_ms)
            if passed_ms < self.epoch_ms:
                return False
            if passed_ms >= _BACK_MS:  # setting a clock back refills nothing
                self._began_ms = now_ms
                return False
        self._running = True
        self._began_ms = now_ms
        self.bytes_left = self.bytes_max
        self.airtime_ms_left = self.airtime_ms_max
        return True

    def wait_ms(self, now_ms: int) -> int:
        """Return the ms until `begin_epoch` refills the budget; 0: at once."""
        if not self._running:
            return 0
        passed_ms = elapsed_ms(now_ms, self._began_ms)
        if passed_ms >= _BACK_MS:
            return self.epoch_ms
        return self.epoch_ms - passed_ms if passed_ms < self.epoch_ms else 0

    def wait_for(self, now_ms: int, size: int) -> int:
        """Return the ms until a frame of `size` bytes may leave; 0: at once."""
        wait_ms = self.wait_ms(now_ms)
        return wait_ms if wait_ms and not self.may(size) else 0

    def room(self, size_max: int) -> int:
        """Return the longest frame, up to `size_max`, that may still leave; 0: none.

        So the last frame of a train uses up what is left.
        """
        if self.may(size_max):
            return size_max
        fits = 0
        while fits < size_max - 1:  # invariant: `fits` may leave or is 0, `size_max` may not
            half = (fits + size_max) // 2
            if self.may(half):
                fits = half
            else:
                size_max = half
        return fits

    def may(self, size: int) -> bool:
        """Return True if a frame of `size` bytes may still leave in this epoch."""
        size += self._overhead
        if size > self._air.frame_size_max or (self.bytes_max and size > self.bytes_left):
            return False
        return not self.airtime_ms_max or self._air.airtime_ms(size) <= self.airtime_ms_left

    def spend(self, size: int) -> None:
        """Take a frame of `size` bytes, which `may` has allowed, from the budget."""
        assert self.may(size)
        size += self._overhead
        if self.bytes_max:
            self.bytes_left -= size
        if self.airtime_ms_max:
            self.airtime_ms_left -= self._air.airtime_ms(size)
