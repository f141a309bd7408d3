"""A channel that starts again: what was delivered stays so, what waits goes on, what was lost
comes back."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.base.errors import OK, CapacityError
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.memory import crc32_into
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE, Channel, open_channel
from drupelet.channel.flash_keeper import FlashKeeper
from drupelet.channel.ports import KeeperPort
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.store.files import RamFiles
from drupelet.wire.sds.bloom import Bloom
from drupelet_host.store.channel_database import ChannelDatabase, SqliteKeeper
from helpers_channel import CHANNEL, START_MS, Said, Talker, filter_of, publish_one, wire
from opened import opened

LOST_MS = 60_000
BLOOM = Bloom(100, 10, 7)
DAY_MS = 86_400_000


class World:
    """A participant whose log survives; `now_ms` is the time of day, too."""

    def __init__(self, keeper: Callable[["World"], KeeperPort]) -> None:
        self._keeper = keeper
        self.now_ms = 0
        self.events: list[tuple[int, bytes]] = []
        self.frame = bytearray(1024)
        self.boot()

    def boot(self) -> None:
        """A power cut behind a barrier."""
        if hasattr(self, "channel"):
            assert self.channel.keeper.barrier() == OK
        settings = Settings()
        settings.lost_ms = LOST_MS
        self.channel: Channel = open_channel(
            CHANNEL, b"ann", self._keeper(self), lambda: 7, settings, self.now_ms
        )
        wall = (START_MS + self.now_ms).to_bytes(8, "little")
        self.channel.clock.set_wall(wall, self.now_ms, True)

    def id_of(self, handle: int) -> bytes:
        size = self.channel.keeper.load(handle)
        return Said(bytes(self.channel.keeper.work[:size])).id

    def hear(self, frame: bytearray) -> None:
        assert self.channel.receive(frame, len(frame), self.now_ms) == OK
        self.drain()

    def drain(self) -> None:
        while event := self.channel.next_event():
            self.events.append((event, self.id_of(self.channel.event_handle)))

    def wait(self, ms: int) -> None:
        for _ in range(ms // 1000):
            self.now_ms += 1000
            self.channel.poll_into(self.frame, self.now_ms)
            self.drain()

    @property
    def log(self) -> list[bytes]:
        rows = self.channel.log.rows
        return [self.id_of(rows.handle(row)) for row in range(rows.count)]


def flash(files: RamFiles, kept_max: int = 64) -> FlashKeeper:
    keeper = FlashKeeper(files, BLOOM, 512, kept_max, 1024, 4)
    assert keeper.open() == 0
    return keeper


@pytest.fixture(params=["flash", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "flash":
        files = RamFiles()
        return World(lambda _: flash(files))
    database = opened(ChannelDatabase(tmp_path / "channels.db"))
    return World(lambda world: SqliteKeeper(database, CHANNEL, lambda: START_MS + world.now_ms))


def test_what_was_delivered_with_a_gap_stays_in_the_log(world: World) -> None:
    world.hear(wire(b"m2", causal=(b"m1",), lamport=START_MS + 2))
    world.wait(120_000)
    world.hear(wire(b"m3", causal=(b"m2",), lamport=START_MS + 3))
    assert world.events == [(EVENT_GAP, b"m2"), (EVENT_MESSAGE, b"m3")]
    for _ in range(2):
        world.boot()
        assert world.log == [b"m2", b"m3"] and not world.channel.log.incoming.count
    world.hear(wire(b"m4", causal=(b"m3",), lamport=START_MS + 4))
    world.wait(120_000)
    assert world.events[2:] == [(EVENT_MESSAGE, b"m4")] and world.log == [b"m2", b"m3", b"m4"]


def test_what_waits_does_so_over_several_restarts(world: World) -> None:
    world.hear(wire(b"m2", causal=(b"m1",), lamport=START_MS + 2))
    for _ in range(3):
        world.boot()
        assert world.log == [] and world.channel.log.incoming.count == 1
    world.hear(wire(b"m1", lamport=START_MS + 1))
    assert world.log == [b"m1", b"m2"]
    assert world.events == [(EVENT_MESSAGE, b"m1"), (EVENT_MESSAGE, b"m2")]
    world.boot()
    assert world.log == [b"m1", b"m2"] and not world.channel.log.incoming.count


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_waiting_goes_on_where_a_host_starts_often(world: World) -> None:
    world.hear(wire(b"m2", causal=(b"m1",), lamport=START_MS + 2))
    for _ in range(4):
        world.wait(20_000)
        world.boot()
    world.wait(40_000)
    assert world.events == [(EVENT_GAP, b"m2")] and world.now_ms < 2 * LOST_MS + 1000


def test_a_clock_that_was_not_set_tells_no_waiting_time(tmp_path: Path) -> None:
    wall_ms = 5000
    keeper = SqliteKeeper(opened(ChannelDatabase(tmp_path / "c.db")), CHANNEL, lambda: wall_ms)
    frame = wire(b"m")
    keeper.work[: len(frame)] = frame
    handle = keeper.put(bytearray(8), len(frame), True)
    wall_ms = START_MS
    assert keeper.waited_ms(handle) == 0
    wall_ms = 100
    assert keeper.waited_ms(handle) == 0
    keeper.pin(handle, False)
    assert keeper.waited_ms(handle) == keeper.waited_ms(99) == -1


def test_the_waiting_time_is_bounded(tmp_path: Path) -> None:
    wall_ms = START_MS
    keeper = SqliteKeeper(opened(ChannelDatabase(tmp_path / "c.db")), CHANNEL, lambda: wall_ms)
    frame = wire(b"m")
    keeper.work[: len(frame)] = frame
    handle = keeper.put(bytearray(8), len(frame), True)
    wall_ms = START_MS + 3000
    assert keeper.waited_ms(handle) == 3000
    wall_ms = START_MS + 400 * DAY_MS
    assert keeper.waited_ms(handle) == WAIT_MS_MAX
    wall_ms = START_MS - 1
    assert keeper.waited_ms(handle) == 0


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_what_waits_behind_many_newer_ones_is_found(world: World) -> None:
    world.hear(wire(b"waits", causal=(b"m1",), lamport=START_MS + 2))
    for number in range(200):
        world.hear(wire(b"n%03d" % number, lamport=START_MS + 10 + number))
    world.boot()
    assert world.channel.log.incoming.count == 1 and world.channel.log.rows.count == 100
    world.hear(wire(b"m1", lamport=START_MS + 1))
    assert world.events[-1] == (EVENT_MESSAGE, b"waits")


# --- files of earlier releases ---


def test_an_older_database_gets_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "channels.db"
    old = sqlite3.connect(path)
    old.execute(f"PRAGMA application_id = {0x44525332}")
    old.execute(
        "CREATE TABLE messages (handle INTEGER PRIMARY KEY AUTOINCREMENT, channel BLOB NOT NULL,"
        " id BLOB NOT NULL, lamport BLOB NOT NULL, frame BLOB NOT NULL, UNIQUE (channel, id))"
    )
    for number, causal in enumerate(((), (b"m0",), (b"gone",))):
        frame = bytes(wire(b"m%d" % number, causal=causal, lamport=START_MS + number))
        row = (CHANNEL, b"m%d" % number, (START_MS + number).to_bytes(8), frame)
        old.execute("INSERT INTO messages (channel, id, lamport, frame) VALUES (?, ?, ?, ?)", row)
    old.commit()
    old.close()
    for _ in range(2):
        database = ChannelDatabase(path)
        keeper = SqliteKeeper(database, CHANNEL)
        made = open_channel(CHANNEL, b"ann", keeper, lambda: 7)
        assert made.log.rows.count == 2 and made.log.incoming.count == 1, (
            "nobody wrote down what waited"
        )
        assert [keeper.waited_ms(handle) for handle in (1, 2, 3)] == [-1, -1, 0]
        database.close()


def test_flash_files_of_version_1_are_read() -> None:
    files = RamFiles()
    keeper = flash(files)
    frame = wire(b"old", causal=(b"gone",))
    keeper.work[: len(frame)] = frame
    key = bytearray(8)
    BLOOM.key_into(key, 0, b"old", 0, 3)
    keeper.put(key, len(frame), False)
    keeper.barrier()
    [name] = files.names()
    head = files.content(name)
    head[4] = 1
    crc32_into(head, 16, head, 0, 16, True)
    made = open_channel(CHANNEL, b"ann", flash(files), lambda: 7)
    assert made.log.rows.count == 1 and not made.log.incoming.count
    head[4] = 3
    crc32_into(head, 16, head, 0, 16, True)
    again = FlashKeeper(files, BLOOM, 512, 64, 1024, 4)
    assert again.open() == 1, "a later one is not"


# --- a board's flash ---


def test_what_depends_on_the_oldest_that_went_is_in_the_log() -> None:
    files = RamFiles()
    world = World(lambda _: flash(files, 32))
    for number in range(80):
        before = (b"m%02d" % (number - 1),) if number else ()
        world.hear(wire(b"m%02d" % number, causal=before, lamport=START_MS + number))
    world.boot()
    assert not world.channel.log.incoming.count
    assert world.log[-1] == b"m79" and len(world.log) >= 20


def test_a_mark_is_cut_anywhere() -> None:
    files = RamFiles()
    world = World(lambda _: flash(files))
    world.hear(wire(b"m2", causal=(b"m1",), lamport=START_MS + 2))
    world.channel.keeper.barrier()
    before = files.used
    world.wait(120_000)
    tail = files.used - before
    assert tail == 10
    for kept in range(tail + 1):
        copied = files.copy()
        copied.power_cut(kept)
        keeper = FlashKeeper(copied, BLOOM, 512, 64, 1024, 4)
        assert keeper.open() == (0 < kept < tail)
        made = open_channel(CHANNEL, b"ann", keeper, lambda: 7)
        assert (made.log.rows.count, made.log.incoming.count) == (
            (1, 0) if kept == tail else (0, 1)
        )


def test_no_room_for_a_mark_harms_nothing() -> None:
    files = RamFiles()
    world = World(lambda _: flash(files))
    world.hear(wire(b"m2", causal=(b"m1",), lamport=START_MS + 2))
    files.capacity = files.used
    world.wait(120_000)
    assert world.log == [b"m2"] and world.events == [(EVENT_GAP, b"m2")]


# --- a log that was lost ---


def heard_by_all(ann: Talker, ben: Talker, rounds: int = 12) -> None:
    for _ in range(rounds):
        for one, other in ((ann, ben), (ben, ann)):
            for said in one.later(120_000):
                other.hear(said.wire)


def started(keeper: KeeperPort) -> Talker:
    """ann, as a program opens its channel."""
    ann = Talker()
    ann.channel = open_channel(CHANNEL, b"ann", keeper, lambda: 7)
    ann.channel.clock.set_wall(START_MS.to_bytes(8, "little"), 0, True)
    return ann


def spoken(count: int) -> tuple[Talker, Talker]:
    """ann has said some messages, and ben heard them."""
    ann, ben = started(RamKeeper(128, 1024)), Talker(b"ben")
    for number in range(count):
        ann.publish(b"x", b"m%d" % number)
        for said in ann.say():
            ben.hear(said.wire)
    return ann, ben


def test_a_lost_log_comes_back() -> None:
    _, ben = spoken(3)
    ann = started(RamKeeper(128, 1024))
    ben.publish(b"y", b"theirs")
    [said] = ben.say()
    ann.hear(said.wire)
    heard_by_all(ann, ben)
    assert ann.log == ben.log == [b"m0", b"m1", b"m2", b"theirs"]
    assert not ann.channel.log.recovering, "own history is through"
    ann.hear(wire(b"forged", sender=b"ann", lamport=START_MS + 9))
    assert b"forged" not in ann.log


def test_a_log_that_is_an_older_copy_gets_the_rest() -> None:
    _, ben = spoken(3)
    keeper = RamKeeper(128, 1024)
    frame = wire(b"older", sender=b"ben")
    started(keeper).hear(frame)
    ann = started(keeper)
    assert not ann.channel.log.recovering
    ben.publish(b"y", b"theirs")
    [said] = ben.say()
    ann.hear(said.wire)
    assert ann.channel.log.recovering, "a message of ours is missed that others know"
    heard_by_all(ann, ben)
    assert {b"m0", b"m1", b"m2", b"theirs"} <= set(ann.log) and not ann.channel.log.recovering


# --- settings ---


@pytest.mark.parametrize(
    "values",
    [
        {"t_max_ms": WAIT_MS_MAX + 1},
        {"t_min_ms": 300_000},
        {"t_min_ms": 0},
        {"period_ms": WAIT_MS_MAX // 4 + 1},
        {"sync_ms": WAIT_MS_MAX // 2 + 1},
        {"lost_ms": WAIT_MS_MAX // 2 + 1},
    ],
)
def test_settings_that_the_arithmetic_does_not_allow_are_refused(values: dict[str, int]) -> None:
    settings = Settings()
    for name, value in values.items():
        setattr(settings, name, value)
    with pytest.raises(CapacityError, match="2\\^28"):
        open_channel(CHANNEL, b"ann", RamKeeper(8, 512), lambda: 7, settings)


def test_a_channel_is_restored_from_its_keeper() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"mine")
    ann.hear(wire(b"theirs", lamport=START_MS + 5000))
    again = Talker(keeper=ann.channel.keeper, send_bloom=True)
    again.channel.restore(0)
    assert again.log == [b"mine", b"theirs"] and list(again.state) == [b"mine"]
    assert again.hear(wire(b"theirs", lamport=START_MS + 5000)) == OK
    assert again.delivered == []
    [mine] = again.say()
    assert mine.id == b"mine" and mine.bloom == filter_of(b"theirs")
    assert publish_one(again, b"y").lamport == START_MS + 5001


def test_what_waited_waits_again_after_a_restart() -> None:
    ann = Talker()
    ann.hear(wire(b"child", causal=(b"parent",), lamport=START_MS + 3))
    ann.hear(wire(b"parent", causal=(b"root",), lamport=START_MS + 2))
    ann.hear(wire(b"other", lamport=START_MS + 9))
    again = Talker(keeper=ann.channel.keeper)
    again.channel.restore(0)
    assert again.log == [b"other"] and again.channel.log.incoming.count == 2
    again.hear(wire(b"root", lamport=START_MS + 1))
    assert again.log == [b"root", b"parent", b"child", b"other"]
    assert again.delivered == [b"root", b"parent", b"child"]
