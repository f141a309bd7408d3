# host only: sets of thousands of ids, integers of 64 bits and more
"""Decoder of a rateless sketch (`sketch`): finds the difference of two sets.

Three methods, each tried when the previous one is stuck:
- peeling: a symbol with one element left is that element, as its checksum confirms;
- pairs: for a symbol with two elements left, one of them ours, each guess of ours gives the other;
- linear: if the other side only lacks elements, each symbol is 96 equations over GF(2) in which
  our elements are the unknowns. 13 symbols solve for 1,100 elements, whatever the difference.

The wire format does not depend on the method: a decoder that only peels asks for more symbols.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.base.limits import (
    SKETCH_ELEMENTS_MAX,
    SKETCH_LINEAR_MAX,
    SKETCH_PAIRS_MAX,
    SKETCH_SYMBOLS_MAX,
)
from drupelet.wire.protobuf_bytes import varint
from drupelet.wire.sketch.sketch import (
    CHECK_SIZE,
    DONE,
    HEAD_SIZE_MAX,
    LIST,
    MORE,
    PREFIX_SIZE,
    SYMBOL_SIZE,
    SYMBOLS,
    Coder,
    Element,
    Fields,
    by_prefix,
    fold_of,
    is_list_shorter,
    linear_symbols,
)

# Ask for at least this many symbols: a MORE and the head of its answer cost as much as two.
_STEP_MIN = const(4)
# After the guesses of this many calls a decoder only peels, so that a peer cannot waste our time.
_PAIR_CALLS_MAX = const(8)
_LINEAR_TRIES_MAX = const(3)  # each takes up to 0.2 s on a host
# Most elements found per symbol: more come only from symbols that match no set.
_FOUND_PER_SYMBOL = const(2)
_FOUND_SPARE = const(16)
_SYMBOL_BITS = const(96)


class Decoder:
    """The receiving side: reads SYMBOLS records until `verdict` is DONE or LIST.

    `ids` is what it holds now, 32 bytes each. After DONE, `missing` has the 8-byte prefixes of
    what the other side holds and we lack, `surplus` the ids that we hold and it lacks. A decoder
    belongs to one salt: a record with another salt is a new sketch and needs a new decoder
    (`is_for`). CapacityError: more ids than a sketch takes.
    """

    def __init__(self, ids: "list[bytes]") -> None:
        self.ids = ids
        self._ids = by_prefix(ids)
        self._is_unique = len(self._ids) == len(set(ids))
        self.salt = b""
        self.held = 0
        self.known = 0  # symbols read, from 0 on
        self.verdict = MORE
        self.missing: "list[bytes]" = []
        self.surplus: "list[bytes]" = []
        self._own = Coder(set(), bytes(4))
        self._values: "list[int]" = []
        self._checks: "list[int]" = []
        self.decoded: "dict[int, Element]" = {}
        # The found elements by the next symbol that they map to, as in Coder.
        self._due: "dict[int, list[Element]]" = {}
        self._changed: "list[int]" = []  # symbols that peeling must look at
        self._tried: "dict[int, int]" = {}  # symbol -> value for which no pair was found
        self._pairs = 0  # guesses left in this call
        self.pairs_left = _PAIR_CALLS_MAX * SKETCH_PAIRS_MAX  # guesses left in total
        self._linear_tries = 0

    def is_for(self, record: "bytes | bytearray | memoryview") -> bool:
        """Whether a SYMBOLS record belongs to this decoder; any does before the first one."""
        return not self.salt or bytes(record[1:5]) == self.salt

    def add(self, record: "bytes | bytearray | memoryview") -> int:
        """Read a SYMBOLS record; return MORE, DONE, LIST or E_PEER (then nothing has changed).

        Symbols that are known already or that leave a gap are ignored. The work per call is
        bounded by SKETCH_PAIRS_MAX guesses and one linear solution.
        """
        fields = Fields(record)
        held = fields.varint(SKETCH_ELEMENTS_MAX)
        first = fields.varint(SKETCH_SYMBOLS_MAX)
        symbols = fields.items(SYMBOL_SIZE)
        if fields.at < 0 or fields.kind != SYMBOLS or not symbols:
            return E_PEER
        if first + len(symbols) > SKETCH_SYMBOLS_MAX or not self.is_for(record):
            return E_PEER
        if self.salt and held != self.held:
            return E_PEER
        if self.verdict != MORE or not first <= self.known < first + len(symbols):
            return self.verdict
        if not self.salt:
            self.salt = fields.salt
            self.held = held
            if not self._is_unique:
                self.verdict = LIST
                return LIST
            self._own = Coder(set(self._ids), self.salt)
        self._pairs = guesses_max = min(SKETCH_PAIRS_MAX, self.pairs_left)
        for symbol in symbols[self.known - first :]:
            self._append(symbol)
        self._solve()
        self.pairs_left -= guesses_max - self._pairs
        return self.verdict

    def answers(self, size_max: int) -> "list[bytes]":
        """Return the answer to the symbols so far as records of at most `size_max` bytes."""
        if self.verdict == MORE:
            ask = varint(self.known) + varint(self._upto())
            return [bytes((MORE,)) + self.salt + ask]
        if self.verdict == LIST:
            return [bytes((LIST,)) + self.salt]
        fold = fold_of(set(self._ids.values()) - set(self.surplus))
        head = bytes((DONE,)) + self.salt + fold + varint(len(self.missing))
        step = (size_max - HEAD_SIZE_MAX) // PREFIX_SIZE
        assert step > 0
        starts = range(0, max(len(self.missing), 1), step)
        return [head + b"".join(self.missing[at : at + step]) for at in starts]

    def _upto(self) -> int:
        # Estimate how many symbols are needed, from the sizes of the sets and the progress so far.
        own = len(self._own.elements)
        if own > self.held:
            guess = own - self.held
            if own <= SKETCH_LINEAR_MAX and not self._linear_tries:
                guess = min(guess, linear_symbols(own) + 1)
        else:
            guess = (self.held - own) * 3 // 2 + 2
        # No symbol is empty and none could be peeled: there are about twice as many elements as
        # symbols, so ask for as many again.
        is_far = not self.decoded and all(self._values)
        step = self.known if is_far else max(_STEP_MIN, self.known // 3)
        return min(max(guess, self.known + step), SKETCH_SYMBOLS_MAX)

    def _append(self, symbol: bytes) -> None:
        index = self.known
        self._own.make(index + 1)
        value = int.from_bytes(symbol[:PREFIX_SIZE], "big") ^ self._own.values[index]
        check = int.from_bytes(symbol[PREFIX_SIZE:], "big") ^ self._own.checks[index]
        for element in self._due.pop(index, []):
            value ^= element.prefix
            check ^= element.check
            self._due.setdefault(element.after(index), []).append(element)
        self._values.append(value)
        self._checks.append(check)
        self._changed.append(index)
        self.known = index + 1

    def _solve(self) -> None:
        while self._peel() and (self._find_pair() or self._find_linear()):
            pass
        if self.verdict != MORE:
            return
        if not any(self._values) and not any(self._checks):
            self._finish()
        elif self._upto() == self.known or is_list_shorter(self.held, self._upto()):
            self.verdict = LIST

    def _finish(self) -> None:
        prefixes = [prefix.to_bytes(PREFIX_SIZE, "big") for prefix in sorted(self.decoded)]
        surplus = [self._ids[prefix] for prefix in prefixes if prefix in self._ids]
        missing = [prefix for prefix in prefixes if prefix not in self._ids]
        if len(self._ids) - len(surplus) + len(missing) != self.held:
            self.verdict = LIST  # the symbols contradict the announced number of elements
            return
        self.surplus = surplus
        self.missing = missing
        self.verdict = DONE

    def _peel(self) -> bool:
        """Remove elements that are alone in a symbol; False: the symbols match no set."""
        while self._changed:
            index = self._changed.pop()
            value = self._values[index]
            if not value and not self._checks[index]:
                continue
            element = self._element(value)
            if element.check != self._checks[index] or not self._maps(value, index):
                continue
            if not self._take(value):
                self.verdict = LIST
                return False
        return True

    def _element(self, prefix: int) -> Element:
        # For its checksum only: the generator of an element of ours has advanced.
        return self._own.elements.get(prefix) or Element(prefix, self.salt)

    def _maps(self, prefix: int, index: int) -> bool:
        element = Element(prefix, self.salt)
        at = 0
        while at < index:
            at = element.after(at)
        return at == index

    def _take(self, prefix: int) -> bool:
        # An element found twice, or too many elements: the symbols contradict themselves.
        decoded_max = self.known * _FOUND_PER_SYMBOL + _FOUND_SPARE
        if prefix in self.decoded or len(self.decoded) >= decoded_max:
            return False
        self._remove(prefix)
        return True

    def _remove(self, prefix: int) -> None:
        element = self.decoded[prefix] = Element(prefix, self.salt)
        at = 0
        while at < self.known:
            self._values[at] ^= prefix
            self._checks[at] ^= element.check
            self._changed.append(at)
            at = element.after(at)
        self._due.setdefault(at, []).append(element)

    def _find_pair(self) -> bool:
        # Begin at the last symbol, which has the fewest elements.
        for index in range(self.known - 1, -1, -1):
            value = self._values[index]
            if not value or self._tried.get(index) == value:
                continue
            members = self._own.members[index]
            if self._pairs < len(members):
                return False
            self._pairs -= len(members)
            for own in members:
                if self._is_pair(index, own):
                    is_taken = self._take(own.prefix) and self._take(value ^ own.prefix)
                    if not is_taken:
                        self.verdict = LIST
                    return is_taken
            self._tried[index] = value
        return False

    def _is_pair(self, index: int, own: Element) -> bool:
        other = self._values[index] ^ own.prefix
        if own.prefix in self.decoded or other in self.decoded:
            return False
        if self._element(other).check != self._checks[index] ^ own.check:
            return False
        return self._maps(other, index)

    def _find_linear(self) -> bool:
        """Solve for the subset of our elements left in the symbols; False if it is not unique."""
        unknown = [own for own in self._own.elements.values() if own.prefix not in self.decoded]
        missing = sum(prefix not in self._own.elements for prefix in self.decoded)
        surplus_count = len(unknown) + missing - self.held  # if the other side lacks all
        if not 0 < surplus_count or len(unknown) > SKETCH_LINEAR_MAX or not any(self._values):
            return False
        if self.known < linear_symbols(len(unknown)) or self._linear_tries >= _LINEAR_TRIES_MAX:
            return False
        self._linear_tries += 1
        for prefix in self._subset(unknown, surplus_count):
            self._remove(prefix)
        return not any(self._values)

    def _subset(self, unknown: "list[Element]", left: int) -> "list[int]":
        # A row has an element's bits in every symbol and, in its lowest `size` bits, which
        # elements it is a combination of. Rows are kept by their highest bit.
        size = len(unknown)
        last = min(self.known, linear_symbols(size) + 2)
        columns = dict.fromkeys((own.prefix for own in unknown), 0)
        for index in range(last):
            shift = index * _SYMBOL_BITS + size
            for own in self._own.members[index]:
                if own.prefix in columns:
                    columns[own.prefix] |= (own.prefix << 32 | own.check) << shift
        kept: "dict[int, int]" = {}
        for number, bits in enumerate(columns.values()):
            row = _reduced(bits | 1 << number, kept)
            if row >> size == 0:
                return []  # two subsets have the same symbols: more symbols are needed
            kept[row.bit_length()] = row
        target = 0
        for index in range(last):
            symbol = self._values[index] << 8 * CHECK_SIZE | self._checks[index]
            target |= symbol << index * _SYMBOL_BITS
        rest = _reduced(target << size, kept)
        if rest >> size or rest.bit_count() != left:
            return []
        return [own.prefix for number, own in enumerate(unknown) if rest >> number & 1]


def _reduced(row: int, kept: "dict[int, int]") -> int:
    # Cancel the highest bit while there is a row for it.
    while row.bit_length() in kept:
        row ^= kept[row.bit_length()]
    return row
