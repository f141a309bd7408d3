# host only: sets of thousands of ids, integers of 64 bits and more
"""Rateless sketch: finds the ids that two peers do not share, for a few bytes per difference.

The side that lost its store sends coded symbols of the set that it holds. The other side decodes
the difference to its own set, sends what the first side lacks and asks for the rest. An element is
the 8-byte prefix of a message id. Symbol i is the XOR of the elements that map to it, 8 bytes, and
of their checksums, 4 bytes. The stream of symbols is endless, and every prefix of it is a sketch
(Yang, Gilad, Alizadeh, "Practical Rateless Set Reconciliation", 2024).

    SYMBOLS  0 | salt 4 | held varint | first varint | symbols of 12 bytes, one or more
    MORE     1 | salt 4 | have varint | upto varint
    DONE     2 | salt 4 | fold 4 | total varint | prefixes of 8 bytes, `total` in all parts
    LIST     3 | salt 4

docs/SPEC.md, "SKETCH", draws every byte. No symbol carries a count: the decoder knows which side
an element is on, because it looks it up in its own set.
"""

from hashlib import blake2s
from math import isqrt

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, CapacityError
from drupelet.base.limits import SKETCH_ELEMENTS_MAX, SKETCH_SYMBOLS_MAX
from drupelet.wire.protobuf import get_varint, skip_varint
from drupelet.wire.protobuf_bytes import varint

SYMBOLS = const(0)
MORE = const(1)  # more symbols are needed
DONE = const(2)  # the difference is known
LIST = const(3)  # a plain list of prefixes is cheaper, or the symbols match no set
WAIT = const(4)  # no verdict yet: nothing new, or a DONE is incomplete

PREFIX_SIZE = const(8)
SALT_SIZE = const(4)
CHECK_SIZE = const(4)
SYMBOL_SIZE = const(12)
# Kind and salt, then two varints below 2^21, or one and a fold.
HEAD_SIZE = const(5)
HEAD_SIZE_MAX = const(12)
FOLD_SIZE = const(4)

_U64 = 0xFFFF_FFFF_FFFF_FFFF
# Bounds on how many symbols the first records carry.
_FIRST_MIN = const(4)
_FIRST_MAX = const(16)


