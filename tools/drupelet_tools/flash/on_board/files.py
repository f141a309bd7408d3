# mypy: ignore-errors
"""Files on this board's drive: what is there, and pieces of what comes."""

import binascii
import gc
import hashlib
import json  # noqa: F401 - what is printed
import os

NEW = ".new"  # behind the name of a file that is not whole yet
FOLDER = 0x4000


def digest_of(path: str) -> str:
    """SHA-256 of a file, in hex."""
    sha256 = hashlib.sha256()
    buf = memoryview(bytearray(512))
    with open(path, "rb") as file:
        while True:
            count = file.readinto(buf)
            if not count:
                break
            sha256.update(buf[:count])
    return binascii.hexlify(sha256.digest()).decode()


def is_there(path: str) -> bool:
    """Whether there is such a file or folder."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def show(path: str) -> int:
    """Print a line of digest and path for each file at `path` or below; how many there are."""
    if not is_there(path):
        return 0
    if not os.stat(path)[0] & FOLDER:
        print(digest_of(path), path)
        return 1
    count = 0
    for entry in os.ilistdir(path):
        count += show(path + "/" + entry[0])
    gc.collect()
    return count


def piece(path: str, text: bytes, at: int, digest: str) -> int:
    """Write base64 `text` at byte `at` of the file that becomes `path` when it has `digest`."""
    if not at:
        folder = ""
        for name in path.split("/")[1:-1]:
            folder += "/" + name
            if not is_there(folder):
                os.mkdir(folder)
    with open(path + NEW, "ab" if at else "wb") as file:
        file.write(binascii.a2b_base64(text))
    if digest:
        if digest_of(path + NEW) != digest:
            raise ValueError("damaged")
        try:
            os.rename(path + NEW, path)
        except OSError:  # FAT renames onto nothing
            os.remove(path)
            os.rename(path + NEW, path)
    return 0


def remove(path: str) -> int:
    """Delete a file."""
    os.remove(path)
    return 0


def read(path: str) -> str:
    """The text of a small file, "" where there is none."""
    if not is_there(path):
        return ""
    with open(path) as file:
        return file.read()


def size(path: str) -> int:
    """Bytes of a file."""
    return os.stat(path)[6]


def free_bytes(root: str) -> int:
    """Bytes free on the drive that is mounted there."""
    drive = os.statvfs(root or "/")
    return drive[0] * drive[3]
