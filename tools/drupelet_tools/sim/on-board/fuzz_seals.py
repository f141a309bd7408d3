# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed of sealed links: frames that a real peer's key seals around any plaintext.

Behind the tag is where a lying peer begins. Plaintexts are mutated, then most are sealed: with
the peer's present epoch, a new one, one far ahead; some are changed after that, or come again.
"""

import gc
import sys

import drupelet.seal.control  # noqa: F401 - what is loaded once is loaded now
from drupelet.base.memory import copy, get_u16, put_u16
from drupelet.channel.key_distribution import KeyDistribution
from drupelet.channel.sender_keys import SenderKeys
from drupelet.seal.record import PEER_LOST, RECORD_SIZE, finish, install
from drupelet.seal.seal import CLASS_BUNDLE, CLASS_LIVE, Seal, SealContext
from drupelet.seal.sleep import SLEEP_SIZE, export_into, import_from

try:
    __import__("boards.aead")  # not one of this room's packages
    Aead = sys.modules["boards.aead"].Aead
except ImportError:
    from drupelet_host.base.aead import Aead

KID, FLAG_ISSUER = 0x0124, 16
OWES, RENEW, URGENT, OUT_OPEN = 16, 32, 64, 256
OUT_AT, SEQ_AT, OUT_SALT_AT, OUT_EPOCH_AT, KID_AT = 5, 0, 34, 2, 118
IN_EPOCH_AT, GENERATION_AT, WHOLE_EPOCH_AT, TAG_SIZE = 42, 122, 127, 8
KEPT = 16  # sealed frames that may come again
# So many that a right key sealed and that are refused one after the other: begin anew.
DEAF_MAX = 64
TEXT_MAX = 900


class RamKeys:
    """A key port without a medium."""

    def __init__(self, own, peer):
        self.own_id = own
        self.peer_id = peer
        # Chains and name keys, all at once, so that none comes later.
        self.records = bytearray(10 * RECORD_SIZE)
        self.revoked = 0

    def load(self, row, out):
        if not self.records[row * RECORD_SIZE]:
            return -3
        copy(out, 0, self.records, row * RECORD_SIZE, RECORD_SIZE)
        return 0

    def save(self, row, record):
        copy(self.records, row * RECORD_SIZE, record, 0, RECORD_SIZE)
        return 0

    def drop(self, row):
        self.records[row * RECORD_SIZE] = 0
        return 0

    def revoke(self, id, at):
        self.revoked += 1
        return -1 if id[at] != self.peer_id[0] else 0


class Kept:
    """A ring of frames that were sealed."""

    def __init__(self):
        self.frames = [bytearray(1024) for _ in range(KEPT)]
        self.sizes = [1] * KEPT
        self.next = 0

    def put(self, buf, size):
        copy(self.frames[self.next], 0, buf, 0, size)
        self.sizes[self.next] = size
        self.next = (self.next + 1) % KEPT

    def get_into(self, buf, row):
        copy(buf, 0, self.frames[row], 0, self.sizes[row])
        return self.sizes[row]


def spoil(buf, size, word):
    """Change one bit of a sealed frame, most often of its head."""
    at = (word & 0xFF) * min(size, 16 if word & 256 else size) >> 8
    buf[at] ^= 1 << (word >> 9 & 7)
    return size


class SealFuzz:
    """A seal, live or of bundles, that is told things by its issuer."""

    def __init__(self, parser, draw):
        self.draw = draw
        self.carrier_class = CLASS_BUNDLE if parser == "seal-stick" else CLASS_LIVE
        self.aead = Aead()
        self.plain = bytearray(1088)
        self.out = bytearray(1024)
        self.kept = Kept()
        self.now_ms = 0
        self.anew = -2
        self.seal = self.peer = None
        self.begin()
        self.begin()
        rekey = b"\x02\x01\x00\x01" + bytes(range(32))
        self.sound = [b"\x00" + bytes(20), b"\x00" + bytes(60), b"\x00" + bytes(200)]
        self.sound += [b"\x01" + bytes(9), b"\x01" + bytes(39), b"\x10" + bytes(8)]
        self.sound += [rekey, b"\x02\x02C___\0\0", b"\x02\x02B___\0\0", b"\x03new"]

    def begin(self):
        """Provision both ends."""
        # One old pair is always kept: where a collection finds one by chance, nothing has grown.
        self.old = (self.seal, self.peer)
        if hasattr(gc, "mem_alloc"):  # CPython forgets by itself, and takes ms for this
            gc.collect()
        self.anew += 1
        self.deaf = 0
        self.sealed = False
        self.root = bytes(range(32))
        seals = []
        for own, peer in ((b"A___", b"B___"), (b"B___", b"A___")):
            keys = RamKeys(own, peer)
            install(keys, self.root, KID, 0, 0 if seals else FLAG_ISSUER)
            context = SealContext(self.aead, lambda: self.draw(256), bytes(4))
            seals.append(Seal(context, keys, self.carrier_class))
            seals[-1].load()
        self.seal, self.peer = seals
        # A pair that has spoken has all its ciphers: what is in use depends not on its age.
        for sender, receiver in ((seals[0], seals[1]), (seals[1], seals[0])) * 2:
            size = sender.seal_into(self.out, self.plain, 9, 0)
            receiver.open(self.out, size, self.now_ms)

    def fix(self, buf, size, word):
        how = word >> 16
        self.sealed = False
        if how == 0:  # as it is, but for us
            copy(buf, 1, self.seal.context.rows, self.seal.at + KID_AT, 2)
            return size
        if how < 3:
            return self.kept.get_into(buf, word & KEPT - 1)
        if how == 3 and not word & 3:
            self.peer.flags |= RENEW
        size = self.seal_plain(buf, min(size, TEXT_MAX), word)
        if how > 12:
            return spoil(buf, size, word)
        self.sealed = True
        if how == 12:  # before the one that was sealed last
            before = (self.kept.next - 2) % KEPT
            return self.kept.get_into(buf, before)
        return size

    def seal_plain(self, buf, size, word):
        """Make a plaintext, its kind in front, the peer's next frame; its size."""
        peer = self.peer
        if peer.prepare() != 0:
            self.begin()
            return size
        rows = peer.context.rows
        at = peer.at
        kind = buf[0]
        text = size - 1
        copy(self.plain, 0, buf, 1, text)
        seq = rows[at + SEQ_AT]
        salted = not seq or word & 1 or kind & 0x20
        head = 15 if salted else 7
        buf[0] = 0x80 | kind & 0x17 | (0x20 if salted else 0)
        buf[0] |= (rows[at + GENERATION_AT + 1] & 1) << 3
        buf[1] = rows[at + KID_AT]
        buf[2] = rows[at + KID_AT + 1] ^ 1
        copy(buf, 3, rows, at + OUT_EPOCH_AT, 3)
        buf[6] = seq
        if salted:
            copy(buf, 7, rows, at + OUT_SALT_AT, 8)
        copy(buf, head, self.plain, 0, text)
        if kind & 7 == 1 and text >= 9 and word & 6:
            peer._put_status(buf, head)
            if word & 2:
                buf[head + (word >> 3) % 9] = self.plain[0]
        elif kind & 7 == 2 and self.plain[0] == 1 and word & 6:
            newest = get_u16(self.seal.context.rows, self.seal.at + GENERATION_AT)
            put_u16(buf, head + 1, newest + 1 & 0xFFFF)
        copy(self.plain, 0, buf, head, text)  # what was told, to be followed
        rows[at + SEQ_AT] = seq + 1 & 255
        if seq == 255 or not self.draw(64):
            peer.flags |= RENEW
        peer.set_nonce(rows, at + OUT_AT, seq)
        cipher = peer.context.cipher(at + OUT_AT)
        self.aead.seal(cipher, peer.context.nonce, buf, 0, head, text, TAG_SIZE)
        self.kept.put(buf, head + text + TAG_SIZE)
        return head + text + TAG_SIZE

    def feed(self, buf, size):
        self.now_ms = now_ms = (self.now_ms + 30) & 0x3FFFFFFF
        seal = self.seal
        generation = get_u16(seal.context.rows, seal.at + GENERATION_AT)
        code = seal.open(buf, size, now_ms)
        result = 1 if code >= 0 else 0
        if code >= 0:
            self.deaf = 0
            if buf[0] & 7 == 2:
                result |= 2
                self.obeyed(generation)
            elif seal.context.final and self.carrier_class:
                rows = seal.context.rows
                copy(rows, seal.at + WHOLE_EPOCH_AT, rows, seal.at + IN_EPOCH_AT, 3)
                seal.commit()
        elif self.sealed:
            self.deaf += 1
        if seal.flags & PEER_LOST:
            seal.settle()  # a device offers its messages again, then does this
        if seal.flags & (URGENT | OWES) and not now_ms & 2:
            result |= self.answer(now_ms)
        if self.deaf > DEAF_MAX:
            self.begin()
        return result

    def obeyed(self, generation):
        """A control frame was taken: what it asked for is so at the issuer's end, too."""
        if self.seal.keys.revoked:
            self.seal.close()
            self.begin()
        elif self.plain[0] == 1:
            newest = generation + 1 & 0xFFFF
            install(self.peer.keys, bytes(self.plain[3:35]), KID, newest, 0)
            self.peer.flags |= RENEW

    def answer(self, now_ms):
        """Send what is due, to be read by the peer."""
        size = self.seal.seal_into(self.out, self.plain, 3, 0)
        if size < 0:
            self.begin()
            return 0
        self.peer.open(self.out, size, now_ms)
        return 2


