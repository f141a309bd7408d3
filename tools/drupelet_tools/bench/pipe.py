"""Two nodes of a host and the pipe between them, which keeps every frame that goes through."""

import contextlib
import os
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from drupelet.base.events import COUNT_CARRIERS
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.core import NoBox
from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS
from drupelet.link.link import Link
from drupelet.link.stick_visit import BundleLink
from drupelet.node import BATCH, CARRIER_SERIAL, CARRIER_STICK, SHARED, Node
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.packed import Packed
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1
from drupelet.wire.sketch.recovery import Recovery
from drupelet_host.home.config import PEERS_CONFIGURED_MAX
from drupelet_host.member.member import GROUPS_HOST_MAX, MESSAGES_HOST_MAX, OFFERS_HOST_MAX
from drupelet_host.store.long_bodies import PARTS_HOST_MAX
from drupelet_host.store.sqlite_store import SqliteStore
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.profiles import Profile
from drupelet_tools.bench.sealed import SealedEnds
from drupelet_transports.stick.plain_visit import Visit
from drupelet_transports.stick.sealed_visit import SealedVisit
from drupelet_transports.stick.stick import Stick

EPOCH_MS = 1000
# Files in RAM, where the system has them: the stores are not what is measured.
_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made in it
# The cadence of readings in the field: it decides how long a timestamp's difference is.
CADENCE_S = 900
# Longer than any back-off: whoever has not answered by then never will.
_EPOCHS_MAX = 400
# A pause without a frame after which a contact is over.
_QUIET_EPOCHS = 6
_VISITS_MAX = 8
_BACKUP = "backup.sqlite"
# An account of one carrier: bytes of records from 2 on, see drupelet.link.link.
_ACCOUNT_SIZE = 32
_IN = 16
_BYTES = range(2, 8)
MESSAGE_BYTES = 3
_RECORDS = 8
MESSAGE_KIND = 1


class Account(NoBox):
    """A black box that only counts."""

    def __init__(self) -> None:
        self.counters: Counter[int] = Counter()

    def count(self, index: int, amount: int) -> None:
        """See BlackBox.count."""
        self.counters[index] += amount

    def link_bytes(self, carrier: int, received: bool, kinds: Iterable[int] = _BYTES) -> int:
        """Bytes of a link's own that were sent or received."""
        base = COUNT_CARRIERS + carrier * _ACCOUNT_SIZE + (_IN if received else 0)
        return sum(self.counters[base + kind] for kind in kinds)

    def records(self, carrier: int, kind: int) -> int:
        """Records of a kind that were sent."""
        return self.counters[COUNT_CARRIERS + carrier * _ACCOUNT_SIZE + _RECORDS + kind]


class End:
    """One of the two nodes."""

    def __init__(
        self, folder: Path, profile: Profile, name: bytes, other: bytes, draw: random.Random,
        slots: tuple[int, int] = (MESSAGES_HOST_MAX, OFFERS_HOST_MAX),
    ) -> None:  # fmt: skip
        self.id = name
        self.other = other
        self.profile = profile
        self._draw = draw
        self.recovery: Recovery | None = None
        self.store = SqliteStore(folder / f"{name.decode()}.sqlite")
        self.store.open()
        # Nothing here outlives the run; an fsync per frame would be most of its time.
        self.store.connection.execute("PRAGMA synchronous = OFF")
        self.store.next_boot()
        self.account = Account()
        self.node = Node(
            self.store, lambda: draw.randrange(256), PEERS_CONFIGURED_MAX, GROUPS_HOST_MAX,
            *slots, self.account, PARTS_HOST_MAX,  # type: ignore[arg-type] # what a node tells one
        )  # fmt: skip
        if profile.family == FAMILY_BSP:
            self.group = self.node.join(READINGS_CLIENT_ID, b"bench")
        else:
            self.group = self.node.join_id(READINGS_CLIENT_ID, profile.family)
        self.peer = self.node.add_peer(other)
        self.node.share(self.group, self.peer, SHARED)
        self.node.boot(0)

    def connect(self, mode: int, carrier: int, now_ms: int) -> Link:
        """The link to the other end."""
        epoch_ms = 0 if carrier == CARRIER_STICK else EPOCH_MS
        number = self.profile.number
        if carrier == CARRIER_STICK and number == PROFILE_COMPACT_1:
            number = PROFILE_BSP_1  # on a stick it is what is packed
        link = self.node.link(self.peer, number, carrier, epoch_ms, mode, now_ms)
        if isinstance(link, BundleLink) and self.profile.family == FAMILY_BSP:
            link.use_packing(Packed(self.profile.number == PROFILE_COMPACT_1))
        if isinstance(link.codec, Compact1):
            self.recovery = Recovery(link, lambda: self._draw.randbytes(4))
        return link

    def publish(self, body: bytes, number: int, now_ms: int) -> None:
        """Put a message into the log; raises BenchError when it is refused."""
        # The stored body of MVDS begins with a head that is not sent: no parents.
        if self.profile.family == FAMILY_MVDS:
            body = b"\0" + body
        stamp = self.profile.stamp(number * CADENCE_S)
        handle = self.node.publish(self.group, body, len(body), stamp, now_ms)
        if handle < 0:
            raise BenchError(f"{self.profile.name}: message {number} refused with code {handle}")

    def consume(self) -> None:
        """The client takes everything in."""
        while self.node.next_event():
            self.node.done(self.node.event_handle)

    def handles(self) -> Iterator[int]:
        """Every message of the log."""
        handle = self.store.next(0)
        while handle:
            yield handle
            handle = self.store.next(handle)

    @property
    def outstanding(self) -> int:
        """Messages that the other end is not known to hold."""
        return self.node.outstanding(self.peer)


