"""`drupelet export` into files: what is in them, and each message once over kills at each step."""

import base64
import csv
import io
import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import cbor2
import pytest

from drupelet_host.export import export_file, formats
from drupelet_host.export.line_protocol import line
from drupelet_host.export.reading import VALUES_MAX, Reading, reading_of
from drupelet_host.home import file_lock
from drupelet_host.view.log_view import Entry, LogView
from host import exported, forked
from host.conftest import COMMAND, Home, wait_for
from host.hostile_bodies import HOSTILE

ID = bytes(range(32))
STAMP_MS = 1_790_000_000_123


def reading(
    body: bytes, author: str = "well", stamp_ms: int = STAMP_MS, id: bytes = ID
) -> Reading:
    entry = Entry(1, 1, id, author, "via", stamp_ms.to_bytes(8), body, [])
    return reading_of(entry, "readings")


def all_of(home: Path) -> list[Entry]:
    view = LogView(home)
    try:
        return list(view.entries())
    finally:
        view.close()


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["export", "--home", str(home), *words], 120)


@pytest.mark.parametrize(
    ("body", "values", "unit"),
    [
        (b"21.5", {"value": 21.5}, ""),
        (b"-5.2C", {"value": -5.2}, "C"),
        (b"21,5", {}, ""),
        ("3 °C".encode(), {"value": 3.0}, "°C"),
        (b'{"board":"well","level_mm":1200,"ok":true,"note":"x","none":null}',
         {"level_mm": 1200.0, "ok": True, "note": "x"}, ""),
        (b'{"a":{"b":{"c":1}},"l":[1,2]}', {"a.b.c": 1.0, "l": "[1, 2]"}, ""),
        (b'{"n":1e400,"big":' + b"9" * 400 + b"}", {}, ""),
        (b'{"a":NaN}', {}, ""), (b"1e999", {}, ""), (b"[1]", {}, ""), (b"{", {}, ""),
        (b"\xff", {}, ""), (b"{" * 30_000, {}, ""), (b'{"a":' * 6000 + b"1" + b"}" * 6000, {}, ""),
        (b'{"a":' * 257 + b"1" + b"}" * 257, {}, ""), (b'{"a":1,"b":' + b"[" * 256, {}, ""),
        (b'{"a":1,"b":' + b"[" * 255 + b"]" * 255 + b"}", {"a": 1.0, "b": "[" * 255 + "]" * 255},
         ""),
        (b"2026-03-01", {}, ""),
    ],
)  # fmt: skip
def test_what_a_body_says(body: bytes, values: dict[str, object], unit: str) -> None:
    said = reading(body)
    assert (said.values, said.unit) == (values, unit)
    assert said.text == (None if body == b"\xff" else body.decode())


def test_a_message_has_so_many_values() -> None:
    body = json.dumps({f"v{number}": number for number in range(1000)}).encode()
    assert len(reading(body).values) == VALUES_MAX


def test_no_body_breaks_a_csv_or_is_a_formula() -> None:
    form = formats.Csv(("a", "value"))
    bodies = [text.encode() for text in HOSTILE] + [b"\xff\xfe", bytes(300)]
    data = form.head() + b"".join(form.encode(reading(body, '=1+"x"')) for body in bodies)
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert rows[0] == [*formats.CSV_HEAD, "a", "value"] and len(rows) == len(bodies) + 1
    for body, row in zip(bodies, rows[1:], strict=True):
        text = row[5]
        assert row[0] == ID.hex() and row[3] == '\'=1+"x"' and len(row) == 9
        assert not text.startswith(("=", "+", "-", "@", "\t", "\r"))
        try:
            assert text.removeprefix("'" if text[:1] == "'" and body[:1] != b"'" else "") == (
                body.decode()
            )
        except UnicodeDecodeError:
            assert text == "" and base64.b64decode(row[6]) == body
    assert rows[1 + HOSTILE.index(" 21.5 C ")][-1] == "21.5"
    negative = form.encode(reading(b"-5.2")).decode().split(",")
    assert negative[5] == "-5.2" and negative[-1] == "-5.2\n", "a number is no formula"


