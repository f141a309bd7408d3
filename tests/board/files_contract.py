"""The contract of the Files port, for every implementation; runs on CPython and MicroPython.

check(make)      `make()` gives the port over the same storage again, as after a reboot
"""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX


def write(files: "object", name: str, content: bytes) -> None:
    """Make a file durable."""
    fd = files.open(name, True)
    assert fd >= 0, fd
    assert files.append(fd, content, 0, len(content)) == OK
    assert files.flush(fd) == OK
    files.close(fd)


def read(files: "object", name: str) -> bytes:
    """Everything that a file holds."""
    fd = files.open(name, False)
    assert fd >= 0, fd
    buf = bytearray(300)
    count = files.read_into(fd, 0, buf, 0, 300)
    files.close(fd)
    return bytes(buf[:count])


def check_names(make: "object") -> None:
    """Files appear, are renamed over others, and go."""
    files = make()
    assert sorted(files.names()) == []
    assert files.size("S0000001.LOG") == -1
    assert files.open("S0000001.LOG", False) == E_STORAGE
    assert files.remove("S0000001.LOG") == E_STORAGE
    assert files.rename("S0000001.LOG", "S0000002.LOG") == E_STORAGE
    write(files, "P0.PRT", b"part")
    write(files, "B0000001.BOD", b"an older body")
    assert files.rename("P0.PRT", "B0000001.BOD") == OK
    files = make()
    assert files.names() == ["B0000001.BOD"]
    assert files.size("B0000001.BOD") == 4
    assert read(files, "B0000001.BOD") == b"part"
    assert files.remove("B0000001.BOD") == OK
    assert make().names() == []


def check_bytes(make: "object") -> None:
    """Appends add at the end at once; reads start anywhere and land anywhere."""
    files = make()
    fd = files.open("S0000001.LOG", True)
    source = bytes(range(256))
    assert files.append(fd, source, 0, 100) == OK
    assert files.append(fd, bytearray(source), 100, 150) == OK
    assert files.append(fd, memoryview(source), 250, 6) == OK
    buf = bytearray(300)
    # Read before any flush, with and without an offset into the target, longer than a scratch.
    assert files.read_into(fd, 0, buf, 0, 256) == 256
    assert buf[:256] == source
    assert files.read_into(fd, 30, buf, 7, 200) == 200
    assert buf[7:207] == source[30:230]
    assert buf[:7] == source[:7] and buf[207:256] == source[207:]
    assert files.read_into(fd, 250, buf, 0, 50) == 6
    assert files.read_into(fd, 250, buf, 1, 50) == 6
    assert files.read_into(fd, 256, buf, 0, 50) == 0
    assert files.read_into(fd, 900, buf, 3, 50) == 0
    # A read in between does not move the end.
    assert files.append(fd, b"end", 0, 3) == OK
    assert files.flush(fd) == OK
    files.close(fd)
    assert files.size("S0000001.LOG") == 259
    files = make()
    write(files, "S0000001.LOG", b"!")
    assert read(files, "S0000001.LOG") == source + b"end!"
    files.remove("S0000001.LOG")


def check_table(make: "object") -> None:
    """The table of open files is bounded; closing gives its row back."""
    files = make()
    fds = [files.open(f"S{i:07d}.LOG", True) for i in range(FILES_OPEN_MAX)]
    assert sorted(fds) == list(range(FILES_OPEN_MAX))
    assert files.open("S0000001.LOG", False) == E_CAPACITY
    files.close(fds[2])
    assert files.open("S0000001.LOG", False) == fds[2]
    for fd in fds:
        files.close(fd)
    for i in range(FILES_OPEN_MAX):
        assert files.remove(f"S{i:07d}.LOG") == OK


def check(make: "object") -> None:
    """Everything above."""
    check_names(make)
    check_bytes(make)
    check_table(make)
