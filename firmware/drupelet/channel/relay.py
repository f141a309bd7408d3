# host only: boards do not relay between channels, and use dialect `sds`
"""What bridges, store nodes and other dialects do with a channel."""

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import CHANNEL_OUT_MAX
from drupelet.channel.repair import WANTED_ID_AT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.channel import Channel

# What is carried takes this many places of the outgoing buffer at most, so that a bridge that is
# never done with carrying has four for what is said on it.
_CARRIED_MAX = CHANNEL_OUT_MAX - 4
assert _CARRIED_MAX > 0


def has_room(channel: "Channel") -> bool:
    """Whether the outgoing buffer has room for a message of another channel."""
    return channel.outbox.rows.count < _CARRIED_MAX


def carry(channel: "Channel", frame: bytearray, size: int, now_ms: int) -> int:
    """Accept a message of another channel into this one, and queue it for sending.

    Returns its handle; 0 if it is here already; or a negative code. If it waits for a dependency,
    it is not queued.
    """
    message = channel.decoder
    code = message.open(frame, 0, size)
    if code != OK or not message.has_lamport or not message.content_size:
        return E_PEER
    if not has_room(channel):
        return E_CAPACITY
    channel.bloom.key_into(channel.key, 0, frame, message.id_at, message.id_size)
    handle = channel.accept(now_ms, True)
    if handle > 0 and channel.log.incoming.find(channel.key) < 0:
        channel.send_later(handle, now_ms)
    return handle


def send(channel: "Channel", handle: int, now_ms: int) -> int:
    """Add a kept message by any sender to the outgoing buffer; OK or a code."""
    message = channel.decoder
    work = channel.keeper.work
    size = channel.keeper.load(handle)
    if not size or message.open(work, 0, size) != OK:
        return E_STORAGE
    if not has_room(channel):
        return E_CAPACITY
    channel.bloom.key_into(channel.key, 0, work, message.id_at, message.id_size)
    if channel.outbox.rows.find(channel.key) < 0:
        channel.send_later(handle, now_ms)
    return OK


def wanted_ids(channel: "Channel") -> list[bytes]:
    """Return the ids of the messages that a channel requests, in ascending order."""
    wanted = channel.repair.wanted
    places = [row * wanted.stride + WANTED_ID_AT for row in range(wanted.count)]
    return sorted(bytes(wanted.table[at + 1 : at + 1 + wanted.table[at]]) for at in places)


def repeat_newest_into(channel: "Channel", frame: bytearray, now_ms: int) -> int:
    """Write our newest message, or else the newest one, with a repair request; its size or 0.

    This is the `Settings.ask_into` of a dialect without sync messages.
    """
    rows = channel.log.rows
    names = channel.log.names
    for row in range(rows.count - 1, -1, -1):
        is_kept = channel.keeper.names_into(rows.handle(row), names)
        if is_kept and channel.log.is_mine(names, 1, names[0]):
            return channel.repeat_into(frame, rows.handle(row), now_ms)
    return channel.repeat_into(frame, rows.handle(rows.count - 1), now_ms) if rows.count else 0
