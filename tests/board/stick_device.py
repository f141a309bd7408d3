"""Stick visits on MicroPython; argv: `visit ROOT`, `strange ROOT`, `fat`; prints one line of JSON.

visit: device B reads what device A left at ROOT, answers, cleans; counts what was allocated.
strange: what looking at ROOT, where no name is ours, leaves on the heap for good.
fat:   a FAT image pulled before, and in the middle of, every sector that a bundle writes.
"""

import gc
import json
import os
import sys

import vfs

from drupelet_transports.stick.stick import Stick

A, B = b"\xaa\x00\x00\x01", b"\xbb\x00\x00\x02"
SECTOR = 512
# Compiled firmware has its constants folded in and nothing to import them from.
OK = 0
FRAME_SIZE_MAX = 1024


def read(stick: Stick, sender: bytes, frame: bytearray) -> "tuple[int, int, int, int]":
    """(bundles, whole ones, frames, sum of all frame bytes)."""
    bundles = whole = frames = total = 0
    reader = stick.reader(sender, 0)
    while reader.next():
        bundles += 1
        size = reader.read_into(frame)
        while size > 0:
            frames += 1
            for i in range(size):
                total += frame[i]
            size = reader.read_into(frame)
        whole += reader.complete
    return bundles, whole, frames, total


def visit(root: str) -> "dict[str, int]":
    """What Visit of the node does, step by step."""
    frame = bytearray(FRAME_SIZE_MAX)
    stick = Stick(root, B)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    assert stick.present()
    reader = stick.reader(A, 0)
    bundles = frames = 0
    size = 1
    while reader.next():
        bundles += 1
        size = reader.read_into(frame)
        while size > 0:
            frames += 1
            size = reader.read_into(frame)
    middle = gc.mem_alloc()
    stick.clean(A, 0)
    newest = stick.newest_own(A, 0)
    writer = stick.writer(A, newest + 1, reader.number)
    code = OK
    for _ in range(frames):
        code = writer.write(frame, 100) or code
    code = writer.finish() or code
    after = gc.mem_alloc()
    gc.enable()
    senders = stick.senders()
    return {
        "senders": len(senders), "bundles": bundles, "frames": frames, "newest": newest,
        "code": code, "seen": reader.number, "alloc_read": middle - before,
        "alloc_write": after - middle, "alloc_per_stick_visit": after - before,
    }  # fmt: skip


def strange(root: str) -> "dict[str, int]":
    """The second of two sticks: all code has run before."""
    kept = ignored = 0
    for folder in (root + "/0", root + "/1"):
        gc.collect()
        before = gc.mem_alloc()
        stick = Stick(folder, B)
        assert stick.senders() == [A] and not stick.after(A, 0) and stick.newest_own(A, 0) == 0
        ignored = stick.ignored
        del stick
        gc.collect()
        kept = gc.mem_alloc() - before
    return {"kept": kept, "ignored": ignored}


class Disk:
    """Sectors in RAM that can be pulled: the last of `left` writes keeps `torn` bytes.

    Allocates nothing: the collector closes forgotten files while the heap is locked.
    """

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.left = -1
        self.torn = 0

    def readblocks(self, n: int, buf: bytearray) -> int:
        if self.left == 0:
            return -5
        for i in range(len(buf)):
            buf[i] = self.data[n * 512 + i]
        return 0

    def writeblocks(self, n: int, buf: bytearray) -> int:
        for at in range(0, len(buf), 512):
            if self.left == 0:
                return -5
            if self.left > 0:
                self.left -= 1
            size = 512 if self.left else self.torn
            for i in range(size):
                self.data[n * 512 + at + i] = buf[at + i]
            if size < 512:
                return -5
        return 0

    def ioctl(self, op: int, _arg: int) -> int:
        if op == 4:
            return len(self.data) // SECTOR
        return SECTOR if op == 5 else 0


def bundle(number: int, frames: int, frame: bytearray) -> int:
    stick = Stick("/usb", A)
    writer = stick.writer(B, number, 0)
    for n in range(frames):
        for i in range(200):
            frame[i] = n + 1
        code = writer.write(frame, 200)
        if code != OK:
            return code
    return writer.finish()


def pull(image: bytearray, left: int, torn: int, frame: bytearray) -> "tuple[int, int, int]":
    """Write bundle 2 until the stick goes; (code, bad findings, whole bundles after all)."""
    disk = Disk(image)
    vfs.mount(disk, "/usb")
    disk.left = left
    disk.torn = torn
    code = bundle(2, 8, frame)
    reached = disk.left != 0
    disk.left = -1
    try:
        vfs.umount("/usb")
    except OSError:
        reached = False
    again = Disk(image)
    vfs.mount(again, "/usb")
    bad = 0
    bundles, whole, frames, total = read(Stick("/usb", B), A, frame)
    expected = 200 * (1 + 2)
    for n in range(frames - 2):
        expected += 200 * (n + 1)
    # Bundle 1 is whole whatever happened; of bundle 2 only right frames, all of them if it is OK.
    if not bundles or not whole or total != expected or (code == OK and frames != 10):
        bad += 1
    own = Stick("/usb", A)
    own.clean(B, 1)
    if bundle(own.newest_own(B, 0) + 1, 1, frame) != OK:
        bad += 1
    vfs.umount("/usb")
    return (1 if reached else code), bad, whole


def fat() -> "dict[str, int]":
    frame = bytearray(FRAME_SIZE_MAX)
    clean = Disk(bytearray(100 * SECTOR))
    vfs.VfsFat.mkfs(clean)
    vfs.mount(clean, "/usb")
    assert bundle(1, 2, frame) == OK
    names = os.listdir("/usb/DRUPELET")
    vfs.umount("/usb")
    pulls = bad = 0
    for torn in (SECTOR, 0, 100):
        left = 1
        reached = 0
        while reached != 1:
            reached, wrong, _ = pull(bytearray(clean.data), left, torn, frame)
            bad += wrong
            pulls += 1
            left += 1
            assert left < 200
    return {"pulls": pulls, "bad": bad, "names": len(names)}


if sys.argv[1] == "fat":
    print(json.dumps(fat()))
else:
    print(json.dumps((visit if sys.argv[1] == "visit" else strange)(sys.argv[2])))
