"""JSON for the line harness: a strict reader and a writer, the same on every interpreter.

MicroPython's own reader takes trailing commas and missing ones, leaves surrogate pairs apart and
passes over unknown escapes; CPython's fails on deep nesting where MicroPython's does not. Here
both read RFC 8259 by the letter, within two bounds.
"""

from drupelet.wire.sds.message import is_text

# No request nests deeper than a list of entries in a list of messages: 4.
DEPTH_MAX = 32
# More digits than any integer of 64 bits has, sign and all.
NUMBER_SIZE_MAX = 32
# A reply's string goes out in pieces of so many characters: it may be half of a board's heap.
PIECE_SIZE = 1024

SPACE = b" \t\n\r"
DIGITS = b"0123456789"
HEX = b"0123456789abcdefABCDEF"
QUOTE = ord('"')
BACKSLASH = ord("\\")
WORDS = ((b"true", True), (b"false", False), (b"null", None))
ESCAPES = {
    ord(sign): meant
    for sign, meant in (
        ('"', '"'), ("\\", "\\"), ("/", "/"), ("b", "\b"), ("f", "\f"), ("n", "\n"), ("r", "\r"),
        ("t", "\t"),
    )
}  # fmt: skip


class JsonError(ValueError):
    """Bytes that are no JSON, or more than a request has."""


def read(data, at):
    """Return the one value in data[at:]. Raises JsonError."""
    reader = Reader(data, at)
    value = reader.value(0)
    reader.skip()
    if reader.at != len(data):
        raise JsonError("more behind the JSON value")
    return value


def read_number(data):
    """Return the number that these bytes are. Raises JsonError."""
    reader = Reader(data, 0)
    value = reader.number()
    if reader.at != len(data):
        raise JsonError("no number")
    return value


