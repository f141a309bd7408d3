"""Single lines of other systems' logs that cannot be used: named, and left out on request."""

import codecs
import json
import os

import pytest

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.imports import foreign_frames
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.page import report
from telemetry.command_line import run
from telemetry.imported_lines import HEAD, MAPPING, line, write

NDJSON = MAPPING.replace('"csv"', '"ndjson"').replace('"node"', '"node"\nname = "called"') + (
    'charge_mah = { field = "q" }\ntemperature_c = { field = "c" }\n'
)
GOOD = {"node": "A", "called": "one", "at": 1_700_000_000, "n": 1, "size": 20, "rate": "SF7BW125",
        "volts": 3.6}  # fmt: skip


def bad_line(**changes):
    return json.dumps({**GOOD, "at": GOOD["at"] + 600, "n": 2, **changes}).encode()


BAD = [
    (bad_line(volts=1e30), "volts = 1e+30 is no mv: want 0 to 100"),
    (bad_line(volts=3_000_000), "volts = 3000000 is no mv"),
    (bad_line(volts=1e306), "volts = 1e+306 is no mv"),
    (bad_line(volts=-5), "volts = -5 is no mv"),
    (bad_line(q=1e300), "q = 1e+300 is no charge_mah"),
    (bad_line(c=-300), "c = -300 is no temperature_c"),
    (bad_line(soc=80), "soc = 80 is no soc_pct: want 0 to 1.5"),
    (bad_line(at=1e308), "at = 1e+308 is no time in s"),
    (bad_line(rate="FSK"), "data rate 'FSK': want a name like SF12BW125"),
    (bad_line(rate="SF99BW125"), "spreading factor 99"),
    (bad_line(rate="SF7BW0"), "bandwidth 0 Hz"),
    (bad_line(rate="SF" + "7" * 5_000), "data rate 'SF777"),
    (bad_line(called="\ud800"), "called is no text: '\\ud800'"),
    (bad_line(node="\ud800"), "node is no device name"),
    (bad_line(called="xyz").replace(b"xyz", b"x\xffz"), "not UTF-8 text"),
    (bad_line(volts=7).replace(b"7", b"7" * 5_000), "a number in it has thousands of digits"),
    (b"[" * 100_000, "not JSON: too deep"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_line_that_cannot_be_used_is_named_and_left_out_on_request(tmp_path, bad, reason):
    paths, named, root = write(tmp_path, [], "log.ndjson", NDJSON)
    paths[0].write_bytes(json.dumps(GOOD).encode() + b"\n" + bad + b"\n")
    done = run("import", *paths, "--mapping", named, "--lake", root)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"{paths[0]}: line 2: {reason}" in done.stderr
    assert not root.exists()
    done = run("import", *paths, "--mapping", named, "--lake", root, "--skip-unusable")
    assert done.exit_code == 0, done.stderr
    state = delta.open_lake(root)
    [place] = state.read("quarantine").to_pylist()
    assert place["reason"].startswith(f"line 2: {reason}")
    assert state.read("segments").num_rows == 1
    assert report.build(root)["devices"][0]["name"] == "one"


def test_a_csv_line_that_is_no_text(tmp_path):
    paths, named, root = write(tmp_path, [HEAD, line(0, 1), line(5, 2, node="xyz")])
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole.replace(b"xyz", b"\xff"))
    with pytest.raises(TelemetryError, match=r"log\.csv: line 3: not UTF-8 text"):
        foreign_frames.import_files(paths, named, root)
    paths[0].write_bytes(whole.replace(b"node", b"\xff"))
    with pytest.raises(TelemetryError, match=r"line 1: not UTF-8 text; mend the head"):
        foreign_frames.import_files(paths, named, root)


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_the_mark_before_a_text_costs_no_frame(tmp_path, kind):
    text = NDJSON if kind == "ndjson" else MAPPING
    paths, named, root = write(tmp_path, [HEAD, line(0, 1)], "log", text)
    if kind == "ndjson":
        paths[0].write_bytes(json.dumps(GOOD).encode())
    paths[0].write_bytes(codecs.BOM_UTF8 + paths[0].read_bytes())
    counts = foreign_frames.import_files(paths, named, root)
    assert (counts.frames, counts.unusable) == (1, 0)


def test_a_file_whose_name_is_no_text_is_one_line(tmp_path):
    paths, named, root = write(tmp_path, [HEAD, line(0, 1)])
    odd = tmp_path / os.fsdecode(b"\xff.dbx")
    try:
        paths[0].rename(odd)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    for words in (["import", odd, "--mapping", named], ["ingest", odd]):
        done = run(*words, "--lake", root)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert r"\udcff.dbx': its name is not UTF-8; rename it" in done.stderr
