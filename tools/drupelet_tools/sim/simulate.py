"""One board with its owner's program, for days: the boards' own code, a cable and an agent.

The board runs `boards.setup` and the loop around it as a flashed board does, on a port whose time
is the simulation's; its peer is a host's node with a host's store. What takes time: the program's
own sleeps, bytes on the cable, a boot where it was measured, and waiting. Computing and the flash
take none.
"""

import heapq
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet import host_api
from drupelet.base.errors import OK, DrupeletError
from drupelet.base.events import RESET_DEEP_SLEEP, RESET_POWER_ON, STATE_IDLE, STATE_LIGHT_SLEEP
from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID
from drupelet.engine.members import GROUP_TELEMETRY, SHARED, VISIBLE
from drupelet.link.link import BATCH, CARRIER_SERIAL, INTERACTIVE
from drupelet.node import EVENT_MESSAGE, Node
from drupelet.seal.record import FLAG_ISSUER, RECORD_SIZE, install
from drupelet.seal.seal import CLASS_LIVE, Seal, SealContext
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1
from drupelet_host.base.aead import Aead
from drupelet_host.keys.key_folder import ROWS
from drupelet_host.keys.provision import RamKeys
from drupelet_tools.sim import stand_in
from drupelet_tools.sim.board_code import on_this_computer
from drupelet_tools.sim.flash import SimFiles
from drupelet_tools.sim.hoststore import MemoryStore
from drupelet_transports.common.framing import encode_into, wire_size_max
from drupelet_transports.common.transport import Transport
from drupelet_transports.common.url import parse_url
from drupelet_transports.seal.sealed_carrier import Sealed

DAY_MS = 86_400_000
_BEGAN_MS = 1_767_225_600_000  # 2026-01-01
_BITS_PER_BYTE = 10  # a start bit, eight, a stop bit
_RTC_SIZE = 2048
_KID = 0x0100
_ERRORS_MAX = 16  # different ones that are kept
_MODES = {"batch": BATCH, "interactive": INTERACTIVE}
_PROFILES = {"bsp-1": PROFILE_BSP_1, "compact-1": PROFILE_COMPACT_1}


class ProgramError(DrupeletError):
    """The owner's program cannot be loaded; the message is one line with file and line of it."""


class _Asleep(Exception):
    """RAM is gone; the board boots when the sleep is over."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. `loss`: the share of frames that a cable loses, each way."""

    program: Path
    config: dict[str, Any]
    days: int
    seed: int
    loss: float
    baud: int
    boot_ms: int


@dataclass(slots=True)
class Outcome:
    """What a simulation came to."""

    readings: int = 0
    delivered: int = 0
    payload_bytes: int = 0
    black_box_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    boots: int = 0
    flash_programs: int = 0
    flash_erases: int = 0
    state_ms: dict[int, int] = field(default_factory=dict)
    errors: int = 0
    error_lines: dict[str, int] = field(default_factory=dict)  # how often each came


class _Time:
    """The simulation's clock, and what happens at which time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at_ms, self._count, call))

    def go_on(self, to_ms: int, until: Callable[[], object] = lambda: False) -> None:
        """Let everything happen up to `to_ms`, or until `until` is true."""
        while self._queue and self._queue[0][0] <= to_ms:
            at_ms, _, call = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            call()
            if until():
                return
        self.now_ms = max(self.now_ms, to_ms)

    def device_ms(self) -> int:
        """As a device counts."""
        return self.now_ms & 0x3FFFFFFF


class _Line(Transport):
    """One end of the cable; `board`: of the board, whose time passes while it sends."""

    def __init__(self, cable: "_Cable", board: bool, frame_size_max: int) -> None:
        super().__init__(frame_size_max)
        self.poll_object = self
        self.inbox: list[tuple[bytes, int]] = []
        self._cable = cable
        self._board = board
        self._wire = bytearray(wire_size_max(frame_size_max))

    def send(self, frame: bytearray, size: int) -> int:
        """See Transport."""
        self.last_wire_size = encode_into(self._wire, frame, size)
        self._cable.carry(bytes(frame[:size]), self.last_wire_size, self._board)
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """See Transport."""
        if not self.inbox:
            return 0
        data, self.last_wire_size = self.inbox.pop(0)
        frame[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing is open."""

    def maintain(self, now_ms: int) -> None:
        """It stays up."""

    def wait_ms(self, now_ms: int) -> int:  # noqa: ARG002 - a keeper's shape
        """It needs nothing."""
        return WAIT_MS_MAX


