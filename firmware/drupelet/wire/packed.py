"""Packed messages in bundles between hosts that both support them (docs/SPEC.md 3.8).

    0x46 | messages               in the same group as the previous frame of this bundle
    0x47 | group id 32 | messages
    message: size varint | timestamp delta | body

A bundle is read in order and as a whole, so messages have no numbers and a group is named once.
ACK and REQUEST are sent as `bsp-1` records in frames of their own.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BODY_SIZE_MAX, FRAME_HEADER_SIZE, ID_SIZE, INLINE_SIZE_MAX
from drupelet.base.memory import copy
from drupelet.wire import bsp1
from drupelet.wire.bsp1 import MESSAGE
from drupelet.wire.protobuf import get_varint, put_varint, skip_varint, varint_size
from drupelet.wire.stamps import DELTA_SIZE_MAX, STAMP_SIZE, get_stamp, put_stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange

KIND_PACKED = const(0x46)
KIND_GROUP = const(0x47)
_KIND_PLAIN = const(0x40)


class Packed:
    """The codec of a host's stick link, which is told of it by `use_packing`.

    `packs` says whether the peer reads packed messages.
    """

    def __init__(self, packs: bool) -> None:
        self.packs = packs
        self._group = -1  # group row of the previous frame of this bundle
        self._stamps = bytearray(2 * STAMP_SIZE)  # scratch and last timestamp, see `stamps`

    def begin(self) -> None:
        """Forget the current group: a new bundle is about to be read or written."""
        self._group = -1

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each bsp-1 record of frame[at:end] to the engine; as `bsp1.parse`."""
        return bsp1.parse(exchange, frame, at, end)

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due to frame[at:limit] and the frame's kind to frame[at-1].

        Returns the end of what was written; `at` if nothing is due.
        """
        if not self.packs:
            return bsp1.fill(exchange, frame, at, limit)
        end = bsp1.fill_ids(exchange, frame, at, limit)
        if end > at:
            frame[at - 1] = _KIND_PLAIN
            return end
        core = exchange.core
        stamps = self._stamps
        stamps[:] = bytes(len(stamps))
        group = -1
        while exchange.next_message():
            size = core.store.size
            group_id_size = 0 if group >= 0 or exchange.message_group == self._group else ID_SIZE
            record_size_max = group_id_size + varint_size(size) + DELTA_SIZE_MAX + size
            if size > INLINE_SIZE_MAX or FRAME_HEADER_SIZE + record_size_max > len(frame):
                exchange.too_long()
                continue
            if end + record_size_max > limit or (group >= 0 and exchange.message_group != group):
                break  # the next frame has room
            if group < 0:
                group = exchange.message_group
                frame[at - 1] = KIND_GROUP if group_id_size else KIND_PACKED
                if group_id_size:
                    copy(frame, at, core.members.group_ids, group * ID_SIZE, ID_SIZE)
                    end += ID_SIZE
            begin = end
            end = put_varint(frame, end, size)
            end = put_stamp(frame, end, stamps, STAMP_SIZE, core.store.timestamp)
            copy(stamps, STAMP_SIZE, core.store.timestamp, 0, STAMP_SIZE)
            if exchange.body_into(frame, end, 0, size):
                end += size
            else:
                end = begin  # the disk failed: a truncated body would have another id
            exchange.put_message()
            exchange.count_record(True, MESSAGE, end - begin)
        if group >= 0:
            self._group = group
        return end

    def unpack(self, exchange: "Exchange", frame: bytearray, end: int) -> int:
        """Hand each packed message of frame[:end] to the engine; OK or E_PEER, as `parse`."""
        at = FRAME_HEADER_SIZE
        members = exchange.core.members
        if frame[0] == KIND_GROUP:
            at += ID_SIZE
            if at > end:
                return E_PEER
            self._group = members.group_of(frame, FRAME_HEADER_SIZE)
        stamps = self._stamps
        stamps[:] = bytes(len(stamps))
        while at < end:
            begin = at
            at = skip_varint(frame, begin, end)
            size = get_varint(frame, begin, at) if at > 0 else -1
            if not 0 <= size <= BODY_SIZE_MAX:
                return E_PEER
            at = get_stamp(frame, at, end, stamps, STAMP_SIZE)
            if at < 0 or at + size > end:
                return E_PEER
            if self._group < 0:
                exchange.core.unknown += 1
            else:
                ids_at = self._group * ID_SIZE
                exchange.on_message(members.group_ids, ids_at, stamps, STAMP_SIZE, frame, at, size)
            at += size
            exchange.count_record(False, MESSAGE, at - begin)
        return OK
