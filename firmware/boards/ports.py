# host only: shapes for the reader and the type checker, never loaded on a board
"""The interface of a board's port (`boards.<port>.port.Port`) and of the objects that it returns.

How a board starts, the same on each port:

- `boards.<port>.main.run(config_path)` reads the configuration, calls `boards.setup.make(config,
  port)` to assemble a `boards.device.Device`, unloads the setup code, and runs the device. It
  returns when the board is told to stop. On microcontrollers the path is `drupelet.json` on the
  board's drive. An image's boot stub calls `boards.rp2.main.run()`, and nothing else.
- Log and keys are files in the folder that the configuration's key `flash` names, such as `/log`;
  the port creates it if it is missing.
- On RP2040 the snapshot of deep sleep is in the last two blocks of the flash storage: the boot
  stub mounts a LittleFS that ends before them.
"""

from collections.abc import Callable
from typing import Any, Protocol

from drupelet.clients.default import Author
from drupelet.link.link import Link
from drupelet.node import Node
from drupelet.seal.seal import Seal
from drupelet.telemetry.black_box import BlackBox
from drupelet_transports.common.transport import Transport
from drupelet_transports.stick.stick import Stick

# Handles an event by its message's handle; OK, or a code: the event is repeated an epoch later.
Act = Callable[[int], int]


class Payload(Protocol):
    """A reading: bytes, or an object that reads slices of them on demand."""

    def __len__(self) -> int:
        """Return the size in bytes."""

    def __getitem__(self, part: slice) -> "bytes | bytearray | memoryview":
        """Return the bytes from `part.start` to `part.stop`; both are given."""


# Returns the payload of a reading by its number, counted from 0 over all boots; None: there is no
# reading now. The payload is used before the next call.
Take = Callable[[int], Payload | None]


class BatteryPort(Protocol):
    """Measures the battery."""

    def millivolts(self) -> int:
        """Return the battery's voltage in mV; 0: not known."""


