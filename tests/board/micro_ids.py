"""Runs on a board: the ids that a micro board keeps on flash, under `heap_lock` but for the files.

Argument: a folder. Prints how many of the notes it still knows, and the sizes of the files.
"""

import os
import sys

import micropython

from boards.micro.board import FlashMicro

FIRST = 3980  # so many are in the file already
FULL = 4000
NOTES = 4100


class Config:
    """As micro_config.py."""

    GROUP = b"ids"
    EPOCH_MS = 1000
    IDS = sys.argv[1] + "/ids"


id = bytearray(32)


def number(value):
    id[0] = value >> 8
    id[1] = value & 255
    id[4] = 7  # the last byte that counts
    id[5] = 255  # and one that does not


def note(node, first, count):
    for value in range(first, first + count):
        number(value)
        node.note(id, 0)


def known(node, first, last):
    count = 0
    for value in range(first, last, 50):
        number(value)
        if node.gone(id, 0):
            count += 1
    return count


node = FlashMicro(Config, 0)
note(node, FIRST, 1)
known(node, 0, 50)
micropython.heap_lock()
note(node, FIRST + 1, FULL - FIRST - 1)
here = known(node, 0, FULL)
micropython.heap_unlock()
print("all", here)
note(node, FULL, NOTES - FULL)
print("kept", known(node, 0, FULL), known(node, FULL, NOTES))
with open(Config.IDS, "ab") as stream:
    stream.write(b"cut")
node = FlashMicro(Config, 0)
note(node, NOTES, 1)
print("again", known(node, 0, FULL), known(node, FULL, NOTES + 1))
number(NOTES + 1)
print("unknown", node.gone(id, 0))
print("sizes", os.stat(Config.IDS)[6], os.stat(Config.IDS + ".old")[6])
os.rename(Config.IDS + ".old", Config.IDS)  # full again: the older ones give way
node = FlashMicro(Config, 0)
note(node, NOTES + 2, 1)
print("third", os.stat(Config.IDS)[6], os.stat(Config.IDS + ".old")[6])
