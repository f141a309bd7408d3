"""Sticks that were copied, put back, shared or touched by other machines: docs/attacks.md."""

import os
import shutil
from pathlib import Path

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_transports.stick.stick import Stick

A, B, C = b"\xaa\0\0\1", b"\xbb\0\0\2", b"\xcc\0\0\3"
EARLY_S = 0
LATE_S = 4_000_000_000  # the year 2096


def write(root: Path, sender: bytes, receiver: bytes, frames: list[bytes], number: int = 0) -> int:
    """Write a bundle as a visit does; its number, or a negative code."""
    stick = Stick(str(root), sender)
    number = number or stick.newest_own(receiver, 0) + 1
    writer = stick.writer(receiver, number, 0)
    for frame in frames:
        code = writer.write(bytearray(frame), len(frame))
        if code != OK:
            return code
    code = writer.finish()
    return number if code == OK else code


def read(root: Path, receiver: bytes, sender: bytes, after: int = 0) -> list[bytes]:
    """Every frame of every bundle numbered above `after`."""
    reader = Stick(str(root), receiver).reader(sender, after)
    frame = bytearray(FRAME_SIZE_MAX)
    found = []
    while reader.next():
        size = reader.read_into(frame)
        while size > 0:
            found.append(bytes(frame[:size]))
            size = reader.read_into(frame)
    return found


def test_times_of_files_mean_nothing(tmp_path: Path) -> None:
    """FAT keeps them in steps of 2 s, in any time zone, and a board writes 1980."""
    for number in range(1, 5):
        assert write(tmp_path, A, B, [b"%d" % number]) == number
    folder = tmp_path / "DRUPELET" / "BB000002" / "AA000001"
    for number in range(1, 5):
        moment = EARLY_S if number % 2 else LATE_S - number
        os.utime(folder / f"{number:08X}.DRP", (moment, moment))
    assert read(tmp_path, B, A) == [b"1", b"2", b"3", b"4"]
    assert read(tmp_path, B, A, 2) == [b"3", b"4"]


def test_a_stick_from_a_to_b_and_back_to_a(tmp_path: Path) -> None:
    assert write(tmp_path, A, B, [b"from a"]) == 1
    assert read(tmp_path, B, A) == [b"from a"]
    assert write(tmp_path, B, A, [b"from b"]) == 1
    assert read(tmp_path, A, B) == [b"from b"]
    # A's own bundle is not A's mail, and B's is not B's.
    assert read(tmp_path, A, A) == [] and read(tmp_path, B, B) == []
    assert Stick(str(tmp_path), A).senders() == [B]
    assert write(tmp_path, A, B, [b"again"]) == 2
    assert read(tmp_path, B, A, 1) == [b"again"]


def test_an_old_copy_of_a_stick_put_back(tmp_path: Path) -> None:
    stick, copy = tmp_path / "stick", tmp_path / "copy"
    stick.mkdir()
    assert write(stick, A, B, [b"one"]) == 1
    shutil.copytree(stick, copy)
    assert write(stick, A, B, [b"two"]) == 2
    assert read(stick, B, A) == [b"one", b"two"]
    # The copy has nothing above what B has read; what A writes there next gets another number.
    assert read(copy, B, A, 2) == []
    assert write(copy, A, B, [b"three"], 3) == 3
    assert read(copy, B, A, 2) == [b"three"]


def test_two_exporters_of_one_device_never_replace_each_others_bundle(tmp_path: Path) -> None:
    """One stick in two hosts that are the same device (a clone): the second is refused."""
    first, second = Stick(str(tmp_path), A), Stick(str(tmp_path), A)
    writers = [stick.writer(B, 1, 0) for stick in (first, second)]
    codes = []
    for at, writer in enumerate(writers):
        frame = bytearray(b"exporter %d" % at)
        codes.append(writer.write(frame, len(frame)))
    codes += [writer.finish() for writer in writers]
    assert OK in codes
    found = read(tmp_path, B, A)
    assert found in ([b"exporter 0"], [b"exporter 1"]), "one whole bundle, of one of them"


@pytest.mark.parametrize("name", ["0000000a.drp", "00000001.drp", "00000A~1.DRP", "1.DRP"])
def test_names_that_another_system_made_of_ours_are_not_ours(tmp_path: Path, name: str) -> None:
    assert write(tmp_path, A, B, [b"good"]) == 1
    folder = tmp_path / "DRUPELET" / "BB000002" / "AA000001"
    shutil.copy(folder / "00000001.DRP", folder / name)
    assert read(tmp_path, B, A) == [b"good"]
    assert Stick(str(tmp_path), A).newest_own(B, 0) == 1


def test_a_stick_full_of_somebody_elses_mail(tmp_path: Path) -> None:
    for number in range(40):
        assert write(tmp_path, C, B, [b"c%d" % number]) == number + 1
    assert write(tmp_path, A, B, [b"mine"]) == 1
    assert read(tmp_path, B, A) == [b"mine"]
    assert read(tmp_path, A, C) == []
