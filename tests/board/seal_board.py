"""Runs on MicroPython: sealed links with the port's own AES, and what they take of the heap.

seal_board.py TESTS [plain|core]: CCM without viper, or the core's AES for want of `cryptolib`.
Under `heap_lock`: sealing and opening in confirmed epochs, replays, forged frames, whatever comes.
Prints `name bytes` lines: what each declared occasion takes, and what a pair of ends keeps.
"""

import gc
import sys

import micropython

sys.path.append(sys.argv[1])
if sys.argv[2:] == ["core"]:
    sys.modules["cryptolib"] = object()  # type: ignore[assignment]
if sys.argv[2:] == ["plain"]:
    sys.modules["drupelet.base._ccm_viper"] = object()  # type: ignore[assignment]

from boards.aead import Aead
from drupelet.base.aes import Aes
from drupelet.base.ccm import Ccm
from drupelet.base.memory import copy
from drupelet.seal.record import install
from drupelet.seal.seal import Seal, SealContext
from drupelet.seal.sleep import export_into, import_from
from drupelet_transports.common.in_process import pair as loop_pair
from drupelet_transports.seal.sealed_carrier import Sealed
from seal_ends import A_ID, B_ID, FLAG_ISSUER, KID, ROOT, Bytes, RamKeys

# Named constants are numbers in compiled firmware: these are those of the room `seal`.
SLEEP_SIZE = 94
UNCONFIRMED, OWES, RENEW, URGENT = 4, 16, 32, 64
SEQ_AT, OUT_AT, IN_AT = 0, 5, 45
PEERS = 8
ROUNDS = 1500
FUZZED = 5000
now_ms = [0]
aead = Aead()


def used(call, *arguments):
    """Bytes that a call takes, garbage included."""
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    made = call(*arguments)
    taken = gc.mem_alloc() - before
    gc.enable()
    return taken, made


def check_same():
    """The port's AES and the core's give the same frames."""
    other = Ccm(Aes)
    for size in (0, 1, 15, 16, 17, 127, 128, 129, 300):
        one = bytearray(range(256)) + bytearray(200)
        two = bytearray(one)
        nonce = bytearray(range(13))
        aead.seal(aead.cipher(ROOT, 3), nonce, one, 5, 7, size, 8)
        other.seal(other.cipher(ROOT, 3), nonce, two, 5, 7, size, 8)
        assert one == two, size
        assert aead.open(aead.cipher(ROOT, 3), nonce, two, 5, 7, size, 8)
        assert two[12 : 12 + size] == (bytearray(range(256)) + bytearray(200))[12 : 12 + size]


def keys_of(own_id, peer_id, flags):
    keys = RamKeys(own_id, peer_id)
    install(keys, ROOT, KID, 0, flags)
    return keys


def clock():
    return now_ms[0]


def boot(keys, seed):
    context = SealContext(aead, Bytes(seed), b"\0\0\0\1")
    seal = Seal(context, keys, 0)
    assert seal.load() == 0
    return seal


check_same()
a_keys = keys_of(A_ID, B_ID, 0)
b_keys = keys_of(B_ID, A_ID, FLAG_ISSUER)
boot(a_keys, 1)  # what is loaded once is loaded now


