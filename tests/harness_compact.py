"""The line harness's verbs for `compact-1`: the same ids as bsp-1, and `feed`.

A stream is the records of one frame, without the frame's kind byte. The core judges each record;
what is in it is taken apart here, byte by byte, from docs/SPEC.md 3.5.
"""

from drupelet.base.errors import E_PEER
from drupelet.base.hashes import MessageHash
from drupelet.engine.clock import Clocks
from drupelet.engine.inbox import Inbox
from drupelet.engine.members import Members
from drupelet.engine.outbox import Outbox
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.compact.numbering import STAMP_AT
from harness_values import pieces, to_hex, unhex

NAMES = ("ACK", "MESSAGE", "OFFER", "REQUEST", "HELLO", "BASE", "GROUP")
EXTENDED = ("UNKNOWN", "SKETCH", "FULL")
# What may follow a record that is cut off: one of these makes it whole if anything can.
ENDINGS = (0, 1, 3)
RECORD_SIZE_MAX = 33000


class Nobody:
    """A node without groups and messages, and a link to it that hears nothing."""

    def __init__(self):
        self.core = self.store = self.graph = self
        self.members = Members(1, 1)
        self.members.add_peer(1)
        self.outbox = Outbox(0, self, self.members)
        self.inbox = Inbox()
        self.outboxes = [self.outbox]
        self.inboxes = [self.inbox]
        self.clocks = Clocks(1)
        self.codec_row = self.link_number = 0
        self.ids = bytearray(64)
        self.newest = self.unknown = self.peer = 0
        self.attention = self.is_crossed_pass = False
        self.epoch = 0
        self.pace = self
        self.every = 1

    def ignore(self, *_):
        """What a record would do to a node."""
        return 0

    find = is_id = id_into = sees = allocate = forget_holds = count_record = ignore
    on_ack = on_gone = on_offer = on_request = on_message = acked = requested = ignore


class Feed(Compact1):
    """Reads record by record and keeps what they say."""

    def __init__(self):
        self.link = Nobody()
        Compact1.__init__(self, self.link)
        self.begin(self.link)
        self.records = []
        self.groups = {}

    def judge(self, held, at, end, keep):
        """The size of the record at held[at], or E_PEER; `keep`: go on behind it."""
        kept = (self._frame_generation, self._number, self._size)
        before = self.stamp()
        self._end = end
        behind = self._record(self.link, held, at + 1, held[at] >> 5, held[at] & 31)
        size = behind - at if behind >= 0 else E_PEER
        if size < 0 or not keep:
            self._frame_generation, self._number, self._size = kept
            for index in range(8):
                self._slab[STAMP_AT + index] = before[index]
        return size

    def stamp(self):
        """The timestamp that was read last."""
        return bytes(self._slab[STAMP_AT : STAMP_AT + 8])

    def may_go_on(self, held):
        """True when the beginning of a record is legal so far."""
        endings = [bytes([ending]) for ending in ENDINGS]
        if self._frame_generation >= 0:
            # It may have to be that of the frame.
            high, low = self._frame_generation >> 8, self._frame_generation & 255
            endings += [bytes([high, low, 1]), bytes([low, 1])]
        for ending in endings:
            whole = held + ending + ending[-1:] * RECORD_SIZE_MAX
            if self.judge(whole, 0, len(whole), False) > 0:
                return True
        return False

    def take(self, held, at=0, end=None):
        """Keep what the record at held[at] says; its size, or E_PEER."""
        number = self._number
        size = self.judge(held, at, len(held) if end is None else end, True)
        if size > 0:
            self.records.append(self.describe(held[at : at + size], number))
        return size

    def describe(self, record, number):
        """A record that was found good, as a dictionary."""
        flags = record[0] & 31
        kind = record[0] >> 5
        if kind == 7:
            return describe_extended(record)
        made = {"type": NAMES[kind]}
        if kind in (0, 3):
            made.update(describe_set(record, flags))
        elif kind == 1:
            made.update(self.describe_message(record, flags))
        elif kind == 2:
            size = 32 if flags & 1 else 8
            made["generation"] = self._frame_generation
            made["number"] = number
            made["ids"] = split(record[1:], size)
        elif kind == 4:
            at = 1
            for bit, name in ((4, "generation"), (1, "answered")):
                made[name] = record[at] << 8 | record[at + 1] if flags & bit else None
                at += 2 if flags & bit else 0
            made["store_gen"] = record[at] << 8 | record[at + 1]
            made["sum"] = to_hex(record[at + 2 :]) if flags & 2 else None
        elif kind == 5:
            made["generation"] = self._frame_generation
            made["number"] = self._number
        else:
            made["index"] = flags
            made["group_id"] = self.groups[flags] = to_hex(record[1:])
        return made

    def describe_message(self, record, flags):
        """A MESSAGE's fields; without its group, if no GROUP told it, there is no id."""
        body = record[len(record) - self._size :]
        index = flags >> 1 & 7
        if index == 7:
            index = record[varint(record, 3)[1] if flags & 17 == 17 else 1]
        group = self.groups.get(index)
        stamp = self.stamp()
        id = None
        if group is not None:
            hashed = MessageHash()
            hashed.start(unhex(group), 0, stamp, 0, len(body))
            hashed.update(body, 0, len(body))
            out = bytearray(32)
            hashed.digest_into(out, 0)
            id = to_hex(out)
        return {
            "generation": self._frame_generation,
            "number": self._number - 1,
            "group_id": group,
            "timestamp": int.from_bytes(stamp, "big"),
            "body": to_hex(body),
            "message_id": id,
        }


def split(data, size):
    return [to_hex(data[at : at + size]) for at in range(0, len(data), size)]


def varint(data, at):
    """Value and end of the varint at data[at]."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def describe_set(record, flags):
    if flags & 3 >= 2:
        return {"ids": split(record[1:], 32 if flags & 3 == 2 else 8)}
    first, at = varint(record, 3)
    if flags & 3:
        bits = record[at + 1 : at + 1 + record[at]]
        numbers = [first + i for i in range(8 * len(bits)) if bits[i // 8] >> i % 8 & 1]
    else:
        count = flags >> 2 or varint(record, at)[0]
        numbers = list(range(first, first + count))
    return {
        "generation": record[1] << 8 | record[2],
        "numbers": numbers,
        "fold": to_hex(record[len(record) - 4 :]),
    }


def describe_extended(record):
    content = record[varint(record, 2)[1] :]
    if record[1] >= len(EXTENDED):
        return {"type": "EXTENDED", "kind": record[1], "content": to_hex(content)}
    made = {"type": EXTENDED[record[1]]}
    if record[1] == 0:
        made["generation"] = content[0] << 8 | content[1]
        made["index"] = content[2]
    elif record[1] == 1:
        made["content"] = to_hex(content)
    return made


def feed(request):
    """Hand a stream over in pieces: its records, the error, and whether it ends within one."""
    stream = unhex(request.pop("stream"))
    sizes = pieces(request, len(stream))
    reading = Feed()
    at = end = turn = 0
    while end < len(stream):
        end = min(end + sizes[turn % len(sizes)], len(stream))
        turn += 1
        size = 1
        # A message without a size goes to the end of the frame.
        while at < end and size > 0 and (stream[at] >> 4 != 3 or end == len(stream)):
            size = reading.take(stream, at, end)
            at += max(size, 0)
    # A beginning that nothing makes whole is never taken: it is enough to ask at the end.
    wrong = at < end and not reading.may_go_on(stream[at:])
    error = "PeerError" if wrong else None
    return {"records": reading.records, "error": error, "truncated": not wrong and at < end}
