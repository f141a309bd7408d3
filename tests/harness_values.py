"""What the line harness reads out of a request, the same on every interpreter.

Every function here raises RequestError, in the same words everywhere.
"""

from binascii import hexlify, unhexlify

from harness_json import read_number

INT64_MAX = (1 << 63) - 1
# A long wire becomes hex in pieces of so many bytes: whole, it would be there twice.
HEX_PIECE_SIZE = 4096
# A piece of a stream: larger ones are the whole stream anyhow.
PIECE_SIZE_MAX = (1 << 31) - 1


class RequestError(ValueError):
    """A request that makes no sense, whatever the profile."""


def to_hex(data):
    return hexlify(data).decode()


def to_hex_pieces(data, size):
    """The hex of data[:size] as a tuple: one string of a reply, in parts."""
    view = memoryview(data)[:size]
    starts = range(0, size, HEX_PIECE_SIZE)
    return tuple([to_hex(view[at : at + HEX_PIECE_SIZE]) for at in starts])


def unhex(value):
    """Strict on every interpreter: MicroPython's unhexlify passes over spaces."""
    if isinstance(value, str):
        try:
            data = unhexlify(value)
        except ValueError:
            data = None
        if data is not None and 2 * len(data) == len(value):
            return data
    raise RequestError("bytes come as hex")


def text(value):
    """UTF-8 of a request's string; none for null."""
    if value is None:
        return b""
    if not isinstance(value, str):
        raise RequestError("text comes as a string")
    return value.encode()


def items(request, key):
    """A list; an empty one where there is none."""
    value = request.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RequestError(f"{key} is no list")
    return value


def number(value):
    """An integer that came as a JSON number or as a decimal string."""
    if isinstance(value, str):
        try:
            value = read_number(value.encode())
        except ValueError:
            value = None
    # Not isinstance: True is an int, on one of the interpreters.
    if type(value) is not int:
        raise RequestError("an integer comes as a number or as decimal digits")
    return value


def ranged(request, key, low, high, absent=None):
    """The integer of a key, between two bounds; `absent` where there is none."""
    value = request.get(key)
    value = absent if value is None and absent is not None else number(value)
    if not low <= value <= high:
        raise RequestError(f"{key} is not {low}..{high}")
    return value


def rate(request, key):
    """A number between 0 and 1, neither of them."""
    value = request.get(key)
    if isinstance(value, str):
        try:
            value = read_number(value.encode())
        except ValueError:
            value = None
    if type(value) not in (int, float) or not 0 < value < 1:
        raise RequestError(f"{key} is not between 0 and 1")
    return float(value)


def pieces(request, size):
    """Sizes to hand a stream of `size` bytes over in, repeating; all at once without any."""
    sizes = [number(value) for value in items(request, "pieces")]
    if sizes and not 1 <= min(sizes) <= max(sizes) <= PIECE_SIZE_MAX:
        raise RequestError(f"a piece has 1..{PIECE_SIZE_MAX} bytes")
    return sizes or [size or 1]