def test_ndjson_has_everything() -> None:
    bodies = [text.encode() for text in HOSTILE] + [b"\xff\xfe"]
    data = b"".join(formats.NdJson().encode(reading(body)) for body in bodies)
    rows = [json.loads(text) for text in data.decode("ascii").splitlines()]
    assert len(rows) == len(bodies)
    for body, row in zip(bodies, rows, strict=True):
        if "text" in row:
            assert row["text"].encode() == body
        else:
            assert base64.b64decode(row["base64"]) == body
        assert (row["id"], row["timestamp_ms"]) == (ID.hex(), STAMP_MS)
        assert row["time"] == "2026-09-21T14:13:20.123Z"


def test_senml_is_as_rfc_8428_has_it() -> None:
    bodies = [b'{"level_mm":1200,"ok":false,"note":"x"}', b"21.5 C", b"a text", b"\xff"]
    data = b"".join(formats.SenmlCbor().encode(reading(body, "well 3")) for body in bodies)
    stream = io.BytesIO(data)
    packs = [cbor2.load(stream) for _ in bodies]
    assert not stream.read()
    head = {-2: "well_3/", -3: STAMP_MS / 1000, 0: "id", 8: ID}
    assert packs == [
        [head, {0: "level_mm", 2: 1200.0}, {0: "ok", 4: False}, {0: "note", 3: "x"}],
        [head, {0: "value", 2: 21.5, 1: "Cel"}],
        [head, {0: "text", 3: "a text"}],
        [head, {0: "body", 8: b"\xff"}],
    ]
    # A clock that was never set: seconds since its start are no time relative to now.
    unset = cbor2.loads(formats.SenmlCbor().encode(reading(b"1", stamp_ms=5000)))
    assert unset == [{-2: "well/", 0: "id", 8: ID}, {0: "clock_s", 2: 5.0}, {0: "value", 2: 1.0}]
    for text in HOSTILE:
        assert cbor2.loads(formats.SenmlCbor().encode(reading(text.encode(), text[:50])))


def test_a_line_of_influxdb_is_one_line_but_for_a_text_in_quotes() -> None:
    for text in HOSTILE:
        data = line(reading(text.encode(), text[:20]), "my reading").decode()
        assert data.startswith("my\\ reading,author=") and data.endswith("\n")
        assert int(data.rpartition(" ")[2]) // 1_000_000 == STAMP_MS
        outside = data.replace("\\\\", "").replace('\\"', "").split('"')[::2]
        assert not any("\n" in part for part in outside[:-1])
    far = line(reading(b"1", stamp_ms=2**64 - 1), "m").decode()
    assert int(far.rpartition(" ")[2]) < 2**63
    other = line(reading(b"1", id=bytes(31) + b"\1"), "m")
    assert line(reading(b"1"), "m").split()[-1] != other.split()[-1], "two ids are two points"


def counted(path: Path) -> list[str]:
    """The ids in an export, whatever its form."""
    data = path.read_bytes()
    if path.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
        assert rows[0] == list(formats.CSV_HEAD)
        return [row[0] for row in rows[1:]]
    if path.suffix == ".ndjson":
        return [json.loads(text)["id"] for text in data.splitlines()]
    if path.suffix == ".lp":
        return [text.split('id="')[1][:64] for text in data.decode().splitlines()]
    stream, ids = io.BytesIO(data), []
    while stream.tell() < len(data):
        ids.append(cbor2.load(stream)[0][8].hex())
    return ids


CUTS = [
    ("drupelet_host.export.export_file:os", "pwrite", "before"),
    ("drupelet_host.export.export_file:os", "pwrite", "half"),
    ("drupelet_host.export.export_file:os", "pwrite", "after"),
    ("drupelet_host.export.export_file:os", "fdatasync", "after"),
    ("drupelet_host.readers.log_reader:LogReader", "finish", "before"),
    ("drupelet_host.readers.log_reader:LogReader", "finish", "after"),
]


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "senml", "lp"])
def test_each_message_is_in_a_file_once_wherever_the_export_is_killed(
    tmp_path: Path, suffix: str
) -> None:
    home, out = tmp_path / "gate", tmp_path / f"out.{suffix}"
    number = 0
    cuts = CUTS if suffix in ("csv", "senml") else CUTS[1:2]
    for where, name, when in cuts:
        for count in (1, 2):
            exported.fill(home, (b"%d" % n for n in range(number, number + 12)))
            number += 12
            words = ("export", str(out), "--home", str(home))
            assert exported.killed(where, name, when, count, *words) == -signal.SIGKILL
    exported.fill(home, [b"the last"])
    done = run(home, str(out))
    assert done.returncode == 0, done.stderr
    assert counted(out) == [entry.id.hex() for entry in all_of(home)]
    size = out.stat().st_size
    assert run(home, str(out)).stdout.startswith("0 messages") and out.stat().st_size == size