def per_peer():
    """What each seal of a device keeps, and each cipher; one of the latter per seal at most."""
    context = SealContext(aead, Bytes(1), b"\0\0\0\1")
    seals = [None] * PEERS
    gc.collect()
    before = gc.mem_alloc()
    for i in range(PEERS):
        seals[i] = Seal(context, a_keys, 0)
        assert seals[i].load() == 0
    gc.collect()
    print("seal_per_peer", (gc.mem_alloc() - before) // PEERS)
    before = gc.mem_alloc()
    for seal in seals:
        context.cipher(seal.at + OUT_AT)
        context.cipher(seal.at + IN_AT)
    gc.collect()
    print("cipher_per_peer", (gc.mem_alloc() - before) // PEERS)
    print("rekey", used(context.cipher, seals[0].at + OUT_AT)[0])
    gc.collect()
    before = gc.mem_alloc()
    kept = aead.cipher(ROOT, 0)
    gc.collect()
    print("cipher", gc.mem_alloc() - before)
    assert kept


per_peer()
a_seal = boot(a_keys, 1)
b_seal = boot(b_keys, 2)
here, there = loop_pair(1024, 4)
buf = bytearray(1024)
a = Sealed(here, a_seal, clock, buf)
b = Sealed(there, b_seal, clock, buf)
frame = bytearray(1001)
text = bytearray(1001)


def exchange(one, other, size):
    assert one.send(text, size) == 0
    got = other.receive_into(frame)
    assert got == size, got


for _ in range(4):
    exchange(a, b, 100)
    exchange(b, a, 100)
assert not (a_seal.flags | b_seal.flags) & UNCONFIRMED

replay = bytearray(1024)
replay_size = a_seal.seal_into(replay, text, 50, 0)
copy(buf, 0, replay, 0, replay_size)
assert b_seal.open(buf, replay_size, 0) == 50


def seq(seal):
    return seal.context.rows[seal.at + SEQ_AT]


def steady(count):
    """What a confirmed epoch is made of; its 256 numbers must last."""
    for n in range(count):
        a.send(text, 1 + n * 37 % 1001)
        b.receive_into(frame)
        b.send(text, 20)
        a.receive_into(frame)
        a.receive_into(frame)


def bad(count):
    """Replays, forged frames and noise."""
    for n in range(count):
        now_ms[0] = (now_ms[0] + 700) & 0x3FFFFFFF
        copy(buf, 0, replay, 0, replay_size)
        if n & 3 == 1:
            buf[9] ^= 1
            buf[6] = 255 - (n & 7)
        elif n & 3 == 2:
            buf[n % 7] ^= 255
        elif n & 3 == 3:
            buf[3] = buf[4] = 0
            buf[5] = 0  # a closed epoch
        assert b_seal.open(buf, replay_size - (n & 1) * (n & 4), now_ms[0]) < 0


def locked(call, count):
    micropython.heap_lock()
    try:
        call(count)
    finally:
        micropython.heap_unlock()


try:
    locked(lambda n: [n] * 9, 1)
except MemoryError:
    pass
else:
    raise AssertionError("the lock must notice an allocation")

bad(8)
locked(bad, ROUNDS)
b_seal.flags &= ~(URGENT | OWES)
steady(2)
rounds = 0
while rounds < ROUNDS:
    count = 250 - max(seq(a_seal), seq(b_seal))
    locked(steady, count)
    rounds += count
    for seal in (a_seal, b_seal):
        seal.flags |= RENEW
    for _ in range(4):
        exchange(a, b, 9)
        exchange(b, a, 9)

a_seal.flags |= RENEW
print("send_epoch", used(a_seal.prepare)[0])
assert a.send(text, 30) == 0
print("receive_epoch", used(b.receive_into, frame)[0])
late = bytearray(1024)
late_size = a_seal.seal_into(late, text, 10, 0)
a_seal.flags |= RENEW
exchange(a, b, 9)
copy(buf, 0, late, 0, late_size)
print("straggler", used(b_seal.open, buf, late_size, now_ms[0])[0])

# Asleep: neither the export nor the frames after the import take more than the two AES objects.
for _ in range(4):
    exchange(a, b, 100)
    exchange(b, a, 100)
kept = bytearray(SLEEP_SIZE)
taken, size = used(export_into, a_seal, kept, 0)
assert size == SLEEP_SIZE
a_seal = boot(a_keys, 5)
saves = a_keys.saves
taken, code = used(import_from, a_seal, kept, 0, size)
assert code == 0
print("wake", taken)
a.seal = a_seal
exchange(a, b, 60)
exchange(b, a, 60)
assert a_keys.saves == saves and len(kept) == size

noise = Bytes(9)


def fuzz(count):
    """Anything behind a head that names us, some of it nearly right."""
    for n in range(count):
        now_ms[0] = (now_ms[0] + 100) & 0x3FFFFFFF
        size = noise()
        for i in range(size):
            buf[i] = noise()
        copy(buf, 1, replay, 1, 2)
        buf[0] = 0x80 | buf[0] & 0x3F
        if n & 3:
            copy(buf, 3, replay, 3, 3)
        got = b_seal.open(buf, size, now_ms[0])
        assert got == -1, got


def everything():
    """Bytes in use after all that may come, good and bad."""
    fuzz(FUZZED)
    for _ in range(3):
        bad(200)
        now_ms[0] += 1000  # wrong tags are forgotten
        for _ in range(300):
            exchange(a, b, 9)
            exchange(b, a, 9)
    gc.collect()
    return gc.mem_alloc()


# What does not grow, once what few seals ever need is there.
before = everything()
print("grown", everything() - before)
