"""RamFiles whose power goes at a chosen step: before, inside or after any change of the flash."""

from collections.abc import Callable

from drupelet.files import RamFiles

BEFORE, TORN, AFTER = range(3)


class PowerCut(Exception):
    """The power is gone; nothing happens until `power_on`."""


class CutFiles(RamFiles):
    """Counts every append, flush, creation, rename and removal; cuts at step `cut_at`.

    A torn append leaves half of its bytes, with `garbled` followed by zeros as if the file had
    grown before its blocks were written. Creation, rename and removal are atomic, so torn is the
    same as before there; a torn flush has made half of the tail durable.
    """

    def __init__(self, cut_at: int = -1, moment: int = BEFORE, garbled: bool = False) -> None:
        super().__init__()
        self.cut_at = cut_at
        self.moment = moment
        self.garbled = garbled
        self.steps = 0
        self.off = False

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

    def _step(self, whole: Callable[[], int], torn: Callable[[], object]) -> int:
        if self.off:
            raise PowerCut
        cut = self.steps == self.cut_at
        self.steps += 1
        if not cut:
            return whole()
        self.off = True
        if self.moment == TORN:
            torn()
        elif self.moment == AFTER:
            whole()
        raise PowerCut

    def append(self, fd: int, buf: bytes | bytearray | memoryview, at: int, size: int) -> int:
        plain = super().append

        def torn() -> None:
            plain(fd, buf, at, size // 2)
            if self.garbled:
                plain(fd, bytes(size), 0, size - size // 2)

        return self._step(lambda: plain(fd, buf, at, size), torn)

    def flush(self, fd: int) -> int:
        plain = super().flush

        def torn() -> None:
            name = self._open[fd]
            self._durable[name] = (self._durable[name] + self._sizes[name]) // 2

        return self._step(lambda: plain(fd), torn)

    def open(self, name: str, create: bool) -> int:
        plain = super().open
        if not create or name in self._data:
            if self.off:
                raise PowerCut
            return plain(name, create)
        return self._step(lambda: plain(name, create), lambda: None)

    def rename(self, old: str, new: str) -> int:
        plain = super().rename
        # RamFiles.rename removes the target through `remove`: one step all the same.
        return self._step(lambda: self._whole(lambda: plain(old, new)), lambda: None)

    def remove(self, name: str) -> int:
        plain = super().remove
        return self._step(lambda: plain(name), lambda: None)

    def _whole(self, call: Callable[[], int]) -> int:
        off, cut_at, steps = self.off, self.cut_at, self.steps
        self.off, self.cut_at = False, -1
        code = call()
        self.off, self.cut_at, self.steps = off, cut_at, steps
        return code
