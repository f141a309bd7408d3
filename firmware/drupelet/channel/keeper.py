"""Where a channel keeps whole messages: the port, and the form of kept frames.

A kept frame is an SDS message as `drupelet.wire.sds.message` writes it, without filter and repair
request:

    0x0A | n | sender_id, n bytes | 0x12 | m | message_id, m bytes | …        n, m <= 127

A handle is > 0 and < 2^30 and is not used again for another message. Only `load` writes to `work`.

    work                                 a buffer of one frame, free between two calls
    put(key, size, waits)                keep work[:size]; the handle or a negative code. What
                                         waits for a dependency is pinned
    load(handle)                         the frame into `work`; its size, 0: it is gone
    find(key, id, at, size)              handle of a message by key and id, or 0
    names_into(handle, out)              its sender and id: size 1 | sender 66 | size 1 | id 66
    barrier()                            make durable what was put; OK or a code
    pin(handle, pinned)                  a pinned message stays; others go when room is needed.
                                         What waited is in the log when it is let go
    waited_ms(handle)                    for how long it waits, as far as is known, at most 2^28;
                                         -1: it is in the log
    drop(handle)                         forget a message
    next(handle)                         handle of the message put after it, 0: the first or none
    tail(count)                          the handle behind which are the last `count` messages
    left                                 messages that were removed for room. One that is not here
                                         may be one of them if its Lamport value is at most
                                         `horizon`, or if it is above `limit`, which the channel
                                         sets, and `left_far` is not 0
"""

from drupelet.base.compat import const
from drupelet.base.limits import CHANNEL_MESSAGE_ID_MAX, CHANNEL_NAME_MAX
from drupelet.base.memory import copy
from drupelet.channel.lamport import compare
from drupelet.wire.sds.message import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, Key

# Where the id begins in what `names_into` writes, and its size in all.
NAMES_ID = const(67)
NAMES_SIZE = const(134)


def compare_ids(names: "Key", start: int, id: "Buffer", at: int, size: int) -> int:
    """-1, 0 or 1 as an id is less than, equal to or more than id[at:at+size].

    names: its size at `start`, then its bytes. Ids are in ascending order of their UTF-8 bytes.
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
    """Write a sender and an id as `names_into` gives them; size 0: unknown, or too long."""
    out[0] = sender_size if sender_at >= 0 and sender_size <= CHANNEL_NAME_MAX else 0
    out[NAMES_ID] = id_size if id_size <= CHANNEL_MESSAGE_ID_MAX else 0
    copy(out, 1, buf, max(sender_at, 0), out[0])
    copy(out, NAMES_ID + 1, buf, id_at, out[NAMES_ID])


def put_names(out: bytearray, frame: "Key", start: int) -> None:
    """Write sender and id of a kept frame as `names_into` gives them."""
    at = start + 3 + frame[start + 1]
    pack_names(out, frame, start + 2, frame[start + 1], at + 1, frame[at])


class Keeper:
    """What bounded keepers have in common: their buffer, and what is known of removed messages."""

    def __init__(self, frame_size: int) -> None:
        self.work = bytearray(frame_size)
        self.left = self.left_far = 0
        self.horizon = bytearray(8)
        self.limit = bytearray(8)
        self._decoder = Decoder()

    def note_removal(self, frame: bytearray, start: int, end: int) -> None:
        """Move the horizon before the message whose front is frame[start:end] is removed."""
        lamport = self._decoder.lamport
        self._decoder.open(frame, start, end)  # that the rest is not there is no matter
        self.left += 1
        if compare(lamport, 0, self.limit, 0) > 0:
            self.left_far += 1
        elif compare(lamport, 0, self.horizon, 0) > 0:
            copy(self.horizon, 0, lamport, 0, 8)
