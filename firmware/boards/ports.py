# host only: shapes for the reader and the type checker, never loaded on a board
"""What differs between boards: the shape of `boards.<port>.port.Port`, and of what it hands out.

How a board starts, the same on each port:

- `boards.<port>.main.run(config_path)` reads the configuration, has `boards.setup.make(config,
  port)` put a `boards.device.Device` together, lets the code that did it go, and runs the device.
  It returns when the board was told to stop; `drupelet.json` on the board's drive is the path that
  microcontrollers take. An image's boot stub calls `boards.rp2.main.run()`, and nothing else.
- log and keys are files of the folder that the configuration's key `flash` names, such as `/log`,
  which `run` makes where it is missing.
- on RP2040 the snapshot of deep sleep has the two last blocks of the flash storage: the boot stub
  mounts a LittleFS that ends before them.
"""

from collections.abc import Callable
from typing import Any, Protocol

from drupelet.clients.default import Author
from drupelet.link.link import Link
from drupelet.node import Node
from drupelet.seal.seal import Seal
from drupelet.telemetry.black_box import BlackBox
from drupelet_transports.base import Transport

# One line of JSON to whoever listens.
Say = Callable[[str], None]
# What an event, by its handle, asks for: OK, or else it is handed in again an epoch later.
Act = Callable[[int], int]


class Payload(Protocol):
    """A reading: bytes, or what gives slices of them only when they are asked for."""

    def __len__(self) -> int:
        """Bytes."""

    def __getitem__(self, part: slice) -> "bytes | bytearray | memoryview":
        """Those from `part.start` up to `part.stop`; both are given."""


# The payload of a reading by its number, from 0 over all boots; None when it cannot be taken now.
# It is used before the next one is asked for.
Take = Callable[[int], Payload | None]


class ClockPort(Protocol):
    """Time: a count of milliseconds for the core, wall time for timestamps."""

    def now_ms(self) -> int:
        """Milliseconds from any origin, modulo 2^30."""

    def timestamp_into(self, out: bytearray) -> None:
        """Write 8 bytes, big-endian: ms since the Unix epoch."""


class BatteryPort(Protocol):
    """A voltage."""

    def millivolts(self) -> int:
        """What the battery has now; 0: not known."""


class RtcPort(Protocol):
    """Memory that outlives deep sleep but no power cut, and the sleep itself."""

    size: int
    """Bytes that a snapshot may have."""
    slept_ms: int
    """How long the sleep before this boot was."""
    due_ms: int
    """What `deep_sleep` was given."""

    def load_into(self, buf: bytearray) -> int:
        """Copy what the last sleep left to `buf`; its size, 0 when the power was off since."""

    def forget(self) -> None:
        """What it left is used: a second boot must not find it."""

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, lose all RAM, boot again after `wait_ms`."""


class KeeperPort(Protocol):
    """What keeps a carrier up: a broker's connection, or a line that may be unplugged."""

    def maintain(self, now_ms: int) -> object:
        """Open it where it is time; never waits."""

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may be left alone if no bytes come in."""


class ConsolePort(Protocol):
    """Commands in, JSON lines out; a board without keys is spoken to here."""

    stream: Any
    """What is read; None while the console is the line of a peer."""

    def command(self) -> bytes:
        """The next whole line, b"" when there is none, b"stop" at end of input."""

    def line(self, size_max: int) -> bytes:
        """Wait for the next line, newline included; b"" at the end of input."""

    def say(self, line: str) -> None:
        """One line of JSON."""


class LinePort(Protocol):
    """A serial carrier: a `drupelet_transports.base.Transport` that its KeeperPort is, too."""

    up: bool
    """Whether a frame could leave now."""
    frame_size_max: int
    """Bytes in one frame."""
    poll_object: object
    """What to wait on; None while there is nothing."""

    def maintain(self, now_ms: int) -> object:
        """As of KeeperPort."""

    def wait_ms(self, now_ms: int) -> int:
        """As of KeeperPort."""


class NetworkPort(KeeperPort, Protocol):
    """What keeps a network up. Nothing is read from it: its `poll_object` is None."""

    poll_object: None
    up: bool
    """Whether there is a network now."""


class StickPort(Protocol):
    """Where a stick is plugged in: a `drupelet_transports.stick.Stick`, or an SD card."""

    def present(self) -> bool:
        """Whether there is one now."""


class SleeperPort(Protocol):
    """When a device sleeps deeply, and how."""

    resumed: bool
    """Whether this boot ended a sleep that was kept whole."""

    def heard(self, now_ms: int) -> None:
        """A peer was heard."""

    def turn_ms(self, now_ms: int) -> int:
        """Milliseconds until it has to be asked again."""

    def rest_ms(self, device: "DevicePort") -> int:
        """How long a device may sleep deeply from now on; 0: something keeps it awake."""

    def rest(self, device: "DevicePort", rest_ms: int) -> None:
        """Deep sleep: RAM is gone. Returns only if the store fails."""


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
    """Rows of [KeeperPort, the carrier, what the port watches of it]."""
    seals: list[tuple[Seal, Link]]
    brokers: list[Any]
    """Connections to brokers."""
    acts: dict[int, Act]
    """By group (number): what looks at its events before they are done with."""
    sleeper: SleeperPort | None
    battery: BatteryPort | None
    epoch_ms: int
    due_ms: int
    """When the next reading is due."""
    heap_low: int

    def step(self) -> int:
        """Everything that is due now; then how long to sleep, in ms."""

    def left_ms(self, now_ms: int) -> int:
        """Milliseconds until the next reading is due."""

    def add_live(self, transport: Transport, link: Link) -> None:
        """Serve a link over a carrier with two ends."""

    def hold(self, hold_ms: int) -> None:
        """Take no events for so long."""

    def consume(self) -> bool:
        """Take events; whether there is more to take."""

    def drain(self) -> None:
        """Let the black box's finished blocks go to flash."""

    def flush(self) -> None:
        """Close the black box's last segment so that it can leave."""

    def tally(self) -> None:
        """Count what carriers and flash went through since the last time."""


