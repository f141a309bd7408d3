"""What a frame of `compact-1` says, read from docs/SPEC.md 3.5 alone: nothing of the core is here.

`records(frame)` is what stands in one frame. `Ledger` hears every frame that leaves a node, keeps
what each number and group index was given to, and so knows which messages a frame speaks of:

    ledger.leaves("a", "b", frame)     what a tells b; BrokenRuleError: a wrote what it must not
    ledger.arrives("b", "a", frame)    what b may take from that frame of a's, once it is there
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from drupelet_tools.sim.readers import Spoken, bsp_message_id

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
    """What a frame says, alone or after all that was said before, is not as it must be."""


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
    """Ids or prefixes; the first one has this number of the sender's, the next one the next."""

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
    """A greeting; -1 where it does not ask or answer, no `sum` if nothing is outstanding."""

    generation: int
    answered: int
    store_gen: int
    sum: bytes


@dataclass(frozen=True, slots=True)
class Extended:
    """UNKNOWN, SKETCH, FULL, or what is to come."""

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
        """Each record but BASE; BrokenRuleError at the first malformed one."""
        while self._at < len(self._data):
            first = self._data[self._at]
            self._at += 1
            found = self._readers[first >> 5](first & 31)
            if found is not None:
                yield found

    # --- pieces ---

    def _take(self, size: int) -> bytes:
        end = self._at + size
        _must(end <= len(self._data), "a record ends behind the frame")
        found = self._data[self._at : end]
        self._at = end
        return found

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
            _must(self._based, "numbers are left out before any is named")
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

    Raises BrokenRuleError behind the last one that stands.
    """
    _must(bool(frame) and frame[0] == KIND, "another kind of frame")
    return _Frame(frame).records()


@dataclass(slots=True)
class Numbers:
    """What one node said to one peer in one generation."""

    ids: dict[int, bytes] = field(default_factory=dict)  # whole, or 8 bytes
    indices: dict[int, int] = field(default_factory=dict)  # number of a message sent -> index
    groups: dict[int, bytes] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)  # indices that the peer showed to know
    past: bool = False  # its sender has had another store since


def _shown(numbers: Numbers, record: NumberSet) -> None:
    """Who acknowledges messages knows the indices of their groups."""
    if record.kind == _ACK:
        indices = (numbers.indices.get(number) for number in record.numbers)
        numbers.known.update(index for index in indices if index is not None)


class Ledger:
    """All that nodes told each other. `whole` finds the message that begins with a prefix."""

    def __init__(self, whole: Callable[[bytes], bytes | None]) -> None:
        self._whole = whole
        # (who, to whom) -> generation -> its numbers; several if it came back with a new store.
        self._said: dict[tuple[str, str], dict[int, list[Numbers]]] = {}
        self._present: dict[tuple[str, str], int] = {}
        self._asked: dict[tuple[str, str], set[int]] = {}

    def reset(self, node: str) -> None:
        """A node has another store: generations of its past may come back."""
        for pair, generations in self._said.items():
            if pair[0] == node:
                self._present.pop(pair, None)
                for tables in generations.values():
                    for numbers in tables:
                        numbers.past = True

    # --- what leaves ---

    def leaves(self, node: str, peer: str, frame: bytes) -> Spoken:
        """What a frame of a node's tells the peer. BrokenRuleError: it should not have left."""
        found = Spoken()
        here: set[int] = set()  # indices that this frame announces
        for record in records(frame):
            if isinstance(record, Group):
                self._announced((node, peer), record)
                here.add(record.index)
            elif isinstance(record, Message):
                self._sent((node, peer), record, here, found)
            elif isinstance(record, Offer):
                for number, id in enumerate(record.ids, record.number):
                    self._numbered((node, peer), record.generation, number, id)
                found.offers.extend(map(self._named, record.ids))
            elif isinstance(record, NumberSet):
                self._told((peer, node), record, found)
            elif isinstance(record, IdSet):
                lists = found.acks if record.kind == _ACK else found.requests
                lists.extend(map(self._named, record.ids))
            elif isinstance(record, Hello):
                self._greeted(node, peer, record)
                found.sums.append(record.sum)
        return found

    def _named(self, id: bytes) -> bytes:
        """The message that an id or prefix stands for; itself if there is none."""
        return id if len(id) == _ID else self._whole(id) or id

    def _numbers(self, pair: tuple[str, str], generation: int) -> Numbers:
        """The numbers of a sender's generation, which is its present one from now on."""
        tables = self._said.setdefault(pair, {}).setdefault(generation, [])
        if self._present.get(pair) != generation:
            _must(all(each.past for each in tables), f"generation {generation} comes back")
            self._present[pair] = generation
            tables.append(Numbers())
        return tables[-1]

    def _numbered(self, pair: tuple[str, str], generation: int, number: int, id: bytes) -> None:
        numbers = self._numbers(pair, generation)
        before = numbers.ids.get(number, id)
        size = min(len(before), len(id))
        _must(before[:size] == id[:size], f"number {number} of {generation} for two messages")
        numbers.ids[number] = max(before, id, key=len)

    def _announced(self, pair: tuple[str, str], record: Group) -> None:
        groups = self._numbers(pair, record.generation).groups
        before = groups.setdefault(record.index, record.id)
        _must(before == record.id, f"index {record.index} for two groups")

    def _sent(
        self, pair: tuple[str, str], record: Message, here: set[int], found: Spoken
    ) -> None:  # fmt: skip
        numbers = self._numbers(pair, record.generation)
        announced = record.index in here or record.index in numbers.known
        _must(announced, f"index {record.index} is not announced, nor known")
        group = numbers.groups[record.index]
        id = bsp_message_id(group, record.timestamp, record.body)
        self._numbered(pair, record.generation, record.number, id)
        numbers.indices[record.number] = record.index
        found.groups.append(group)
        found.messages.append(id)

    def _told(self, pair: tuple[str, str], record: NumberSet, found: Spoken) -> None:
        """A set of the numbers of pair[0], from pair[1]: all of them were given, and fold."""
        tables = self._said.get(pair, {}).get(record.generation, [])
        good = False
        for numbers in reversed(tables):
            ids = self._folding(numbers, record)
            if ids is None:
                continue
            if not good:
                (found.requests if record.kind == _REQUEST else found.acks).extend(ids)
            good = True
            # A generation that came back may number the same: the set is good in both.
            _shown(numbers, record)
        # Who heard both of a generation that came back may mix them: it does nothing there.
        what = f"numbers {record.numbers} of {record.generation}"
        _must(good or len(tables) > 1, f"{what} were not all given, or are not folded so")

    def _folding(self, numbers: Numbers, record: NumberSet) -> list[bytes] | None:
        """The ids of a set, if all its numbers were given and its fold is theirs."""
        if any(number not in numbers.ids for number in record.numbers):
            return None
        ids = [self._named(numbers.ids[number]) for number in record.numbers]
        at = _FOLD_AT[record.kind]
        if any(len(id) < at + _FOLD for id in ids):
            return ids  # of what was withdrawn since it was offered only a prefix is known
        fold = 0
        for id in ids:
            fold ^= int.from_bytes(id[at : at + _FOLD], "big")
        return ids if fold.to_bytes(_FOLD, "big") == record.fold else None

    def _greeted(self, node: str, peer: str, record: Hello) -> None:
        if record.generation >= 0:
            self._numbers((node, peer), record.generation)
            self._asked.setdefault((node, peer), set()).add(record.generation)
        if record.answered >= 0:
            asked = self._asked.get((peer, node), ())
            _must(record.answered in asked, "a HELLO is answered that nobody asked")

    # --- what arrives ---

    def arrives(self, node: str, peer: str, frame: bytes) -> Spoken:
        """What a node may take from a frame of the peer's: sets only of its present numbers."""
        found = Spoken()
        try:
            for record in records(frame):
                self._arrived(node, peer, record, found)
        except BrokenRuleError:
            pass  # damaged on its way: what was read before stands
        return found

    def _arrived(self, node: str, peer: str, record: Record, found: Spoken) -> None:
        if isinstance(record, Message):
            for numbers in self._said.get((peer, node), {}).get(record.generation, []):
                if record.index in numbers.groups:
                    group = numbers.groups[record.index]
                    found.groups.append(group)
                    found.messages.append(bsp_message_id(group, record.timestamp, record.body))
        elif isinstance(record, Offer):
            found.offers.extend(map(self._named, record.ids))
        elif isinstance(record, IdSet):
            lists = found.acks if record.kind == _ACK else found.requests
            lists.extend(map(self._named, record.ids))
        elif (
            isinstance(record, NumberSet) and self._present.get((node, peer)) == record.generation
        ):
            numbers = self._said[node, peer][record.generation][-1]
            lists = found.acks if record.kind == _ACK else found.requests
            ids = self._folding(numbers, record)
            if ids is not None:  # told of one that came back since, it is good in this one, too
                lists.extend(ids)
                _shown(numbers, record)
