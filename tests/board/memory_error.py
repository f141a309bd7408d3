"""Two members whose memory runs out, once per run, at one place of the receive or send path.

Runs on MicroPython and CPython. argv: folders of modules, profile, how, first, step.
how: `before` and `after` raise MemoryError at call number n of the files, before or after it did
its work; `locked` locks the heap there, so that the next allocation fails, whatever it is;
`called` locks it when call number n into the node begins (both on MicroPython only).
n goes from `first` on in steps of `step` until a run has fewer calls. Prints one line: runs,
MemoryErrors seen, runs that ended badly, calls in a clean run, and the bad runs.
"""

import gc
import sys

sys.path[:0] = sys.argv[1].split(":")

from drupelet.node import Node  # noqa: E402
from drupelet.store.files import RamFiles  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402

try:
    from micropython import heap_lock, heap_unlock
except ImportError:

    def heap_lock():
        """CPython has no such lock."""

    def heap_unlock():
        """CPython has no such lock."""


# Named constants are numbers in compiled firmware: their names are not there.
SHARED = 2
FAMILY_MVDS = 1
PROFILES = {"bsp-1": 0, "mvds-1": 1, "compact-1": 4}
EPOCH_MS = 1000
ROUNDS_MAX = 120
LONG_SIZE = 1500


class Fuse:
    """Counts calls while armed; blows at call number `at`."""

    def __init__(self, how, at):
        self.how = how
        self.at = at
        self.calls = 0
        self.armed = False
        self.locked = False

    def begin(self):
        """A call into the node begins."""
        self.armed = True
        if self.how == "called":
            self.calls += 1
            if self.calls == self.at:
                self.locked = True
                heap_lock()

    def before(self):
        """A call begins."""
        if not self.armed or self.how == "called":
            return
        self.calls += 1
        if self.calls == self.at and self.how == "before":
            raise MemoryError
        if self.calls == self.at and self.how == "locked":
            self.locked = True
            heap_lock()

    def after(self):
        """A call has done its work."""
        if self.armed and self.calls == self.at and self.how == "after":
            raise MemoryError


class FusedFiles(RamFiles):
    """Files whose every call may find no memory."""

    def __init__(self, fuse):
        RamFiles.__init__(self, 1 << 20)
        self.fuse = fuse

    def open(self, name, create):
        self.fuse.before()
        return RamFiles.open(self, name, create)  # a descriptor that nobody gets is lost for good

    def append(self, fd, buf, at, size):
        self.fuse.before()
        code = RamFiles.append(self, fd, buf, at, size)
        # What a part file holds once too often, its hash finds: it is sent again.
        if not self._open[fd].endswith(".PRT"):
            self.fuse.after()
        return code

    def flush(self, fd):
        self.fuse.before()
        code = RamFiles.flush(self, fd)
        self.fuse.after()
        return code

    def read_into(self, fd, offset, buf, at, size):
        self.fuse.before()
        count = RamFiles.read_into(self, fd, offset, buf, at, size)
        self.fuse.after()
        return count

    def size(self, name):
        self.fuse.before()
        size = RamFiles.size(self, name)
        self.fuse.after()
        return size

    def rename(self, old, new):
        self.fuse.before()
        code = RamFiles.rename(self, old, new)
        self.fuse.after()
        return code

    def remove(self, name):
        self.fuse.before()
        code = RamFiles.remove(self, name)
        self.fuse.after()
        return code


class End:
    """A node, its link to the other one, and the fuse in its files."""

    def __init__(self, name, other, profile, fuse, files=None):
        self.names = name, other
        self.profile = profile
        self.fuse = fuse
        self.files = files or FusedFiles(fuse)
        self.errors = 0
        self.taken = []
        self.boot()

    def boot(self):
        """Make store and node over the files."""
        self.store = FlashStore(self.files, segment_size=1024)
        self.store.open()
        self.node = Node(self.store, lambda: 7, 1, 1, 4, 4)
        family = FAMILY_MVDS if self.profile == 1 else 0
        self.group = self.node.join_id(b"memory error group id, 32 bytes!", family)
        peer = self.node.add_peer(self.names[1])
        self.node.share(self.group, peer, SHARED)
        self.node.boot(0)
        self.link = self.node.link(peer, self.profile, 0, EPOCH_MS, 0)

    def call(self, function, *args):
        """Call into the node; 0 when its memory ran out meanwhile."""
        self.fuse.begin()
        try:
            return function(*args)
        except MemoryError:
            self.errors += 1
            return 0
        finally:
            self.fuse.armed = False
            if self.fuse.locked:
                heap_unlock()
                self.fuse.locked = False

    def log(self):
        """The ids of the log, in order."""
        ids = []
        handle = self.store.next(0)
        while handle:
            assert self.store.load(handle) == 0
            ids.append(bytes(self.store.id))
            handle = self.store.next(handle)
        return ids


