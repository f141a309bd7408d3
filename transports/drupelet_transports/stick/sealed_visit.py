"""A member's visit of a stick: reads the bundles of each peer, then writes one for each peer.

The order makes it safe to pull the stick at any time. All bundles are read before one is written;
a bundle counts as written only once it is renamed on the stick; and the caller saves the node's
state before it reports that the stick may be unplugged. Bundles are sealed, with a seal per peer.

Each bundle opens an epoch of its own, so it can be read in any boot. Its last frame is FINAL and
has number and `seen`, of which the unsealed header is only a hint. Call `saved` once the node's
state is durable: until then a bundle that was read can be read again.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy, get_u32, put_u32
from drupelet.seal.record import ANEW, IN_EPOCH_AT, OUT_EPOCH_AT, RENEW, WHOLE_EPOCH_AT, get_u24
from drupelet.seal.seal import FINAL, TYPE_DATA
from drupelet_transports.stick.stick import (
    AHEAD_MAX,
    BUNDLE_SIZE_MAX,
    BUNDLES_MAX,
    NUMBER_MAX,
    SPARE_SIZE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.link.stick_visit import BundleLink
    from drupelet.seal.seal import Seal
    from drupelet_transports.stick.stick import BundleReader, BundleWriter, Stick

_FINAL_SIZE = const(8)  # number u32, seen u32


class SealedVisit:
    """One visit and its counters; `failed` bundles are written again at the next visit.

    `seals` has the loaded seal (class 1) of each peer's id. For a peer without a seal nothing is
    read or written, which counts as `failed`.

    `frame` is the buffer for links, at least 1,001 bytes; `buf` has sealed frames, 1,024 bytes.
    """

    # Defaults of the class: few visits need these, and an attribute takes RAM only once it is set.
    truncated = 0
    unopened = 0  # bundles without a frame that is sealed with our keys
    failed = 0
    refused = 0

    def __init__(
        self, stick: "Stick", seals: "dict[bytes, Seal]", frame: bytearray,
        now_ms: "Callable[[], int]", after_frame: "Callable[[], None]", buf: bytearray,
    ) -> None:  # fmt: skip
        self._stick = stick
        self._seals = seals
        self._frame = frame
        self._buf = buf
        self._now_ms = now_ms
        self._after_frame = after_frame  # called after each frame, because a visit is long
        self.bundles_in = 0
        self.frames_in = 0
        self.bundles_out = 0
        self.frames_out = 0
        self.short = False  # the stick has no room for all messages to the last peer
        self._size = 0  # size of the last bundle, less the room that its answer needs

    def take_in(self, link: "BundleLink", peer_id: bytes) -> None:
        """Read the peer's bundles that we have not read completely before, oldest first."""
        seal = self._seals.get(peer_id)
        if seal is None:
            self.failed += 1
            return
        reader = self._stick.reader(peer_id, link.bundle_in)
        while reader.next():
            frames = self.frames_in
            refused = self.refused
            link.begin_import()
            code = self._read(reader, link, seal)
            if code == OK:
                self.bundles_in += 1
                reader.taken += 1
            elif 0 < self.refused - refused == self.frames_in - frames:
                self.unopened += 1
            else:
                self.truncated += 1  # its authentic frames were handled; the peer sends the rest
            if code == E_STORAGE:
                reader.close()
                return  # reading a later bundle would acknowledge this one

    def _read(self, reader: "BundleReader", link: "BundleLink", seal: "Seal") -> int:
        """Hand the open bundle's frames to the link; OK if it is complete, else E_PEER.

        E_STORAGE: keys could not be made durable, so the bundle must be read again.
        """
        buf = self._buf
        frame = self._frame
        code = E_PEER
        is_whole = True
        sealed = reader.read_into(buf)
        while sealed > 0:
            self.frames_in += 1
            size = seal.open(buf, sealed, self._now_ms())
            if size == E_STORAGE:
                return E_STORAGE
            if size < 0:
                self.refused += 1
                is_whole = False
            elif seal.context.final:
                code = self._ends(reader, seal, size)
                if code == OK:
                    rows = seal.context.rows
                    copy(rows, seal.at + WHOLE_EPOCH_AT, rows, seal.at + IN_EPOCH_AT, 3)
                    link.imported(reader.number, get_u32(buf, seal.context.at + 4), is_whole)
            elif size:
                copy(frame, 0, buf, seal.context.at, size)
                link.received(reader.last_wire_size)
                is_whole = link.receive(frame, size, self._now_ms()) == OK and is_whole
            self._after_frame()
            sealed = reader.read_into(buf)
        return code

    def _ends(self, reader: "BundleReader", seal: "Seal", size: int) -> int:
        """Return OK if the FINAL frame just opened belongs to this bundle, else E_PEER."""
        buf = self._buf
        at = seal.context.at
        if size != _FINAL_SIZE or (buf[at] | buf[at + 4]) & 0xC0:
            return E_PEER
        return OK if get_u32(buf, at) == reader.number else E_PEER

    def hand_out(self, link: "BundleLink", peer_id: bytes) -> int:
        """Remove the bundles that a peer has read, and write what is due to it; OK or a code.

        OK with `short`: not everything fitted. If the stick has less room than it reports, the
        bundle is written again, limited to the size that was written before.
        """
        size_max = NUMBER_MAX
        code = OK
        for _ in range(BUNDLES_MAX):
            code = self._bundle(link, peer_id, size_max)
            if code == E_CAPACITY and self._size > SPARE_SIZE and size_max == NUMBER_MAX:
                size_max = self._size
                code = self._bundle(link, peer_id, size_max)
            if code != OK or not self.short or self._size < BUNDLE_SIZE_MAX // 2:
                break  # everything is written, or the stick is full
        if code != OK:
            self.failed += 1
        return code

    def _bundle(self, link: "BundleLink", peer_id: bytes, size_max: int) -> int:
        """Write one bundle of at most `size_max` bytes if anything is due; OK or a code."""
        self._size = 0
        self.short = False
        seal = self._seals.get(peer_id)
        if seal is None:
            return E_PEER
        stick = self._stick
        # After a power cut or a lost store we do not remember our last bundles, but each of them
        # took an epoch of our keys, so numbers above our epoch are new.
        epoch = get_u24(seal.context.rows, seal.at + OUT_EPOCH_AT)
        number_min = max(link.bundle_out, link.peer_seen, epoch)
        stick.number_max = number_min + AHEAD_MAX
        stick.clean(peer_id, link.peer_seen)
        newest = stick.newest_own(peer_id, link.bundle_out)
        link.visit(self._now_ms(), newest < link.bundle_out)
        number = max(number_min, newest) + 1
        if number > NUMBER_MAX:
            link.abort(self._now_ms())
            return E_CAPACITY
        limit = seal.room()
        frame = self._frame if len(self._frame) == limit else memoryview(self._frame)[:limit]
        writer = stick.writer(peer_id, number, link.bundle_in)
        size = self._next(link, writer, frame, size_max)
        is_new_log = seal.flags & ANEW and not 0 < newest == link.bundle_out
        if not (size or is_new_log or self.waits(peer_id)):
            return OK
        seal.flags |= RENEW
        code = self._put(writer, seal, b"", 0, TYPE_DATA)  # status alone, for full-size frames
        code = code or self.tell(writer, seal, peer_id)
        while size and code == OK:
            code = self._put(writer, seal, self._frame, size, TYPE_DATA)
            link.sent(writer.last_wire_size)
            self._after_frame()
            size = self._next(link, writer, frame, size_max)
        if code == OK:
            put_u32(self._frame, 0, number)
            put_u32(self._frame, 4, link.bundle_in)
            code = self._put(writer, seal, self._frame, _FINAL_SIZE, FINAL)
        return self._end(link, writer, number, code)

    def _end(self, link: "BundleLink", writer: "BundleWriter", number: int, code: int) -> int:
        """Finish a bundle whose frames are written, unless `code` is an error; OK or a code."""
        self._size = writer.size - writer.answer_size
        code = code or writer.finish()
        if code == OK:
            link.commit(self._now_ms(), number)
            self.bundles_out += 1
        else:
            writer.abandon()
            link.abort(self._now_ms())
            self.take_back()
        return code

    def _next(
        self, link: "BundleLink", writer: "BundleWriter", frame: "bytearray | memoryview",
        size_max: int,
    ) -> int:  # fmt: skip
        """Return the size of the link's next frame, 0 if none is due or fits on the stick."""
        room = min(writer.message_room, size_max - writer.size - SPARE_SIZE)
        link.set_room(room if room > 0 else min(writer.room, 1))
        size = link.poll_into(frame, self._now_ms())  # type: ignore[arg-type]
        # After its last frame the link does not set `is_full` any more.
        self.short = link.is_full or (self.short and not size)
        return size

    def waits(self, _peer_id: bytes) -> bool:
        """Whether control frames are due to the peer; for hosts that issue keys."""
        return False

    def tell(self, _writer: "BundleWriter", _seal: "Seal", _peer_id: bytes) -> int:
        """Write the control frames, after the status; OK or a code."""
        return OK

    def take_back(self) -> None:
        """Count the control frames as not sent: the bundle failed."""

    def _put(
        self,
        writer: "BundleWriter",
        seal: "Seal",
        frame: "bytes | bytearray",
        size: int,
        kind: int,
    ) -> int:
        sealed = seal.seal_into(self._buf, frame, size, kind)
        if sealed < 0:
            return sealed
        self.frames_out += 1
        return writer.write(self._buf, sealed)

    def saved(self) -> int:
        """Make the epochs of the bundles read durable, after the node's state; OK or a code."""
        code = OK
        for seal in self._seals.values():
            code = seal.commit() or code
        return code
