"""The store node: a channel's history by id, hint and time, for whoever missed some of it.

It listens on a channel like any participant and keeps all content. Nobody needs it: without it the
participants repair among themselves, only later (specs/sds.md "Design Assumptions").
"""

from typing import Protocol

from drupelet.base.errors import CapacityError, PeerError
from drupelet.base.limits import CHANNEL_HISTORY_MAX, CHANNEL_MESSAGE_ID_MAX, CHANNEL_NAME_MAX
from drupelet.channel.channel import Channel
from drupelet.channel.relay import wanted_ids
from drupelet.wire.sds.nim import Entry, Message, from_sds, to_sds
from drupelet_host.store.channel_database import FRAME_SIZE_MAX, ChannelDatabase

# Messages that one channel may fill the disk with: at 300 B each, 300 MB.
MESSAGES_MAX = 1_000_000
# A hint is a hash as a rule; what is longer is not remembered.
HINT_SIZE_MAX = 64
# Answers in one go.
ANSWERS_MAX = 100
# Rounds of asking for what the last answers depend on.
_ROUNDS_MAX = 1000


class StoreNode:
    """History of any number of channels in one database."""

    def __init__(self, database: ChannelDatabase, messages_max: int = MESSAGES_MAX) -> None:
        self._database = database
        self._messages_max = messages_max
        self._counts: dict[bytes, int] = dict(
            database.rows("SELECT channel, count(*) FROM messages GROUP BY channel")
        )
        self.refused = 0

    def hear(self, frame: bytes) -> bool:
        """Keep what a frame on the channel says; True: it was new. Raises PeerError.

        The first message with an id stays. Filters, repair requests, sync messages and ephemeral
        ones are not kept.
        """
        if len(frame) > FRAME_SIZE_MAX:
            raise PeerError(f"a frame of {len(frame)} bytes")
        message = from_sds(frame)
        known = 0 < len(message.message_id) <= CHANNEL_MESSAGE_ID_MAX
        known = known and 0 < len(message.sender_id) <= CHANNEL_NAME_MAX
        if not known or len(message.causal) > CHANNEL_HISTORY_MAX:
            raise PeerError("not a message of this protocol")
        for entry in message.causal:
            self._note(message.channel_id, entry)
        if message.lamport is None or not message.content:
            return False
        return self._keep(message)

    def _keep(self, message: Message) -> bool:
        count = self._counts.get(message.channel_id, 0)
        if count >= self._messages_max:
            self.refused += 1
            raise CapacityError("the store node is full")
        message.bloom = None
        message.repair = []
        done = self._database.write(
            "INSERT OR IGNORE INTO messages (channel, id, lamport, frame) VALUES (?, ?, ?, ?)",
            (
                message.channel_id, message.message_id, (message.lamport or 0).to_bytes(8, "big"),
                to_sds(message),
            ),
        )  # fmt: skip
        self._counts[message.channel_id] = count + done.rowcount
        return done.rowcount == 1

    def note(self, frame: bytes) -> None:
        """Remember the retrieval hints in a frame of a channel that somebody else keeps."""
        try:
            message = from_sds(frame)
        except PeerError:
            return  # counted where it was taken in
        for entry in message.causal[:CHANNEL_HISTORY_MAX]:
            self._note(message.channel_id, entry)

    def _note(self, channel: bytes, entry: Entry) -> None:
        if entry.hint and len(entry.hint) <= HINT_SIZE_MAX:
            self._database.write(
                "INSERT OR IGNORE INTO hints (channel, hint, id) VALUES (?, ?, ?)",
                (channel, entry.hint, entry.message_id),
            )

    def by_id(self, channel: bytes, message_id: bytes) -> bytes | None:
        """A message as a frame of dialect `sds`, or None."""
        rows = self._database.rows(
            "SELECT frame FROM messages WHERE channel = ? AND id = ?", (channel, message_id)
        )
        return rows[0][0] if rows else None

    def by_hint(self, channel: bytes, hint: bytes) -> bytes | None:
        """The message for which somebody gave this retrieval hint, or None."""
        rows = self._database.rows(
            "SELECT id FROM hints WHERE channel = ? AND hint = ?", (channel, hint)
        )
        return self.by_id(channel, rows[0][0]) if rows else None

    def since(self, channel: bytes, lamport: int, after: bytes = b"") -> list[bytes]:
        """Messages in the order of the log behind (lamport, id), at most ANSWERS_MAX."""
        value = lamport.to_bytes(8, "big")
        rows = self._database.rows(
            "SELECT frame FROM messages WHERE channel = ? AND (lamport, id) > (?, ?)"
            " ORDER BY lamport, id LIMIT ?",
            (channel, value, after, ANSWERS_MAX),
        )
        return [row[0] for row in rows]


class History(Protocol):
    """A store node, here or elsewhere."""

    def by_id(self, channel: bytes, message_id: bytes) -> bytes | None:
        """As `StoreNode.by_id`."""


def catch_up(channel: Channel, node: History, now_ms: int) -> int:
    """Ask a store node for what a channel misses, and what that depends on; how much came.

    The client's events are to be taken meanwhile: full, the rest stays for another time.
    """
    received_count = 0
    before: list[bytes] = []
    for _ in range(_ROUNDS_MAX):
        wanted = wanted_ids(channel)
        if wanted == before:
            break  # what comes is not taken in: asking again would not help
        before = wanted
        # All first: while another host is waited for, the channel goes on.
        answers = [(id, frame) for id in wanted if (frame := node.by_id(channel.id, id))]
        for id, frame in answers:
            if not _has(channel, id):
                channel.receive(bytearray(frame), len(frame), now_ms)
                received_count += _has(channel, id)
        channel.log.want_missing(now_ms)
    return received_count


def _has(channel: Channel, id: bytes) -> bool:
    """Whether a message is in the log, or waits to be."""
    key = bytearray(8)
    channel.bloom.key_into(key, 0, id, 0, len(id))
    return channel.keeper.find(key, id, 0, len(id)) > 0