class SetupPort(Protocol):
    """A board that is being put together (boards/setup.py)."""

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
        """Put the record of `row` into out[0:52]; OK, or E_STORAGE when there is none."""

    def save(self, row: int, record: bytearray) -> int:
        """Keep record[0:52]; durable when it returns OK."""


class ChipFactsPort(Protocol):
    """What a chip tells of itself."""

    def warmth(self) -> float | None:
        """Degrees Celsius; None where it cannot be asked."""

    def battery(self, setting: dict) -> BatteryPort:
        """The voltage that a configuration describes."""


class Port(Protocol):
    """One kind of board: `boards/<port>/port.py` has it as `class Port`, made as `Port(config)`.

    `config` is the board's configuration (docs/boards.md); a port reads what is wired to its own
    pins out of it and checks nothing else. A port is its board's clock (ClockPort). What a kind
    of board has not got raises DrupeletError, one line, when the configuration asks for it.
    """

    board: int
    """The kind of board in the black box (docs/SPEC.md 6.1)."""
    console: ConsolePort

    # --- time and chance ---

    def now_ms(self) -> int:
        """Milliseconds from any origin, modulo 2^30."""

    def timestamp_into(self, out: bytearray) -> None:
        """Write 8 bytes, big-endian: ms since the Unix epoch, or since a clock never set began."""

    def anchor_into(self, out: bytearray) -> bool:
        """Write 6 bytes, little-endian: ms since the Unix epoch. False: nobody set the clock."""

    def random_byte(self) -> int:
        """0..255, from the chip's generator."""

    # --- why it runs, and how it rests ---

    def reset_cause(self) -> int:
        """RESET_* of drupelet.telemetry.black_box."""

    def rtc(self, settings: dict) -> RtcPort:
        """What outlives deep sleep, for the configuration's `sleep`."""

    def watch(self, old: "object | None", new: "object | None") -> None:
        """Let bytes of the stream `new` end a `wait` from now on, and those of `old` no more."""

    def wait(self, wait_ms: int) -> None:
        """Wait, at most so long, the status LED out; bytes of what is watched end it."""

    def feed(self) -> None:
        """Feed the watchdog, if one runs, in the middle of a long turn; `wait` does it, too."""

    def release(self) -> None:
        """The board was told to stop: the interpreter has its console, no watchdog ends it."""

    # --- what is wired to it ---

    def attach(self, board: DevicePort) -> None:
        """Give a whole board what the configuration has of this port's own.

        A battery, a network to keep up, last a watchdog, which every `wait` feeds from then on.
        """

    def open_line(self, url: str) -> LinePort:
        """The carrier of serial:, uart: or console:, with its option `frame`.

        One that is not there yet comes up later; a wrong one raises DrupeletError.
        """

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> StickPort:
        """The stick that is seen below the folder `path`."""

    def source(self, config: dict) -> Take:
        """Readings of what every board of this kind has; the owner's program is `boards.app`."""