class Reader:
    """Reads bytes from `at` on; bytes as integers, so that nothing lies between what it makes."""

    def __init__(self, data, at):
        self.data = data
        self.at = at
        self._view = memoryview(data)
        # Space is all that may be below 0x20, and only between strings.
        self._is_controlled = len(data) > 0 and min(data) < 0x20
        if data and max(data) > 0x7F and not is_text(data, 0, len(data)):
            raise JsonError("not UTF-8")

    def next(self):
        """The byte at `at`; 0 at the end."""
        return self.data[self.at] if self.at < len(self.data) else 0

    def skip(self):
        """Pass over space, and return the byte behind it."""
        while self.next() in SPACE:
            self.at += 1
        return self.next()

    def taken(self, sign):
        """Whether this byte comes next; then `at` is behind it."""
        if self.skip() != sign:
            return False
        self.at += 1
        return True

    def value(self, depth):
        if depth > DEPTH_MAX:
            raise JsonError(f"nested deeper than {DEPTH_MAX}")
        if self.taken(QUOTE):
            return self.string()
        if self.taken(ord("{")):
            return self.members(depth + 1)
        if self.taken(ord("[")):
            return self.elements(depth + 1)
        for word, value in WORDS:
            if self.next() == word[0] and self.data[self.at : self.at + len(word)] == word:
                self.at += len(word)
                return value
        return self.number()

    def members(self, depth):
        found = {}
        if self.taken(ord("}")):
            return found
        while True:
            if not self.taken(QUOTE):
                raise JsonError("a key is a string")
            key = self.string()
            if not self.taken(ord(":")):
                raise JsonError("no colon behind a key")
            found[key] = self.value(depth)
            if self.taken(ord("}")):
                return found
            if not self.taken(ord(",")):
                raise JsonError("an object that does not end")

    def elements(self, depth):
        found = []
        if self.taken(ord("]")):
            return found
        while True:
            found.append(self.value(depth))
            if self.taken(ord("]")):
                return found
            if not self.taken(ord(",")):
                raise JsonError("a list that does not end")

    def string(self):
        """What is before the closing quote; `at` is behind the opening one."""
        end = self.data.find(b'"', self.at)
        if end < 0:
            raise JsonError("a string that does not end")
        if self.data.find(b"\\", self.at, end) < 0:
            return self.plain(end)
        parts = []
        while self.next() != QUOTE:
            if self.next() == BACKSLASH:
                self.at += 1
                parts.append(self.escape())
                continue
            end = self.at
            while end < len(self.data) and self.data[end] not in (QUOTE, BACKSLASH):
                end += 1
            if end == len(self.data):
                raise JsonError("a string that does not end")
            parts.append(self.plain(end, 0))
        self.at += 1
        return "".join(parts)

    def plain(self, end, behind=1):
        """The characters before `end`, none of them escaped; goes `behind` bytes further."""
        part = self._view[self.at : end]
        if self._is_controlled and self.at < end and min(part) < 0x20:
            raise JsonError("a control character in a string")
        self.at = end + behind
        return str(part, "utf-8")

    def escape(self):
        """The character of an escape; two of them make one beyond U+FFFF."""
        sign = self.next()
        self.at += 1
        if sign in ESCAPES:
            return ESCAPES[sign]
        point = self.unit(sign)
        if 0xD800 <= point < 0xDC00 and self.next() == BACKSLASH:
            self.at += 1
            sign = self.next()
            self.at += 1
            low = self.unit(sign)
            if not 0xDC00 <= low < 0xE000:
                raise JsonError("half of a surrogate pair")
            return chr(0x10000 + (point - 0xD800 << 10) + low - 0xDC00)
        if 0xD800 <= point < 0xE000:
            raise JsonError("half of a surrogate pair")
        return chr(point)

    def unit(self, sign):
        """The code unit of \\uXXXX; `at` is behind the u."""
        digits = self.data[self.at : self.at + 4]
        self.at += 4
        # int() alone would take a sign, and underscores.
        if sign != ord("u") or len(digits) != 4 or digits.strip(HEX):
            raise JsonError("an escape that JSON has not")
        return int(digits, 16)

    def digits(self):
        """Pass over digits; how many they are."""
        start = self.at
        while self.next() in DIGITS:
            self.at += 1
        return self.at - start

    def number(self):
        start = self.at
        self.at += self.next() == ord("-")
        leading = self.next()
        count = self.digits()
        is_wrong = not count or (count > 1 and leading == DIGITS[0])
        is_whole = True
        if self.next() == ord("."):
            self.at += 1
            is_whole = False
            is_wrong = not self.digits() or is_wrong
        if self.next() in b"eE":
            self.at += 1
            is_whole = False
            self.at += self.next() in b"+-"
            is_wrong = not self.digits() or is_wrong
        if is_wrong:
            raise JsonError("not JSON")
        if self.at - start > NUMBER_SIZE_MAX:
            raise JsonError(f"a number of more than {NUMBER_SIZE_MAX} characters")
        text = str(self._view[start : self.at], "utf-8")
        return int(text) if is_whole else float(text)


def write(put, value):
    """Hand the JSON of a value to `put`, piece by piece: MicroPython's dictionaries have no order.

    A tuple is one string in parts.
    """
    if isinstance(value, dict):
        before = "{"
        for key in sorted(value):
            put(before)
            write(put, key)
            put(": ")
            write(put, value[key])
            before = ", "
        put("}" if value else "{}")
    elif isinstance(value, list):
        before = "["
        for item in value:
            put(before)
            write(put, item)
            before = ", "
        put("]" if value else "[]")
    elif isinstance(value, (str, tuple)):
        put('"')
        for part in (value,) if isinstance(value, str) else value:
            write_characters(put, part)
        put('"')
    else:
        put(word_of(value) or str(value))


def word_of(value):
    """What JSON calls it; 1 and 0 only equal two of them."""
    for word, known in WORDS:
        if value is known:
            return word.decode()
    return None


def write_characters(put, value):
    """What stands between the quotes, in ASCII: MicroPython's dumps would write UTF-8."""
    for at in range(0, len(value), PIECE_SIZE):
        part = value[at : at + PIECE_SIZE]
        raw = part.encode()
        if min(raw) >= 0x20 and max(raw) < 0x7F and b'"' not in raw and b"\\" not in raw:
            put(part)
        else:
            put("".join([escaped(sign) for sign in part]))


def escaped(sign):
    point = ord(sign)
    if sign in '"\\':
        return "\\" + sign
    if 0x20 <= point < 0x7F:
        return sign
    if point < 0x10000:
        return f"\\u{point:04x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"
