"""Bundles on a stick: both ways, pulled at every byte, full of junk, read-only, full, gone."""

import os
import shutil
import struct
import tempfile
from binascii import crc_hqx
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drupelet_transports.stick.stick as module
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_transports.stick.stick import Stick

A, B, C = b"\xaa\0\0\1", b"\xbb\0\0\2", b"\xcc\0\0\3"
FRAMES = [b"\x00", bytes(range(256)), b"\xff" * FRAME_SIZE_MAX, b"last"]


def folder(root: Path, receiver: bytes, sender: bytes) -> Path:
    return root / "DRUPELET" / receiver.hex().upper() / sender.hex().upper()


def write(
    root: Path, sender: bytes, receiver: bytes, number: int, frames: list[bytes], seen: int = 0
) -> Path:
    writer = Stick(str(root), sender).writer(receiver, number, seen)
    for frame in frames:
        assert writer.write(bytearray(frame), len(frame)) == OK
        assert writer.last_wire_size == len(frame) + 4
    assert writer.finish() == OK
    return folder(root, receiver, sender) / f"{number:08X}.DRP"


Bundle = tuple[int, int, bool, list[bytes]]


def read(stick: Stick, sender: bytes, after: int = 0) -> list[Bundle]:
    """All bundles as (number, seen, complete, frames)."""
    found = []
    reader = stick.reader(sender, after)
    frame = bytearray(FRAME_SIZE_MAX)
    while reader.next():
        frames = []
        while (size := reader.read_into(frame)) > 0:
            frames.append(bytes(frame[:size]))
        found.append((reader.number, reader.seen, reader.complete, frames))
        reader.taken += 1
    return found


def crc(data: bytes) -> bytes:
    return struct.pack(">H", crc_hqx(data, 0xFFFF))


def test_the_bytes_of_a_bundle(tmp_path: Path) -> None:
    path = write(tmp_path, A, B, 0x2A, [b"one", b"\x00\xff"], seen=7)
    assert path.name == "0000002A.DRP"
    header = b"DRP1" + A + B + struct.pack(">II", 0x2A, 7)
    one, two, final = b"\x00\x03one", b"\x00\x02\x00\xff", b"\x00\x00"
    expected = b"".join(part + crc(part) for part in (header, one, two, final))
    assert path.read_bytes() == expected
    assert sorted(os.listdir(tmp_path / "DRUPELET")) == ["BB000002", "README.TXT"]
    assert b"DRUPELET" in (tmp_path / "DRUPELET" / "README.TXT").read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["0000002A.DRP"]


def test_there_and_back(tmp_path: Path) -> None:
    a, b = Stick(str(tmp_path), A), Stick(str(tmp_path), B)
    assert a.present()
    assert a.senders() == []
    assert a.newest_own(B, 0) == 0
    write(tmp_path, A, B, 1, FRAMES)
    write(tmp_path, A, B, 2, [b"more"])
    write(tmp_path, C, B, 9, [b"other exporter"])
    assert sorted(b.senders()) == [A, C]
    assert read(b, A) == [(1, 0, True, FRAMES), (2, 0, True, [b"more"])]
    assert read(b, A, after=1) == [(2, 0, True, [b"more"])]
    assert read(b, C) == [(9, 0, True, [b"other exporter"])]
    assert a.newest_own(B, 0) == 2
    # Back at A with B's answer: what B has seen may go, C's stays.
    write(tmp_path, B, A, 1, [b"answer"], seen=2)
    ((_, seen, _, _),) = read(a, B)
    assert a.clean(B, seen) == OK
    assert a.newest_own(B, 0) == 0
    assert read(b, A) == []
    assert len(read(b, C)) == 1
    assert (b.ignored, b.foreign, b.damaged) == (0, 0, 0)


def test_a_visit_with_nothing_to_say_leaves_no_trace(tmp_path: Path) -> None:
    writer = Stick(str(tmp_path), A).writer(B, 1, 0)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
    assert writer.finish() == E_STORAGE


