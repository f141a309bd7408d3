"""Keepers, which store a channel's whole messages: their port, and the format of kept frames.

A kept frame is an SDS message as `drupelet.wire.sds.message` writes it, without filter and repair
request:

    0x0A | n | sender_id, n bytes | 0x12 | m | message_id, m bytes | …        n, m <= 127

A handle is 1 .. 2^30 - 1 and never reused for another message. Only `load` writes to `work`.

    work                                 a buffer of one frame, free between two calls
    put(key, size, waits)                keep work[:size]; the handle or a negative code. A message
                                         that waits for a dependency is pinned
    load(handle)                         read the frame into `work`; its size, 0: it is gone
    find(key, id, at, size)              handle of the message with this key and id, or 0
    names_into(handle, out)              write size 1 | sender 66 | size 1 | id 66; False: gone
    barrier()                            flush what was put; OK or a code
    pin(handle, pinned)                  pinned messages are not removed to make room. Unpinning a
                                         message that waited says that it is in the log now
    waited_ms(handle)                    how long a message has waited as far as known, at most
                                         2^28 ms; -1: it is in the log
    drop(handle)                         forget a message
    next(handle)                         handle of the message put after this one, or 0; of the
                                         first message for 0
    tail(count)                          the handle after which the last `count` messages were put
    left                                 how many messages were removed to make room. A message
                                         that is not here may be one of them if its Lamport value
                                         is at most `horizon`, or if it is above `limit`, which the
                                         channel sets, and `left_far` is not 0
"""

from drupelet.base.compat import const
from drupelet.base.limits import CHANNEL_MESSAGE_ID_MAX, CHANNEL_NAME_MAX
from drupelet.base.memory import copy
from drupelet.channel.lamport import compare
from drupelet.wire.sds.message import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, Key

# Offset of the id's size in what `names_into` writes, and its total size.
NAMES_ID = const(67)
NAMES_SIZE = const(134)


def compare_ids(names: "Key", start: int, id: "Buffer", at: int, size: int) -> int:
    """Return -1, 0 or 1 as the id in `names` is less than, equal to or greater than the other.

    The first id is preceded by its size, which is at names[start]; the other is id[at:at+size].
    The order is that of the UTF-8 bytes.
    """
    own = names[start]
    for index in range(min(own, size)):
        one = names[start + 1 + index]
        other = id[at + index]
        if one != other:
            return -1 if one < other else 1
    return 0 if own == size else -1 if own < size else 1


def pack_names(
    out: bytearray, buf: "Buffer", sender_at: int, sender_size: int, id_at: int, id_size: int
) -> None:
    """Write a sender and an id in the format of `names_into`; size 0 if unknown or too long."""
    out[0] = sender_size if sender_at >= 0 and sender_size <= CHANNEL_NAME_MAX else 0
    out[NAMES_ID] = id_size if id_size <= CHANNEL_MESSAGE_ID_MAX else 0
    copy(out, 1, buf, max(sender_at, 0), out[0])
    copy(out, NAMES_ID + 1, buf, id_at, out[NAMES_ID])


def put_names(out: bytearray, frame: "Key", start: int) -> None:
    """Write sender and id of the kept frame at frame[start] in the format of `names_into`."""
    at = start + 3 + frame[start + 1]
    pack_names(out, frame, start + 2, frame[start + 1], at + 1, frame[at])


class Keeper:
    """Base of the bounded keepers: their buffer, and the bounds of removed Lamport values."""

    def __init__(self, frame_size: int) -> None:
        self.work = bytearray(frame_size)
        self.left = self.left_far = 0
        self.horizon = bytearray(8)
        self.limit = bytearray(8)
        self._decoder = Decoder()

    def note_removal(self, frame: bytearray, start: int, end: int) -> None:
        """Raise the horizon for a message that is removed; frame[start:end] is its beginning."""
        lamport = self._decoder.lamport
        self._decoder.open(frame, start, end)  # E_PEER if the content is missing: no matter
        self.left += 1
        if compare(lamport, 0, self.limit, 0) > 0:
            self.left_far += 1
        elif compare(lamport, 0, self.horizon, 0) > 0:
            copy(self.horizon, 0, lamport, 0, 8)
