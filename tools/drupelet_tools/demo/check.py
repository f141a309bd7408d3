"""What the members really hold at the end, read from the boards' flash and the host's database.

Nothing here knows what the demo sent: the expected set is what the members' own logs say that
they wrote, and order is checked against the dependencies inside the messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.host_api import Message, body, messages
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED
from drupelet_host.clients.default_body import split_body
from drupelet_host.store.folder_files import HostFiles
from drupelet_host.view.log_view import LogView
from drupelet_tools.demo.plan import GROUP, HOST, DemoError, Folders

_MEMBER_GROUP = 1

Needs = Mapping[bytes, tuple[bytes, ...]]


@dataclass(frozen=True)
class Logged:
    """One message of a member's log.

    `dependencies` is None for a long message whose body the member has let go to make room: it
    was delivered, and what it depends on stands in the copies of others.
    """

    id: bytes
    own: bool
    dependencies: tuple[bytes, ...] | None


@dataclass(frozen=True)
class Held:
    """What one member holds."""

    expected: int
    delivered: int
    created: int
    duplicates: int
    out_of_order: int
    strangers: int = 0  # messages that no member wrote

    @property
    def right(self) -> bool:
        """Everything exactly once, after its dependencies, and nothing else."""
        wrong = self.duplicates or self.out_of_order or self.strangers
        return self.delivered == self.expected and not wrong


def board_log(flash: Path) -> list[Logged]:
    """A board's log in its order, by the board's own recovery."""
    store = FlashStore(HostFiles(flash))
    store.open()
    id = bytearray(ID_SIZE)
    group_id_into(id, READINGS_CLIENT_ID, GROUP.encode(), len(GROUP.encode()))
    group = store.member(_MEMBER_GROUP, id, 0, ID_SIZE)
    return [_logged(store, message) for message in messages(store) if message.group == group]


def _logged(store: FlashStore, message: Message) -> Logged:
    own = message.source == 0
    if message.state != STATE_DELIVERED:
        return Logged(message.id, own, None)
    content = body(store, message)
    if content is None:
        raise DemoError(f"message {message.id.hex()[:8]} has lost its body")
    dependencies, _ = split_body(content)
    return Logged(message.id, own, tuple(dependencies))


def host_log(home: Path) -> list[Logged]:
    """The host's log in its order."""
    view = LogView(home)
    try:
        return [
            Logged(entry.id, entry.via == view.config.name, tuple(entry.dependencies))
            for entry in view.entries("readings")
        ]
    finally:
        view.close()


def judge(logs: dict[str, list[Logged]]) -> dict[str, Held]:
    """Hold each member's log against what all members wrote."""
    everywhere = [message for log in logs.values() for message in log]
    written = {message.id for message in everywhere if message.own}
    # An id covers the body, so every copy names the same dependencies.
    needs = {
        message.id: message.dependencies
        for message in everywhere
        if message.dependencies is not None
    }
    return {name: _judge(log, written, needs) for name, log in logs.items()}


def _judge(log: list[Logged], written: set[bytes], needs: Needs) -> Held:
    seen: set[bytes] = set()
    out_of_order = 0
    for message in log:
        after = message.dependencies
        if after is None:
            after = needs.get(message.id)
        # What nobody can show the body of counts as too early: its order is not proved.
        if after is None or not seen.issuperset(after):
            out_of_order += 1
        seen.add(message.id)
    return Held(
        expected=len(written),
        delivered=len(seen & written),
        created=sum(1 for message in log if message.own),
        duplicates=len(log) - len(seen),
        out_of_order=out_of_order,
        strangers=len(seen - written),
    )


def members_hold(folders: Folders, boards: Sequence[str]) -> dict[str, Held]:
    """The verdict on every member, host first."""
    logs = {HOST: host_log(folders.host)}
    logs.update({board: board_log(folders.flash(board)) for board in boards})
    return judge(logs)
