"""What a member does with a stick, peer by peer: take in what is there, then leave what is due.

The order keeps a pulled stick harmless. Every bundle is read before one is written; a bundle
counts as written only once it is renamed on the stick; and the caller saves the node's state
before it tells anybody that the stick may be unplugged. Bundles are sealed, with a seal per peer.

Each bundle opens an epoch of its own, so it can be read in any boot. Its last frame is FINAL and
holds number and `seen`; what the bundle's open header says of them is only a hint. `saved` comes
after the node's state is durable: until then a bundle that was read can be read again.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy, get_u32, put_u32
from drupelet.seal.record import ANEW, IN_EPOCH_AT, OUT_EPOCH_AT, RENEW, WHOLE_EPOCH_AT, get_u24
from drupelet.seal.seal import FINAL, TYPE_DATA
from drupelet_transports.stick import (
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
    from drupelet_transports.stick import BundleReader, BundleWriter, Stick

_FINAL_SIZE = const(8)  # number u32, seen u32


class SealedVisit:
    """Counts of one visit; `failed` bundles are written again at the next one.

    `seals` has the seal (class 1, loaded) of every peer's id.

    `frame` is what links are handed, 1,001 bytes or longer; `buf` holds sealed frames, 1,024.
    Nothing is read from or written for a peer without one: that counts in `failed`.
    """

    def __init__(
        self, stick: "Stick", seals: "dict[bytes, Seal]", frame: bytearray,
        now_ms: "Callable[[], int]", after_frame: "Callable[[], None]", buf: bytearray,
    ) -> None:  # fmt: skip
        self._stick = stick
        self._seals = seals
        self._frame = frame
        self._buf = buf
        self._now_ms = now_ms
        self._after_frame = after_frame  # the owner's turn: a visit is long
        self.bundles_in = 0
        self.frames_in = 0
        self.truncated = 0
        self.unopened = 0  # bundles of which no frame is sealed with our keys
        self.bundles_out = 0
        self.frames_out = 0
        self.failed = 0
        self.refused = 0
        self.short = False  # of the last peer: messages wait for which the stick has no room
        self._room = NUMBER_MAX  # that a bundle of the last peer may have
        self._size = 0  # of the last bundle, without what its answer needs

    def take_in(self, link: "BundleLink", peer_id: bytes) -> None:
        """Read the peer's bundles that we have not read whole before, oldest first."""
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
                self.truncated += 1  # what was authentic was taken; the rest comes again
            if code == E_STORAGE:
                reader.close()
                return  # a later bundle would say that this one was read

    def _read(self, reader: "BundleReader", link: "BundleLink", seal: "Seal") -> int:
        """Hand the open bundle's frames to the link: OK when it was whole, else E_PEER.

        E_STORAGE: keys that it brought or took away could not be kept, so all of it comes again.
        """
        buf = self._buf
        frame = self._frame
        code = E_PEER
        whole = True
        sealed = reader.read_into(buf)
        while sealed > 0:
            self.frames_in += 1
            size = seal.open(buf, sealed, self._now_ms())
            if size == E_STORAGE:
                return E_STORAGE
            if size < 0:
                self.refused += 1
                whole = False
            elif seal.context.final:
                code = self._ends(reader, seal, size)
                if code == OK:
                    rows = seal.context.rows
                    copy(rows, seal.at + WHOLE_EPOCH_AT, rows, seal.at + IN_EPOCH_AT, 3)
                    link.imported(reader.number, get_u32(buf, seal.context.at + 4), whole)
            elif size:
                copy(frame, 0, buf, seal.context.at, size)
                link.received(reader.last_wire_size)
                whole = link.receive(frame, size, self._now_ms()) == OK and whole
            self._after_frame()
            sealed = reader.read_into(buf)
        return code

    def _ends(self, reader: "BundleReader", seal: "Seal", size: int) -> int:
        """OK when the FINAL that was opened belongs to this bundle."""
        buf = self._buf
        at = seal.context.at
        if size != _FINAL_SIZE or (buf[at] | buf[at + 4]) & 0xC0:
            return E_PEER
        return OK if get_u32(buf, at) == reader.number else E_PEER

    def hand_out(self, link: "BundleLink", peer_id: bytes) -> int:
        """Write bundles for the peer while anything is due and fits, and remove what it has read.

        OK with `short`: what fits is there. Where a stick turns out to have less room than it
        says, the bundle is made again, as long as what went onto it before.
        """
        self._room = NUMBER_MAX
        code = OK
        for _ in range(BUNDLES_MAX):
            code = self._bundle(link, peer_id)
            if code == E_CAPACITY and self._size > SPARE_SIZE and self._room == NUMBER_MAX:
                self._room = self._size
                code = self._bundle(link, peer_id)
            if code != OK or not self.short or self._size < BUNDLE_SIZE_MAX // 2:
                break  # all is there, or the stick has no more room
        self.failed += code != OK
        return code

    def _bundle(self, link: "BundleLink", peer_id: bytes) -> int:
        """Write one bundle, if anything is due: OK, or a code."""
        self._size = 0
        self.short = False
        seal = self._seals.get(peer_id)
        if seal is None:
            return E_PEER
        stick = self._stick
        # A cut leaves a bundle, a wipe all of them forgotten; keys stay, and each had an epoch.
        epoch = get_u24(seal.context.rows, seal.at + OUT_EPOCH_AT)
        least = max(link.bundle_out, link.peer_seen, epoch)
        stick.number_max = least + AHEAD_MAX
        stick.clean(peer_id, link.peer_seen)
        newest = stick.newest_own(peer_id, link.bundle_out)
        link.visit(self._now_ms(), newest < link.bundle_out)
        number = max(least, newest) + 1
        if number > NUMBER_MAX:
            link.abort(self._now_ms())
            return E_CAPACITY
        limit = seal.room()
        frame = self._frame if len(self._frame) == limit else memoryview(self._frame)[:limit]
        writer = stick.writer(peer_id, number, link.bundle_in)
        size = self._next(link, writer, frame)
        anew = seal.flags & ANEW and not 0 < newest == link.bundle_out
        if not (size or anew or self.waits(peer_id)):
            return OK
        seal.flags |= RENEW
        code = self._put(writer, seal, b"", 0, TYPE_DATA)  # status alone: the rest has its room
        code = code or self.tell(writer, seal, peer_id)
        while size and code == OK:
            code = self._put(writer, seal, self._frame, size, TYPE_DATA)
            link.sent(writer.last_wire_size)
            self._after_frame()
            size = self._next(link, writer, frame)
        if code == OK:
            put_u32(self._frame, 0, number)
            put_u32(self._frame, 4, link.bundle_in)
            code = self._put(writer, seal, self._frame, _FINAL_SIZE, FINAL)
        return self._end(link, writer, number, code)

    def _end(self, link: "BundleLink", writer: "BundleWriter", number: int, code: int) -> int:
        """Give a bundle whose frames are written its name: OK, or a code."""
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
        self, link: "BundleLink", writer: "BundleWriter", frame: "bytearray | memoryview"
    ) -> int:
        """The size of the link's next frame that fits the stick, 0 at the bundle's end."""
        room = min(writer.message_room, self._room - writer.size - SPARE_SIZE)
        link.set_room(room if room > 0 else min(writer.room, 1))
        size = link.poll_into(frame, self._now_ms())  # type: ignore[arg-type]
        # Behind its last frame the link says nothing any more.
        self.short = link.is_full or (self.short and not size)
        return size

    def waits(self, _peer_id: bytes) -> bool:
        """Whether a host has something to tell the peer of keys."""
        return False

    def tell(self, _writer: "BundleWriter", _seal: "Seal", _peer_id: bytes) -> int:
        """Write it, after the status: OK, or a code."""
        return OK

    def take_back(self) -> None:
        """The bundle failed: what it told counts as not told."""

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
        """The node's state is saved: what was read is not read again. OK, or a code."""
        code = OK
        for seal in self._seals.values():
            code = seal.commit() or code
        return code
