"""Prints digests of what the byte helpers, hashes and frames do; runs on every interpreter.

    bytes_same.py MODULE_PATH:MODULE_PATH plain|best [KNOWN_ANSWERS]

`plain` hides the viper modules, as on a port without the emitter.
"""

import sys
from binascii import hexlify, unhexlify

sys.path[:0] = sys.argv[1].split(":")
if sys.argv[2] == "plain":
    sys.modules["drupelet.base._memory_viper"] = object()  # type: ignore[assignment]
    sys.modules["drupelet.base._blake2s_viper"] = object()  # type: ignore[assignment]

from drupelet.base import memory  # noqa: E402
from drupelet.base.hashes import Blake2s, MessageHash, group_id_into  # noqa: E402
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max  # noqa: E402


class Noise:
    """The same bytes everywhere: a linear congruential generator on small integers."""

    def __init__(self) -> None:
        self.state = 12345

    def below(self, bound: int) -> int:
        self.state = (self.state * 1103 + 12289) % 1048573
        return (self.state >> 3) % bound

    def bytes(self, size: int) -> bytearray:
        return bytearray(self.below(256) for _ in range(size))


def memory_lines(noise: Noise) -> None:
    out = bytearray(4)
    for turn in range(120):
        buf = noise.bytes(1 + noise.below(90))
        size = noise.below(len(buf) + 1)
        at = noise.below(len(buf) - size + 1)
        start = noise.below(len(buf) - size + 1)
        memory.crc32_into(out, 0, buf, at, size, True)
        memory.crc32_into(out, 0, buf, start, size, False)
        crc = memory.crc16(buf, at, size, 0xFFFF)
        memory.copy(buf, at, buf, start, size)
        same = memory.equal(buf, at, buf, start, size)
        memory.fill(buf, at, size // 2, turn)
        stride = 1 + noise.below(4)
        row = memory.find(buf, stride, len(buf) // stride, bytes([turn] * 4), 0, stride)
        memory.crc32_into(out, 0, buf, 0, len(buf), False)
        print("memory", turn, crc, same, row, hexlify(out).decode())
    counter = bytearray(b"\xff\xff\xff\xff\x00\x00")
    memory.add_u48_le(counter, 0, 0x1FFFFFFF)
    print("u48", hexlify(counter).decode())


def hash_lines(noise: Noise) -> None:
    digest = Blake2s()
    out = bytearray(32)
    for size in (0, 1, 63, 64, 65, 128, 129, 1000):
        data = noise.bytes(size)
        digest.start(noise.bytes(size % 33))
        cut = noise.below(size + 1)
        digest.update(data, 0, cut)
        digest.update(data, cut, size - cut)
        digest.digest_into(out, 0)
        print("blake2s", size, hexlify(out).decode())
    group_id_into(out, noise.bytes(32), noise.bytes(50), 40)
    print("group", hexlify(out).decode())
    message = MessageHash()
    message.start(out, 0, noise.bytes(8), 0, 100)
    message.update(noise.bytes(100), 0, 100)
    message.digest_into(out, 0)
    print("message", hexlify(out).decode())


def frame_lines(noise: Noise) -> None:
    decoder = Decoder(600)
    wire = bytearray(wire_size_max(600))
    for turn in range(60):
        size = 1 + noise.below(600)
        frame = noise.bytes(size) if turn % 3 else bytearray(bytes([turn % 2]) * size)
        end = encode_into(wire, frame, size)
        if turn % 5 == 4:
            wire[noise.below(end)] ^= 1 << noise.below(8)
        at = 0
        while at < end:
            at = decoder.feed(wire, at, end)
            if decoder.size:
                right = memory.equal(decoder.frame, 0, frame, 0, decoder.size)
                print("frame", turn, size, end, decoder.size, decoder.wire_size, right)
    print("damaged", decoder.damaged)


def known_answers(path: str) -> None:
    digest = Blake2s()
    out = bytearray(32)
    right = 0
    with open(path) as lines:
        for line in lines:
            data, key, expected = [unhexlify(part) for part in line.strip().split(",")]
            digest.start(key)
            digest.update(data, 0, len(data))
            digest.digest_into(out, 0)
            right += out == expected
    print("known answers", right, file=sys.stderr)


noise = Noise()
memory_lines(noise)
hash_lines(noise)
frame_lines(noise)
if len(sys.argv) > 3:
    known_answers(sys.argv[3])
loaded = [
    name for name in ("_memory_viper", "_memory_plain") if "drupelet.base." + name in sys.modules
]
print("modules", " ".join(loaded), file=sys.stderr)
