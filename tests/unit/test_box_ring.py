"""The black box's ring on flash: what a power cut takes, what waits, whose room it takes."""

import struct
import zlib

import pytest

from drupelet.base.limits import (
    BLOCK_SIZE,
    BOX_HEADER_SIZE,
    BOX_MESSAGES_MAX,
    BOX_SLOTS,
    CONTENT_HEADER_SIZE,
    EVENTS_PER_BLOCK,
    SEGMENT_SIZE,
)
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID
from drupelet.node import CARRIER_SERIAL, GROUP_TELEMETRY, PROFILE_BSP_1, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.spool import PART_HEAD_SIZE
from drupelet.telemetry.black_box import BlackBox
from drupelet.telemetry.sleep import rest_into, wake_from
from drupelet_tools.telemetry.files import inputs
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut

STAMP = bytes(8)
BLOCKS = 3
HEAD = PART_HEAD_SIZE + CONTENT_HEADER_SIZE + 1
BODY_FILES = 12


class Board:
    """A node with a black box that counts its events, and a peer that may never come."""

    def __init__(self, files: RamFiles, blocks: int = BLOCKS, shared: bool = True) -> None:
        self.files = files
        self.store = FlashStore(files, SEGMENT_SIZE, 16, 16, BODY_FILES)
        self.store.open()
        self.box = BlackBox(b"AAAA", 0, blocks)
        self.node = Node(self.store, lambda: 0, 2, 2, 16, 16, self.box)
        self.group = self.node.join(TELEMETRY_CLIENT_ID, b"boxes", GROUP_TELEMETRY)
        self.readings = self.node.join(READINGS_CLIENT_ID, b"readings")
        self.peer = self.node.add_peer(b"BBBB")
        if shared:
            self.node.share(self.group, self.peer, SHARED)
            self.node.share(self.readings, self.peer, SHARED)
        self.box.boot = self.node.boot(0)
        self.link = self.node.link(self.peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, 0)

    def say(self, numbers: range) -> None:
        """Events with these numbers, each stored as soon as its block is full."""
        for number in numbers:
            self.box.log(number, 30, 0, 0, number >> 16, number & 0xFFFF)
            self.node.telemetry(self.group, number & 0xFFF, STAMP)


def numbers_in(segment: bytes) -> list[int]:
    """Events of the whole blocks of a segment; what is torn is left out, as a reader does."""
    if len(segment) < BOX_HEADER_SIZE or segment[:4] != b"DRBX":
        return []
    if zlib.crc32(segment[:28]) != int.from_bytes(segment[28:32], "little"):
        return []
    found = []
    for at in range(BOX_HEADER_SIZE, len(segment) - BLOCK_SIZE + 1, BLOCK_SIZE):
        block = segment[at : at + BLOCK_SIZE]
        crc = int.from_bytes(block[12:16], "little")
        if block[0] == 0xB1 and zlib.crc32(block[:12] + bytes(4) + block[16:]) == crc:
            events = [struct.unpack_from("<IBBHI", block, 16 + 12 * i) for i in range(block[1])]
            found += [event[4] for event in events if event[1] == 30]
    return found


def on_flash(files: RamFiles) -> list[int]:
    """Numbers in the ring and in the log, as somebody sees them who copies the flash."""
    found = []
    for name in files.names():
        if name.startswith("BOX") or name.endswith(".BOD"):
            found += numbers_in(bytes(files.content(name)[HEAD : files.size(name)]))
    return sorted(found)


def ring(files: RamFiles) -> list[str]:
    return [name for name in files.names() if name.startswith("BOX")]


def test_one_flash_program_for_a_block() -> None:
    files = CutFiles()
    board = Board(files)
    assert board.store.barrier() == 0, "its members"
    before, told = files.programs, board.store.programs
    board.say(range(BLOCKS * EVENTS_PER_BLOCK - 1))
    assert files.programs - before == BLOCKS - 1
    board.say(range(1000, 1001))
    # The segment is whole: its last block, and once the log that it goes into.
    assert files.programs - before == BLOCKS + 1
    assert board.store.programs - told == files.programs - before


