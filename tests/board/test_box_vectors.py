"""The black box as docs/SPEC.md draws it: writers on three interpreters, one reader."""

import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from drupelet.base import events as recorded
from drupelet.base.limits import BLOCK_SIZE, BOX_SLOTS, PART_BOX
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.telemetry.tables.summary import read, summarise
from spec import spec_text
from telemetry.segment_log import damages_of, events_of

HERE = Path(__file__).parent
FIRMWARE = HERE.parents[1] / "firmware"
SPEC = spec_text()
INTERPRETERS = {
    "cpython": [sys.executable],
    "micropython": micropython_command("x64"),
    "micropython-i386": micropython_command("x86"),
}


def section(number: str) -> str:
    begin = SPEC.index(f"### {number} ")
    return SPEC[begin : SPEC.index("\n## ", begin)].split("\n### ")[0]


def vectors() -> tuple[bytes, bytes, list[str], list[bytes]]:
    """Header, block header, calls, events."""
    text = section("6.5")
    id = re.findall(r"^([0-9a-f]{64})\.$", text, re.M)[0]
    lines = text.split("```")[1].strip("\n").splitlines()
    header, block = (bytes.fromhex(line.split(maxsplit=1)[1]) for line in lines[:2])
    calls, events = [], []
    for line in lines[2:]:
        call, event = line[:28].strip(), line[28:].strip()
        if call:
            calls.append(call.replace("ID", id))
        if event:
            events.append(bytes.fromhex("".join(event.split()[:5])))
    return header, block, calls, events


def whole(block: bytes, events: list[bytes]) -> bytes:
    return (block + b"".join(events)).ljust(BLOCK_SIZE, b"\0")


def test_the_vectors_stand_on_their_own() -> None:
    """Sizes, counts and CRCs agree, and no code, state or field of the format is missing."""
    header, block, _, events = vectors()
    assert len(header) == 32 and len(block) == 16 and all(len(event) == 12 for event in events)
    assert zlib.crc32(header[:28]) == int.from_bytes(header[28:], "little")
    data = whole(block, events)
    crc = zlib.crc32(data[:12] + bytes(4) + data[16:])
    assert crc == int.from_bytes(block[12:], "little")
    assert block[1] == len(events)
    codes = {value for name, value in vars(recorded).items() if name.startswith("CODE_")}
    assert {event[4] for event in events} == codes
    states = {value for name, value in vars(recorded).items() if name.startswith("STATE_")}
    assert {event[5] for event in events if event[4] == recorded.CODE_STATE} == states
    fields = {event[5] for event in events if event[4] == recorded.CODE_DESCRIPTOR}
    assert fields == {1, 2, 3, 4}


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_writer_makes_these_bytes(interpreter: str) -> None:
    header, block, calls, events = vectors()
    done = subprocess.run(
        [*INTERPRETERS[interpreter], str(HERE / "box_vectors.py")],
        input="\n".join(["a1b2c3d4 7 1", *calls]) + "\n",
        env=os.environ | {"MICROPYPATH": str(FIRMWARE), "PYTHONPATH": str(FIRMWARE)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [header.hex(), whole(block, events).hex()]


def test_the_reader_reads_them() -> None:
    header, block, _, events = vectors()
    log = read([header + whole(block, events)])
    found = events_of(log)
    told = [struct.unpack("<IBBHI", event) for event in events]
    assert damages_of(log) == []
    assert list(zip(found.time_ms, found.code, found.a, found.b, found.c, strict=True)) == told
    tables = summarise(log)
    (segment,) = tables["segments"]
    assert (segment["device"], segment["boot"], segment["number"]) == ("a1b2c3d4", 7, 0)
    assert segment["wall_offset_ms"] == 1_700_000_000_000
    assert segment["wall_uncertainty_ms"] == 30
    (health,) = tables["health"]
    wanted = {
        "reset_cause": 4, "heap_limit": 131_072, "epoch_ms": 900_000, "board_kind": 1,
        "heap_low": 40_123, "battery_last_mv": 3712, "errors": 1, "flash_programs": 5,
        "flash_erases": 1, "messages_created": 1, "refused": 2,
    }  # fmt: skip
    assert {name: health[name] for name in wanted} == wanted
    spent = {row["state"]: row["ms"] for row in tables["state_time"]}
    assert {state: spent[state] for state in range(6)} == {n: 100 * (n + 1) for n in range(6)}
    assert spent[6] == 73809 - 3101
    traffic = {(row["carrier"], row["direction"]): row["value"] for row in tables["traffic"]}
    assert traffic == {("mqtt", "sent"): 700, ("mqtt", "received"): 5_000_000_000}
    assert {row["event"] for row in tables["messages"]} == {
        "created", "offered", "requested", "sent", "acked", "delivered", "received", "duplicate",
    }  # fmt: skip
    assert {row["message"] for row in tables["messages"]} == {"11223344"}


def test_a_file_of_the_ring_begins_as_drawn() -> None:
    drawn = re.findall(r"^\| *([0-9a-f ]{30,})\| group id", section("6.6"), re.M)[0]
    files = RamFiles()
    store = FlashStore(files)
    assert store.spool.part_open(PART_BOX, b"composed", 0, 0) == 0
    assert files.names() == ["BOX0.PRT"]
    assert bytes(files.content("BOX0.PRT")[:16]) == bytes.fromhex(drawn)
    assert f"BOX{BOX_SLOTS - 1}.PRT`" in section("6.6")