def test_pulled_at_every_byte(tmp_path: Path) -> None:
    """The copy of the tree at each point becomes the stick: no frame is wrong, none is stuck."""
    frames = [b"first", b"\x00" * 40, b"third one"]
    write(tmp_path, A, B, 1, [b"before"])
    whole = write(tmp_path, A, B, 2, frames).read_bytes()
    for cut in range(len(whole) + 1):
        for ending in ("TMP", "DRP"):  # FAT may keep the new name and lose the data
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            write(copy, A, B, 1, [b"before"])
            (folder(copy, B, A) / f"00000002.{ending}").write_bytes(whole[:cut])
            found = read(Stick(str(copy), B), A)
            assert found[0] == (1, 0, True, [b"before"])
            for _, _, complete, kept in found[1:]:
                assert ending == "DRP"
                assert kept == frames[: len(kept)]
                assert complete == (cut == len(whole))
                assert (cut >= 22 + 9) == (len(kept) >= 1)
            # The sender's next visit goes on, and tidies up.
            own = Stick(str(copy), A)
            number = own.newest_own(B, 0) + 1
            assert number == (3 if ending == "DRP" else 2)
            assert own.clean(B, 1) == OK
            write(copy, A, B, number, [b"again"])
            names = sorted(path.name for path in folder(copy, B, A).iterdir())
            assert names == [f"{n:08X}.DRP" for n in range(2, number + 1)]


@given(st.data())
def test_damaged_bytes_never_give_a_wrong_frame(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        frames = [b"abc", b"defg", b"h" * 100]
        path = write(root, A, B, 1, frames)
        whole = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole + data.draw(st.binary(max_size=9)))
        for _, _, complete, kept in read(Stick(str(root), B), A):
            assert kept == frames[: len(kept)]
            assert not complete or kept == frames


def test_junk_is_ignored_and_counted(tmp_path: Path) -> None:
    write(tmp_path, A, B, 5, [b"good"])
    inbox = folder(tmp_path, B, A)
    good = (inbox / "00000005.DRP").read_bytes()
    for name in ("0000000a.drp", "00000~1.DRP", "00000006.TXT", "0000006.DRP", "000000006.DRP"):
        (inbox / name).write_bytes(good)
    (inbox / "00000000.DRP").write_bytes(good)  # there is no bundle 0
    (inbox / "40000000.DRP").write_bytes(good)  # above 2^30
    (inbox / "00000007.TMP").write_bytes(good)
    (inbox / "System Volume Information").mkdir()
    (inbox / "00000006.DRP").write_bytes(b"")
    (inbox / "00000007.DRP").mkdir()
    (inbox / "00000008.DRP").write_bytes(good)  # the header says 5
    (inbox / "00000009.DRP").write_bytes(b"MZ\x90\x00" + bytes(500))
    (inbox / "0000000A.DRP").symlink_to(inbox / "00000005.DRP")
    os.mkfifo(inbox / "0000000B.DRP")
    (inbox / "0000000C.DRP").write_bytes(good + b"tail garbage")
    for name in ("aa000001", "AA0000011", "$RECYCLE", "autorun.inf"):
        (tmp_path / "DRUPELET" / "BB000002" / name).mkdir()
    stick = Stick(str(tmp_path), B)
    assert read(stick, A) == [(5, 0, True, [b"good"])]
    assert stick.foreign == 2
    assert stick.damaged == 2  # an empty file is one that was cut
    assert stick.ignored == 7 + 4
    assert stick.senders() == [A]


def test_bundles_for_somebody_else_are_not_taken(tmp_path: Path) -> None:
    path = write(tmp_path, A, C, 1, [b"secret of C"])
    folder(tmp_path, B, A).mkdir(parents=True)
    shutil.copy(path, folder(tmp_path, B, A) / "00000001.DRP")
    stick = Stick(str(tmp_path), B)
    assert read(stick, A) == []
    assert stick.foreign == 1