def first_symbols(held: int) -> int:
    """Return how many symbols to send first; 0 if the list of the `held` prefixes is shorter.

    That many let the linear decoder (drupelet.wire.sketch.solve) find any loss of up to an eighth
    of the other side's set, and peeling about ten differences of any kind.
    """
    count = min(max(linear_symbols(held + held // 8), _FIRST_MIN), _FIRST_MAX)
    is_longer = count * SYMBOL_SIZE >= held * PREFIX_SIZE
    return 0 if is_longer or is_list_shorter(held, count) else count


def linear_symbols(elements: int) -> int:
    """Return how many symbols determine a subset of `elements` known ones, with 64 spare bits."""
    return (elements + 64) // (8 * SYMBOL_SIZE) + 1


def by_prefix(ids: "list[bytes]") -> "dict[bytes, bytes]":
    """Return the 32-byte ids by their 8-byte prefixes; of ids with the same prefix, one.

    CapacityError: more ids than a sketch takes.
    """
    ids_by_prefix = {id[:PREFIX_SIZE]: id for id in ids}
    if len(ids_by_prefix) > SKETCH_ELEMENTS_MAX:
        raise CapacityError("more ids than a sketch takes")
    return ids_by_prefix


def fold_of(ids: "set[bytes]") -> bytes:
    """Return the XOR of bytes 8 to 11 of these ids."""
    fold = 0
    for id in ids:
        fold ^= int.from_bytes(id[PREFIX_SIZE : PREFIX_SIZE + FOLD_SIZE], "big")
    return fold.to_bytes(FOLD_SIZE, "big")


class Fields:
    """Reads the fields of a SKETCH record in order; `at` is -1 once it is malformed."""

    def __init__(self, record: "bytes | bytearray | memoryview") -> None:
        self.record = bytes(record)
        self.at = HEAD_SIZE if len(record) >= HEAD_SIZE else -1
        self.kind = self.record[0] if self.at > 0 else -1
        self.salt = self.record[1:HEAD_SIZE]

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; b"" if the record is too short, hence malformed."""
        at = self.at
        self.at = at + size if 0 < at <= len(self.record) - size else -1
        return self.record[at : self.at] if self.at > 0 else b""

    def varint(self, most: int) -> int:
        """Return the next varint; -1 if it is above `most` or truncated, hence malformed."""
        if self.at < 0:
            return -1
        varint_end = skip_varint(self.record, self.at, len(self.record))
        value = get_varint(self.record, self.at, varint_end) if varint_end > 0 else -1
        self.at = varint_end if 0 <= value <= most else -1
        return value if self.at > 0 else -1

    def items(self, size: int) -> "list[bytes]":
        """Return the rest in pieces of `size` bytes; malformed if it is not a multiple of it."""
        if self.at < 0 or (len(self.record) - self.at) % size:
            self.at = -1
            return []
        return [self.record[at : at + size] for at in range(self.at, len(self.record), size)]


class Element:
    """An element, its checksum, and a generator (`after`) of the symbols that it maps to."""

    __slots__ = ("check", "prefix", "state")

    def __init__(self, prefix: int, salt: bytes) -> None:
        text = prefix.to_bytes(PREFIX_SIZE, "big")
        digest = blake2s(text, key=salt, digest_size=CHECK_SIZE + 8).digest()
        self.prefix = prefix
        self.check = int.from_bytes(digest[:CHECK_SIZE], "big")
        self.state = int.from_bytes(digest[CHECK_SIZE:], "big")

    def after(self, index: int) -> int:
        """Return the next symbol after `index` that the element maps to; the first one is 0."""
        # splitmix64; r is the upper half of its output plus 1, in 1 .. 2^32.
        self.state = (self.state + 0x9E37_79B9_7F4A_7C15) & _U64
        mixed = ((self.state ^ self.state >> 30) * 0xBF58_476D_1CE4_E5B9) & _U64
        mixed = ((mixed ^ mixed >> 27) * 0x94D0_49BB_1331_11EB) & _U64
        draw = ((mixed ^ mixed >> 31) >> 32) + 1
        # Take the smallest j with (j + 1)(j + 2) r >= (index + 1)(index + 2) 2^32: then an element
        # maps to symbol j with probability 2 / (j + 2), independently of earlier symbols.
        product_min = -(-((index + 1) * (index + 2) << 32) // draw)
        return max(index + 1, (isqrt(4 * product_min) - 1) // 2)


class Coder:
    """Makes the symbols of a set of 8-byte prefixes under a salt, in order and on demand.

    The set is a snapshot: later messages are in no symbol.
    """

    def __init__(self, prefixes: "set[bytes]", salt: bytes) -> None:
        assert len(salt) == SALT_SIZE
        self.elements: "dict[int, Element]" = {}
        for prefix in prefixes:
            assert len(prefix) == PREFIX_SIZE
            number = int.from_bytes(prefix, "big")
            self.elements[number] = Element(number, salt)
        self.values: "list[int]" = []
        self.checks: "list[int]" = []
        # The elements that map to each symbol made so far.
        self.members: "list[list[Element]]" = []
        self._due: "dict[int, list[Element]]" = {0: list(self.elements.values())}

    def make(self, upto: int) -> None:
        """Make the symbols below `upto`, at most SKETCH_SYMBOLS_MAX."""
        assert upto <= SKETCH_SYMBOLS_MAX
        for index in range(len(self.values), upto):
            value = check = 0
            members = self._due.pop(index, [])
            for element in members:
                value ^= element.prefix
                check ^= element.check
                self._due.setdefault(element.after(index), []).append(element)
            self.values.append(value)
            self.checks.append(check)
            self.members.append(members)

    def symbols(self, first: int, count: int) -> bytes:
        """Return the symbols from `first` to first + count - 1, 12 bytes each."""
        self.make(first + count)
        return b"".join(
            self.values[at].to_bytes(PREFIX_SIZE, "big")
            + self.checks[at].to_bytes(CHECK_SIZE, "big")
            for at in range(first, first + count)
        )


class Sketch:
    """The sending side, which lost its store: writes SYMBOLS records and reads the answers.

    `ids` is what it holds, 32 bytes each; `salt` is 4 random bytes, new for every sketch. Call
    `next` until it returns b"", and `again` after an epoch without an answer. When `hear` returns
    DONE, `wanted` has the ids that the other side asks for; it holds all others of the snapshot,
    as the fold proves beyond the prefixes. LIST: offer everything; if `must_full` is set, with
    whole ids on both sides, because two messages have the same prefix.
    """

    def __init__(self, ids: "list[bytes]", salt: bytes) -> None:
        self._ids = by_prefix(ids)
        self._coder = Coder(set(self._ids), salt)
        self.held = len(self._ids)
        self.salt = salt
        self.wanted: "set[bytes]" = set()
        self._have = 0  # the other side has confirmed the symbols below this one
        self._sent = 0
        self._upto = first_symbols(self.held)
        self._total = -1
        is_unique = self.held == len(set(ids))
        self.verdict = WAIT if self._upto and is_unique else LIST
        self.must_full = not is_unique

    def next(self, size_max: int) -> bytes:
        """Return the next SYMBOLS record of at most `size_max` bytes; b"" if none is due."""
        count = min(self._upto - self._sent, (size_max - HEAD_SIZE_MAX) // SYMBOL_SIZE)
        if self.verdict != WAIT or count <= 0:
            return b""
        head = bytes((SYMBOLS,)) + self.salt + varint(self.held) + varint(self._sent)
        self._sent += count
        return head + self._coder.symbols(self._sent - count, count)

    def again(self) -> None:
        """Send again the symbols that the other side has not confirmed."""
        self._sent = self._have

    def hear(self, record: "bytes | bytearray | memoryview") -> int:
        """Read an answer; return WAIT, DONE, LIST or E_PEER (then nothing has changed)."""
        fields = Fields(record)
        if self.verdict != WAIT or fields.salt != self.salt:
            return WAIT if fields.at > 0 else E_PEER
        if fields.kind == MORE:
            return self._hear_more(fields)
        if fields.kind == DONE:
            return self._hear_done(fields)
        if fields.kind != LIST or fields.at != len(fields.record):
            return E_PEER
        self.verdict = LIST
        return LIST

    def _hear_more(self, fields: Fields) -> int:
        have = fields.varint(self._sent)
        upto = fields.varint(SKETCH_SYMBOLS_MAX)
        if fields.at != len(fields.record) or upto <= have:
            return E_PEER
        if have < self._have:
            return WAIT  # older than the last MORE
        if is_list_shorter(self.held, upto):
            self.verdict = LIST
            return LIST
        self._have = self._sent = have
        self._upto = upto
        return WAIT

    def _hear_done(self, fields: Fields) -> int:
        fold = fields.take(FOLD_SIZE)
        total = fields.varint(self.held)
        prefixes = fields.items(PREFIX_SIZE)
        if fields.at < 0 or self._total not in (-1, total):
            return E_PEER
        if not all(prefix in self._ids for prefix in prefixes):
            return E_PEER  # a wrong solution must not acknowledge anything
        wanted = self.wanted | {self._ids[prefix] for prefix in prefixes}
        if len(wanted) > total:
            return E_PEER
        self._total = total
        self.wanted = wanted
        if len(wanted) == total:
            # A wrong fold means that two different messages have the same prefix.
            is_proved = fold == fold_of(set(self._ids.values()) - wanted)
            self.verdict = DONE if is_proved else LIST
            self.must_full = not is_proved
        return self.verdict


def is_list_shorter(held: int, upto: int) -> bool:
    """Whether to list all `held` prefixes instead of sending `upto` symbols.

    True if the symbols cost more than half as much as the list, so no more than that is wasted.
    """
    return upto > _FIRST_MIN and upto * SYMBOL_SIZE * 2 > held * PREFIX_SIZE
