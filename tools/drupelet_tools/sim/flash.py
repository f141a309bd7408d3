"""Flash files in RAM whose power goes at a chosen step, with torn and reordered writes.

A step is any change: append, flush, creation, rename, removal. Creation, rename and removal are
atomic (the `Files` port promises it); an append may leave a part of its bytes, with noise behind
them; what was not flushed survives in part, in any order of its sectors.
"""

from collections.abc import Callable

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX, ID_PREFIX_SIZE
from drupelet.store.files import Files

Buffer = bytes | bytearray | memoryview
Draw = Callable[[int], int]  # a number 0 <= n < its argument

BEFORE, TORN, AFTER = range(3)
# Unflushed bytes reach the medium sector by sector, and not in order.
SECTOR_SIZE = 64


class PowerCutError(RuntimeError):
    """The power is gone; nothing happens until `SimFiles.power_on`."""


class SimFiles(Files):
    """The `Files` port over dictionaries. `cut_at`: the step at which the power goes, -1: never.

    `programs` counts flushes that had something to write, `erases` removed files, `bytes_written`
    everything appended: what wear is made of.
    """

    def __init__(self, capacity: int = 1 << 22) -> None:
        self.capacity = capacity
        self.used = 0
        self.steps = 0
        self.cut_at = -1
        self.moment = BEFORE
        self.off = False
        self.cuts = 0
        self.programs = self.erases = self.bytes_written = 0
        self._torn_size: Draw = lambda n: n // 2
        self._data: dict[str, bytearray] = {}
        self._durable: dict[str, int] = {}
        self._tails: set[str] = set()  # files with bytes that are not flushed
        self._open: list[str] = [""] * FILES_OPEN_MAX
        self._appends = [False] * FILES_OPEN_MAX  # not for reading only

    # --- power ---

    def arm(self, steps: int, moment: int, draw: Draw) -> None:
        """Cut the power at the `steps`-th change from now (1: the next one)."""
        self.cut_at = self.steps + steps - 1
        self.moment = moment
        self._torn_size = draw

    def disarm(self) -> None:
        """No cut any more."""
        self.cut_at = -1

    def power_off(self, draw: Draw, reorder: bool) -> None:
        """RAM is gone: files close, and of each unflushed tail some bytes survive.

        With `reorder` any of its sectors may be missing, and read as zeros or as noise.
        """
        self.off = False
        self.cut_at = -1
        self.cuts += 1
        self._open = [""] * FILES_OPEN_MAX
        for name in sorted(self._data):
            data = self._data[name]
            start = self._durable[name]
            tail = len(data) - start
            if not tail:
                continue
            kept = (0, tail, draw(tail + 1))[draw(3)]
            self.used -= tail - kept
            del data[start + kept :]
            if reorder:
                self._lose_sectors(data, start, draw)
            self._durable[name] = len(data)
        self._tails.clear()

    @staticmethod
    def _lose_sectors(data: bytearray, start: int, draw: Draw) -> None:
        for at in range(start, len(data), SECTOR_SIZE):
            fate = draw(6)
            end = min(at + SECTOR_SIZE, len(data))
            if fate == 0:
                data[at:end] = bytes(end - at)
            elif fate == 1:
                data[at:end] = bytes(draw(256) for _ in range(end - at))

    def begin_step(self) -> bool:
        """A change outside of the files, of the same device: whether it happens."""
        return self._step()

    def end_step(self) -> None:
        """Its end; the power may have gone in it."""
        self._after()

    def wipe(self) -> None:
        """The medium is empty; who used it is off."""
        self._data.clear()
        self._durable.clear()
        self._tails.clear()
        self._open = [""] * FILES_OPEN_MAX
        self.used = 0

    def close_all(self) -> None:
        """Whoever used the files is gone, and left everything flushed."""
        self._open = [""] * FILES_OPEN_MAX

    def _step(self) -> bool:
        """Count a change; True when it is done whole. Raises PowerCutError for those before."""
        if self.off:
            raise PowerCutError
        cut = self.steps == self.cut_at
        self.steps += 1
        if not cut:
            return True
        self.off = True
        if self.moment == BEFORE:
            raise PowerCutError
        return self.moment == AFTER

    def _after(self) -> None:
        if self.off:
            raise PowerCutError

    # --- the port ---

    def names(self) -> list[str]:
        return list(self._data)

    def open(self, name: str, create: bool) -> int:
        if self.off:
            raise PowerCutError
        if name not in self._data:
            if not create:
                return E_STORAGE
            if self._step():
                self._data[name] = bytearray()
                self._durable[name] = 0
            self._after()
        for fd, other in enumerate(self._open):
            if not other:
                self._open[fd] = name
                self._appends[fd] = create
                return fd
        return E_CAPACITY

    def append(self, fd: int, buf: Buffer, at: int, size: int) -> int:
        assert self._appends[fd]
        name = self._open[fd]
        data = self._data[name]
        if self.used + size > self.capacity:
            return E_CAPACITY
        self._tails.add(name)
        if self._step():
            data += memoryview(buf)[at : at + size]
            self.used += size
            self.bytes_written += size
            if self.off:
                raise PowerCutError
            return OK
        kept = self._torn_size(size + 1)
        data += bytes(memoryview(buf)[at : at + kept])
        if kept & 1:  # the file had grown before its blocks were written
            data += bytes(size - kept)
            kept = size
        self.used += kept
        raise PowerCutError

    def flush(self, fd: int) -> int:
        name = self._open[fd]
        size = len(self._data[name])
        whole = self._step()
        if size != self._durable[name]:
            self.programs += 1
        if not whole:
            start = self._durable[name]
            size = start + self._torn_size(size - start + 1)
        else:
            self._tails.discard(name)
        self._durable[name] = size
        self._after()
        return OK

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        if self.off:
            raise PowerCutError
        data = self._data[self._open[fd]]
        count = min(size, len(data) - offset)
        if count <= 0:
            return 0
        buf[at : at + count] = data[offset : offset + count]
        return count

    def close(self, fd: int) -> None:
        self._open[fd] = ""

    def size(self, name: str) -> int:
        data = self._data.get(name)
        return -1 if data is None else len(data)

    def rename(self, old: str, new: str) -> int:
        if old not in self._data or old in self._open or new in self._open:
            return E_STORAGE
        if self._step():
            gone = self._data.pop(new, None)
            if gone is not None:
                self.used -= len(gone)
            self._data[new] = self._data.pop(old)
            self._durable[new] = self._durable.pop(old)
            self._tails.discard(new)
            if old in self._tails:
                self._tails.remove(old)
                self._tails.add(new)
        self._after()
        return OK

    def remove(self, name: str) -> int:
        if name not in self._data or name in self._open:
            return E_STORAGE
        if self._step():
            self.used -= len(self._data.pop(name))
            del self._durable[name]
            self._tails.discard(name)
            self.erases += 1
        self._after()
        return OK

    # --- for the oracle ---

    def volatile(self, id: bytes) -> bool:
        """True when a message is in unflushed tails only: a cut now could take it.

        Of what made room, the beginning of its id is kept (docs/SPEC.md 5). Bodies of others that
        depend on it have the whole id, and do not count against that.
        """
        if not any(
            self._data[name].find(id, max(0, self._durable[name] - len(id) + 1)) >= 0
            for name in self._tails
        ):
            return False
        return all(
            data.find(id[:ID_PREFIX_SIZE] if name.endswith(".IDS") else id, 0, self._durable[name])
            < 0
            for name, data in self._data.items()
        )

    def copy_state(self) -> "tuple[dict[str, bytes], dict[str, int]]":
        """What is on the medium, for a backup or a clone."""
        return {name: bytes(data) for name, data in self._data.items()}, dict(self._durable)

    def restore_state(self, state: "tuple[dict[str, bytes], dict[str, int]]") -> None:
        """Put a backup back; everything since is forgotten."""
        self._data = {name: bytearray(data) for name, data in state[0].items()}
        self._durable = {name: len(data) for name, data in state[0].items()}
        self._tails.clear()
        self._open = [""] * FILES_OPEN_MAX
        self.used = sum(len(data) for data in self._data.values())