class _Cable:
    """What lies between the two: frames take their time, and some are lost."""

    def __init__(self, time: _Time, setting: Setting, outcome: Outcome) -> None:
        self.listens = True  # the board is awake
        self.agent: _Agent
        self.board_end: _Line
        self.agent_end: _Line
        self._time = time
        self._setting = setting
        self._outcome = outcome
        self._draw = random.Random(f"{setting.seed} cable")
        self._busy_ms = 0  # until then the agent's end sends

    def carry(self, frame: bytes, wire_size: int, from_board: bool) -> None:
        """Take a frame from one end to the other."""
        time = self._time
        wire_ms = -(-wire_size * _BITS_PER_BYTE * 1000 // self._setting.baud)
        lost = self._draw.random() < self._setting.loss
        if from_board:
            self._outcome.sent_bytes += wire_size
            self._outcome.frames_sent += 1
            time.go_on(time.now_ms + wire_ms)
            if not lost:
                self.agent_end.inbox.append((frame, wire_size))
                time.at(time.now_ms, self.agent.turn)
            return
        self._busy_ms = max(self._busy_ms, time.now_ms) + wire_ms
        if not lost:
            time.at(self._busy_ms, lambda: self._arrive(frame, wire_size))

    def _arrive(self, frame: bytes, wire_size: int) -> None:
        """A UART hears nothing while its board sleeps deeply or boots."""
        if self.listens:
            self._outcome.received_bytes += wire_size
            self._outcome.frames_received += 1
            self.board_end.inbox.append((frame, wire_size))


class _Agent:
    """The host at the other end: a host's store and a node, always awake."""

    def __init__(self, time: _Time, line: _Line, setting: Setting, outcome: Outcome) -> None:
        config = setting.config
        peer = config["peers"][0]
        self._time = time
        self._outcome = outcome
        self._frame = bytearray(FRAME_SIZE_MAX)
        self._turn_ms = -1  # the next one that is planned
        self._store = store = MemoryStore()
        store.reopen()
        draw = random.Random(f"{setting.seed} agent")
        self.node = node = Node(store, lambda: draw.randrange(256), 4, 8, 64, 64)
        descriptor = config["group"].encode()
        self.readings = node.join(READINGS_CLIENT_ID, descriptor)
        self._telemetry = node.join(TELEMETRY_CLIENT_ID, descriptor, GROUP_TELEMETRY)
        number = node.add_peer(bytes.fromhex(config["id"]))
        node.share(self.readings, number, SHARED)
        node.share(self._telemetry, number, VISIBLE)
        node.boot(time.device_ms())
        self._link = node.link(
            number, _PROFILES[peer.get("profile", "bsp-1")], CARRIER_SERIAL, config["epoch_ms"],
            _MODES[peer["mode"]], time.device_ms(),
        )  # fmt: skip
        self._carrier: Transport | Sealed = line
        if not is_plain(peer["url"]):
            keys = RamKeys(bytes.fromhex(peer["id"]), bytes.fromhex(config["id"]))
            install(keys, root_key(setting.seed), _KID, 0, FLAG_ISSUER)
            context = SealContext(
                Aead(), lambda: draw.randrange(256), store.store_gen.to_bytes(4, "big")
            )
            seal = Seal(context, keys, CLASS_LIVE)
            seal.load()
            self._carrier = Sealed(line, seal, time.device_ms, bytearray(FRAME_SIZE_MAX))

    def turn(self) -> None:
        """Take in what came, keep it, answer, and plan the next turn."""
        time, link, frame, carrier = self._time, self._link, self._frame, self._carrier
        now_ms = time.device_ms()
        size = carrier.receive_into(frame)
        while size > 0:
            link.receive(frame, size, now_ms)
            size = carrier.receive_into(frame)
        self._take()
        room = memoryview(frame)[: carrier.frame_size_max]
        size = link.poll_into(room, now_ms)  # type: ignore[arg-type]
        while size:
            carrier.send(frame, size)
            size = link.poll_into(room, now_ms)  # type: ignore[arg-type]
        next_ms = time.now_ms + max(link.wake_ms(now_ms), 1)
        if self._turn_ms <= time.now_ms or next_ms < self._turn_ms:
            self._turn_ms = next_ms
            time.at(next_ms, self._planned)

    def _planned(self) -> None:
        if self._time.now_ms == self._turn_ms:
            self.turn()

    def _take(self) -> None:
        node, store = self.node, self._store
        while node.next_event() == EVENT_MESSAGE:
            entered = host_api.message(store, node.event_handle)
            if entered is not None and entered.group == self._telemetry:
                self._outcome.black_box_bytes += entered.size
            elif entered is not None and entered.group == self.readings and entered.source:
                head = bytearray(1)
                store.read_into(entered.handle, 0, head, 0, 1)
                self._outcome.delivered += 1
                self._outcome.payload_bytes += entered.size - 1 - 32 * head[0]
            node.done(node.event_handle)
        node.save(self._time.device_ms())
        store.barrier()


def is_plain(url: str) -> bool:
    """Whether a cable's URL says that it is not sealed."""
    return "plain=1" in url


def root_key(seed: int) -> bytes:
    """Both ends' key."""
    return random.Random(f"{seed} root").randbytes(32)


class _Rtc:
    """What outlives deep sleep (boards.ports.RtcPort)."""

    def __init__(self, port: "_Port", size: int) -> None:
        self.size = size
        self.slept_ms = self.due_ms = 0
        self.began_ms = 0
        self._port = port
        self._content = b""

    def load_into(self, buf: bytearray) -> int:
        self.slept_ms = self._port.time.now_ms - self.began_ms
        buf[: len(self._content)] = self._content
        return len(self._content)

    def forget(self) -> None:
        self._content = b""

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        port = self._port
        self._content = bytes(buf[:size])
        self.due_ms = due_ms
        self.began_ms = port.time.now_ms
        port.cable.listens = False
        port.cable.board_end.inbox.clear()
        port.time.go_on(min(port.time.now_ms + wait_ms, port.end_ms))
        port.slept = True
        raise _Asleep


class _Console:
    """Hears what the board says; tells it to stop at the end."""

    stream = None

    def __init__(self, port: "_Port", outcome: Outcome) -> None:
        self._port = port
        self._outcome = outcome

    def command(self) -> bytes:
        return b"stop" if self._port.time.now_ms >= self._port.end_ms else b""

    def line(self, size_max: int) -> bytes:  # noqa: ARG002 - a console's shape
        return b""

    def say(self, line: str) -> None:
        event = json.loads(line)
        if event["event"] == "app":
            if event["in"] == "import":
                raise ProgramError(event["error"])
            lines = self._outcome.error_lines
            text = f"{event['in']}: {event['error']}"
            if text in lines or len(lines) < _ERRORS_MAX:
                lines[text] = lines.get(text, 0) + 1
            self._outcome.errors += 1


class _Port:
    """A board's port (boards.ports.Port) whose time is the simulation's."""

    board = 0

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        self.time = time = _Time()
        self.end_ms = setting.days * DAY_MS
        self.slept = False
        self.cable = cable = _Cable(time, setting, outcome)
        cable.agent_end = _Line(cable, False, FRAME_SIZE_MAX)
        cable.agent = _Agent(time, cable.agent_end, setting, outcome)
        self.console = _Console(self, outcome)
        self._rtc: _Rtc | None = None
        self._draw = random.Random(f"{setting.seed} board")

    def now_ms(self) -> int:
        return self.time.device_ms()

    def timestamp_into(self, out: bytearray) -> None:
        out[:] = (_BEGAN_MS + self.time.now_ms).to_bytes(8, "big")

    def anchor_into(self, out: bytearray) -> bool:
        out[:] = (_BEGAN_MS + self.time.now_ms).to_bytes(6, "little")
        return True

    def random_byte(self) -> int:
        return self._draw.randrange(256)

    def reset_cause(self) -> int:
        return RESET_DEEP_SLEEP if self.slept else RESET_POWER_ON

    def rtc(self, settings: dict[str, Any]) -> _Rtc:
        if self._rtc is None:
            self._rtc = _Rtc(self, settings.get("rtc_size", _RTC_SIZE))
        return self._rtc

    def feed(self) -> None:
        """There is no watchdog."""

    def release(self) -> None:
        """Nor a prompt."""

    def watch(self, old: object, new: object) -> None:
        pass

    def wait(self, wait_ms: int) -> None:
        """Until a frame is there, the time is over, or the simulation."""
        to_ms = min(self.time.now_ms + wait_ms, self.end_ms)
        inbox = self.cable.board_end.inbox
        if not inbox:
            self.time.go_on(to_ms, lambda: inbox)

    def attach(self, board: Any) -> None:  # noqa: ANN401 - boards.device is loaded at run time
        """No watchdog: a program's sleeps are as long as it says, so none hangs."""

    def open_line(self, url: str) -> _Line:
        self.cable.board_end = _Line(self.cable, True, parse_url(url).frame_size_max)
        return self.cable.board_end


class _Meter:
    """Stands before a black box, and adds up how long the board was in which state.

    A port waits with its UART on, which no chip here does in light sleep: such waits are idle.
    """

    def __init__(self, time: _Time, state_ms: dict[int, int]) -> None:
        self._time = time
        self._state_ms = state_ms
        self._state = STATE_IDLE
        self._since_ms = 0
        self.box: Any = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a black box has
        return getattr(self.box, name)

    def state(self, now_ms: int, state: int) -> None:
        """See BlackBox."""
        self.enter(STATE_IDLE if state == STATE_LIGHT_SLEEP else state)
        self.box.state(now_ms, state)

    def enter(self, state: int) -> None:
        """The board is in another state from now on."""
        now_ms = self._time.now_ms
        past = now_ms - self._since_ms
        self._state_ms[self._state] = self._state_ms.get(self._state, 0) + past
        self._state, self._since_ms = state, now_ms


def simulate(setting: Setting, say: Callable[[int], None]) -> Outcome:
    """Run it to its end; `say` is told the day now and then. Raises DrupeletError."""
    outcome = Outcome()
    port = _Port(setting, outcome)
    time = port.time
    folder = setting.program.parent
    files = SimFiles(1 << 24)
    _give_keys(files, setting)
    world = stand_in.World(
        lambda: _BEGAN_MS + time.now_ms,
        lambda ms: time.go_on(min(time.now_ms + ms, port.end_ms)),
        setting.seed,
    )
    meter = _Meter(time, outcome.state_ms)
    with on_this_computer(files) as make, stand_in.installed(world, folder):
        while time.now_ms < port.end_ms:
            say(time.now_ms // DAY_MS)
            meter.enter(STATE_IDLE)
            time.go_on(min(time.now_ms + setting.boot_ms, port.end_ms))
            outcome.boots += 1
            port.cable.listens = True
            device = _set_up(make, setting, port)
            meter.box, device.box = device.box, meter
            try:
                device.run()
            except _Asleep:
                outcome.readings = device.author.own
            outcome.readings = device.author.own
            files.close_all()
            stand_in.forget(folder)
    meter.enter(STATE_IDLE)
    outcome.flash_programs, outcome.flash_erases = files.programs, files.erases
    return outcome


def _set_up(make: Callable[..., Any], setting: Setting, port: _Port) -> Any:  # noqa: ANN401
    """The board; what its configuration has wrong is told as `boards.start` tells it."""
    try:
        return make(setting.config, port)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        path = setting.program.with_name("drupelet.json")
        raise ProgramError(f"{path} lacks a key or has one wrong: {error!r}") from None


def _give_keys(files: SimFiles, setting: Setting) -> None:
    """Provision the board's end, as its key file has it (docs/SPEC.md 8.2)."""
    config = setting.config
    peer = bytes.fromhex(config["peers"][0]["id"])
    keys = RamKeys(bytes.fromhex(config["id"]), peer)
    install(keys, root_key(setting.seed), _KID, 0, 0)
    content = bytearray(ROWS * RECORD_SIZE)
    for row, record in keys.records.items():
        content[row * RECORD_SIZE : (row + 1) * RECORD_SIZE] = record
    file = files.open(f"{peer.hex().upper()}.KEY", True)
    files.append(file, content, 0, len(content))
    files.flush(file)
    files.close(file)
