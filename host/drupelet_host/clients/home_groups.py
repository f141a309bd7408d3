"""The groups that every host is in beside its readings: feeds, carriers and commands.

groups = HomeGroups(node, config)      before `Node.boot`
groups.add_peer(peer, number)          for each peer, at any time
groups.began()                         after `Node.boot`
groups.saw(group, handle)              for each event
"""

from pathlib import Path
from typing import Any

from drupelet.base.errors import DrupeletError
from drupelet.clients.command import (
    COMMANDS_CLIENT_ID,
    CommandClient,
)
from drupelet.node import SHARED, Node
from drupelet_host.base import clock
from drupelet_host.clients.carriers import CarrierGroup, Carriers
from drupelet_host.clients.command_host import (
    OPERATION_NAMES,
    CommandHost,
    command_key,
)
from drupelet_host.clients.feed_notices import Feeds
from drupelet_host.home import private_files
from drupelet_host.home.board_kinds import BOARD_HOST
from drupelet_host.home.config import FAMILY_BSP_NAME, Config, NotThereError, Peer
from drupelet_host.keys.key_folder import is_revoked

# The owner's secret from which the boards' command keys follow; 0600, made when it is needed.
COMMANDS_KEY_NAME = "commands.key"
_ROOT_SIZE = 32
# The longest argument of a command: 2^28 ms, as the core's waits.
ARGUMENT_MAX = 1 << 28


class CommandError(DrupeletError):
    """A command that no board can be told; the message says why."""


def command_root(settings: Config) -> bytes:
    """The owner's root of command keys; made on first use. PrivateError or StorageError."""
    return private_files.secret(
        settings.keys_path / COMMANDS_KEY_NAME,
        _ROOT_SIZE,
        "restore a copy, or remove it and give the boards new keys with"
        " `drupelet command BOARD --key-to`",
    )


def find_peer(settings: Config, name: str) -> bytes:
    """The id of a peer by name or id; raises NotThereError."""
    for peer in settings.peers:
        if name in (peer.name, peer.id.hex()):
            return peer.id
    raise NotThereError(f"{name}: no such peer; see `drupelet status`")


def write_key(settings: Config, name: str, folder: Path) -> Path:
    """Put a board's command key into its folder; the file. Raises DrupeletError."""
    path = folder / COMMANDS_KEY_NAME
    board = find_peer(settings, name)
    if not folder.is_dir():
        raise CommandError(f"{folder}: no such folder; give the one that the board's flash is")
    private_files.replace(path, command_key(command_root(settings), board))
    return path


class HomeGroups:
    """See the module."""

    def __init__(self, node: Node, settings: Config) -> None:
        self._node = node
        self.settings = settings  # as the peers are called now; the caller keeps it new
        descriptor = settings.group.encode()
        self._client = CommandClient({})
        self._roster: dict[int, bytes] = {}  # members whose notices count
        self.feeds = Feeds(node, descriptor, self._roster)
        self.carriers = CarrierGroup(node, descriptor, self._roster)
        self.commands = node.join(COMMANDS_CLIENT_ID, descriptor, 0, self._client)
        self.groups = (self.feeds.group, self.carriers.group, self.commands)
        self.names = {
            self.feeds.group: "feeds",
            self.carriers.group: "carriers",
            self.commands: "commands",
        }
        self._has_begun = False
        self._host: CommandHost | None = None

    def add_peer(self, peer: Peer, number: int) -> None:
        """Share the groups with a peer and know its command key, if the owner has made any."""
        if self.settings.family != FAMILY_BSP_NAME:
            return  # no link carries them: they would fill the room of what waits for the peer
        if peer.board in ("", BOARD_HOST):
            self.share(number)
            if not is_revoked(self.settings.keys_path, peer.id):
                self._roster[number] = peer.id
        else:
            # A board is in no other group: it would be sent what it never acknowledges.
            self._node.share(self.commands, number, SHARED)
        if (self.settings.home / "keys" / COMMANDS_KEY_NAME).exists():
            self._client.keys[peer.id] = command_key(command_root(self.settings), peer.id)

    def remove_peer(self, id: bytes) -> None:
        """Forget a peer's command key, and what it said of devices."""
        self._client.keys.pop(id, None)
        self.distrust(id)

    def distrust(self, id: bytes) -> None:
        """What a member said of itself or of other devices counts no more."""
        for number, member in list(self._roster.items()):
            if member == id:
                del self._roster[number]

    def share(self, number: int) -> None:
        """Share the groups with a peer."""
        for group in self.groups:
            self._node.share(group, number, SHARED)

    def began(self) -> None:
        """After `Node.boot`."""
        self._has_begun = True

    def saw(self, group: int, handle: int) -> None:
        """An event of any group: our next command comes after it."""
        if group == self.commands and self._host is not None:
            self._host.saw(handle)

    @property
    def host(self) -> CommandHost:
        """Who sends commands; made when it is needed, for it reads the whole log."""
        assert self._has_begun, "began() comes first"
        if self._host is None:
            self._host = CommandHost(self._node, self.commands, self._client)
        return self._host

    def announce(self, urls: tuple[str, ...], now_ms: int) -> None:
        """Tell the members how we are reached; nothing happens while that does not change."""
        carriers = Carriers(self.settings.name, urls)
        stamp = clock.timestamp8(clock.wall_ms())
        self.carriers.announce(self.settings.id, carriers, stamp, now_ms)

    def command(self, name: str, operation: str, value: int, now_ms: int) -> dict[str, Any]:
        """Tell a board, by name or id, to do something. Raises DrupeletError."""
        board = find_peer(self.settings, name)
        checked(operation, value)
        # The key may be made just now: after the start, by the first command of all.
        self._client.keys[board] = command_key(command_root(self.settings), board)
        stamp = clock.timestamp8(clock.wall_ms())
        counter = self.host.send(board, operation, value, stamp, now_ms)
        return {"board": name, "operation": operation, "value": value, "counter": counter}


def checked(operation: str, value: int) -> int:
    """The value; raises CommandError for what no board does."""
    if operation not in OPERATION_NAMES:
        raise CommandError(f"{operation}: no such command; it is {', '.join(OPERATION_NAMES)}")
    needs = operation in ("epoch", "sleep")
    if not (0 < value < ARGUMENT_MAX if needs else value == 0):
        wanted = f"1 to {ARGUMENT_MAX - 1} ms" if needs else "no value"
        raise CommandError(f"{operation}: takes {wanted}")
    return value
