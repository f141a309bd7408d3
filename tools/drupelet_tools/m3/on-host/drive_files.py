# mypy: ignore-errors
"""Runs on MicroPython's unix port: drive_files.py FILE makes or reads a board's drive.

A line of JSON on standard input says what to do: {"write": {name: hex}} formats the drive and
writes files, {"read": true} answers with all files in the same form.
"""

import json
import os
import sys

import vfs

BLOCK_SIZE = 4096
BLOCKS = 256


class Drive:
    """The first megabyte of the file, as boot/drive.py has it."""

    def __init__(self, file: "object") -> None:
        self._file = file

    def readblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Fill `buf`."""
        self._file.seek(block * BLOCK_SIZE + offset)
        self._file.readinto(buf)

    def writeblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Program what was erased before."""
        self._file.seek(block * BLOCK_SIZE + offset)
        self._file.write(buf)

    def ioctl(self, what: int, block: int) -> int:
        """4: number of blocks, 5: their size, 6: erase one."""
        if what == 4:
            return BLOCKS
        if what == 5:
            return BLOCK_SIZE
        if what == 6:
            self._file.seek(block * BLOCK_SIZE)
            self._file.write(b"\xff" * BLOCK_SIZE)
        return 0


def write(files: dict) -> None:
    """Each file, with the folders that it is in."""
    for name, data in files.items():
        parts = name.split("/")[1:-1]
        for depth in range(len(parts)):
            folder = "/drive/" + "/".join(parts[: depth + 1])
            if parts[depth] not in os.listdir(folder[: folder.rindex("/")]):
                os.mkdir(folder)
        with open("/drive" + name, "wb") as file:
            file.write(bytes.fromhex(data))


def read(folder: str, files: dict) -> None:
    """All files below a folder."""
    for entry in os.ilistdir("/drive" + folder):
        name = folder + "/" + entry[0]
        if entry[1] == 0x4000:
            read(name, files)
        else:
            with open("/drive" + name, "rb") as file:
                files[name] = file.read().hex()


wish = json.loads(sys.stdin.readline())
with open(sys.argv[1], "r+b") as file:
    drive = Drive(file)
    if "write" in wish:
        vfs.VfsLfs2.mkfs(drive)
    # Without the time of day in it, equal files make equal drives.
    vfs.mount(vfs.VfsLfs2(drive, mtime=False), "/drive")
    contents = {}
    if "write" in wish:
        write(wish["write"])
    else:
        read("", contents)
    vfs.umount("/drive")
print(json.dumps(contents))