def test_an_export_that_follows_is_killed_at_random_while_messages_come(
    make_home: Callable[..., Home], tmp_path: Path
) -> None:
    home, out = make_home("gate", 0xA0000001), tmp_path / "out.csv"
    home.start()
    rng = random.Random(5)
    words = ["export", str(out), "--follow", "--home", str(home.path)]
    quick = {
        "drupelet_host.export.run.BATCH_MAX": 3,
        "drupelet_host.cli.export_verbs.LOOK_EVERY_S": 0.01,
    }
    number = 0
    with (tmp_path / "log.txt").open("ab") as log:
        for _ in range(8):
            process = forked.Command(words, log, log, quick)
            begun = time.monotonic()
            length_s = rng.uniform(0.1, 0.6)
            while time.monotonic() - begun < length_s:
                home.put(f"reading {number}")
                number += 1
                time.sleep(0.001)  # the agent must keep up
            process.kill()
            process.wait()
        process = forked.Command(words, log, log, quick)
        wait_for(lambda: len(home.log()) == number, "all in the log")
        wait_for(lambda: out.exists() and len(counted(out)) >= number, "all in the file")
        process.kill()
        process.wait()
    assert (tmp_path / "log.txt").read_text() == ""
    assert counted(out) == [entry["id"] for entry in home.log()] and number > 20


def test_what_somebody_else_wrote_is_left_alone(tmp_path: Path) -> None:
    home, out = tmp_path / "gate", tmp_path / "out.csv"
    exported.fill(home, [b"1", b"2"])
    out.write_text("my own table\n")
    refused = run(home, str(out))
    assert (refused.returncode, out.read_text()) == (1, "my own table\n")
    assert "13 bytes behind the first 0 are not of this export; move it away" in refused.stderr
    out.unlink()
    assert run(home, str(out)).returncode == 0
    whole = out.read_text()
    out.write_text(whole + "a note\n")
    for _ in range(2):
        assert "7 bytes behind the first" in run(home, str(out)).stderr
        exported.fill(home, [b"3"])
    assert out.read_text() == whole + "a note\n"
    out.write_text(whole[:-5])
    assert "put it back, or have --start-over export everything" in run(home, str(out)).stderr
    out.unlink()
    assert run(home, str(out), "--start-over").stdout.startswith("4 messages")
    assert len(counted(out)) == 4


def test_two_exports_into_one_file_are_refused(tmp_path: Path) -> None:
    home, out = tmp_path / "gate", tmp_path / "out.csv"
    exported.fill(home, [b"1"])
    assert run(home, str(out)).returncode == 0
    file = export_file.ExportFile(out, out.stat().st_size)
    refused = run(home, str(out))
    assert "another export writes it; stop that one first" in refused.stderr
    file.close()
    with (tmp_path / "said.txt").open("wb") as said:
        process = forked.Command(["export", str(out), "--follow", "--home", str(home)], said, said)
    try:
        # Only then: a second one that is quicker would have the first refused.
        locks = (home / "readers").glob
        wait_for(lambda: any(map(file_lock.is_taken, locks("*.lock"))), "the first one reads")
        assert "another program reads under the name" in run(home, str(out)).stderr
    finally:
        process.kill()
        process.wait()