def test_logs_wait_in_the_ring_and_the_oldest_goes() -> None:
    """Nobody comes for them: the newest of the ring and the few in the log stay."""
    files = RamFiles()
    board = Board(files)
    each = BLOCKS * EVENTS_PER_BLOCK
    board.say(range(each * 60))
    assert board.box.lost == 0
    assert board.store.bodies(board.group) == BOX_MESSAGES_MAX
    assert len(ring(files)) == BOX_SLOTS - 2
    kept = on_flash(files)
    in_log = list(range(each * BOX_MESSAGES_MAX))
    newest = list(range(each * (60 - BOX_SLOTS + 2), each * 60))
    assert kept == in_log + newest


def test_readings_keep_their_room() -> None:
    """With the ring full and no peer, as many long readings fit as body files are left."""
    board = Board(RamFiles())
    board.say(range(BLOCKS * EVENTS_PER_BLOCK * 50))
    body = bytearray(2000)
    held = 0
    for number in range(BODY_FILES + 1):
        body[0] = 0
        body[1] = number
        held += board.node.publish(board.readings, body, len(body), STAMP, 0) > 0
    assert held == BODY_FILES - BOX_MESSAGES_MAX
    board.say(range(BLOCKS * EVENTS_PER_BLOCK * 3))
    assert board.box.lost == 0, "and the black box goes on"


