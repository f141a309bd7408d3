# host only: boards carry nothing between channels, and speak dialect `sds`
"""What bridges, store nodes and other dialects do with a channel of their own."""

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.channel.repair import WANTED_ID_AT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.channel import Channel


def carry(channel: "Channel", frame: bytearray, size: int, now_ms: int) -> int:
    """Bring a message of another channel into this one, and send it there.

    Its handle; 0: it is here already, or waits for what it depends on; or a negative code.
    """
    message = channel.decoder
    code = message.open(frame, 0, size)
    if code != OK or not message.has_lamport or not message.content_size:
        return E_PEER
    if channel.outbox.rows.is_full():
        return E_CAPACITY
    channel.bloom.key_into(channel.key, 0, frame, message.id_at, message.id_size)
    handle = channel.accept(now_ms, True)
    if handle > 0 and channel.log.incoming.find(channel.key) < 0:
        channel.send_later(handle, now_ms)
    return handle


def send(channel: "Channel", handle: int, now_ms: int) -> int:
    """Put a kept message into the outgoing buffer, whoever wrote it; OK or a code."""
    message = channel.decoder
    work = channel.keeper.work
    size = channel.keeper.load(handle)
    if not size or message.open(work, 0, size) != OK:
        return E_STORAGE
    if channel.outbox.rows.is_full():
        return E_CAPACITY
    channel.bloom.key_into(channel.key, 0, work, message.id_at, message.id_size)
    if channel.outbox.rows.find(channel.key) < 0:
        channel.send_later(handle, now_ms)
    return OK


def wanted_ids(channel: "Channel") -> list[bytes]:
    """The ids of the messages that a channel asks for, in ascending order."""
    wanted = channel.repair.wanted
    places = [row * wanted.stride + WANTED_ID_AT for row in range(wanted.count)]
    return sorted(bytes(wanted.table[at + 1 : at + 1 + wanted.table[at]]) for at in places)


def repeat_newest_into(channel: "Channel", frame: bytearray, now_ms: int) -> int:
    """Write the newest message, of ours if there is one, with a repair request; its size or 0.

    For `Settings.ask_into` of a dialect without sync messages.
    """
    rows = channel.log.rows
    names = channel.log.names
    for row in range(rows.count - 1, -1, -1):
        known = channel.keeper.names_into(rows.handle(row), names)
        if known and channel.log.is_mine(names, 1, names[0]):
            return channel.repeat_into(frame, rows.handle(row), now_ms)
    return channel.repeat_into(frame, rows.handle(rows.count - 1), now_ms) if rows.count else 0
