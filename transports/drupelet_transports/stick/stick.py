"""Stick carrier: bundles of frames as files on a removable medium; boards and hosts.

    DRUPELET/<receiver 8 hex>/<sender 8 hex>/<number 8 hex>.DRP

Names are FAT's upper-case 8.3. A bundle is written as .TMP, flushed, renamed and never modified;
docs/SPEC.md 7.3 has its format. A stick can be pulled at any time and contain anything: nothing
here raises for that. Codes are OK, E_CAPACITY (the stick is full) and E_STORAGE (any other error).
"""

import binascii
import errno
import os

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.base.memory import copy, crc16, equal, get_u16, get_u32, put_u16, put_u32
from drupelet_transports.stick.stick_files import (
    close_file,
    code_of,
    create,
    exists,
    get_bytes,
    make_folder,
    put_bytes,
    remove,
    sync_file,
    sync_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

# Names read from one folder: enough for years of bundles, but many other files cannot keep a board
# busy. A host reads 65,536 names in a tenth of a second.
NAMES_MAX = 1024 if ON_BOARD else 1 << 16
# Bundle numbers kept from one listing of a folder.
_BATCH_MAX = 16 if ON_BOARD else 1024
# Files that one visit removes from a folder.
_REMOVED_MAX = const(16)
# Bundles of one sender that one visit opens, including those that are not for us.
_OPENED_MAX = const(1024)
# Bundles of one sender that one visit reads; the rest is read at the next visit.
_FILES_MAX = const(64)
# Longest bundle in bytes, and bundles that one visit writes for one receiver. An interrupted
# bundle is written again whole, so messages are split into several; 16 MiB are 100,000 messages of
# 100 bytes.
BUNDLE_SIZE_MAX = const(1 << 20)
BUNDLES_MAX = const(16)
# Room reserved for the end of a bundle: the current frame, MARK, FINAL.
SPARE_SIZE = const(2048)
# Senders that one visit reports.
_SENDERS_MAX = const(32)
# Bundle numbers stay small ints on a 32-bit board; there is about one per visit, so they suffice.
NUMBER_MAX = 0x3FFFFFFF
# A number so far above our last bundle is not ours (a restore skips 2^16 numbers).
AHEAD_MAX = const(1 << 20)

_HEADER_SIZE = const(20)
_CRC_SIZE = const(2)
_CRC_START = const(0xFFFF)
# Length and CRC around a frame; with length 0 and no frame they end the bundle.
_FRAME_OVERHEAD = const(4)
_MAGIC = b"DRP1"
_DIGITS = b"0123456789ABCDEF"

_README = (
    "This stick carries data between devices that have no network.\r\n"
    "\r\n"
    "Please do not change or delete the folder DRUPELET. Plug the stick into the next\r\n"
    "device, or give it back to its owner. Your own files beside the folder are safe:\r\n"
    "they are neither read nor changed.\r\n"
)


def _digits(name: str) -> int:
    """Return the number of the first eight characters of a name, which has as many; -1: none.

    The name is converted to bytes, because MicroPython interns each character of a `str` that is
    indexed: strange names would fill the heap for good.
    """
    raw = bytes(name, "utf-8", "surrogateescape")
    number = 0
    for i in range(8):
        digit = raw[i] - (0x37 if raw[i] > 0x40 else 0x30)
        if _DIGITS[digit & 15] != raw[i]:
            return -1
        number = number << 4 | digit
    return number


def _number(name: str) -> int:
    """Return the number of a name like `0000002A.DRP`, 0 for `0000002A.TMP`, else -1."""
    if len(name) != 12 or name >= "4":  # above NUMBER_MAX
        return -1
    number = _digits(name)
    if number > 0 and name.endswith(".DRP"):
        return number
    return 0 if number >= 0 and name.endswith(".TMP") else -1


class Stick:
    """The stick mounted at `root`, as the device `own_id` (4 bytes) sees it.

    Counters: `ignored` names that are not ours (other files, lower case, aliases), `foreign`
    bundles whose header has other devices, `damaged` headers and frames, `crowded` folders with
    more than NAMES_MAX names.
    """

    def __init__(self, root: str, own_id: "bytes | bytearray") -> None:
        self._root = root.rstrip("/") or "/"
        self.own_id = bytes(own_id)
        self.scratch = bytearray(_HEADER_SIZE + _CRC_SIZE)
        self.ignored = self.foreign = self.damaged = self.crowded = 0
        self.number_max = NUMBER_MAX  # own bundles with a higher number are ignored
        self.cluster_size = 0  # bytes that the smallest file takes; 0: not known
        # One path, whose ids and number are filled in for each file, and views of its folders.
        base = root.rstrip("/") + "/DRUPELET"
        self._path = bytearray((base + "/00000000/00000000/00000000.DRP").encode())
        view = memoryview(self._path)
        self._levels = [view[: len(self._path) - cut] for cut in (31, 22, 13)]
        # The result of the last listing of an own folder, which costs a board 300 bytes of heap.
        self._known_of = bytearray(4)
        self._known = False
        self.known_newest = 0
        self._told = False
        # Created once, so that a visit leaves little garbage.
        self._reader = BundleReader(self)
        self._writer = BundleWriter(self)

    def present(self) -> bool:
        """Whether the root is a folder. Call it first in a visit: it forgets the last stick."""
        self.forget()
        try:
            return os.stat(self._root)[0] & 0xF000 == 0x4000
        except OSError:
            return False

    def free(self) -> int:
        """Return the free bytes of the stick, at most NUMBER_MAX; that many if it is not known."""
        try:
            fields = os.statvfs(self._root)
        except (AttributeError, OSError):  # AttributeError: a port without statvfs
            return NUMBER_MAX
        self.cluster_size = fields[1]
        return min(fields[1] * fields[4], NUMBER_MAX)

    def forget(self) -> None:
        """Forget the last listing: something was written, or it may be another stick."""
        self._known = False

    def senders(self) -> "list[bytes]":
        """Return the ids of devices with a folder for us, at most 32; the folder may be empty."""
        ids: list[bytes] = []
        self.aim(self.own_id, self.own_id)
        for name in self._names(1):
            if len(ids) < _SENDERS_MAX and len(name) == 8 and _digits(name) >= 0:
                sender = binascii.unhexlify(name)
                if sender != self.own_id:
                    ids.append(sender)
                    continue
            self.ignored += 1
        return ids

    def reader(self, sender_id: "bytes | bytearray", after: int) -> "BundleReader":
        """Return the reader, set to the sender's bundles for us with numbers above `after`."""
        self._reader.begin(sender_id, after)
        return self._reader

    def writer(self, receiver_id: "bytes | bytearray", number: int, seen: int) -> "BundleWriter":
        """Return the writer, set to a new bundle; it is created by the first `write`.

        `number` must be above `newest_own`, because a bundle on the stick is never replaced.
        """
        assert 0 < number <= NUMBER_MAX and 0 <= seen <= NUMBER_MAX
        self._writer.begin(receiver_id, number, seen)
        return self._writer

    def newest_own(self, receiver_id: "bytes | bytearray", last: int) -> int:
        """Return the highest number of our bundles for a receiver, 0: none.

        It is not below `last` if that bundle exists, however many names the folder has.
        """
        if self._told or not self.knows(receiver_id):
            self._look(receiver_id, -1)
        self._told = True
        if self.known_newest < last and exists(self.file(receiver_id, self.own_id, last)):
            self.known_newest = last
        return self.known_newest

    def knows(self, receiver_id: "bytes | bytearray") -> bool:
        """Whether `known_newest` is valid for this receiver."""
        return self._known and self._known_of == receiver_id

    def clean(self, receiver_id: "bytes | bytearray", through: int) -> int:
        """Remove our bundles up to number `through`, and incomplete ones of a pulled stick.

        Removes at most 16 files per call, so that a full folder does not delay a visit. OK or a
        code.
        """
        names = self._look(receiver_id, through)
        code = OK
        for name in names:
            code = remove(self.folder(2) + "/" + name) or code
        if code != OK:
            self._known = False
        return code

    def _look(self, receiver_id: "bytes | bytearray", through: int) -> "list[str]":
        """Note our newest bundle above `through`; return the names of at most 16 older ones."""
        newest = 0
        old_names: list[str] = []
        self.aim(receiver_id, self.own_id)
        for name in self._names(2):
            number = _number(name)
            if 0 <= number <= through and len(old_names) < _REMOVED_MAX:
                old_names.append(name)
            elif number <= self.number_max:
                newest = max(newest, number)
        copy(self._known_of, 0, receiver_id, 0, 4)
        self._known = True
        self.known_newest = newest
        self._told = False
        return old_names

    def file(
        self, receiver_id: "bytes | bytearray", sender_id: "bytes | bytearray", number: int,
        temporary: bool = False,
    ) -> str:  # fmt: skip
        """Return the path of a bundle; `folder` then returns the folders above it."""
        self.aim(receiver_id, sender_id)
        path = self._path
        at = len(path) - 12
        for i in range(8):
            path[at + 7 - i] = _DIGITS[(number >> (4 * i)) & 15]
        copy(path, at + 9, b"TMP" if temporary else b"DRP", 0, 3)
        return path.decode()

    def folder(self, depth: int) -> str:
        """Return the path of DRUPELET (0), the receiver's folder (1) or the sender's in it (2)."""
        return str(self._levels[depth], "utf-8")

    def after(self, sender_id: "bytes | bytearray", number: int) -> "list[int]":
        """Return the lowest numbers above `number` of a sender's bundles, ascending; a batch."""
        numbers: list[int] = []
        self.aim(self.own_id, sender_id)
        for name in self._names(2):
            other = _number(name)
            if other < 0:
                self.ignored += 1
            elif other > number:
                numbers.append(other)
                if len(numbers) > 2 * _BATCH_MAX:
                    numbers.sort()
                    del numbers[_BATCH_MAX:]
        numbers.sort()
        if len(numbers) > _BATCH_MAX:
            del numbers[_BATCH_MAX:]
        return numbers

    def aim(self, receiver_id: "bytes | bytearray", sender_id: "bytes | bytearray") -> None:
        """Write two ids into the path."""
        path = self._path
        at = len(path) - 30
        for i in range(4):
            path[at + 2 * i] = _DIGITS[receiver_id[i] >> 4]
            path[at + 2 * i + 1] = _DIGITS[receiver_id[i] & 15]
            path[at + 9 + 2 * i] = _DIGITS[sender_id[i] >> 4]
            path[at + 10 + 2 * i] = _DIGITS[sender_id[i] & 15]

    def _names(self, depth: int) -> "Iterator[str]":
        """Yield the names in a folder, at most NAMES_MAX; none if it cannot be read."""
        count = 0
        names = None
        try:
            names = (os.ilistdir if ON_BOARD else os.scandir)(self.folder(depth))  # type: ignore[attr-defined]
            while count <= NAMES_MAX:
                try:
                    for entry in names:
                        count += 1
                        if count > NAMES_MAX:
                            self.crowded += 1
                            return
                        yield entry[0] if ON_BOARD else entry.name  # type: ignore[index]
                    return
                except UnicodeError:
                    count += 1  # a damaged entry, whose name a board cannot decode
        except OSError:
            return  # there is no such folder yet, or the stick was pulled
        finally:
            if not ON_BOARD and names is not None:
                names.close()


class BundleWriter:
    """Writes one bundle: `write` each frame, then `finish`, or `abandon`.

    After a negative code the bundle is removed from the stick if possible, and every later call
    returns the same code.
    """

    def __init__(self, stick: Stick) -> None:
        self._stick = stick
        self._receiver_id: bytes | bytearray = b""
        self._number = self._seen = 0
        self._file: BinaryIO | None = None
        self._temporary = ""  # the bundle's path while it is written
        self._code = E_STORAGE
        self.last_wire_size = 0
        self.size = 0  # bytes written so far
        self._free = 0
        self.answer_size = 0

    def begin(self, receiver_id: "bytes | bytearray", number: int, seen: int) -> None:
        """Begin another bundle; abandon one that is not finished."""
        if self._file is not None:
            self.abandon()
        self._receiver_id = receiver_id
        self._number = number
        self._seen = seen
        self._code = OK
        self.size = 0
        stick = self._stick
        self._free = stick.free()
        # Leave room for the receiver's answer: a file, and folders the first time. Without it,
        # nothing on a full stick could ever be acknowledged and removed.
        stick.aim(stick.own_id, receiver_id)
        self.answer_size = stick.cluster_size * (1 if exists(stick.folder(2)) else 3)

    @property
    def room(self) -> int:
        """Bytes that frames may still take; the bundle's end has room beyond that."""
        return max(min(self._free, BUNDLE_SIZE_MAX) - self.size - SPARE_SIZE, 0)

    @property
    def message_room(self) -> int:
        """Bytes of `room` that messages may take: without the room for the answer."""
        return max(min(self.room, self._free - self.answer_size - self.size - SPARE_SIZE), 0)

    def _path(self, temporary: bool) -> str:
        return self._stick.file(self._receiver_id, self._stick.own_id, self._number, temporary)

    def write(self, frame: "bytes | bytearray", size: int) -> int:
        """Append frame[:size]; OK or a code. `last_wire_size` is its size on the stick."""
        assert 0 < size <= FRAME_SIZE_MAX
        scratch = self._stick.scratch
        try:
            file = self._file or self._open()
            put_u16(scratch, 0, size)
            put_bytes(file, scratch, 2)
            put_bytes(file, frame, size)
            put_u16(scratch, 2, crc16(frame, 0, size, crc16(scratch, 0, 2, _CRC_START)))
            copy(scratch, 0, scratch, 2, 2)
            put_bytes(file, scratch, 2)
        except OSError as error:
            return self._fail(error)
        self.last_wire_size = size + _FRAME_OVERHEAD
        self.size += self.last_wire_size
        return OK

    def finish(self) -> int:
        """End the bundle, make it durable and rename it to its final name; OK or a code."""
        scratch = self._stick.scratch
        try:
            file = self._file or self._open()
            put_u16(scratch, 0, 0)
            put_u16(scratch, 2, crc16(scratch, 0, 2, _CRC_START))
            put_bytes(file, scratch, _FRAME_OVERHEAD)
            sync_file(file)
            file.close()
            path = self._path(False)
            stick = self._stick
            is_known = stick.knows(self._receiver_id)
            if self._number <= stick.known_newest if is_known else exists(path):
                raise OSError(errno.EEXIST)
            os.rename(self._temporary, path)
            sync_name(path)
        except OSError as error:
            return self._fail(error)
        self._file = None
        self._code = E_STORAGE  # a finished bundle accepts no more frames
        stick.forget()
        return OK

    def abandon(self) -> None:
        """Remove the unfinished bundle; what remains of it on the stick is never read."""
        if self._file is not None:
            close_file(self._file)
            self._file = None
            remove(self._temporary)
        self._stick.forget()
        self._code = self._code or E_STORAGE

    def _fail(self, error: OSError) -> int:
        if self._code == OK:
            self._code = code_of(error)
        self.abandon()
        return self._code

    def _open(self) -> "BinaryIO":
        if self._code != OK:
            raise OSError(errno.EIO)
        path = self._temporary = self._path(True)
        try:
            file = create(path)
        except OSError as error:
            if error.errno == errno.ENOENT:
                self._make_folders()
                self._free = self._stick.free()  # less the new folders
            elif error.errno != errno.EEXIST or remove(path) != OK:
                raise
            file = create(path)
        self._file = file
        self.size = _HEADER_SIZE + _CRC_SIZE
        scratch = self._stick.scratch
        copy(scratch, 0, _MAGIC, 0, 4)
        copy(scratch, 4, self._stick.own_id, 0, 4)
        copy(scratch, 8, self._receiver_id, 0, 4)
        put_u32(scratch, 12, self._number)
        put_u32(scratch, 16, self._seen)
        put_u16(scratch, _HEADER_SIZE, crc16(scratch, 0, _HEADER_SIZE, _CRC_START))
        put_bytes(file, scratch, _HEADER_SIZE + _CRC_SIZE)
        return file

    def _make_folders(self) -> None:
        """Create the folder of this direction and those above it, with README.TXT in DRUPELET."""
        stick = self._stick
        for depth in range(3):
            folder = stick.folder(depth)
            if not make_folder(folder):
                continue
            sync_name(folder)
            if depth == 0:
                readme = create(folder + "/README.TXT")
                try:
                    readme.write(_README.encode())
                    sync_file(readme)
                finally:
                    readme.close()


class BundleReader:
    """Reads a sender's bundles: `next` opens one, `read_into` reads its frames.

    `number` and `seen` belong to the open bundle; `complete` says that its end was reached.
    `code` is E_STORAGE once the stick failed to read; a bad sector damages only its own bundle.
    The caller counts the bundles that it has read in `taken`, which is bounded per visit. Bundles
    that it could not read are not counted: the next visit reads them again, and would otherwise
    never get past them.
    """

    def __init__(self, stick: Stick) -> None:
        self._stick = stick
        self._queue: list[int] = []
        self._file: BinaryIO | None = None
        self.last_wire_size = 0
        self.begin(b"", NUMBER_MAX)

    def begin(self, sender_id: "bytes | bytearray", after: int) -> None:
        """Begin with the bundles of another sender."""
        self.close()
        self._sender_id = sender_id
        self._after = after
        self._queue.clear()
        self._more = True
        self.taken = self._opened = 0
        self.number = self.seen = 0
        self.complete = False
        self.code = OK

    def next(self) -> bool:
        """Open the next bundle with a valid header; False if there are no more."""
        self.close()
        while self.taken < _FILES_MAX and self._opened < _OPENED_MAX:
            if not self._queue:
                if not self._more:
                    return False
                self._queue = self._stick.after(self._sender_id, self._after)
                self._more = len(self._queue) == _BATCH_MAX
                if not self._queue:
                    return False
            self._after = self._queue.pop(0)
            self._opened += 1
            if self._open(self._after):
                return True
        return False

    def read_into(self, frame: bytearray) -> int:
        """Read the bundle's next frame; return its size, 0 at the end; E_STORAGE: read error.

        A damaged frame ends the bundle; the frames before it are valid.
        """
        if self._file is None:
            return 0
        try:
            size = self._read_frame(self._file, frame)
        except OSError:
            self.code = E_STORAGE
            self.close()
            return E_STORAGE
        if size <= 0:
            if size < 0:
                self._stick.damaged += 1
            self.complete = size == 0
            self.close()
            return 0
        self.last_wire_size = size + _FRAME_OVERHEAD
        return size

    def close(self) -> None:
        """Close the open bundle."""
        if self._file is not None:
            close_file(self._file)
            self._file = None

    def _read_frame(self, file: "BinaryIO", frame: bytearray) -> int:
        """Return the size of a valid frame, 0 at the bundle's end, -1: truncated or damaged."""
        scratch = self._stick.scratch
        if get_bytes(file, scratch, 2) != 2:
            return -1
        size = get_u16(scratch, 0)
        if size > FRAME_SIZE_MAX or size > len(frame):
            return -1
        crc = crc16(scratch, 0, 2, _CRC_START)
        if size:
            if get_bytes(file, frame, size) != size:
                return -1
            crc = crc16(frame, 0, size, crc)
        if get_bytes(file, scratch, 2) != 2 or get_u16(scratch, 0) != crc:
            return -1
        return size

    def _open(self, number: int) -> bool:
        """Open one bundle and check its header; False if it cannot be read or is not for us."""
        stick = self._stick
        self.complete = False
        path = stick.file(stick.own_id, self._sender_id, number)
        try:
            # Open regular files only: a FIFO would block, and a link may lead anywhere.
            if not ON_BOARD and os.lstat(path).st_mode & 0xF000 != 0x8000:
                stick.ignored += 1
                return False
            file = open(path, "rb")  # noqa: SIM115 (read_into and close come later)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.code = E_STORAGE
            return False
        try:
            count = get_bytes(file, stick.scratch, _HEADER_SIZE + _CRC_SIZE)
        except OSError:
            self.code = E_STORAGE
            count = 0
        if not self._is_sound(count, number):
            close_file(file)
            return False
        self._file = file
        self.number = number
        self.seen = get_u32(stick.scratch, 16)
        return True

    def _is_sound(self, count: int, number: int) -> bool:
        stick = self._stick
        scratch = stick.scratch
        if (
            count != _HEADER_SIZE + _CRC_SIZE
            or crc16(scratch, 0, _HEADER_SIZE, _CRC_START) != get_u16(scratch, _HEADER_SIZE)
            or not equal(scratch, 0, _MAGIC, 0, 4)
            or scratch[16] > 0x3F
        ):
            stick.damaged += 1
        elif (
            not equal(scratch, 4, self._sender_id, 0, 4)
            or not equal(scratch, 8, stick.own_id, 0, 4)
            or scratch[12] > 0x3F
            or get_u32(scratch, 12) != number
        ):
            stick.foreign += 1
        else:
            return True
        return False
