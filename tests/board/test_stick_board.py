"""Sticks on MicroPython: exchanged with a host, bounded garbage, pulled at every FAT sector."""

import json
import os
import subprocess
from pathlib import Path

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_transports.stick.stick import Stick

DEVICE = Path(__file__).with_name("stick_device.py")
A, B = b"\xaa\0\0\1", b"\xbb\0\0\2"


def run(micropython: list[str], firmware: Path, folder: Path, *args: str) -> dict[str, int]:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=512K", str(DEVICE), *args],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=os.environ | {"MICROPYPATH": str(firmware)},
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_board_and_a_host_share_a_stick(
    micropython: list[str], firmware: Path, arch: str, tmp_path: Path
) -> None:
    (tmp_path / "usb").mkdir()  # a board mounts sticks under a short name
    host = Stick(str(tmp_path / "usb"), A)
    for number in (1, 2):
        writer = host.writer(B, number, 0)
        for n in range(5):
            frame = bytes((number + n + i) & 255 for i in range(FRAME_SIZE_MAX))
            assert writer.write(bytearray(frame), len(frame)) == OK
        assert writer.finish() == OK
    report = run(micropython, firmware, tmp_path, "visit", "usb")
    assert (report["senders"], report["bundles"], report["frames"]) == (1, 2, 10)
    assert (report["newest"], report["code"], report["seen"]) == (0, OK, 2)
    reader = host.reader(B, 0)
    assert reader.next()
    assert (reader.number, reader.seen) == (1, 2)
    frame_in, frames = bytearray(FRAME_SIZE_MAX), 0
    while reader.read_into(frame_in) == 100:
        assert frame_in[:100] == frame[:100]
        frames += 1
    assert (frames, reader.complete) == (10, True)
    # The usual visit: everything is there already.
    report = run(micropython, firmware, tmp_path, "visit", "usb")
    print(f"{arch}: {report}")
    assert report["newest"] == 1
    if arch == "x86":
        assert report["alloc_per_stick_visit"] <= 2048


def test_strange_names_leave_nothing_on_the_heap(
    micropython: list[str], firmware: Path, tmp_path: Path
) -> None:
    """Whoever fills a stick with names of many characters does not fill a board's memory."""
    chars = [chr(0x400 + n) for n in range(600)]
    for root, some in enumerate((chars[:300], chars[300:])):
        inbox = tmp_path / f"usb/{root}/DRUPELET" / B.hex().upper()
        folder = inbox / A.hex().upper()
        folder.mkdir(parents=True)
        for char in some:
            (folder / f"{char * 8}.DRP").touch()
            (folder / f"000{char}0000.DRP").touch()
            (inbox / (char * 8)).mkdir()
    report = run(micropython, firmware, tmp_path, "strange", "usb")
    assert report["ignored"] == 300 + 600
    assert report["kept"] < 2048  # less than 4 B a name; a stale pointer may hold the last Stick


def test_a_fat_stick_pulled_at_every_sector(
    micropython: list[str], firmware: Path, tmp_path: Path
) -> None:
    report = run(micropython, firmware, tmp_path, "fat")
    print(report)
    assert report["names"] == 2
    assert report["pulls"] > 30
    assert report["bad"] == 0
