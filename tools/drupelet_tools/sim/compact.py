"""A reader of `compact-1` frames, written from docs/SPEC.md 3.5 alone, without the core's code.

`records(frame)` gives the records of one frame. `Ledger` reads every frame that leaves a node and
keeps which message each number, and which group each index, stands for. So it can resolve the
numbers in later frames to message ids:

    ledger.leaves("a", "b", frame)     the ids that a sends to b; BrokenRuleError if it may not
    ledger.arrives("b", "a", frame)    the ids that b may take from a's frame when it arrives
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from drupelet_tools.sim.readers import FrameIds, bsp_message_id

KIND = 0x44
_ACK, _MESSAGE, _OFFER, _REQUEST, _HELLO, _BASE, _GROUP, _EXTENDED = range(8)
_RANGE, _BITS, _IDS, _PREFIXES = range(4)
_ID, _PREFIX, _FOLD = 32, 8, 4
_NUMBER_MAX = 32_767
_SET_MAX = 256
_INDEX_MAX = 15
_BODY_MAX = 32_768
_VARINT_END = 1 << 30
_DELTA_BYTES_MAX = 10
_TIMESTAMP_END = 1 << 63
# Where the 4 bytes of an id stand that are folded.
_FOLD_AT = {_ACK: 8, _REQUEST: 4}


class BrokenRuleError(ValueError):
    """A frame breaks a rule of the profile, alone or together with the frames sent before it."""


@dataclass(frozen=True, slots=True)
class NumberSet:
    """ACK or REQUEST of numbers of one generation of the receiver's."""

    kind: int
    generation: int
    numbers: tuple[int, ...]
    fold: bytes


@dataclass(frozen=True, slots=True)
class IdSet:
    """ACK or REQUEST of ids, REQUEST also of prefixes."""

    kind: int
    ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """Ids or prefixes. `number` is the sender's number of the first one; the others follow it."""

    generation: int
    number: int
    ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message under a number and a group's index, both the sender's."""

    generation: int
    number: int
    index: int
    timestamp: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """The sender's index of a group."""

    generation: int
    index: int
    id: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """A greeting. -1 where it does not ask or answer; an empty `sum` if nothing is outstanding."""

    generation: int
    answered: int
    store_gen: int
    sum: bytes


@dataclass(frozen=True, slots=True)
class Extended:
    """UNKNOWN, SKETCH, FULL, or a kind that a later version may define."""

    kind: int
    content: bytes


Record = NumberSet | IdSet | Offer | Message | Group | Hello | Extended


