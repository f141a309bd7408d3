"""A block device in RAM."""


class RamDisk:
    def __init__(self, block_size, blocks):
        self.block_size = block_size
        self.content = bytearray(block_size * blocks)

    def readblocks(self, block, buf, at=0):
        start = block * self.block_size + at
        buf[:] = self.content[start : start + len(buf)]

    def writeblocks(self, block, buf, at=0):
        start = block * self.block_size + at
        self.content[start : start + len(buf)] = buf

    def ioctl(self, request, _argument):
        if request == 4:
            return len(self.content) // self.block_size
        if request == 5:
            return self.block_size
        return 0