frame = bytearray(1024)
stamp = bytearray(8)
body = bytearray(LONG_SIZE)


def publish(end, number, parent, size):
    """Publish until it is in the log; its id. What ran out of memory is published again."""
    stamp[7] = number
    body[0] = 0
    used = 1
    if parent:
        body[0] = 1
        body[1:33] = parent
        used = 33
    if end.profile == 1:
        body[0] |= 0x40
    body[used] = number
    for _ in range(3):
        handle = end.call(end.node.publish, end.group, body, max(size, used + 1), stamp, 0)
        if handle > 0:
            break
    # It may be there though the call that put it there failed.
    return end.log()[-1]


def pass_frames(here, there, now_ms):
    """Everything that is due goes across."""
    for _ in range(20):
        size = here.call(here.link.poll_into, frame, now_ms)
        if not size:
            return
        there.call(there.link.receive, frame, size, now_ms)


def take(end):
    """The client takes in every event."""
    while end.call(end.node.next_event):
        end.taken.append(end.node.event_handle)
        end.node.done(end.node.event_handle)


def run(profile, how, at):
    """One run; (calls, MemoryErrors, is it good)."""
    fuse = Fuse(how, at)
    a = End(b"AAAA", b"BBBB", profile, Fuse("never", 0))
    b = End(b"BBBB", b"AAAA", profile, fuse)
    first = publish(a, 1, b"", 0)
    second = publish(a, 2, first, 0)
    publish(a, 3, second, LONG_SIZE)
    publish(b, 4, b"", 0)
    now_ms = 0
    for _ in range(ROUNDS_MAX):
        now_ms += EPOCH_MS
        pass_frames(a, b, now_ms)
        pass_frames(b, a, now_ms)
        take(a)
        take(b)
        b.call(b.node.save, now_ms)
        if len(a.log()) == 4 == len(b.log()) and now_ms > 20 * EPOCH_MS:
            break
    good = is_good(a, b)
    # And again after a power cut: nothing that was acknowledged may have been lost.
    held = b.log()
    b.files.power_cut()
    b.boot()
    good = good and b.log() == held and a.node.outstanding(2) == 0
    if not good and len(sys.argv) > 6:
        print(at, [len(end.log()) for end in (a, b)], [end.taken for end in (a, b)])
        print([end.node.malformed for end in (a, b)], a.node.outstanding(2))
    return fuse.calls, b.errors, good


def is_good(a, b):
    """Both logs are whole, in order, without doubles; each message was given to the clients."""
    logs = a.log(), b.log()
    good = sorted(logs[0]) == sorted(logs[1]) and len(logs[1]) == 4
    places = [logs[1].index(id) for id in logs[0][:3]] if good else []
    good = good and places == sorted(places)
    good = good and len(set(logs[1])) == 4
    for end in (a, b):
        good = good and len(end.taken) == 4 == len(set(end.taken))
        good = good and end.node.malformed == 0
    return good


def main():
    profile, how = PROFILES[sys.argv[2]], sys.argv[3]
    at, step = int(sys.argv[4]), int(sys.argv[5])
    clean, _, good = run(profile, how, 0)
    runs = errors = 0
    bad = [] if good else [0]
    while at <= clean:
        _, failed, good = run(profile, how, at)
        gc.collect()
        runs += 1
        errors += failed
        if not good:
            bad.append(at)
        at += step
    print(runs, errors, len(bad), clean, bad[:20])


main()
