"""RamFiles whose power goes at a chosen step: before, inside or after any change of the flash."""

import random
from collections.abc import Callable

from drupelet.base.errors import OK
from drupelet.store.files import RamFiles

BEFORE, TORN, AFTER = range(3)
SECTOR_SIZE = 64  # unflushed bytes reach the flash in pieces of this size, in any order

# What a flash holds: name -> bytes, and how many of them are durable.
Image = dict[str, tuple[bytes, int]]


class PowerCut(Exception):
    """The power is gone; nothing happens until `power_on`."""


class CutFiles(RamFiles):
    """Counts every append, flush, creation, rename and removal; cuts at step `cut_at`.

    A torn append leaves half of its bytes, with `garbled` followed by zeros as if the file had
    grown before its blocks were written. Creation, rename and removal are atomic, so torn is the
    same as before there; a torn flush has made half of the tail durable. `programs` counts flushes
    that had something to write, `erases` files that went.

    `on_step`, while `recording`, gets what the flash holds before, inside and after each step.
    `refusal`, while it is not None, is asked before each step: a code that the step returns
    instead of being done, 0 to do it; it may raise MemoryError.
    """

    def __init__(self, cut_at: int = -1, moment: int = BEFORE, garbled: bool = False) -> None:
        super().__init__()
        self.cut_at = cut_at
        self.moment = moment
        self.garbled = garbled
        self.steps = 0
        self.off = False
        self.recording = False
        self.on_step: Callable[[Image, Image, Image], None] = lambda *_: None
        self.refusal: Callable[[], int] | None = None
        self.programs = self.erases = 0

    def power_on(self, kept: int = 0, cut_at: int = -1, hole: bool = False) -> None:
        """Start again with what survived; `kept` unflushed bytes of each file survive, too.

        With a `hole` the middle of them reads as zeros: its blocks were not written in order.
        """
        flushed = dict(self._durable)
        self.power_cut(kept)
        for name, start in flushed.items():
            third = (self._sizes[name] - start) // 3
            if hole:
                self._data[name][start + third : start + 2 * third] = bytes(third)
        self.off = False
        self.steps = 0
        self.cut_at = cut_at

    def reset(self) -> None:
        """Everything is closed; nothing is lost."""
        self._open = [""] * len(self._open)

    def image(self) -> Image:
        """What the flash holds."""
        return {name: (bytes(data), self._durable[name]) for name, data in self._data.items()}

    def restore(self, image: Image, rng: random.Random, reorder: bool) -> None:
        """Hold what survives of an image: of each unflushed tail nothing, a beginning, or all;
        with `reorder` some of its sectors, and zeros, ones or noise in place of others."""
        for name, (data, durable) in image.items():
            tail = bytearray(data[durable:])
            if not reorder:
                del tail[rng.choice((0, rng.randint(0, len(tail)), len(tail))) :]
            else:
                for at in range(0, len(tail), SECTOR_SIZE):
                    size = min(SECTOR_SIZE, len(tail) - at)
                    fate = rng.choice((None, None, bytes(size), b"\xff" * size))
                    if fate is not None:
                        tail[at : at + size] = rng.choice((fate, rng.randbytes(size)))
                del tail[rng.randint(0, 2 * len(tail)) :]
            self._data[name] = bytearray(data[:durable]) + tail
            self._sizes[name] = self._durable[name] = len(self._data[name])
        self.used = sum(self._sizes.values())

    def _step(self, whole: Callable[[], int], torn: Callable[[], object] | None) -> int:
        if self.off:
            raise PowerCut
        if self.refusal is not None:
            code = self.refusal()
            if code:
                return code
        cut = self.steps == self.cut_at
        self.steps += 1
        if self.recording:
            return self._record(whole, torn)
        if not cut:
            return whole()
        self.off = True
        if self.moment == TORN and torn is not None:
            torn()
        elif self.moment == AFTER:
            whole()
        raise PowerCut

    def _record(self, whole: Callable[[], int], torn: Callable[[], object] | None) -> int:
        before = inside = self.image()
        if torn is not None:
            sizes, durable, used = dict(self._sizes), dict(self._durable), self.used
            torn()
            inside = self.image()
            for name, size in sizes.items():
                del self._data[name][size:]
            self._sizes, self._durable, self.used = sizes, durable, used
        code = whole()
        self.on_step(before, inside, self.image())
        return code

    def append(self, fd: int, buf: bytes | bytearray | memoryview, at: int, size: int) -> int:
        plain = super().append

        def torn() -> None:
            plain(fd, buf, at, size // 2)
            if self.garbled or (self.recording and self.steps & 1):
                plain(fd, bytes(size), 0, size - size // 2)

        return self._step(lambda: plain(fd, buf, at, size), torn)

    def flush(self, fd: int) -> int:
        plain = super().flush
        name = self._open[fd]
        self.programs += self._durable[name] < self._sizes[name]

        def torn() -> None:
            self._durable[name] = (self._durable[name] + self._sizes[name]) // 2

        return self._step(lambda: plain(fd), torn)

    def open(self, name: str, create: bool) -> int:
        plain = super().open
        if not create or name in self._data:
            if self.off:
                raise PowerCut
            return plain(name, create)
        return self._step(lambda: plain(name, create), None)

    def rename(self, old: str, new: str) -> int:
        plain = super().rename
        # RamFiles.rename removes the target through `remove`: one step all the same.
        return self._step(lambda: self._whole(lambda: plain(old, new)), None)

    def remove(self, name: str) -> int:
        plain = super().remove

        def whole() -> int:
            code = plain(name)
            self.erases += code == OK
            return code

        return self._step(whole, None)

    def _whole(self, call: Callable[[], int]) -> int:
        off, cut_at, steps = self.off, self.cut_at, self.steps
        recording, refusal = self.recording, self.refusal
        self.off, self.cut_at, self.recording, self.refusal = False, -1, False, None
        code = call()
        self.off, self.cut_at, self.steps = off, cut_at, steps
        self.recording, self.refusal = recording, refusal
        return code