class SleepFuzz(SealFuzz):
    """Key state that comes back from RTC memory."""

    def __init__(self, parser, draw):
        SealFuzz.__init__(self, "seal", draw)
        self.sound = []
        kept = bytearray(SLEEP_SIZE)
        text = bytearray(20)
        for _ in range(8):
            for sender, receiver in ((self.seal, self.peer), (self.peer, self.seal)) * 3:
                sender.prepare()
                receiver.open(self.out, sender.seal_into(self.out, text, 20, 0), 0)
            self.seal.flags &= ~(OWES | RENEW)
            if export_into(self.seal, kept, 0):
                self.sound.append(bytes(kept))
                import_from(self.seal, kept, 0, SLEEP_SIZE)
        self.present = bytes(kept)

    def fix(self, buf, size, word):
        if word >> 17 == 0:
            return size
        copy(buf, 2, self.present, 2, 3)  # the records' epochs and generation
        copy(buf, 42, self.present, 42, 3)
        buf[91] = self.present[91]
        return max(size, SLEEP_SIZE)

    def feed(self, buf, size):
        seal = self.seal
        seal.flags &= ~OUT_OPEN
        if import_from(seal, buf, 0, size):
            return 0
        if seal.flags & RENEW or seal.context.rows[seal.at + SEQ_AT] == 255:
            return 1  # an epoch of its own would not fit what is kept
        return 3 if seal.seal_into(self.out, self.plain, 20, 0) > 0 else 1