class Pair:
    """Both ends and their clock; close it, or use it in a `with`.

    `frames` has what went through the pipe since `mark`: (from A, bytes). With `sealed` these are
    sealed frames, and those that seals send for themselves.
    """

    def __init__(
        self, profile: Profile, mode: int = BATCH, carrier: int = CARRIER_SERIAL, seed: int = 1,
        sealed: bool = False, b_slots: tuple[int, int] = (MESSAGES_HOST_MAX, OFFERS_HOST_MAX),
    ) -> None:  # fmt: skip
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="drupelet-bench-", dir=memory)
        self.folder = Path(self._folder.name)
        self.draw = random.Random(seed)
        self.profile = profile
        self.carrier = carrier
        self.a = End(self.folder, profile, b"AAAA", b"BBBB", self.draw)
        self.b = End(self.folder, profile, b"BBBB", b"AAAA", self.draw, b_slots)
        self.mode = mode
        self.links: tuple[Link, ...] = ()
        self.now_ms = 0
        self.written = 0
        self.sealed = SealedEnds(self.a.id, self.b.id, self.draw) if sealed else None
        self.frames: list[tuple[bool, bytes]] = []

    def __enter__(self) -> "Pair":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.a.store.close()
        self.b.store.close()
        self._folder.cleanup()

    def connect(self) -> None:
        """Make both links."""
        self.links = tuple(
            end.connect(self.mode, self.carrier, self.now_ms) for end in (self.a, self.b)
        )

    def bodies(self, count: int, size: int) -> list[bytes]:
        """Random payloads behind the count of dependencies, which is none."""
        return [b"\0" + self.draw.randbytes(size - 1) for _ in range(count)]

    def publish(self, bodies: Iterable[bytes]) -> None:
        """A publishes these."""
        for body in bodies:
            self.written += 1
            self.a.publish(body, self.written, self.now_ms)

    def mark(self) -> None:
        """Count from here."""
        self.frames = []
        if self.sealed is not None:
            self.sealed.frames.clear()
        for end in (self.a, self.b):
            end.account.counters.clear()

    @property
    def total_bytes(self) -> int:
        """Bytes of all frames since `mark`."""
        return sum(len(frame) for _, frame in self.frames)

    def contact(self) -> None:
        """A comes within reach of B again: a profile that greets does so."""
        self.links[0].greet()

    def back_up(self) -> None:
        """Keep a copy of what B has."""
        self.b.node.save(self.now_ms)
        self.b.store.barrier()
        with contextlib.closing(sqlite3.connect(self.folder / _BACKUP)) as copy:
            self.b.store.connection.backup(copy)

    def restore(self) -> None:
        """B comes back with that copy, as another store: what came since is lost to it.

        B knows, A does not; the link of B is new.
        """
        path = self.b.store.path
        self.b.store.close()
        shutil.copy(self.folder / _BACKUP, path)
        with contextlib.closing(sqlite3.connect(path)) as store:
            generation = self.draw.randrange(1 << 32)
            store.execute("UPDATE meta SET value = ? WHERE key = 'store_gen'", (generation,))
            store.commit()
        self.b = End(self.folder, self.profile, self.b.id, self.a.id, self.draw)
        link = self.b.connect(self.mode, self.carrier, self.now_ms)
        self.links = (self.links[0], link)
        if self.b.recovery is not None:
            self.b.recovery.begin()

    def run(self) -> None:
        """Epochs until nothing is outstanding and nobody says anything any more.

        Raises BenchError when that never comes.
        """
        quiet = 0
        for _ in range(_EPOCHS_MAX):
            self.now_ms += EPOCH_MS
            before = len(self.frames)
            self.step()
            self.a.consume()
            self.b.consume()
            quiet = quiet + 1 if len(self.frames) == before else 0
            if quiet >= _QUIET_EPOCHS and not self.a.outstanding and not self.b.outstanding:
                return
        raise BenchError(f"{self.profile.name}: not done after {_EPOCHS_MAX} epochs")

    def step(self) -> None:
        """Everything that is due, both ways."""
        self._pass(True)
        self._pass(False)

    def _pass(self, from_a: bool) -> None:
        """Everything that is due one way."""
        here, there = self.links if from_a else reversed(self.links)
        if self.sealed is not None:
            self._pass_sealed(self.sealed, from_a, here, there)
            return
        frame = bytearray(FRAME_SIZE_MAX)
        while size := here.poll_into(frame, self.now_ms):
            self.frames.append((from_a, bytes(frame[:size])))
            there.receive(frame, size, self.now_ms)

    def _pass_sealed(self, sealed: SealedEnds, from_a: bool, here: Link, there: Link) -> None:
        out, way_in = sealed.carriers if from_a else reversed(sealed.carriers)
        sealed.at(self.now_ms)
        frame = bytearray(out.frame_size_max)
        taken = bytearray(way_in.frame_size_max)
        while size := here.poll_into(frame, self.now_ms):
            if out.send(frame, size):
                raise BenchError("a seal refused to send")
            while got := way_in.receive_into(taken):
                if got < 0:
                    raise BenchError("a sealed frame was refused")
                there.receive(taken, got, self.now_ms)
        self.frames = sealed.frames

    # --- a stick instead of the pipe ---

    def carry(self, visits: int = 0) -> int:
        """So many visits, turn by turn, A first; 0: until nothing is outstanding.

        Returns the bytes of all bundle files. Raises BenchError when they do not do.
        """
        files: dict[str, int] = {}
        root = self.folder / "usb"
        root.mkdir(exist_ok=True)
        sticks = [Stick(str(root), end.id) for end in (self.a, self.b)]
        for turn in range(visits or _VISITS_MAX):
            end, link = (self.a, self.b)[turn & 1], self.links[turn & 1]
            tap = _Tap(link, self.frames, turn & 1 == 0)
            stick = sticks[turn & 1]
            if not stick.present():
                raise BenchError("the folder that stands for a stick is gone")
            visit = self._visit(stick, turn & 1)
            visit.take_in(tap, end.other)  # type: ignore[arg-type]
            end.consume()
            visit.hand_out(tap, end.other)  # type: ignore[arg-type]
            if isinstance(visit, SealedVisit):
                visit.saved()
            for path in root.rglob("*.DRP"):
                files[str(path.relative_to(root))] = path.stat().st_size
            done = turn and not self.a.outstanding and not self.b.outstanding
            if done and turn + 1 >= visits:
                return sum(files.values())
        raise BenchError(f"{self.profile.name}: a stick is not done after {turn + 1} visits")

    def _visit(self, stick: Stick, number: int) -> Visit | SealedVisit:
        end = (self.a, self.b)[number]
        frame = bytearray(FRAME_SIZE_MAX)
        if self.sealed is None:
            return Visit(stick, frame, lambda: 1000, end.consume)
        seals = {end.other: self.sealed.bundles[number]}
        buf = bytearray(FRAME_SIZE_MAX)
        return SealedVisit(stick, seals, frame, lambda: 1000, end.consume, buf)


class _Tap:
    """A link whose frames out are copied."""

    def __init__(self, link: Link, frames: list[tuple[bool, bytes]], from_a: bool) -> None:
        self._link = link
        self._frames = frames
        self._from_a = from_a

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """See Link.poll_into."""
        size = self._link.poll_into(frame, now_ms)
        if size:
            self._frames.append((self._from_a, bytes(frame[:size])))
        return size
