"""Stands in for `rp2`: the storage of its flash, where only an erase turns a bit to one."""

SIZE = 256 * 1024
BLOCK = 4096
content = bytearray(b"\xff" * SIZE)
counts = {"programs": 0, "erases": 0}
erased = {}  # how often each block was


class Flash:
    def __init__(self, *, start=-1, len=-1):
        start = max(start, 0)
        size = SIZE - start if len == -1 else len
        if start >= SIZE or start % BLOCK or not 0 < size <= SIZE - start or size % BLOCK:
            raise ValueError
        self._start, self._size = start, size

    def readblocks(self, block, buf, at=0):
        start = self._start + block * BLOCK + at
        buf[:] = memoryview(content)[start : start + len(buf)]

    def writeblocks(self, block, buf, at=None):
        if at is None:
            for number in range(len(buf) // BLOCK):
                self.ioctl(6, block + number)
        start = self._start + block * BLOCK + (at or 0)
        assert start % 256 == len(buf) % 256 == 0, "the chip programs pages of 256"
        assert start + len(buf) <= self._start + self._size, "beyond its end"
        counts["programs"] += 1
        for i in range(len(buf)):
            assert content[start + i] & buf[i] == buf[i], "programmed over what was not erased"
            content[start + i] = buf[i]

    def ioctl(self, request, argument):
        if request == 4:
            return self._size // BLOCK
        if request == 5:
            return BLOCK
        if request == 6:
            start = self._start + argument * BLOCK
            content[start : start + BLOCK] = b"\xff" * BLOCK
            counts["erases"] += 1
            erased[start] = erased.get(start, 0) + 1
        return 0
