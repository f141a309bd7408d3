"""Every keeper of a channel's messages passes one contract; the board's survives power cuts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.channel.flash_keeper import FlashKeeper
from drupelet.channel.keeper import NAMES_ID, NAMES_SIZE, compare_ids
from drupelet.channel.ports import KeeperPort
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.store.files import RamFiles
from drupelet.wire.sds.bloom import Bloom
from drupelet_host.store.channel_database import ChannelDatabase, SqliteKeeper
from helpers_channel import CHANNEL, START_MS, Talker, wire
from opened import opened

BLOOM = Bloom(100, 10, 7)
FILE_SIZE = 1024
Make = Callable[[], KeeperPort]


def flash(files: RamFiles, kept_max: int = 64, files_max: int = 4) -> FlashKeeper:
    keeper = FlashKeeper(files, BLOOM, 512, kept_max, FILE_SIZE, files_max)
    assert keeper.open() >= 0
    return keeper


@pytest.fixture(params=["ram", "flash", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "ram":
        return lambda: RamKeeper(16, 512)
    if request.param == "flash":
        return lambda: flash(RamFiles())
    return lambda: SqliteKeeper(opened(ChannelDatabase(tmp_path / "keeper.db")), CHANNEL)


def key_of(id: bytes) -> bytearray:
    key = bytearray(8)
    BLOOM.key_into(key, 0, id, 0, len(id))
    return key


def put(keeper: KeeperPort, id: bytes, lamport: int = START_MS, pinned: bool = False) -> int:
    frame = wire(id, lamport=lamport, content=b"content of " + id)
    keeper.work[: len(frame)] = frame
    return keeper.put(key_of(id), len(frame), pinned)


def find(keeper: KeeperPort, id: bytes) -> int:
    return keeper.find(key_of(id), b"." + id, 1, len(id))


def test_what_is_put_is_found_and_loaded(make: Make) -> None:
    keeper = make()
    handles = {id: put(keeper, id) for id in (b"a", b"b", b"c" * 66)}
    assert (
        all(0 < handle < 1 << 30 for handle in handles.values()) and len({*handles.values()}) == 3
    )
    for id, handle in handles.items():
        assert find(keeper, id) == handle
        size = keeper.load(handle)
        assert bytes(keeper.work[:size]) == wire(id, content=b"content of " + id)
    assert find(keeper, b"d") == 0 and keeper.load(999) == 0 and keeper.load(0) == 0
    assert keeper.barrier() == OK and keeper.left == 0


def test_finding_and_naming_leave_the_buffer_alone(make: Make) -> None:
    keeper = make()
    handle = put(keeper, b"mm")
    keeper.work[:4] = b"mine"
    names = bytearray(NAMES_SIZE)
    for id, expected in ((b"m", 1), (b"mm", 0), (b"mmm", -1), (b"a", 1), (b"z", -1)):
        assert find(keeper, id) == (0 if expected else handle) and keeper.names_into(handle, names)
        assert compare_ids(names, NAMES_ID, id, 0, len(id)) == expected
    assert names[: 1 + 3] == b"\x03eve" and names[NAMES_ID : NAMES_ID + 3] == b"\x02mm"
    assert keeper.work[:4] == b"mine"
    assert not keeper.names_into(12345, names)


def test_what_is_dropped_may_come_again(make: Make) -> None:
    keeper = make()
    first = put(keeper, b"a")
    keeper.drop(first)
    assert find(keeper, b"a") == 0
    second = put(keeper, b"a")
    assert find(keeper, b"a") == second != first
    assert keeper.left == 0


def test_handles_in_the_order_of_arrival(make: Make) -> None:
    keeper = make()
    handles = [put(keeper, b"m%d" % number) for number in range(8)]
    found = []
    handle = keeper.next(0)
    while handle:
        found.append(handle)
        handle = keeper.next(handle)
    assert found == handles == sorted(handles)
    assert keeper.tail(3) == handles[4] and keeper.tail(100) == 0


def test_a_board_that_boots_for_decades_never_runs_out_of_handles() -> None:
    """The numbers of files go on; handles, and marks in files, pass 2^30 on the way."""
    files = RamFiles()
    high = (1 << 30) // FILE_SIZE
    files.close(files.open(f"C{high - 4:07}.CHN", True))
    for boot in range(12):
        keeper = flash(files)
        names = [b"%d-%d" % (boot, number) for number in range(3)]
        handles = [put(keeper, name, START_MS + boot, pinned=name[-1:] == b"1") for name in names]
        assert all(0 < handle < 1 << 30 for handle in handles)
        assert keeper.next(handles[0]) == handles[1] and not keeper.next(handles[2])
        if boot % 2:
            keeper.pin(handles[1], False)
        assert keeper.barrier() == OK
        files.power_cut()
        again = flash(files)
        for name in names:
            handle = find(again, name)
            size = again.load(handle)
            assert bytes(again.work[:size]).endswith(b"content of " + name)
            waits = name[-1:] == b"1" and not boot % 2
            assert again.waited_ms(handle) == (0 if waits else -1)
        files.power_cut()
    assert f"C{high + 7:07}.CHN" in files.names()


def test_more_files_than_handles_in_one_run_are_refused() -> None:
    files = RamFiles()
    for number in (1, (1 << 30) // FILE_SIZE - 1):
        files.close(files.open(f"C{number:07}.CHN", True))
    keeper = flash(files)
    assert put(keeper, b"a") == E_CAPACITY
    assert keeper.barrier() == OK and find(keeper, b"a") == 0


def test_another_channel_is_another_keeper(tmp_path: Path) -> None:
    database = opened(ChannelDatabase(tmp_path / "two.db"))
    one, other = SqliteKeeper(database, b"1"), SqliteKeeper(database, b"2")
    handle = put(one, b"a")
    assert find(other, b"a") == 0 and other.load(handle) == 0 and other.next(0) == 0


@pytest.mark.parametrize("kind", ["ram", "flash"])
def test_the_oldest_go_and_pinned_ones_stay(kind: str) -> None:
    keeper: KeeperPort = RamKeeper(16, 512) if kind == "ram" else flash(RamFiles(), 32)
    keeper.limit[:] = b"\xff" * 8
    pinned = put(keeper, b"pinned", START_MS, True)
    lowest = 0
    for number in range(200):
        if put(keeper, b"m%d" % number, START_MS + number) < 0:
            lowest = number
            break
    assert keeper.load(pinned)
    if kind == "flash":
        assert lowest > 20, "a file with a pinned message keeps its place: no more is taken"
        assert put(keeper, b"more") == E_CAPACITY
        keeper.pin(pinned, False)
        assert put(keeper, b"more", START_MS + 900) > 0
    assert keeper.left > 0
    assert START_MS <= int.from_bytes(keeper.horizon, "little") < START_MS + 200


def test_a_pinned_store_refuses() -> None:
    keeper = RamKeeper(4, 512)
    assert all(put(keeper, b"%d" % number, pinned=True) > 0 for number in range(4))
    assert put(keeper, b"5") == E_CAPACITY


def test_flash_survives_a_power_cut_at_every_byte() -> None:
    files = RamFiles()
    keeper = flash(files)
    for number in range(4):
        put(keeper, b"kept%d" % number)
    assert keeper.barrier() == OK
    before = files.used
    put(keeper, b"lost")
    tail = files.used - before
    for kept in range(tail + 1):
        copied = files.copy()
        copied.power_cut(kept)
        again = flash(copied)
        assert all(find(again, b"kept%d" % number) for number in range(4))
        assert bool(find(again, b"lost")) == (kept == tail)
        assert again.damaged == (0 < kept < tail)
        assert put(again, b"new") > 0 and find(again, b"new")
        third = flash_again(copied, again)
        assert find(third, b"new") and find(third, b"kept3")


def flash_again(files: RamFiles, keeper: FlashKeeper) -> FlashKeeper:
    assert keeper.barrier() == OK
    files.power_cut()
    return flash(files)


def test_flash_remembers_what_went() -> None:
    files = RamFiles()
    keeper = flash(files)
    keeper.limit[:] = (START_MS + 1000).to_bytes(8, "little")
    put(keeper, b"far", 1 << 60)
    for number in range(90):
        assert put(keeper, b"m%02d" % number, START_MS + number) > 0
    assert keeper.left and keeper.left_far == 1
    again = flash_again(files, keeper)
    assert again.left and again.left_far
    horizons = [int.from_bytes(one.horizon, "little") for one in (again, keeper)]
    assert START_MS <= horizons[0] <= horizons[1]
    assert find(again, b"m89")


def test_a_full_index_costs_the_oldest_file_only() -> None:
    keeper = flash(RamFiles(), 32)
    for number in range(200):
        assert put(keeper, b"m%03d" % number, START_MS + number) > 0
    held = [number for number in range(200) if find(keeper, b"m%03d" % number)]
    assert held == list(range(held[0], 200)) and 24 <= len(held) <= 32


def test_flash_with_a_bit_that_fell_over() -> None:
    files = RamFiles()
    keeper = flash(files)
    handles = [put(keeper, b"m%d" % number) for number in range(3)]
    keeper.barrier()
    [name] = files.names()
    files.content(name)[handles[1] % FILE_SIZE + 20] ^= 4
    assert keeper.load(handles[1]) == 0 and keeper.load(handles[2])
    again = flash_again(files, keeper)
    assert again.damaged == 1 and find(again, b"m0")


@pytest.mark.parametrize("at", [1, 3 + 3])
def test_a_length_with_bits_that_fell_over_is_no_index_error(at: int) -> None:
    files = RamFiles()
    keeper = flash(files)
    handle = put(keeper, b"m0")
    [name] = files.names()
    files.content(name)[handle % FILE_SIZE + 6 + at] ^= 0xF0
    assert find(keeper, b"m0") == 0 and not keeper.names_into(handle, bytearray(NAMES_SIZE))
    for number in range(90):
        assert put(keeper, b"n%02d" % number) > 0
    assert keeper.left


def test_a_full_flash_refuses() -> None:
    files = RamFiles(capacity=300)
    keeper = flash(files)
    codes = [put(keeper, b"m%d" % number) for number in range(8)]
    assert codes[0] > 0 and codes[-1] < 0
    assert find(keeper, b"m0")


def test_a_channel_on_flash_goes_on_after_a_power_cut() -> None:
    files = RamFiles()
    ann = Talker(keeper=flash(files))
    ann.publish(b"x", b"mine")
    ann.hear(wire(b"theirs", lamport=START_MS + 10))
    ann.hear(wire(b"child", causal=(b"parent",), lamport=START_MS + 20))
    ann.say()
    files.power_cut()
    again = Talker(keeper=flash(files))
    again.channel.restore(0)
    assert again.log == [b"mine", b"theirs"] and list(again.state) == [b"mine"]
    again.hear(wire(b"parent", lamport=START_MS + 15))
    again.hear(wire(b"theirs", lamport=START_MS + 10))
    assert again.log == [b"mine", b"theirs", b"parent", b"child"]
    assert again.delivered == [b"parent", b"child"]


def test_nothing_leaves_before_it_is_durable() -> None:
    class Failing(RamFiles):
        fails = False

        def flush(self, fd: int) -> int:
            return E_CAPACITY if self.fails else super().flush(fd)

    files = Failing()
    ann = Talker(keeper=flash(files))
    files.fails = True
    ann.publish(b"x", b"mine")
    assert ann.say() == []
    files.fails = False
    ann.wait(30_000)
    assert [said.id for said in ann.say()] == [b"mine"]
