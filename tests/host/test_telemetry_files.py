"""What a member hands over as another's telemetry takes the place of nothing."""

import contextlib
import hashlib
import json
from pathlib import Path

import pytest

from drupelet.store.states import STATE_DELIVERED
from drupelet_host.base import clock
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.member import Member
from drupelet_host.view.log_view import LogView
from drupelet_host.view.telemetry_files import Exported, Segment, write_segments
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake.delta import open_lake
from drupelet_tools.telemetry.spark import source
from telemetry import box_writer

ALICE, BOB, US = bytes.fromhex("a11ce001"), bytes.fromhex("b0b00002"), bytes.fromhex("aaaa0003")
STEM = "a11ce001-00001-00000000"


def segment(millivolts: int, blocks: int = 1, device: bytes = ALICE, number: int = 0) -> bytes:
    events = [[(1000, box_writer.BATTERY, 0, millivolts, 0)] for _ in range(blocks)]
    return box_writer.segment(device, 1, number, events)


def beside(content: bytes) -> str:
    return f"{STEM}-{hashlib.sha256(content).hexdigest()[:8]}.dbx-other"


EVENT = ("device", "boot", "number", "code", "a", "b", "c")


def rows_of_source(path: Path, table: str, names: tuple[str, ...]) -> list[tuple[object, ...]]:
    """What `spark.read.format("drupelet").load(path)` gives, without Spark."""
    reader = source.BoxReader({"path": str(path), "table": table})
    batches = [batch for share in reader.partitions() for batch in reader.read(share)]
    return [tuple(row[name] for name in names) for batch in batches for row in batch.to_pylist()]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*dbx*")}


TRUE, LONG_LIE, LATE_LIE = segment(3700), segment(1, blocks=3), segment(2)
LOGS = {
    "a lie comes later": [(ALICE, TRUE), (BOB, LONG_LIE)],
    "a lie comes first": [(BOB, LONG_LIE), (ALICE, TRUE)],
    "lies before and after": [(BOB, LATE_LIE), (ALICE, TRUE), (BOB, LONG_LIE), (BOB, LATE_LIE)],
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_what_its_device_handed_over_has_the_name(
    tmp_path: Path, log: list[tuple[bytes, bytes]]
) -> None:
    lies = {content for _, content in log} - {TRUE}
    expected = {f"{STEM}.dbx": TRUE, **{beside(lie): lie for lie in lies}}
    for cut in range(1, len(log) + 1):  # an export after each message, and once more at the end
        write_segments(tmp_path, lambda cut=cut: [Segment(*row) for row in log[:cut]])
    for _ in range(2):
        exported = write_segments(tmp_path, lambda: [Segment(*row) for row in log])
        assert exported == Exported(1, len(lies))
        assert files(tmp_path) == expected


def test_without_its_device_the_first_keeps_the_name(tmp_path: Path) -> None:
    log = [Segment(BOB, TRUE), Segment(BOB, LATE_LIE), Segment(b"", TRUE)]
    assert write_segments(tmp_path, lambda: log) == Exported(1, 1)
    assert files(tmp_path) == {f"{STEM}.dbx": TRUE, beside(LATE_LIE): LATE_LIE}
    # The log has let go what lies there, and a lie is all that it has: nothing is replaced.
    assert write_segments(tmp_path, lambda: log[1:2]) == Exported(0, 1)
    assert files(tmp_path)[f"{STEM}.dbx"] == TRUE


def test_an_id_that_begins_as_anothers_is_another(tmp_path: Path) -> None:
    longer = segment(1, device=ALICE + b"\1\2\3\4")
    log = [Segment(ALICE, TRUE), Segment(ALICE, longer)]
    assert write_segments(tmp_path, lambda: log) == Exported(2, 0)
    assert set(files(tmp_path)) == {f"{STEM}.dbx", "a11ce00101020304-00001-00000000.dbx"}


def test_the_log_says_who_handed_it_over_and_the_lake_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = (Peer("alice", ALICE, "stick:"), Peer("bob", BOB, "stick:"))
    settings = Config(tmp_path / "home", "us", US, "orchard", 50, None, peers)
    config.create(settings)
    member = Member(settings)
    numbers = {
        bytes(key): number
        for number, key in member.store.connection.execute("SELECT number, key FROM members")
    }
    lie_of_us = segment(4, device=US, number=900)
    ours = segment(3, device=US, number=900)
    rows = [(BOB, LONG_LIE), (BOB, lie_of_us), (ALICE, TRUE), (BOB, LATE_LIE), (b"", ours)]
    for at, (sender, content) in enumerate(rows):
        body = b"\0" + content
        member.store.put(
            member.telemetry, numbers.get(sender, 0), bytes([at]) * 32, 0, bytes(8), 0,
            body, 0, len(body), STATE_DELIVERED,
        )  # fmt: skip
    member.commit()
    member.close(clock.now_ms())
    with contextlib.closing(LogView(settings.home)) as view:
        exported = view.export_telemetry(tmp_path / "out")
    bodies = files(tmp_path / "out")
    assert bodies[f"{STEM}.dbx"] == TRUE and bodies["aaaa0003-00001-00000900.dbx"] == ours
    assert exported.others == 3 and "3 more with a number" in exported.text
    assert {bodies[beside(lie)] for lie in (LONG_LIE, LATE_LIE)} == {LONG_LIE, LATE_LIE}

    for inputs in ([tmp_path / "out"], [settings.home]):
        lake = tmp_path / f"lake-{inputs[0].name}"
        counts = job.ingest(inputs, lake, {}, None, events=True)
        assert counts["quarantined"] == 3
        state = open_lake(lake)
        battery = state.read("battery", ["device", "mv"]).to_pylist()
        assert [row["mv"] for row in battery if row["device"] == ALICE.hex()] == [3700]
        quarantined = state.read("quarantine").to_pylist()
        assert {row["reason"] for row in quarantined} == {
            "not from its device, or not its first with this number"
        }
        assert all(row["file"].endswith(".dbx-other") for row in quarantined)
        assert job.ingest(inputs, lake, {}, None)["new"] == 0
        for table, names in (("events", EVENT), ("quarantine", ("device", "number", "reason"))):
            ingested = state.read(table, list(names)).to_pylist()
            assert sorted(rows_of_source(inputs[0], table, names), key=repr) == sorted(
                (tuple(row.values()) for row in ingested), key=repr
            )
    json.loads((tmp_path / "out" / "names.json").read_text())
    assert capsys.readouterr().err == ""