def test_many_bundles_are_read_in_order_and_bounded(tmp_path: Path) -> None:
    numbers = [1 + n * 7919 % 997 for n in range(100)]
    path = write(tmp_path, A, B, 999, [b"x"])
    header = path.read_bytes()
    for number in numbers:
        body = b"DRP1" + A + B + struct.pack(">II", number, 0)
        (path.parent / f"{number:08X}.DRP").write_bytes(body + crc(body) + header[22:])
    found = [number for number, _, _, _ in read(Stick(str(tmp_path), B), A)]
    assert found == sorted(numbers)[:64]
    found += [number for number, _, _, _ in read(Stick(str(tmp_path), B), A, after=found[-1])]
    assert found == [*sorted(numbers), 999]


def test_files_that_cannot_be_read_stand_in_nobodys_way(tmp_path: Path) -> None:
    inbox = write(tmp_path, A, B, 900, [b"x"]).parent
    for number in range(1, 200):
        (inbox / f"{number:08X}.DRP").touch()
    stick = Stick(str(tmp_path), B)
    assert read(stick, A) == [(900, 0, True, [b"x"])]
    assert (stick.damaged, stick.crowded) == (199, 0)


def test_a_crowded_folder_is_not_walked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 1024)  # as on a board
    write(tmp_path, A, B, 1, [b"x"])
    for n in range(1100):
        (folder(tmp_path, B, A) / f"junk{n}").touch()
    stick = Stick(str(tmp_path), B)
    read(stick, A)
    assert stick.crowded >= 1
    assert stick.ignored <= 1024


def test_a_bundle_is_never_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, A, B, 1, [b"old"])
    before = path.read_bytes()
    writer = Stick(str(tmp_path), A).writer(B, 1, 0)
    assert writer.write(bytearray(b"new"), 3) == OK
    assert writer.finish() == E_STORAGE
    assert writer.finish() == E_STORAGE
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["00000001.DRP"]


def test_what_is_remembered_belongs_to_one_visit(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root, count in ((one, 3), (two, 1)):
        root.mkdir()
        for number in range(1, count + 1):
            write(root, A, B, number, [b"x"])
    mount = tmp_path / "mount"
    mount.symlink_to(one)
    stick = Stick(str(mount), A)
    assert stick.present()
    assert stick.clean(B, 1) == OK
    assert (stick.newest_own(B, 0), stick.newest_own(C, 0)) == (3, 0)
    assert stick.clean(B, 1) == OK
    mount.unlink()
    mount.symlink_to(two)
    assert stick.present()
    assert stick.newest_own(B, 0) == 1
    assert stick.clean(B, 0) == OK
    assert stick.writer(B, 1, 0).finish() == E_STORAGE
    assert stick.writer(B, 2, 0).finish() == OK
    assert stick.newest_own(B, 0) == 2


def test_links_on_a_stick_lead_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    root = tmp_path / "stick"
    inbox = folder(root, B, A)
    inbox.mkdir(parents=True)
    (inbox / "00000001.TMP").symlink_to(victim)
    write(root, A, B, 1, [b"x"])
    assert victim.read_text() == "mine"
    assert not (inbox / "00000001.DRP").is_symlink()


@pytest.mark.parametrize("error_after", range(12))
def test_a_full_stick_refuses_and_keeps_what_was_there(
    tmp_path: Path, error_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, A, B, 1, [b"kept"])
    plain, calls = module.put_bytes, []

    def put(file: object, buf: bytes, size: int) -> None:
        calls.append(size)
        if len(calls) > error_after:
            raise OSError(28, "no space left on device")
        plain(file, buf, size)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "put_bytes", put)
    writer = Stick(str(tmp_path), A).writer(B, 2, 0)
    codes = [writer.write(bytearray(frame), len(frame)) for frame in FRAMES[:3]]
    codes.append(writer.finish())
    monkeypatch.undo()
    if error_after >= 11:  # header, three frames of three parts, FINAL
        assert codes == [OK] * 4
        return
    assert codes == sorted(codes, reverse=True)
    assert codes[-1] == E_CAPACITY
    assert [p.name for p in folder(tmp_path, B, A).iterdir()] == ["00000001.DRP"]
    write(tmp_path, A, B, 2, FRAMES)


