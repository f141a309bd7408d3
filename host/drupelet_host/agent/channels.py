"""SDS channels of an agent (docs/SPEC.md 12): on a shared carrier, sealed with sender keys.

Every participant is named by its device id in hex. What a channel holds is in `channels.db` of the
home; a message is told of once, when it enters the log, and an acknowledgement is not told of.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from drupelet import host_api
from drupelet.base.errors import CapacityError, DrupeletError, StorageError
from drupelet.channel.channel import EPHEMERAL, EVENT_GAP, EVENT_MESSAGE, EVENT_NONE, Channel
from drupelet.channel.settings import Settings, response_groups
from drupelet.wire.sds.nim import from_sds
from drupelet_host.agent.brokers import Brokers
from drupelet_host.agent.carrier_lines import Line
from drupelet_host.agent.topics import CHANNEL_LABEL, FRAME_SIZE, SharedKeys, SharedLine, topic_id
from drupelet_host.base import clock
from drupelet_host.base.output import payload_text
from drupelet_host.channel.dialect_bridge import Bridge
from drupelet_host.channel.nim_dialect import NimChannel
from drupelet_host.channel.store_node import History, StoreNode, catch_up
from drupelet_host.home.config import CHANNEL_PERIODS_MAX, DIALECT_NIM, Config, ConfigError, Shared
from drupelet_host.member.member import Member
from drupelet_host.member.report_shapes import ChannelReport
from drupelet_host.member.status import UP
from drupelet_host.remote.log import Poll
from drupelet_host.store import database, schema
from drupelet_host.store.channel_database import ChannelDatabase, OwedMessages, SqliteKeeper
from drupelet_transports.common.transport import Transport

DATABASE_NAME = "channels.db"
# What stands beside the content in a frame, at most: names, id, history, filter, repair request.
CONTENT_SIZE_MAX = 400
# On a cable to a program of another make a frame may be so long: the filter of 10,000 ids that
# both peers have by default takes 18 KB of it.
CABLE_FRAME_SIZE = 65_536
# What the encoding of `sds-nim` takes more than ours, at most.
_NIM_ROOM = 16
# Ids in our filters, in that dialect; a frame brings its filter's size, and any peer reads it.
_NIM_CAPACITY = 100
# Ephemeral messages that wait for their turn on the carrier.
EPHEMERAL_WAITING_MAX = 64
# T_max of SDS-R is CHANNEL_PERIODS_MAX periods, sync messages come after two: all members reckon
# alike.
_SYNC_PERIODS = 2
_ALL = "SELECT frame FROM messages WHERE channel = ? ORDER BY lamport, id"
_LOGGED = _ALL.replace(" ORDER", " AND logged IS NOT 0 ORDER")


def settings_of(shared: Shared, participants: int) -> Settings:
    """What the participants of a channel agree on by its period."""
    settings = Settings()
    settings.period_ms = settings.t_min_ms = shared.period_ms
    settings.t_max_ms = shared.period_ms * CHANNEL_PERIODS_MAX
    settings.sync_ms = shared.period_ms * _SYNC_PERIODS
    settings.response_groups = response_groups(participants)
    settings.send_bloom = shared.bloom == "small"
    return settings


ChannelMessage = TypedDict(
    "ChannelMessage",
    {
        "id": Annotated[str, Meta(description="as its author gave it, most often 64 hex digits")],
        "from": Annotated[str, Meta(description="who says that it wrote it, most often an id")],
        "lamport": Annotated[int | None, Meta(description="its Lamport time; it orders the log")],
        "text": Annotated[str, Meta(description="the content; if not UTF-8, its size and start")],
    },
)
ChannelMessage.__doc__ = "A message in the log of a channel."


class AgentChannel:
    """A channel as a shared line carries it. told: gets the fields of each event."""

    def __init__(
        self, member: Member, database: ChannelDatabase, shared: Shared,
        on_message: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self.name = shared.name
        self._on_message = on_message
        id = shared.name.encode()
        self._database = database
        self._keeper = SqliteKeeper(database, id)
        is_nim = shared.dialect == DIALECT_NIM
        # What it writes has to fit the carrier's frames.
        self.frame_size = CABLE_FRAME_SIZE if shared.is_cable else FRAME_SIZE
        self._keeper.work = bytearray(self.frame_size - (_NIM_ROOM if is_nim else 0))
        now_ms = clock.now_ms()
        participants = len(member.config.listeners(shared)) + 1
        settings = settings_of(shared, participants)
        own = member.config.id.hex().encode()
        self.nim: NimChannel | None = None
        if is_nim:
            self.nim = NimChannel(
                id, own, self._keeper, lambda: os.urandom(1)[0], settings, now_ms,
                capacity=_NIM_CAPACITY,
            )  # fmt: skip
            self.channel: Channel = self.nim.channel
        else:
            self.channel = member.node.channel(id, own, self._keeper, settings, now_ms)
        self._unit_ms = settings.unit_ms
        self._tell_time(now_ms)
        self._bridge: Bridge | None = None
        self._side = 0
        self.listener: StoreNode | None = None  # of an agent that serves
        self.recalled = 0
        self._ephemeral: deque[bytes] = deque()  # to be sent once

    def _tell_time(self, now_ms: int) -> None:
        wall = clock.wall_ms() // self._unit_ms
        self.channel.clock.set_wall(wall.to_bytes(8, "little"), now_ms, True)

    def cross(self, bridge: Bridge) -> None:
        """Have what is said here carried to the channel of the other dialect, and back."""
        self._bridge, self._side = bridge, int(self.nim is not None)

    def owed(self) -> OwedMessages:
        """What a bridge brought here and nobody has acknowledged."""
        return OwedMessages(self._database, self.channel.id)

    # --- what a line asks of a link ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Take in a frame, and tell of what entered the log by it."""
        self._tell_time(now_ms)  # a quiet week is longer than it could count itself
        if self.nim is not None:
            code = self.nim.receive(bytes(frame[:size]), now_ms)
            self.events()
            return code
        code = self.channel.receive(frame, size, now_ms)
        if code == EPHEMERAL:
            decoder = self.channel.decoder
            content = bytes(frame[decoder.content_at : decoder.content_at + decoder.content_size])
            sender = bytes(frame[decoder.sender_at : decoder.sender_at + decoder.sender_size])
            self._on_message({
                "channel": self.name, "kind": "ephemeral", "from": sender.decode(errors="replace"),
                "text": payload_text(content),
            })  # fmt: skip
        if self.listener is not None:
            self.listener.note(bytes(frame[:size]))
        self.events()
        return code

    def recall(self, history: History, now_ms: int) -> int:
        """Ask a store node for what is missing; how much came. Raises StorageError."""
        received_count = catch_up(self.channel, history, now_ms)
        self.recalled += received_count
        self.events()
        return received_count

    def turn(self, now_ms: int) -> None:
        """Let time pass, whether or not the carrier is there."""
        self.channel.turn(now_ms)
        self.events()

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame due; its size, or 0."""
        if self._ephemeral:
            content = self._ephemeral.popleft()
            return max(0, self.channel.ephemeral_into(frame, content, 0, len(content)))
        if self.nim is not None:
            written = self.nim.poll(now_ms)
            size = len(written)
            frame[:size] = written
        else:
            size = self.channel.poll_into(frame, now_ms)
        self.events()
        return size

    def wake_ms(self, now_ms: int) -> int:
        """Milliseconds until `poll_into` may have something."""
        if self._ephemeral:
            return 0
        return self.channel.wake_ms(now_ms)

    def sent(self, wire_size: int) -> None:
        """Channels have no accounts in the black box."""

    def received(self, wire_size: int) -> None:
        """Likewise."""

    def damaged(self, count: int) -> None:
        """Likewise."""

    # --- the client ---

    def publish(self, content: bytes, now_ms: int) -> str:
        """Send a message; its id. Raises CapacityError or StorageError."""
        if not 0 < len(content) <= CONTENT_SIZE_MAX:
            raise CapacityError(f"a channel's message has 1 to {CONTENT_SIZE_MAX} bytes")
        self._tell_time(now_ms)
        handle = self.channel.publish(content, 0, len(content), now_ms)
        self._database.check()
        if handle < 0:
            raise CapacityError(f"{self.name}: too many messages wait to be acknowledged")
        self._database.commit()
        fields = self._fields(handle)
        if self._bridge is not None:
            self._bridge.delivered(self._side, handle, now_ms)
            self._bridge.carry_on(now_ms)
        self._on_message({"channel": self.name, "kind": "message", **fields})
        return fields["id"]

    def send_ephemeral(self, content: bytes) -> None:
        """Send a message once, to those who listen now. Raises CapacityError, ConfigError."""
        if self.nim is not None:
            raise ConfigError(
                f'{self.name}: dialect "{DIALECT_NIM}" has no ephemeral messages;'
                " leave --ephemeral out"
            )
        if not 0 < len(content) <= CONTENT_SIZE_MAX:
            raise CapacityError(f"a channel's message has 1 to {CONTENT_SIZE_MAX} bytes")
        if len(self._ephemeral) == EPHEMERAL_WAITING_MAX:
            raise CapacityError(f"{self.name}: too many messages wait to be sent; try again")
        self._ephemeral.append(content)

    def events(self) -> None:
        """Tell of what entered the log, once it is durable. Raises StorageError."""
        self._database.check()
        if self.channel.event_count:
            self._database.commit()
        while (event := self.channel.next_event()) != EVENT_NONE:
            if event not in (EVENT_MESSAGE, EVENT_GAP):
                continue
            handle = self.channel.event_handle
            is_known = self._bridge is not None and not self._bridge.delivered(
                self._side, handle, clock.now_ms()
            )
            if not is_known:  # else as it came to the channel from which it was carried here
                fields = self._fields(handle)
                self._on_message({"channel": self.name, "kind": "message", **fields})
        if self._bridge is not None:
            self._bridge.carry_on(clock.now_ms())

    def _fields(self, handle: int) -> ChannelMessage:
        size = self._keeper.load(handle)
        return message_fields(bytes(self._keeper.work[:size]))

    def status(self) -> dict[str, Any]:
        """Counters for `drupelet status --json`."""
        channel = self.channel
        return {
            "log": channel.log.rows.count,
            "waiting": channel.log.incoming.count,
            "unacknowledged": channel.outbox.rows.count,
            "malformed": channel.malformed,
            "foreign": channel.foreign,
            "repaired": channel.repaired,
            "recalled": self.recalled,
            **self._bridge_status(),
        }

    def _bridge_status(self) -> dict[str, Any]:
        """Counters of both directions, and what waits to be carried here."""
        if self._bridge is None:
            return {}
        bridge = self._bridge
        return {
            "carried": bridge.carried,
            "not_carried": bridge.refused,
            "to_carry": bridge.waiting(self._side),
        }


def message_fields(frame: bytes) -> ChannelMessage:
    """Who wrote a kept message, when by its Lamport value, its id and its text."""
    message = from_sds(frame)
    return {
        "id": payload_text(message.message_id),
        "from": payload_text(message.sender_id),
        "lamport": message.lamport,
        "text": payload_text(message.content or b""),
    }


class ChannelLine(SharedLine):
    """A channel on its carrier."""

    def __init__(
        self, shared: Shared, spoken: AgentChannel, keys: SharedKeys, brokers: Brokers,
        on_change: Callable[[Line], None], after_frame: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(shared, spoken, keys, brokers, on_change, after_frame)
        self.spoken = spoken
        if shared.is_cable:
            self._frame_in = bytearray(spoken.frame_size)
            self._frame_out = bytearray(spoken.frame_size)

    def _open(self) -> Transport:
        if self.url.scheme != "serial":
            return super()._open()
        from drupelet_transports.host.serial_line import open_serial

        return open_serial(self.url, self.spoken.frame_size)

    def status(self) -> ChannelReport:
        """What is said of it."""
        return ChannelReport(**self._said(), **self.spoken.status())


class Channels:
    """All channels of an agent. Raises DrupeletError."""

    def __init__(
        self, member: Member, brokers: Brokers, on_change: Callable[[Line], None],
        event: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self.lines: list[ChannelLine] = []
        self._database: ChannelDatabase | None = None
        self._poll = Poll(clock.now_ms())
        settings = member.config
        group = host_api.group_id(member.node, member.readings)
        for shared in settings.channels:
            if self._database is None:
                self._database = ChannelDatabase(database_path(settings))
            keys = SharedKeys(settings, shared, topic_id(CHANNEL_LABEL, group, shared.name))
            spoken = AgentChannel(member, self._database, shared, event)
            if settings.feed is not None and settings.feed.serve and spoken.nim is None:
                spoken.listener = self.history
            self.lines.append(
                ChannelLine(shared, spoken, keys, brokers, on_change, member.drain_box)
            )
        self._join_bridges(settings.channels)

    def _join_bridges(self, channels: tuple[Shared, ...]) -> None:
        """Begin the bridges between channels of this home. Raises StorageError."""
        spoken = {line.spoken.name: line.spoken for line in self.lines}
        for shared in channels:
            if not shared.bridge:
                continue
            ends = (spoken[shared.name], spoken[shared.bridge])
            sds, nim = sorted(ends, key=lambda end: end.nim is not None)
            assert nim.nim is not None, "the configuration was checked"
            owed = (sds.owed(), nim.owed())
            bridge = Bridge(sds.channel, nim.nim, clock.now_ms(), owed)
            for end in (sds, nim):
                end.cross(bridge)

    def epoch(self, now_ms: int) -> None:
        """Once per epoch: time passes for a channel whose carrier is down, too."""
        for line in self.lines:
            line.spoken.turn(now_ms)

    def publish(
        self, name: str, content: bytes, now_ms: int, is_ephemeral: bool = False
    ) -> dict[str, Any]:
        """Send a message on a channel. Raises DrupeletError."""
        for line in self.lines:
            if line.peer.name == name:
                if is_ephemeral:
                    if line.state != UP:
                        raise CapacityError(f"{name}: not sent: {line.reason or line.state}")
                    line.spoken.send_ephemeral(content)
                    return {"channel": name, "size": len(content)}
                id = line.spoken.publish(content, now_ms)
                return {"channel": name, "id": id}
        raise DrupeletError(f"{name}: no such channel; drupelet.toml has [[channels]] for them")

    def recall(self, stores: Callable[[], Iterable[History]], now_ms: int) -> None:
        """Ask other agents' stores, now and then, for what participants did not repair yet."""
        missing = [
            line.spoken for line in self.lines
            if line.spoken.channel.repair.wanted.count and line.spoken.nim is None
        ]  # fmt: skip
        if not missing or self._poll.wait_ms(now_ms):
            return
        received_count = 0
        try:
            for history in stores():
                received_count += sum(spoken.recall(history, now_ms) for spoken in missing)
        except DrupeletError:
            pass  # nobody needs a store: the participants repair among themselves
        self._poll.looked(received_count > 0, 0, clock.now_ms())

    @property
    def history(self) -> StoreNode | None:
        """What others may ask for; None without channels."""
        return StoreNode(self._database) if self._database is not None else None

    def close(self) -> None:
        """Commit and let go of the file."""
        if self._database is not None:
            self._database.close()


def history(path: Path, channel: str) -> list[ChannelMessage]:
    """What is in the log of a home's channel, in its order. Raises StorageError."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        schema.CHANNELS.recognise(connection, path)
        # What waits for a dependency is kept, but not in the log; older files do not tell.
        query = _LOGGED if "logged" in schema.columns_of(connection) else _ALL
        rows = connection.execute(query, (channel.encode(),)).fetchall()
    except sqlite3.Error as error:
        raise StorageError(database.explain(path, error)) from error
    finally:
        connection.close()
    return [message_fields(row[0]) for row in rows]


def database_path(settings: Config) -> Path:
    """Where a home's channels are kept."""
    return settings.home / DATABASE_NAME