class _Frame:
    """One frame while it is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1
        self._generation = -1  # of the sender, once the frame named it
        self._based = False
        self._number = 0  # of the next message or offered id
        self._size = 0  # of the last body
        self._timestamp = 0
        self._readers: dict[int, Callable[[int], Record | None]] = {
            _ACK: lambda flags: self._set(_ACK, flags),
            _MESSAGE: self._message,
            _OFFER: self._offer,
            _REQUEST: lambda flags: self._set(_REQUEST, flags),
            _HELLO: self._hello,
            _BASE: self._base,
            _GROUP: self._group,
            _EXTENDED: self._extended,
        }

    def records(self) -> Iterator[Record]:
        """Yield each record except BASE; raises BrokenRuleError at the first malformed one."""
        while self._at < len(self._data):
            first = self._data[self._at]
            self._at += 1
            record = self._readers[first >> 5](first & 31)
            if record is not None:
                yield record

    # --- pieces ---

    def _take(self, size: int) -> bytes:
        end = self._at + size
        _must(end <= len(self._data), "a record ends behind the frame")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _u16(self) -> int:
        return int.from_bytes(self._take(2), "big")

    def _varint(self) -> int:
        value = self._long(5)
        _must(value < _VARINT_END, "a varint of 2^30 or more")
        return value

    def _long(self, bytes_max: int) -> int:
        value = 0
        for place in range(bytes_max):
            byte = self._take(1)[0]
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise BrokenRuleError("a varint that does not end")

    def _list(self, count: int, size: int) -> tuple[bytes, ...]:
        _must(count > 0, "a list of none")
        return tuple(self._take(size) for _ in range(count))

    def _named(self, generation: int) -> None:
        _must(self._generation in (-1, generation), "two generations of a sender in a frame")
        self._generation = generation

    def _next(self) -> int:
        """The number of the next message or offered id."""
        _must(self._based, "a MESSAGE, OFFER or GROUP without a BASE")
        _must(0 < self._number <= _NUMBER_MAX, "a number out of 1 to 32,767")
        self._number += 1
        return self._number - 1

    # --- records ---

    def _base(self, flags: int) -> None:
        if flags:
            _must(self._based, "numbers are skipped before a BASE names one")
            self._number += flags
            return
        self._named(self._u16())
        self._number = self._varint()
        self._based = True
        _must(0 < self._number <= _NUMBER_MAX, "a number out of 1 to 32,767")

    def _group(self, flags: int) -> Group:
        _must(self._based, "a MESSAGE, OFFER or GROUP without a BASE")
        _must(flags <= _INDEX_MAX, "a group index above 15")
        return Group(self._generation, flags, self._take(_ID))

    def _message(self, flags: int) -> Message:
        last, index, lowest = flags >> 4, flags >> 1 & 7, flags & 1
        if last and lowest:
            self._base(0)
        number = self._next()
        if index == 7:
            index = self._take(1)[0]
            _must(index <= _INDEX_MAX, "a group index above 15")
        if not last and not lowest:
            self._size = self._varint()
        zigzag = self._long(_DELTA_BYTES_MAX)
        self._timestamp += -(zigzag + 1 >> 1) if zigzag & 1 else zigzag >> 1
        _must(0 <= self._timestamp < _TIMESTAMP_END, "a timestamp out of its range")
        if last:
            self._size = len(self._data) - self._at
        _must(self._size <= _BODY_MAX, "a body above 32,768 bytes")
        body = self._take(self._size)
        stamp = self._timestamp.to_bytes(8, "big")
        return Message(self._generation, number, index, stamp, body)

    def _offer(self, flags: int) -> Offer:
        ids = self._list(flags >> 1, _ID if flags & 1 else _PREFIX)
        numbers = [self._next() for _ in ids]
        return Offer(self._generation, numbers[0], ids)

    def _set(self, kind: int, flags: int) -> Record:
        form, count = flags & 3, flags >> 2
        if form == _IDS:
            return IdSet(kind, self._list(count, _ID))
        if form == _PREFIXES:
            _must(kind == _REQUEST, "an ACK of prefixes")
            return IdSet(kind, self._list(count, _PREFIX))
        generation = self._u16()
        first = self._varint()
        _must(0 < first <= _NUMBER_MAX, "a number out of 1 to 32,767")
        numbers: tuple[int, ...]
        if form == _RANGE:
            count = count or self._varint()
            _must(0 < count <= _SET_MAX, "a range of none, or above 256")
            _must(first + count <= _NUMBER_MAX + 1, "a number above 32,767")
            numbers = tuple(range(first, first + count))
        else:
            size = self._take(1)[0]
            _must(not count and 0 < size <= _SET_MAX // 8, "bits of none, or above 32 bytes")
            bits = int.from_bytes(self._take(size), "little")
            numbers = tuple(first + place for place in range(8 * size) if bits >> place & 1)
        return NumberSet(kind, generation, numbers, self._take(_FOLD))

    def _hello(self, flags: int) -> Hello:
        answers, sums, asks = flags & 1, flags & 2, flags & 4
        _must(flags < 8 and bool(answers or asks), "a HELLO that neither asks nor answers")
        generation = self._u16() if asks else -1
        if asks:
            self._named(generation)
        answered = self._u16() if answers else -1
        return Hello(generation, answered, self._u16(), self._take(8) if sums else b"")

    def _extended(self, flags: int) -> Extended:
        _must(not flags, "an unknown first byte")
        kind = self._take(1)[0]
        content = self._take(self._varint())
        sizes = {0: 3, 2: 0}
        _must(len(content) == sizes.get(kind, len(content)), "an UNKNOWN or FULL of another size")
        return Extended(kind, content)


def _must(good: bool, text: str) -> None:
    if not good:
        raise BrokenRuleError(text)


def records(frame: bytes) -> Iterator[Record]:
    """The records of a frame of kind 0x44, in order, without BASE.

    Raises BrokenRuleError after the last well-formed record.
    """
    _must(bool(frame) and frame[0] == KIND, "another kind of frame")
    return _Frame(frame).records()


@dataclass(slots=True)
class Numbers:
    """The numbers and group indices that one node assigned for one peer in one generation."""

    ids: dict[int, bytes] = field(default_factory=dict)  # whole, or 8 bytes
    indices: dict[int, int] = field(default_factory=dict)  # number of a message sent -> index
    groups: dict[int, bytes] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)  # indices that the peer has shown it knows
    past: bool = False  # the sender has changed its store since


def _note_known_indices(numbers: Numbers, record: NumberSet) -> None:
    """A peer that acknowledges messages knows the indices of their groups: note that."""
    if record.kind == _ACK:
        indices = (numbers.indices.get(number) for number in record.numbers)
        numbers.known.update(index for index in indices if index is not None)


class Ledger:
    """The numbers of all senders. `whole` gives the id of the message with a prefix, or None."""

    def __init__(self, whole: Callable[[bytes], bytes | None]) -> None:
        self._whole = whole
        # (sender, receiver) -> generation -> its numbers. There are several `Numbers` of one
        # generation when the sender used it again after it had changed its store.
        self._numbers_sent: dict[tuple[str, str], dict[int, list[Numbers]]] = {}
        self._present: dict[tuple[str, str], int] = {}
        self._asked: dict[tuple[str, str], set[int]] = {}

    def reset(self, node: str) -> None:
        """Note that a node changed its store: it may use generations of its past again."""
        for pair, generations in self._numbers_sent.items():
            if pair[0] == node:
                self._present.pop(pair, None)
                for tables in generations.values():
                    for numbers in tables:
                        numbers.past = True

    # --- what leaves ---

    def leaves(self, node: str, peer: str, frame: bytes) -> FrameIds:
        """The ids in a frame that a node sends to a peer; raises BrokenRuleError if it may not."""
        frame_ids = FrameIds()
        here: set[int] = set()  # indices that this frame announces
        for record in records(frame):
            if isinstance(record, Group):
                self._note_group((node, peer), record)
                here.add(record.index)
            elif isinstance(record, Message):
                self._note_message((node, peer), record, here, frame_ids)
            elif isinstance(record, Offer):
                for number, id in enumerate(record.ids, record.number):
                    self._note_number((node, peer), record.generation, number, id)
                frame_ids.offers.extend(map(self._whole_id, record.ids))
            elif isinstance(record, NumberSet):
                self._note_set((peer, node), record, frame_ids)
            elif isinstance(record, IdSet):
                lists = frame_ids.acks if record.kind == _ACK else frame_ids.requests
                lists.extend(map(self._whole_id, record.ids))
            elif isinstance(record, Hello):
                self._note_greeting(node, peer, record)
                frame_ids.sums.append(record.sum)
        return frame_ids

    def _whole_id(self, id: bytes) -> bytes:
        """The id of the message with this id or prefix; the prefix itself if none is known."""
        return id if len(id) == _ID else self._whole(id) or id

    def _numbers(self, pair: tuple[str, str], generation: int) -> Numbers:
        """The numbers of a generation; from now on it is the sender's present generation."""
        tables = self._numbers_sent.setdefault(pair, {}).setdefault(generation, [])
        if self._present.get(pair) != generation:
            _must(all(numbers.past for numbers in tables), f"generation {generation} comes back")
            self._present[pair] = generation
            tables.append(Numbers())
        return tables[-1]

    def _note_number(self, pair: tuple[str, str], generation: int, number: int, id: bytes) -> None:
        numbers = self._numbers(pair, generation)
        before = numbers.ids.get(number, id)
        size = min(len(before), len(id))
        _must(before[:size] == id[:size], f"number {number} of {generation} for two messages")
        numbers.ids[number] = max(before, id, key=len)

    def _note_group(self, pair: tuple[str, str], record: Group) -> None:
        groups = self._numbers(pair, record.generation).groups
        before = groups.setdefault(record.index, record.id)
        _must(before == record.id, f"index {record.index} for two groups")

    def _note_message(
        self, pair: tuple[str, str], record: Message, here: set[int], frame_ids: FrameIds
    ) -> None:  # fmt: skip
        numbers = self._numbers(pair, record.generation)
        announced = record.index in here or record.index in numbers.known
        _must(announced, f"index {record.index} is not announced, nor known")
        group = numbers.groups[record.index]
        id = bsp_message_id(group, record.timestamp, record.body)
        self._note_number(pair, record.generation, record.number, id)
        numbers.indices[record.number] = record.index
        frame_ids.groups.append(group)
        frame_ids.messages.append(id)

    def _note_set(self, pair: tuple[str, str], record: NumberSet, frame_ids: FrameIds) -> None:
        """Resolve a set that pair[1] sent of the numbers that pair[0] assigned.

        Raises BrokenRuleError if a number was never assigned, or if the fold does not match.
        """
        tables = self._numbers_sent.get(pair, {}).get(record.generation, [])
        is_known = False
        for numbers in reversed(tables):
            ids = self._folding(numbers, record)
            if ids is None:
                continue
            if not is_known:
                (frame_ids.requests if record.kind == _REQUEST else frame_ids.acks).extend(ids)
            is_known = True
            # A generation that was used twice may number the same messages: the set fits both.
            _note_known_indices(numbers, record)
        # If a generation was used twice, a peer that heard both may mix their numbers. The
        # receiver ignores such a set.
        set_text = f"numbers {record.numbers} of {record.generation}"
        _must(is_known or len(tables) > 1, f"{set_text} were not all given, or are not folded so")

    def _folding(self, numbers: Numbers, record: NumberSet) -> list[bytes] | None:
        """The ids of a set; None if a number was not assigned or the fold does not match."""
        if any(number not in numbers.ids for number in record.numbers):
            return None
        ids = [self._whole_id(numbers.ids[number]) for number in record.numbers]
        at = _FOLD_AT[record.kind]
        if any(len(id) < at + _FOLD for id in ids):
            return ids  # a message that was withdrawn after its offer: only its prefix is known
        fold = 0
        for id in ids:
            fold ^= int.from_bytes(id[at : at + _FOLD], "big")
        return ids if fold.to_bytes(_FOLD, "big") == record.fold else None

    def _note_greeting(self, node: str, peer: str, record: Hello) -> None:
        if record.generation >= 0:
            self._numbers((node, peer), record.generation)
            self._asked.setdefault((node, peer), set()).add(record.generation)
        if record.answered >= 0:
            asked = self._asked.get((peer, node), ())
            _must(record.answered in asked, "a HELLO is answered that nobody asked")

    # --- what arrives ---

    def arrives(self, node: str, peer: str, frame: bytes) -> FrameIds:
        """The ids that a node may take from a peer's frame, without sets of older generations."""
        frame_ids = FrameIds()
        try:
            for record in records(frame):
                self._collect(node, peer, record, frame_ids)
        except BrokenRuleError:
            pass  # damaged on the way: the records before the damage count
        return frame_ids

    def _collect(self, node: str, peer: str, record: Record, frame_ids: FrameIds) -> None:
        if isinstance(record, Message):
            for numbers in self._numbers_sent.get((peer, node), {}).get(record.generation, []):
                if record.index in numbers.groups:
                    group = numbers.groups[record.index]
                    frame_ids.groups.append(group)
                    frame_ids.messages.append(bsp_message_id(group, record.timestamp, record.body))
        elif isinstance(record, Offer):
            frame_ids.offers.extend(map(self._whole_id, record.ids))
        elif isinstance(record, IdSet):
            lists = frame_ids.acks if record.kind == _ACK else frame_ids.requests
            lists.extend(map(self._whole_id, record.ids))
        elif (
            isinstance(record, NumberSet) and self._present.get((node, peer)) == record.generation
        ):
            numbers = self._numbers_sent[node, peer][record.generation][-1]
            lists = frame_ids.acks if record.kind == _ACK else frame_ids.requests
            ids = self._folding(numbers, record)
            if ids is not None:  # also if the peer meant an earlier use of this generation
                lists.extend(ids)
                _note_known_indices(numbers, record)
