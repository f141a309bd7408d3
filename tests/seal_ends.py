"""Ends of sealed links for tests: keys in RAM that can fail, an AEAD that remembers, carriers.

It runs on MicroPython, too.
"""

from drupelet.seal.record import install, is_sound
from drupelet.seal.seal import Seal, SealContext

# Named constants are numbers in compiled firmware: their names are not there.
OK, E_STORAGE = 0, -3
RECORD_SIZE = 52
FLAG_ISSUER = 16
ROOT = bytes(range(32))
KID = 0x1230
A_ID = b"AAAA"
B_ID = b"BBBB"


class RamKeys:
    """Records that survive: `cut` is how the next save ends: "" well, "before", "after"."""

    def __init__(self, own_id, peer_id):
        self.own_id = own_id
        self.peer_id = peer_id
        self.rows = {}
        self.cut = ""
        self.saves = 0
        self.revoked = []
        self.before_save = None

    def load(self, row, out):
        kept = self.rows.get(row)
        if kept is None:
            return E_STORAGE
        out[:RECORD_SIZE] = kept
        return OK

    def save(self, row, record):
        assert is_sound(record) and len(record) == RECORD_SIZE
        if self.cut == "before":
            return E_STORAGE
        self.saves += 1
        self.rows[row] = bytes(record)
        return E_STORAGE if self.cut == "after" else OK

    def drop(self, row):
        self.rows.pop(row, None)
        return OK

    def revoke(self, id, at):
        self.revoked.append(bytes(id[at : at + 6]))
        return OK


class Witness:
    """Wraps an AEAD: no key and nonce may ever seal two different frames."""

    def __init__(self, aead):
        self._aead = aead
        self.sealed = {}
        self.reused = 0

    def cipher(self, key, at):
        return bytes(key[at : at + 16]), self._aead.cipher(key, at)

    def seal(self, cipher, nonce, buf, at, aad_size, size, tag_size):
        used = (cipher[0], bytes(nonce))
        text = bytes(buf[at : at + aad_size + size])
        if self.sealed.setdefault(used, text) is not text:
            self.reused += 1
        self._aead.seal(cipher[1], nonce, buf, at, aad_size, size, tag_size)

    def open(self, cipher, nonce, buf, at, aad_size, size, tag_size):
        return self._aead.open(cipher[1], nonce, buf, at, aad_size, size, tag_size)


class Bytes:
    """Random bytes of a seed."""

    def __init__(self, seed):
        self._state = seed * 7919 + 1 & 0x3FFFFFFF

    def __call__(self):
        self._state = ((self._state & 0xFFFF) * 16381 + (self._state >> 16) + 77) & 0x3FFFFFFF
        return self._state >> 7 & 255


class Clock:
    """Milliseconds that a test moves."""

    def __init__(self):
        self.ms = 0

    def __call__(self):
        return self.ms


class End:
    """One device of a pair: its records survive `boot`, nothing else does."""

    def __init__(self, own_id, peer_id, aead, seed, flags=0, steps_max=1024, carrier_class=0):
        self.keys = RamKeys(own_id, peer_id)
        self.aead = aead
        self.random = Bytes(seed)
        self.steps_max = steps_max
        self.carrier_class = carrier_class
        self.store_gen = seed.to_bytes(4, "big")
        assert install(self.keys, ROOT, KID, 0, flags) == OK
        self.seal = self.boot()

    def boot(self):
        context = SealContext(self.aead, self.random, self.store_gen, self.steps_max)
        self.seal = Seal(context, self.keys, self.carrier_class)
        code = self.seal.load()
        assert code == OK, code
        return self.seal

    def send(self, text, kind=0):
        """The sealed frame, or the code."""
        out = bytearray(1024)
        size = self.seal.seal_into(out, text, len(text), kind)
        return bytes(out[:size]) if size >= 0 else size

    def take(self, frame, now_ms=0):
        """The plaintext for the link, b"" for none, or the code."""
        buf = bytearray(1024)
        buf[: len(frame)] = frame
        size = self.seal.open(buf, len(frame), now_ms)
        return (
            bytes(buf[self.seal.context.at : self.seal.context.at + size]) if size >= 0 else size
        )


def pair(aead, seed=1, **settings):
    """Two ends that are provisioned with each other; the second may be re-keyed by the first."""
    return (
        End(A_ID, B_ID, aead, seed, **settings),
        End(B_ID, A_ID, aead, seed + 1000, FLAG_ISSUER, **settings),
    )


def meet(a, b, now_ms=0):
    """Frames to and fro until both know that the other has their epoch."""
    for _ in range(3):
        assert b.take(a.send(b"?"), now_ms) == b"?"
        assert a.take(b.send(b"!"), now_ms) == b"!"
    assert a.seal.confirmed and b.seal.confirmed


def flipped(frame, at, bit=1):
    out = bytearray(frame)
    out[at] ^= bit
    return bytes(out)
