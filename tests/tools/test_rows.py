"""Rows for the demo: every kind of file that somebody may hand over."""

import gzip
import json
import os
from pathlib import Path

import pytest

from drupelet.base.limits import BODY_SIZE_MAX
from drupelet_tools.demo.rows import COMPLAINTS_MAX, ROW_SIZE_MAX, InputError, read_rows

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def written(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "R.CSV"])
def test_csv(tmp_path: Path, name: str) -> None:
    rows = read_rows(written(tmp_path, name, 'a,b\r\n1,"x, y"\r\n2,\r\n'), 10)
    assert [json.loads(text) for text in rows.texts] == [
        {"a": "1", "b": "x, y"},
        {"a": "2", "b": ""},
    ]
    assert (rows.bad, rows.complaints) == (0, [])


@pytest.mark.parametrize("name", ["r.ndjson", "r.jsonl", "r.ndjson.gz", "r.txt"])
def test_ndjson(tmp_path: Path, name: str) -> None:
    rows = read_rows(written(tmp_path, name, '{"a": 1}\n\n{"b": [2, "ü"]}'), 10)
    assert rows.texts == ['{"a":1}', '{"b":[2,"ü"]}']
    assert rows.bad == 0


def test_a_row_has_no_newline_in_it(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path, "r.csv", 'a\n"two\nlines"\n'), 10)
    assert rows.texts == ['{"a":"two\\nlines"}']


def test_reads_no_more_than_wanted(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path, "r.ndjson", '{"a":1}\n{"a":2}\nnot looked at\n'), 2)
    assert (len(rows.texts), rows.bad) == (2, 0)


def test_a_byte_order_mark_is_not_data(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "r.csv", b"\xef\xbb\xbfa\n1\n"), 9).texts == ['{"a":"1"}']
    assert read_rows(written(tmp_path, "r.ndjson", b'\xef\xbb\xbf{"a":1}'), 9).texts == ['{"a":1}']


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("12", "not a JSON object"),
        ('{"a": NaN}', "not JSON (NaN"),
        ('{"a": -Infinity}', "not JSON (-Infinity"),
        ('{"a": "\\ud800"}', "not JSON in UTF-8"),
        ('{"a": ' + "1" * 5000 + "}", "not JSON"),
        ('{"a": ' + NESTED[: BODY_SIZE_MAX // 2] + "}", "not JSON"),
        ('{"a": "' + "x" * ROW_SIZE_MAX + '"}', f"more than the {ROW_SIZE_MAX}"),
        ('{"a": "' + "x" * 9 * BODY_SIZE_MAX + '"}', "longer than"),
        (b'{"a": "\xff"}', "not text in UTF-8"),
    ],
)
def test_a_bad_row_is_named_by_its_line_skipped_and_counted(
    tmp_path: Path, bad: str | bytes, why: str
) -> None:
    line = bad.encode() if isinstance(bad, str) else bad
    rows = read_rows(written(tmp_path, "r.ndjson", b'{"n":1}\n\n' + line + b'\n{"n":2}\n'), 10)
    assert rows.texts == ['{"n":1}', '{"n":2}']
    assert rows.bad == 1
    assert len(rows.complaints) == 1
    assert rows.complaints[0].startswith("line 3: ")
    assert why in rows.complaints[0]
    assert rows.complaints[0].endswith("; skipped")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"1", "1 values for 2 columns"),
        (b"1,2,3", "3 values for 2 columns"),
        (b"\xff,2", "not text in UTF-8"),
        (b"1," + b"x" * ROW_SIZE_MAX, f"more than the {ROW_SIZE_MAX}"),
        (b"1," + b"x" * 9 * BODY_SIZE_MAX, "longer than"),
    ],
)
def test_bad_csv_rows(tmp_path: Path, bad: bytes, why: str) -> None:
    rows = read_rows(written(tmp_path, "r.csv", b"a,b\n1,1\n" + bad + b"\n2,2\n"), 10)
    assert rows.texts == ['{"a":"1","b":"1"}', '{"a":"2","b":"2"}']
    assert rows.bad == 1
    assert rows.complaints[0].startswith("line 3: ")
    assert why in rows.complaints[0]


def test_an_open_quote_does_not_take_memory_or_the_file(tmp_path: Path) -> None:
    body = 'a,b\n1,1\n2,"open\n' + "3,3\n" * 60_000
    rows = read_rows(written(tmp_path, "r.csv", body), 100)
    assert rows.texts[0] == '{"a":"1","b":"1"}'
    assert rows.texts[1] == '{"a":"3","b":"3"}'
    assert rows.bad >= 1
    assert "field larger" in rows.complaints[0]


def test_complaints_are_bounded_and_all_are_counted(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path, "r.ndjson", "no\n" * 500 + "{}\n"), 10)
    assert rows.bad == 500
    assert len(rows.complaints) == COMPLAINTS_MAX


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("r.csv", "", "empty"),
        ("r.ndjson", "", "empty"),
        ("r.ndjson.gz", "", "empty"),
        ("r.ndjson", "\n\n", "empty"),
        ("r.csv", "a,b\n", "empty"),
        ("r.csv", "a,a\n1,2\n", "each once"),
        ("r.csv", "\n1,2\n", "name the columns"),
        ("r.csv", b"\x7fELF\x02\x00\x00\n1", "zero bytes"),
        ("r.ndjson", b"\x7fELF\x02\x00\x00\n1", "zero bytes"),
        ("r.ndjson", bytes(range(128, 256)) * 40, "line 1: not text in UTF-8"),
        ("r.ndjson", '{"a":1}'.encode("utf-16"), "zero bytes"),
        ("r.ndjson", "a\nb\n", "line 1: not JSON"),
    ],
)
def test_a_file_without_a_good_row_is_refused(
    tmp_path: Path, name: str, content: str | bytes, why: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_rows(path, 10)
    text = str(caught.value)
    assert str(path) in text
    assert why in text
    assert "\n" not in text


def test_broken_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(20_000).hex().encode())
    damaged = bytearray(whole)
    damaged[500:600] = bytes(100)
    for content in (b"plain text", whole[: len(whole) // 2], bytes(damaged), whole[:12]):
        path = tmp_path / "r.ndjson.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match="give a CSV or NDJSON file"):
            read_rows(path, 10)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_rows(tmp_path / "nothing.csv", 10)
    with pytest.raises(InputError, match="is a folder"):
        read_rows(tmp_path, 10)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="not a regular file"):
        read_rows(tmp_path / "pipe.csv", 10)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded data is not beside this clone")
@pytest.mark.parametrize(
    "name",
    [
        "campusiot_ems_contacts.csv",
        "campusiot_IMST_33323431007C727B.ndjson.gz",
        "campusiot_ems-tourperret-A81758FFFE04B1C1.ndjson.gz",
    ],
)
def test_recorded_data(name: str) -> None:
    rows = read_rows(SHARED / name, 96)
    assert len(rows.texts) == 96
    assert rows.bad == 0
    assert all(isinstance(json.loads(text), dict) for text in rows.texts)
    assert max(len(text.encode()) for text in rows.texts) <= ROW_SIZE_MAX