def test_gone_read_only_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "stick"
    stick = Stick(str(root), A)
    assert not stick.present()
    assert stick.writer(B, 1, 0).finish() == E_STORAGE
    assert (stick.senders(), stick.newest_own(B, 0), stick.clean(B, 9), read(stick, B)) == (
        [],
        0,
        OK,
        [],
    )
    root.write_text("a file, no folder")
    assert not stick.present()
    assert stick.writer(B, 1, 0).finish() == E_STORAGE
    root.unlink()
    # Pulled in the middle of writing.
    root.mkdir()
    writer = stick.writer(B, 1, 0)
    assert writer.write(bytearray(b"x"), 1) == OK
    shutil.rmtree(root)
    assert writer.finish() == E_STORAGE
    # Read-only, as the kernel remounts a damaged FAT (root may write anywhere, so by hand).
    root.mkdir()
    write(root, A, B, 1, [b"x"])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "read-only file system")

    for name in ("mkdir", "remove", "rename"):
        monkeypatch.setattr(os, name, refuse)
    assert stick.clean(B, 1) == E_STORAGE
    assert stick.writer(C, 1, 0).finish() == E_STORAGE
    monkeypatch.setattr("builtins.open", refuse)
    assert stick.writer(B, 2, 0).write(bytearray(b"x"), 1) == E_STORAGE
    assert read(Stick(str(root), B), A) == []
    monkeypatch.undo()
    assert len(read(Stick(str(root), B), A)) == 1


def test_pulled_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, A, B, 1, [b"one", b"two"])
    write(tmp_path, A, B, 2, [b"three"])
    stick = Stick(str(tmp_path), B)
    reader = stick.reader(A, 0)
    assert reader.next()
    frame = bytearray(FRAME_SIZE_MAX)
    assert reader.read_into(frame) == 3
    plain = module.get_bytes

    def fail(*_: object) -> int:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(module, "get_bytes", fail)
    assert reader.read_into(frame) == E_STORAGE
    assert reader.read_into(frame) == 0
    assert not reader.complete
    assert reader.code == E_STORAGE
    # One bad sector: the next bundle is read.
    monkeypatch.setattr(module, "get_bytes", plain)
    assert reader.next()
    assert (reader.number, reader.read_into(frame)) == (2, 5)
    reader.close()


def test_a_frame_longer_than_the_buffer_ends_its_bundle(tmp_path: Path) -> None:
    write(tmp_path, A, B, 1, [b"ok", b"x" * 100])
    reader = Stick(str(tmp_path), B).reader(A, 0)
    assert reader.next()
    small = bytearray(64)
    assert reader.read_into(small) == 2
    assert reader.read_into(small) == 0
    assert not reader.complete


def test_own_half_written_bundles_are_cleaned_and_others_left(tmp_path: Path) -> None:
    path = write(tmp_path, A, B, 1, [b"x"])
    path.rename(path.with_suffix(".TMP"))  # the process was killed
    other = Stick(str(tmp_path), C).writer(B, 1, 0)
    assert other.write(bytearray(b"x"), 1) == OK
    assert Stick(str(tmp_path), A).clean(B, 0) == OK
    assert list(folder(tmp_path, B, A).iterdir()) == []
    assert other.finish() == OK
    assert read(Stick(str(tmp_path), B), C) == [(1, 0, True, [b"x"])]


def test_a_folder_of_60000_names_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member may leave as many; each visit of everybody would look through all of them again."""
    inbox = write(tmp_path, A, B, 59_990, [b"x"]).parent
    for number in range(1, 60_001):
        if number != 59_990:
            os.close(os.open(inbox / f"{number:08X}.DRP", os.O_CREAT | os.O_WRONLY))
    looks = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(path) or scandir(path))
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("all names at once"))
    stick = Stick(str(tmp_path), B)
    assert read(stick, A) == []
    assert len(looks) == 1 and stick.damaged == 1024, "each file that is opened is bounded, too"
    assert read(stick, A, after=59_900) == [(59_990, 0, True, [b"x"])]
    assert len(looks) == 2 and stick.crowded == 0
