"""A block device in RAM for LittleFS: allocates nothing, and loses its power at a chosen write."""

BLOCK_SIZE = 512
_EIO = 5


class RamBlocks:
    """Blocks over `data`; write or erase number `cut_at` is torn in half, later ones fail."""

    def __init__(self, data: bytearray, cut_at: int = -1) -> None:
        self.data = data
        self.left = cut_at
        self.dead = False
        self.writes = 0

    def readblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Read from a block; works on after the cut, for LittleFS to end in peace."""
        at = block * BLOCK_SIZE + offset
        for i in range(len(buf)):
            buf[i] = self.data[at + i]

    def writeblocks(self, block: int, buf: bytearray, offset: int = 0) -> int:
        """Write into a block; a block device answers with a negative errno."""
        at = block * BLOCK_SIZE + offset
        for i in range(self._power(len(buf))):
            self.data[at + i] = buf[i]
        return -_EIO if self.dead else 0

    def ioctl(self, op: int, argument: int) -> int:
        """Count of blocks, size of a block, erase."""
        if op == 4:
            return len(self.data) // BLOCK_SIZE
        if op == 5:
            return BLOCK_SIZE
        if op == 6:
            for i in range(self._power(BLOCK_SIZE)):
                self.data[argument * BLOCK_SIZE + i] = 0xFF
            return -_EIO if self.dead else 0
        return 0

    def _power(self, size: int) -> int:
        """How many bytes of an operation still happen."""
        if self.dead:
            return 0
        self.writes += 1
        self.left -= 1
        if self.left != -1:
            return size
        self.dead = True
        return size // 2
