"""Runs every hot call of the byte rooms with the heap locked; prints what allocated.

bytes_heap.py MODULE_PATH:MODULE_PATH plain|best
"""

import sys

import micropython

sys.path[:0] = sys.argv[1].split(":")
if sys.argv[2] == "plain":
    sys.modules["drupelet.base._memory_viper"] = object()  # type: ignore[assignment]
    sys.modules["drupelet.base._blake2s_viper"] = object()  # type: ignore[assignment]

from drupelet.base import memory  # noqa: E402
from drupelet.base.hashes import Blake2s, MessageHash  # noqa: E402
from drupelet_transports.common.faulty import FaultyTransport  # noqa: E402
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max  # noqa: E402
from drupelet_transports.common.in_process import pair  # noqa: E402

ROUNDS = 40

a = bytearray(range(200))
b = bytearray(range(200))
out = bytearray(64)
blake2s = Blake2s()
message = MessageHash()
wire = bytearray(wire_size_max(200))
decoder = Decoder(200)
here, there = pair(200, 4)


def draw(below: int) -> int:
    out[40] = (out[40] * 5 + 3) & 255
    return out[40] % below


faulty = FaultyTransport(here, draw, loss=200, repeat=200, reorder=200, flip=200, delay=200)


def run_memory() -> None:
    memory.copy(a, 3, b, 0, 100)
    memory.copy(a, 0, a, 1, 150)
    memory.equal(a, 0, b, 0, 200)
    memory.fill(a, 5, 20, 255)
    memory.find(a, 8, 25, b, 190, 8)
    memory.crc32_into(out, 1, a, 0, 200, True)
    memory.crc32_into(out, 1, b, 0, 200, False)
    memory.put_u16(out, 0, memory.crc16(a, 0, 200, 0xFFFF))
    memory.put_u16_le(out, 0, memory.get_u16(out, 0))
    memory.put_u32(out, 8, 0x3FFFFFFF)
    memory.put_u32_le(out, 8, memory.get_u32(out, 8) >> 8)
    memory.get_u32_le(out, 8)
    memory.fill(out, 16, 6, 255)
    memory.add_u48_le(out, 16, 0x1FFFFFFF)


def run_hashes() -> None:
    blake2s.start()
    blake2s.update(a, 0, 200)
    blake2s.digest_into(out, 0)
    blake2s.start(b"key")
    blake2s.update(a, 1, 127)
    blake2s.digest_into(out, 0)
    message.start(a, 0, b, 0, 150)
    message.update(a, 0, 100)
    message.update(a, 100, 50)
    message.digest_into(out, 0)


def run_frames() -> None:
    end = encode_into(wire, b, 200)
    wire[150] = 0
    at = 0
    while at < end:
        at = decoder.feed(wire, at, end)
    end = encode_into(wire, b, 199)
    at = 0
    while at < end:
        at = decoder.feed(wire, at, end)
    assert decoder.size == 199


def run_carriers() -> None:
    faulty.send(b, 100)
    faulty.receive_into(a)
    while there.receive_into(a) > 0:
        there.send(a, 7)
    there.receive_into(a)


def allocates(call: "object") -> bool:
    call()  # type: ignore[operator]
    micropython.heap_lock()
    try:
        for _ in range(ROUNDS):
            call()  # type: ignore[operator]
    except MemoryError:
        return True
    finally:
        micropython.heap_unlock()
    return False


def sentinel() -> "list[int]":
    return [0] * 10


assert allocates(sentinel), "the lock must notice an allocation"
bad = [
    call.__name__ for call in (run_memory, run_hashes, run_frames, run_carriers) if allocates(call)
]
print("allocating:", " ".join(bad) or "none")