def test_filters_names_and_standard_output(tmp_path: Path) -> None:
    home, out = tmp_path / "gate", tmp_path / "out.ndjson"
    exported.fill(home, [b'{"level_mm":5}', b"x"])
    assert run(home, str(out), "--author", "nobody").stdout.startswith("0 messages")
    assert run(home, str(out), "--author", "gate").stdout.startswith("2 messages")
    whole = out.read_bytes()  # of the same bytes nothing is appended, whoever wrote them
    assert run(home, str(out), "--name", "again").returncode == 0 and out.read_bytes() == whole
    other = tmp_path / "other"
    done = run(home, str(other), "--format", "csv", "--column", "level_mm", "--json")
    assert json.loads(done.stdout) == {"exported": 2, "to": str(other)}
    rows = list(csv.reader(other.read_text().splitlines()))
    assert [row[-1] for row in rows] == ["level_mm", "5", ""]
    for _ in range(2):  # nothing of it is remembered
        shown = run(home, "-", "--format", "ndjson")
        assert [json.loads(text)["text"] for text in shown.stdout.splitlines()] == [
            '{"level_mm":5}', "x",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["out.bin"], 2, "its name says no format; give --format csv, ndjson, senml, influx"),
        ([], 2, "name a FILE or URL"),
        (["out.csv", "--format", "xml"], 2, "must be one of"),
        (["out.csv", "--group", "commands"], 2, "must be one of readings, telemetry"),
        (["nowhere/out.csv"], 4, "cannot be opened (No such file or directory)"),
        (["."], 2, "its name says no format"),
        ([".", "--format", "csv"], 1, "cannot be opened (Is a directory)"),
        (["/dev/null", "--format", "csv"], 1, "is no ordinary file; name one, or - for"),
        (["http://127.0.0.1:1/"], 1, "must be where points are written, as in http://"),
        (["http://u:secret@127.0.0.1:1/write?db=x"], 1, "put it into a --login-file"),
        (["http://127.0.0.1:1/write?db=x"], 1, "cannot be reached (Connection refused)"),
        (["mqtt://127.0.0.1:1/x"], 1, "nobody listens there"),
        (["mqtt://127.0.0.1"], 1, "mqtt://127.0.0.1"),
        (["s3://bucket/x.csv"], 2, "only files and folders of this machine"),
        (["--prometheus", "nowhere/x.prom"], 4, "cannot be written (No such file"),
        (["out.csv", "--measurement", ""], 2, "must not be empty"),
        (["out.csv", "--login-file", "login"], 2, "is for the http:// of an InfluxDB"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, reason: str
) -> None:
    exported.fill(tmp_path / "gate", [b"1"])
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path / "gate", *words)
    said = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == code and reason in said and "Traceback" not in said, done
    assert code == 2 or len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


@pytest.mark.parametrize("to", ["-", "out.csv"])
def test_a_damaged_store_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    exported.fill(tmp_path / "gate", [b"%d" % n * 500 for n in range(200)])
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "gate" / "store.db"
    with store.open("r+b") as file:
        file.seek(8_192)
        file.write(random.Random(1).randbytes(20_000))
    done = run(tmp_path / "gate", to, "--format", "csv")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, done
    assert f"{store}: it is damaged; move it away or restore a copy" in done.stderr


def test_what_was_exported_does_not_come_again_after_the_store_was_put_back(
    tmp_path: Path,
) -> None:
    home, out = tmp_path / "gate", tmp_path / "out.csv"
    exported.fill(home, [b"1", b"2"])
    shutil.copyfile(home / "store.db", tmp_path / "backup.db")
    exported.fill(home, [b"3"])
    assert run(home, str(out)).returncode == 0 and len(counted(out)) == 3
    for file in home.glob("store.db*"):
        file.unlink()
    (tmp_path / "backup.db").rename(home / "store.db")
    assert run(home, str(out)).stdout.startswith("0 messages"), "before the agent has noticed"
    exported.fill(home, [b"4"])  # it has the handle of the third
    assert run(home, str(out)).stdout.startswith("1 message exported")
    assert [row.split(",")[5] for row in out.read_text().splitlines()[1:]] == ["1", "2", "3", "4"]


def test_a_full_disk_loses_and_doubles_nothing(tmp_path: Path) -> None:
    home, out = tmp_path / "gate", tmp_path / "out.csv"
    exported.fill(home, (b"%d" % n + bytes(1000) for n in range(300)))
    limit = ["bash", "-c", 'ulimit -f 300; trap "" XFSZ; exec "$@"', "bash"]
    words = [*limit, *COMMAND, "export", str(out), "--home", str(home)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "out.csv: cannot be written (File too large)" in done.stderr
    assert run(home, str(out)).returncode == 0
    assert counted(out) == [entry.id.hex() for entry in all_of(home)]
