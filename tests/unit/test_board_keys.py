"""A board's key file: any power cut leaves the old record or the new one, of every row."""

from contextlib import suppress

import pytest

from boards.keys import BoardKeys, has_keys
from drupelet.base.errors import E_PEER, E_STORAGE, OK, StorageError
from drupelet.seal.record import RECORD_SIZE, finish, install
from drupelet.store.files import RamFiles
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut

OWN, PEER, OTHER = b"\xa0\0\0\1", b"\x40\0\0\0", b"\xb0\0\0\2"
ROOT = bytes(range(32))


def record_of(row: int, fill: int) -> bytearray:
    record = bytearray(RECORD_SIZE)
    record[0], record[1] = 1, row & 2 and 1
    record[16:48] = bytes([fill]) * 32
    finish(record)
    return record


def content(keys: BoardKeys) -> dict[int, bytes]:
    found = {}
    for row in range(8):
        out = bytearray(RECORD_SIZE)
        if keys.load(row, out) == OK:
            found[row] = bytes(out)
    return found


def test_records_come_back_and_go() -> None:
    files = RamFiles()
    ring: list[BoardKeys] = []
    keys = BoardKeys(files, OWN, PEER, ring)
    assert content(keys) == {} and not has_keys(ring)
    for row in range(8):
        assert keys.save(row, record_of(row, row + 1)) == OK
    assert content(keys) == {row: bytes(record_of(row, row + 1)) for row in range(8)}
    assert has_keys(ring)
    assert keys.drop(3) == OK
    assert content(keys).keys() == set(range(8)) - {3}
    assert files.names() == ["40000000.KEY"]
    assert content(BoardKeys(files, OWN, OTHER, ring)) == {}


def test_a_board_with_half_of_its_keys_has_none() -> None:
    ring: list[BoardKeys] = []
    keys = BoardKeys(RamFiles(), OWN, PEER, ring)
    for row in (0, 2, 4):
        assert keys.save(row, record_of(row, 1)) == OK
        assert not has_keys(ring)
    assert keys.save(6, record_of(6, 1)) == OK
    assert has_keys(ring)


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER])
@pytest.mark.parametrize("garbled", [False, True])
def test_the_power_may_go_at_any_step(moment: int, garbled: bool) -> None:
    steps = 0
    while True:
        files = CutFiles(-1, moment, garbled)
        keys = BoardKeys(files, OWN, PEER, [])
        for row in (0, 2, 4, 6):
            assert keys.save(row, record_of(row, 1)) == OK
        before = content(keys)
        files.steps, files.cut_at = 0, steps
        done = False
        with suppress(PowerCut):
            done = keys.save(2, record_of(2, 9)) == OK
        files.power_on()
        again = BoardKeys(files, OWN, PEER, [])
        after = content(again)
        new = {**before, 2: bytes(record_of(2, 9))}
        assert after == new if done else after in (before, new), steps
        # What the cut left behind does not stand in the way.
        assert again.save(4, record_of(4, 5)) == OK
        assert content(again) == {**after, 4: bytes(record_of(4, 5))}
        if done:
            break
        steps += 1
    assert steps == 4  # made, written, flushed, renamed


def test_a_flash_that_is_full_keeps_what_it_has() -> None:
    files = RamFiles()
    keys = BoardKeys(files, OWN, PEER, [])
    assert install(keys, ROOT, 0x40, 0, 0) == OK
    before = content(keys)
    files.capacity = files.used
    assert keys.save(0, record_of(0, 7)) < 0
    assert content(keys) == before


def test_a_flash_that_forgets_is_found_out() -> None:
    class Forgetful(RamFiles):
        def rename(self, old: str, new: str) -> int:  # noqa: ARG002 - it forgets
            self.remove(old)
            return OK

    keys = BoardKeys(Forgetful(), OWN, PEER, [])
    assert keys.save(0, record_of(0, 1)) == E_STORAGE


class Flaky(RamFiles):
    """Call number `at` from now fails once, as a card does that answers EIO."""

    at = -1

    def _fails(self) -> bool:
        self.at -= 1
        return self.at == -1

    def size(self, name: str) -> int:
        return E_STORAGE if self._fails() else RamFiles.size(self, name)

    def open(self, name: str, create: bool) -> int:
        return E_STORAGE if self._fails() else RamFiles.open(self, name, create)

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        return E_STORAGE if self._fails() else RamFiles.read_into(self, fd, offset, buf, at, size)


def test_a_read_that_fails_costs_no_keys() -> None:
    """Neither those of the other rows while one is saved, nor the trust in what is there."""
    refused = 0
    for at in range(40):
        files = Flaky()
        keys = BoardKeys(files, OWN, PEER, [])
        assert install(keys, ROOT, 0x40, 0, 0) == OK
        before = content(keys)
        files.at = at
        refused += keys.save(0, record_of(0, 7)) < 0
        files.at = -1
        assert set(content(keys)) == set(before), at
    assert refused > 5
    for at in range(3):
        files.at = at
        with pytest.raises(StorageError, match="look at its flash"):
            has_keys([keys])
    assert has_keys([keys])


@pytest.mark.parametrize("kid", [b"\0\x40", b"\0\0"])
def test_a_revocation_wipes_the_keys_it_names_and_no_others(kid: bytes) -> None:
    class SealStub:
        closed = False

        def close(self) -> None:
            self.closed = True

    files, ring = RamFiles(), []
    first, second = BoardKeys(files, OWN, PEER, ring), BoardKeys(files, OWN, OTHER, ring)
    for keys in (first, second):
        assert install(keys, ROOT, 0x40, 0, 0) == OK
        keys.seals.append(SealStub())
    before = content(first)
    assert first.revoke(bytearray(b"....." + OTHER + b"\0\x44"), 5) == OK
    assert not second.seals[0].closed  # of other keys than it has
    assert first.revoke(bytearray(b"....." + OTHER + kid), 5) == OK
    assert content(first) == before and not first.seals[0].closed
    assert second.seals[0].closed
    assert all(record[1] & 8 and not any(record[16:48]) for record in content(second).values())
    assert len(content(second)) == 4 and has_keys(ring)
    for id in (OWN, b"\0\0\0\0"):
        assert first.revoke(bytearray(id + kid), 0) == E_PEER
