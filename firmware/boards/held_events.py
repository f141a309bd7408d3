"""Events that are looked at before they are done with: by a program of the owner, by commands."""

from drupelet.base.errors import OK
from drupelet.base.time_ms import elapsed_ms
from drupelet.node import EVENT_NONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from boards.ports import DevicePort, EventsPort


class HeldEvents:
    """Stands before a device's events; each is done with by `act`.

    act(handle, events): what the event asks for, and `events.done`; OK, or else the event is held:
    it is handed in again an epoch later, and nothing passes it meanwhile.
    """

    def __init__(self, device: "DevicePort", act: "Callable[[int, EventsPort], int]") -> None:
        self._device = device
        self._act = act
        self._events = device.events
        self._held = self._held_ms = self._hold_ms = 0
        device.events = self

    def hold(self, handle: int, hold_ms: int) -> None:
        """Hold an event, 0 for none yet, and all behind it for so long."""
        self._held = handle
        self._held_ms = self._device.port.now_ms()
        self._hold_ms = hold_ms

    def next_event(self) -> int:
        """As of the node; EVENT_NONE, too, while one is held."""
        if self._hold_ms:
            if elapsed_ms(self._device.port.now_ms(), self._held_ms) < self._hold_ms:
                return EVENT_NONE
            self._hold_ms = 0
            if self._held:
                self.done(self._held)
            if self._hold_ms:
                return EVENT_NONE
        return self._events.next_event()

    def done(self, handle: int) -> None:
        """As of the node, by `act`."""
        if self._act(handle, self._events) != OK:
            self.hold(handle, self._device.epoch_ms)
