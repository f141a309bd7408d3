"""A board's end of the command channel (docs/SPEC.md 15.8): carries out a host's commands.

Loaded only if the board's configuration has `commands`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.clients.command import COMMANDS_CLIENT_ID, CommandBoard, CommandClient
from drupelet.clients.default import Author
from drupelet.engine.members import SHARED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import DevicePort, SetupPort
    from drupelet.node import Node
    from drupelet.store.files import Files

_KEY_NAME = "commands.key"
_KEY_SIZE = const(32)
# The clock is modulo 2^30 ms, so waits must be well below that.
_WAIT_MS_MAX = const(1 << 28)


def read_key(files: "Files") -> "bytes | None":
    """Return the command key that the host put on the flash; None: there is none."""
    file = files.open(_KEY_NAME, False)
    if file < 0:
        return None
    key = bytearray(_KEY_SIZE + 1)  # a file of another size is none of ours
    count = files.read_into(file, 0, key, 0, len(key))
    files.close(file)
    return bytes(key[:_KEY_SIZE]) if count == _KEY_SIZE else None


def join(setup: "SetupPort", files: "Files") -> "BoardCommands | None":
    """Join the command group and share it with all peers, before `Node.boot`.

    If there is no key, print that and return None.
    """
    key = read_key(files)
    if key is None:
        why = "no command key: see `drupelet command --key-to`"
        setup.console.say('{"event":"refused","why":"%s"}' % why)
        return None
    commands = BoardCommands(setup.node, setup.id, key, setup.config["group"].encode())
    for peer in setup.numbers.values():
        setup.node.share(commands.group, peer, SHARED)
    return commands


class BoardCommands:
    """The command group of one board: created before `Node.boot`, then call `recover`."""

    def __init__(self, node: "Node", id: bytes, key: bytes, descriptor: bytes) -> None:
        client = CommandClient({id: key})
        self.group = node.join(COMMANDS_CLIENT_ID, descriptor, 0, client)
        self._author = Author(node, self.group)
        actions = [self._set_epoch, self._sleep, self._flush, self._report]
        self._board = CommandBoard(client, id, actions)
        self._timestamp = bytearray(8)

    def recover(self, device: "DevicePort") -> None:
        """After `Node.boot`, find the commands answered so far; handle the group's events."""
        self._device = device
        self._board.recover(device.node, self.group)
        self._author.recover()
        device.acts[self.group] = self._obey

    def _obey(self, handle: int) -> int:
        """Carry out a command and answer it; repeated in the next epoch if there is no room."""
        device = self._device
        now_ms = device.port.now_ms()
        self._author.saw(handle)
        device.port.timestamp_into(self._timestamp)
        return self._board.take(
            device.node, self.group, handle, self._author, self._timestamp, now_ms
        )

    # --- operations: each returns the value for the answer, or a negative code ---

    def _set_epoch(self, value: int) -> int:
        """Take a reading every `value` ms until the next boot; return the value."""
        if not 0 < value < _WAIT_MS_MAX:
            return E_PEER
        self._device.epoch_ms = value
        return self._put_off(value)

    def _put_off(self, wait_ms: int) -> int:
        device = self._device
        device.due_ms = (device.port.now_ms() + wait_ms) & 0x3FFFFFFF
        return wait_ms

    def _sleep(self, value: int) -> int:
        """Put the next reading off by `value` ms, so that deep sleep lasts that long; return it.

        The wake plan stays, because peers may rely on it.
        """
        if self._device.sleeper is None or not 0 < value < _WAIT_MS_MAX:
            return E_PEER
        return self._put_off(value)

    def _flush(self, _value: int) -> int:
        """Publish the black box so far; return 0."""
        self._device.flush()
        return 0

    def _report(self, _value: int) -> int:
        """Return the battery's voltage in mV; without a battery, the number of readings taken."""
        device = self._device
        return device.author.own if device.battery is None else device.battery.millivolts()