class RtcPort(Protocol):
    """Memory that survives deep sleep but no power cut, and the sleep itself."""

    size: int
    """The longest snapshot, in bytes."""
    slept_ms: int
    """How long the sleep before this boot was."""
    due_ms: int
    """The argument of `deep_sleep` before this boot."""

    def load_into(self, buf: bytearray) -> int:
        """Copy the snapshot of the last sleep to `buf`; its size, 0: none, or power was lost."""

    def forget(self) -> None:
        """Erase the snapshot, so that a second boot does not use it again."""

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, lose all RAM, boot again after `wait_ms`."""


class KeeperPort(Protocol):
    """Keeps a carrier up: a broker's connection, or a line that may be unplugged."""

    def maintain(self, now_ms: int) -> object:
        """Open the carrier if it is down and the back-off is over; never waits."""

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next call of `maintain` if no bytes arrive, in ms."""


class ConsolePort(Protocol):
    """Reads commands and prints JSON lines; a board without keys is provisioned here."""

    stream: Any
    """The input; None while the console is the line of a peer."""

    def command(self) -> bytes:
        """Return the next whole line, b"" if there is none, b"stop" at end of input."""

    def line(self, size_max: int) -> bytes:
        """Wait for the next line, newline included; b"" at the end of input."""

    def say(self, line: str) -> None:
        """Print one line of JSON."""


class LinePort(KeeperPort, Protocol):
    """A serial carrier: a `transport.Transport` that is its own KeeperPort."""

    up: bool
    """Whether a frame can be sent now."""
    frame_size_max: int
    """The longest frame, in bytes."""
    poll_object: object
    """The stream to wait on; None if there is none."""


class SleeperPort(Protocol):
    """Decides when a device sleeps deeply, and keeps its state; see boards/sleep.py."""

    resumed: bool
    """Whether this boot continues a valid snapshot."""

    def heard(self, now_ms: int) -> None:
        """Note that a peer was heard."""

    def turn_ms(self, now_ms: int) -> int:
        """Return the time until `rest_ms` must be called again, in ms."""

    def rest_ms(self, device: "DevicePort") -> int:
        """Return for how long a device may sleep deeply now, in ms; 0: it must stay awake."""

    def rest(self, device: "DevicePort", rest_ms: int) -> None:
        """Sleep deeply, losing RAM; returns only if the store fails."""


class DevicePort(Protocol):
    """A device (boards/device.py) as its board and its parts use it."""

    node: Node
    box: BlackBox
    port: "Port"
    console: ConsolePort
    author: Author
    frame: bytearray
    live: list[tuple[Transport, Link]]
    served: list[list[Any]]
    """Rows of [KeeperPort, its carrier, the carrier's stream that the port watches]."""
    seals: list[tuple[Seal, Link]]
    acts: dict[int, Act]
    """Handlers of events by group (number), called before `Node.done`."""
    sleeper: SleeperPort | None
    battery: BatteryPort | None
    epoch_ms: int
    due_ms: int
    """When the next reading is due."""

    def left_ms(self, now_ms: int) -> int:
        """Return the time until the next reading is due, in ms."""

    def hold(self, hold_ms: int) -> None:
        """Handle no events for `hold_ms`."""

    def consume(self) -> bool:
        """Handle some events; return whether there are more."""

    def drain(self) -> None:
        """Write the black box's finished blocks to flash."""

    def flush(self) -> None:
        """End the black box's current segment and publish it."""

    def tally(self) -> None:
        """Add damaged frames and flash operations since the last call to the counters."""


class SetupPort(Protocol):
    """A board that is being set up (boards/setup.py)."""

    config: dict
    id: bytes
    console: ConsolePort
    node: Node
    numbers: dict[str, int]
    """Peer number by id."""


class KeysPort(Protocol):
    """The key records of one peer (boards/keys.py)."""

    seals: list[Seal]

    def load(self, row: int, out: bytearray) -> int:
        """Read the record of `row` into out[0:52]; OK, or E_STORAGE if there is none."""

    def save(self, row: int, record: bytearray) -> int:
        """Store record[0:52] durably; OK or a code."""


class ChipFactsPort(Protocol):
    """What a chip can measure without a sensor."""

    def warmth(self) -> float | None:
        """Return the temperature in degrees Celsius; None if it cannot be measured."""

    def battery(self, setting: dict) -> BatteryPort:
        """Return the battery that a configuration describes."""


class Port(Protocol):
    """One kind of board: the class `Port` of `boards/<port>/port.py`, created as `Port(config)`.

    `config` is the board's configuration (docs/boards.md); a port reads only the keys about its
    own peripherals. If the configuration asks for something that a kind of board does not have,
    the port raises DrupeletError with one line.
    """

    board: int
    """The kind of board in the black box (docs/SPEC.md 6.1)."""
    console: ConsolePort

    # --- time and random bytes ---

    def now_ms(self) -> int:
        """Return milliseconds from any origin, modulo 2^30."""

    def timestamp_into(self, out: bytearray) -> None:
        """Write 8 bytes, big-endian: ms since the Unix epoch, or the time of a clock not set."""

    def anchor_into(self, out: bytearray) -> bool:
        """Write 6 bytes, little-endian: ms since the Unix epoch. False: the clock is not set."""

    def random_byte(self) -> int:
        """Return 0..255 from the chip's generator."""

    # --- reset, sleep and watchdog ---

    def reset_cause(self) -> int:
        """Return RESET_* of drupelet.base.events."""

    def rtc(self, settings: dict) -> RtcPort:
        """Return the memory that survives deep sleep, for the configuration's `sleep`."""

    def watch(self, old: "object | None", new: "object | None") -> None:
        """Make readable bytes on `new` end a `wait` from now on, instead of those on `old`."""

    def wait(self, wait_ms: int) -> None:
        """Wait at most `wait_ms` with the LED off; bytes on a watched stream end the wait."""

    def feed(self) -> None:
        """Feed the watchdog, if one runs, during a long turn; `wait` feeds it, too."""

    def release(self) -> None:
        """Give the console back to the interpreter and stop the watchdog: the board stops."""

    def restart(self) -> None:
        """Reset the board; return where that cannot be done."""

    # --- peripherals ---

    def attach(self, board: DevicePort) -> None:
        """Add the port's own peripherals to a complete board.

        These are a battery, a network, and last a watchdog, which every `wait` feeds from then on.
        """

    def open_line(self, url: str) -> LinePort:
        """Return the carrier of a serial:, uart: or console: URL, with its option `frame`.

        A line that is not plugged in comes up later; a wrong URL raises DrupeletError.
        """

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> Stick:
        """Return the stick that is mounted at `path`."""

    def source(self, config: dict) -> Take:
        """Return the readings that every board of this kind has, for a board without `app.py`."""