class SenderKeysFuzz:
    """What a listener makes of a publisher's frames."""

    def __init__(self, parser, draw):
        self.draw = draw
        self.kept = Kept()
        self.plain = bytearray(1088)
        self.now_ms = 0
        self.record = bytearray(RECORD_SIZE)
        self.anew = -1
        self.begin()
        self.sound = [bytes(1), bytes(20), bytes(60), bytes(200)]

    def begin(self):
        """Hand the publisher's key to the listener."""
        self.anew += 1
        ends = []
        for own in (b"A___", b"B___"):
            ends.append(
                SenderKeys(Aead(), RamKeys(own, own), own, lambda: self.draw(256), members_max=2)
            )
            ends[-1].create()
        self.keys, self.writer = ends
        self.writer.record_into(self.record, 0)
        self.keys.admit(self.record, 0)
        self.deaf = 0

    def fix(self, buf, size, word):
        how = word >> 16
        if how == 0:
            return size
        if how < 3:
            return self.kept.get_into(buf, word & KEPT - 1)
        writer = self.writer
        if not word & 63:
            for _ in range(1 + (word >> 6 & 3)):
                writer._open_epoch()
        size = min(size, TEXT_MAX)
        copy(self.plain, 0, buf, 0, size)
        size = writer.seal_into(buf, self.plain, size)
        if size < 0:
            self.begin()
            return 1
        self.kept.put(buf, size)
        return spoil(buf, size, word) if how > 12 else size

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 700) & 0x3FFFFFFF
        if self.keys.open(buf, size, self.now_ms) > 0:
            self.deaf = 0
            return 1
        self.deaf += 1
        if self.deaf > DEAF_MAX:
            self.begin()
        return 0


class HandoverFuzz:
    """Frames in which listeners hand each other sender keys."""

    def __init__(self, parser, draw):
        self.now_ms = 0
        ids = b"B___C___"
        ends = []
        for own, others in ((b"A___", ids), (b"B___", b"A___C___")):
            keys = SenderKeys(Aead(), RamKeys(own, own), own, lambda: draw(256), members_max=3)
            keys.create()
            ends.append(KeyDistribution(keys, own, b"topi", others))
        self.distribution, self.peer = ends
        self.record = bytearray(RECORD_SIZE)
        self.sound = []
        frame = bytearray(80)
        for turn in range(6):
            size = ends[1].record_into(frame, 0)
            self.sound.append(bytes(frame[:size]))
            size = ends[0].receive(frame, size, 0)
            self.sound.append(bytes(frame[:size]))
            ends[1].receive(frame, size, 0)
            if turn & 1:
                ends[1].renew()

    def fix(self, buf, size, word):
        if word >> 17 == 0:
            return size
        size = 65 if size > 30 else 13
        copy(buf, 0, b"\x56topi", 0, 5)
        if size == 65 and word & 7:
            copy(self.record, 0, buf, 5, RECORD_SIZE)
            self.record[0] = 1
            copy(self.record, 12, b"B___", 0, 4)
            finish(self.record)
            copy(buf, 5, self.record, 0, RECORD_SIZE)
        if word & 8:  # of our present chain
            self.distribution.keys.place_into(buf, 57 if size == 65 else 5, b"A___", 0)
        return size

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 700) & 0x3FFFFFFF
        distribution = self.distribution
        if buf[0] != 0x56:
            return 0
        distribution.on_heard(0)
        distribution.is_due(0, self.now_ms)
        answer = distribution.receive(buf, size, 0)
        if answer:
            return 3
        return 1 if distribution.is_confirmed(0) else 0