def test_what_waited_leaves_when_the_peer_comes() -> None:
    a = Board(RamFiles())
    b = Board(RamFiles())
    b.peer = b.node.add_peer(b"AAAA")
    b.node.share(b.group, b.peer, SHARED)
    b.link = b.node.link(b.peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, 0)
    total = BLOCKS * EVENTS_PER_BLOCK * 20
    a.say(range(total))
    frame = bytearray(1024)
    arrived: list[int] = []
    for now_ms in range(5000, 200_000, 500):
        while a.node.next_event():
            a.node.done(a.node.event_handle)
        for here, there in ((a, b), (b, a)):
            size = here.link.poll_into(frame, now_ms)
            while size:
                there.link.receive(frame, size, now_ms)
                size = here.link.poll_into(frame, now_ms)
        if now_ms % 8000 == 0:
            a.node.telemetry_flush(a.group, now_ms, STAMP)
        handle = b.store.next(0)
        arrived = []
        while handle:
            assert b.store.load(handle) == 0
            content = bytearray(b.store.size)
            b.store.read_into(handle, 0, content, 0, len(content))
            arrived += numbers_in(bytes(content[1:]))
            handle = b.store.next(handle)
        while b.node.next_event():
            b.node.done(b.node.event_handle)
        if len(arrived) == BODY_FILES * BLOCKS * EVENTS_PER_BLOCK:
            break
    # B has room for so many bodies; they came oldest first, and none twice.
    assert arrived == list(range(len(arrived))) and len(arrived) > 8 * BLOCKS * EVENTS_PER_BLOCK


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER])
@pytest.mark.parametrize("kept", [0, 300, 1 << 20])
def test_a_cut_at_any_step_costs_what_ram_held(moment: int, kept: int) -> None:
    """Blocks that were stored stay, but for a segment on its way from the ring into the log."""
    steps = 1
    cut = 0
    lost_segments = 0
    while cut < steps:
        files = CutFiles()
        board = Board(files)
        files.power_on(1 << 20)
        files.steps = 0
        board = Board(files)
        files.cut_at = files.steps + cut
        files.moment = moment
        said = 0
        stored: list[int] = []
        try:
            for said in range(5 * BLOCKS * EVENTS_PER_BLOCK):
                stored = on_flash(files) if said % EVENTS_PER_BLOCK == 0 else stored
                board.say(range(said, said + 1))
            steps = cut  # no step is left to cut at
        except PowerCut:
            steps = cut + 2
            files.power_on(kept)
            again = Board(files)
            again.box.log(0, 31, 0, 0, 0, 0)
            assert again.node.telemetry_flush(again.group, 0, STAMP) == 0
            after = on_flash(files)
            assert len(after) == len(set(after)), "nothing twice"
            missing = set(stored) - set(after)
            assert len({number // (BLOCKS * EVENTS_PER_BLOCK) for number in missing}) <= 1
            lost_segments += bool(missing)
            assert said - max(after, default=-1) <= EVENTS_PER_BLOCK + 1 or missing
        cut += 1
    assert cut > 30
    # Of the five that go into the log, each at one of the few steps from rename to flush.
    assert lost_segments <= 5 * 7


def test_a_torn_block_costs_itself_alone() -> None:
    files = RamFiles()
    board = Board(files, shared=False)
    board.say(range(2 * EVENTS_PER_BLOCK))
    (name,) = ring(files)
    whole = bytes(files.content(name)[: files.size(name)])
    for size in range(HEAD, len(whole), 7):
        found = numbers_in(whole[HEAD:size])
        blocks = max(0, (size - HEAD - BOX_HEADER_SIZE) // BLOCK_SIZE)
        assert found == list(range(blocks * EVENTS_PER_BLOCK))
        files.hold(name, whole[:size])
        files.power_cut()
        again = Board(files)
        again.say(range(5000, 5000 + BLOCKS * EVENTS_PER_BLOCK))
        there = on_flash(files)
        assert there[: len(found)] == found and there[-1] == 5000 + len(there) - len(found) - 1
        for other in list(files.names()):
            files.remove(other)
        files.power_cut()
        files.hold(name, whole)


def test_the_order_of_the_ring_outlives_reboots() -> None:
    """The ring goes round while the device reboots; what is left is always the newest."""
    files = RamFiles()
    each = EVENTS_PER_BLOCK
    at = 0
    for life in range(1, 40):
        board = Board(files, 1, False)
        for _ in range(life % 5 + 1):
            board.say(range(at, at + each))
            at += each
        files.power_cut()
        found = on_flash(files)
        # Not shared with anybody: those in the log are settled and stay, too.
        newest = found[BOX_MESSAGES_MAX * each :]
        assert found[: BOX_MESSAGES_MAX * each] == list(
            range(len(found[: BOX_MESSAGES_MAX * each]))
        )
        assert newest == list(range(at - len(newest), at))
        assert len(ring(files)) <= BOX_SLOTS - 2
    assert len(ring(files)) == BOX_SLOTS - 2 and at > 60 * each


def test_a_segment_goes_on_after_a_deep_sleep() -> None:
    files = RamFiles()
    board = Board(files)
    board.say(range(EVENTS_PER_BLOCK + 5))
    kept = bytearray(2048)
    end = rest_into(board.box, kept, 0, len(kept))
    files.power_cut()
    board = Board(files)
    wake_from(board.box, kept, 0, end, 0, 0)
    board.say(range(EVENTS_PER_BLOCK + 5, BLOCKS * EVENTS_PER_BLOCK))
    handle = board.store.next(0)
    assert board.store.load(handle) == 0 and not board.store.next(handle), "one segment"
    assert board.store.size == 1 + BOX_HEADER_SIZE + BLOCKS * BLOCK_SIZE
    assert on_flash(files) == list(range(BLOCKS * EVENTS_PER_BLOCK))


def test_a_damaged_file_does_not_stop_the_ring() -> None:
    files = RamFiles()
    board = Board(files)
    board.say(range(EVENTS_PER_BLOCK))
    (name,) = ring(files)
    files.content(name)[PART_HEAD_SIZE] ^= 1  # its group is nobody's now
    files.power_cut()
    board = Board(files)
    board.say(range(1000, 1000 + BLOCKS * EVENTS_PER_BLOCK))
    assert board.store.bodies(board.group) == 1 and ring(files) == []


def test_a_copied_flash_is_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    files = RamFiles()
    board = Board(files)
    board.say(range(BLOCKS * EVENTS_PER_BLOCK * 9 + EVENTS_PER_BLOCK))
    body = bytearray(2000)
    assert board.node.publish(board.readings, body, len(body), STAMP, 0) > 0
    for file in files.names():
        (tmp_path / file).write_bytes(files.content(file)[: files.size(file)])
    (tmp_path / "BOX31.PRT").write_bytes(b"composed")
    listing = inputs.scan(inputs.find_files([tmp_path], tmp_path / "lake"))
    assert len(listing) == 10 and all(listing.ok)
    assert sorted(listing.number.tolist()) == list(range(10))
