"""Runs the contract of the Files port on a MicroPython.

files_on_board.py MODULE_PATH:MODULE_PATH FOLDER
"""

import os
import sys

sys.path[:0] = sys.argv[1].split(":")
sys.path.insert(0, sys.argv[0].rpartition("/")[0])

from files_contract import check  # noqa: E402
from ram_blocks import BLOCK_SIZE, RamBlocks  # noqa: E402

from boards.files import BoardFiles  # noqa: E402
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK  # noqa: E402
from drupelet.base.limits import FILES_OPEN_MAX  # noqa: E402
from drupelet.store.files import RamFiles  # noqa: E402


def fill_up() -> int:
    """Append to a mounted LittleFS until it is full; the bytes that it took."""
    files = BoardFiles("/flash")
    fd = files.open("S0000001.LOG", True)
    content = bytes(200)
    for count in range(1000):
        code = files.append(fd, content, 0, 200) or files.flush(fd)
        if code != OK:
            assert code == E_CAPACITY, code
            files.close(fd)
            return count * 200
    raise AssertionError("never full")


def reading_writes(blocks: RamBlocks) -> int:
    """How often a LittleFS writes while a file is opened, read and closed."""
    files = BoardFiles("/flash")
    before = blocks.writes
    fd = files.open("S0000001.LOG", False)
    assert files.read_into(fd, 0, bytearray(100), 0, 100) == 100
    files.close(fd)
    return blocks.writes - before


ram = RamFiles(file_size=512, files_count=FILES_OPEN_MAX + 1)


def ram_again() -> RamFiles:
    ram.power_cut()
    return ram


check(ram_again)
check(lambda: BoardFiles(sys.argv[2]))
blocks = RamBlocks(bytearray(40 * BLOCK_SIZE))
os.VfsLfs2.mkfs(blocks)
os.mount(os.VfsLfs2(blocks), "/flash")
check(lambda: BoardFiles("/flash"))
assert fill_up() > 10 * BLOCK_SIZE
assert reading_writes(blocks) == 0
assert BoardFiles(sys.argv[2] + "/gone").open("S0000001.LOG", True) == E_STORAGE
print("contract kept")
