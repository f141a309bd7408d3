"""The pages under docs/ hold: what they name is there, and what SPEC.md draws is what is sent."""

import ast
import contextlib
import re
import shlex
import struct
from collections.abc import Iterator
from functools import cache
from hashlib import blake2s
from pathlib import Path
from types import ModuleType

import pytest

import drupelet
import statements
from command_pages import help_texts, unknown_options
from conformance_table import conformance, functions_of
from drupelet.base import events
from drupelet.base.errors import E_PEER, OK
from drupelet.clients import default as clients
from drupelet.engine import long_bodies as segments
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_BSP_1,
    SHARED,
    VISIBLE,
    Link,
    Node,
)
from drupelet.store import log as flashlog
from drupelet.store import states as store_states
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.wire import bsp1
from drupelet_host.store import database, reclaim, schema, sqlite_store
from drupelet_tools.telemetry.blackbox import codes
from spec import spec_text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CORE = "firmware/drupelet"
CLIENT = bytes(range(32))
STAMP = struct.pack(">Q", 1_700_000_000_000)
needs_texts = pytest.mark.skipif(
    not statements.SPECS.is_dir(), reason="the protocol texts are not beside this clone"
)


@cache
def section(number: str) -> str:
    """One numbered section of SPEC.md with its subsections."""
    text = spec_text()
    level = "#" * (2 + number.count("."))
    found = re.search(
        rf"^{level} {re.escape(number)} .*?(?=^#{{2,{len(level)}}} |\Z)", text, re.M | re.S
    )
    assert found, f"SPEC.md has no section {number}"
    return found.group()


def rows(number: str) -> dict[str, str]:
    """First cell -> second cell, in small letters, of every table row of a section."""
    text = re.sub(r"^```.*?^```$", "", section(number), flags=re.M | re.S)  # drawings
    found = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", text, re.M)
    return {key: value.lower() for key, value in found}


def named(module: ModuleType, prefix: str) -> dict[str, int]:
    """The module's constants with this prefix, which is left out of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in vars(module).items()
        if name.startswith(prefix) and isinstance(value, int)
    }


def assert_listed(number: str, constants: dict[str, int], form: str = "{}") -> None:
    """Every constant has a row with its number and every word of its name."""
    table = rows(number)
    for name, value in constants.items():
        key = form.format(value)
        assert key in table, f"SPEC {number} has no row {key} ({name})"
        missing = [word for word in name.lower().split("_") if word not in table[key]]
        assert not missing, f"SPEC {number}, row {key}: {table[key]!r} does not say {missing}"


# --- names and links ---


@pytest.mark.parametrize("page", sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")))
def test_links_resolve(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            path = (DOCS / page).parent / target.partition("#")[0]
            assert path.exists(), f"{page} links to {target}, which is not there"


def test_the_changelog_begins_with_what_a_user_notices_of_this_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unreleased, release = re.findall(r"^## \[(.+?)\]", text, re.M)[:2]
    assert (unreleased, release) == ("Unreleased", drupelet.__version__)
    summary = text[text.index(f"## [{release}]") :].partition("\n### ")[0]
    assert 8 <= len(re.findall(r"^- ", summary, re.M)) <= 12


def test_every_test_that_a_page_names_exists() -> None:
    count = 0
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"`(tests/[\w/.:]+)`", page.read_text("utf-8")):
            file, _, function = name.partition("::")
            assert (ROOT / file).is_file(), f"{page.name}: there is no {file}"
            if function:
                assert function in functions_of(ROOT / file), f"{page.name}: there is no {name}"
                count += 1
    assert count > 20


def test_every_row_of_conformance_has_a_test_or_a_reason() -> None:
    for numbers, statement, _, shown in conformance():
        tests = re.findall(r"`tests/[\w/]+\.py::test_\w+`", shown)
        reason = re.fullmatch(r"declined: \S.{20,}", shown)
        assert tests or reason, f"{numbers} {statement}: shown by what?"
        assert reason or not re.sub(r"`tests/[^`]+`|[, ]", "", shown), f"{numbers}: {shown}"


@cache
def places() -> frozenset[str]:
    """Names of the core: files, classes, functions, and what is in them."""
    found = set()
    for path in (ROOT / CORE).rglob("*.py"):
        found |= {path.name, path.relative_to(ROOT / CORE).as_posix()}
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found |= {node.name, f"{path.stem}.{node.name}"}
                own = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]
                found |= {f"{node.name}.{method.name}" for method in own}
                self_of = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
                found |= {f"{node.name}.{n.attr}" for n in self_of if isinstance(n.ctx, ast.Store)}
    return frozenset(found)


def test_every_place_of_conformance_is_in_the_code() -> None:
    for numbers, _, where, _ in conformance():
        for name in re.findall(r"`([^`]+)`", where):
            assert name in places(), f"{numbers}: where is {name}?"


def test_every_number_of_conformance_stands_once_and_without_gaps() -> None:
    numbers = [number for row in conformance() for number in row.numbers]
    assert len(numbers) == len(set(numbers)) > 240
    counts: dict[str, int] = {}
    for number in numbers:
        section = number.rpartition("-")[0]
        counts[section] = max(counts.get(section, 0), int(number.rpartition("-")[2]))
    assert sum(counts.values()) == len(numbers), "a number is missing"


@needs_texts
def test_every_statement_of_the_texts_has_one_row() -> None:
    texts = statements.all_of_them()
    numbers = {number for row in conformance() for number in row.numbers}
    missing = [f"{number}: {texts[number]}" for number in texts if number not in numbers]
    assert not missing, "no row for " + "; ".join(missing)
    assert numbers == set(texts), f"no such statement: {numbers - set(texts)}"


@needs_texts
def test_statements_are_all_that_the_texts_say() -> None:
    """Every word of the texts is in a statement, but for titles and contents."""
    said = " ".join(statements.all_of_them().values())
    for name in ("bsp-v1.md", "mvds-0.5.1.txt", "mvds-0.6.0.txt"):
        for line in (statements.SPECS / name).read_text("utf-8").splitlines():
            if line.endswith((".", ";", ":")):
                assert all(part in said for part in statements.sentences(line)), line


def test_every_module_that_a_page_names_exists() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    folders = ("firmware", "transports", "host", "tools", "tests", "examples")
    modules = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert set(re.findall(r"`([a-z_0-9]+\.py)`", text)) - modules == set()


# --- numbers ---


def test_spec_names_every_frame_kind() -> None:
    device = Device()
    device.put(b"\0a message")
    (records,) = device.frames()
    kinds = named(segments, "KIND_") | {"RECORDS": records[0]}
    assert len(kinds) == 3
    assert_listed("2", kinds, "0x{:02x}")


def test_spec_names_every_record_type() -> None:
    types = {name: getattr(bsp1, name) for name in ("ACK", "MESSAGE", "OFFER", "REQUEST")}
    assert_listed("3.1", types)


def test_spec_names_every_record_of_the_log() -> None:
    kinds = named(flashlog, "KIND_")
    assert len(kinds) == 10 and kinds["GONE"] == 10
    assert_listed("5.3", kinds)
    text = spec_text()
    assert f"| store log | {flashlog.VERSION} |" in text
    assert f"format version, {flashlog.VERSION} |" in section("5.3")


def test_spec_names_every_code_of_the_black_box() -> None:
    event_codes = named(events, "CODE_")
    assert len(event_codes) >= 15
    assert_listed("6.1", event_codes)
    states = named(events, "STATE_")
    assert len(states) == 7
    assert_listed("6.2", states)


def test_spec_names_every_counter_of_the_black_box() -> None:
    counters = named(events, "COUNT_")
    base = counters.pop("CARRIERS")
    assert len(counters) == 10
    listed = re.findall(r"^\| (\d+) \| (.+) \|$", section("6.3"), re.M)
    common = listed[: len(counters)]
    assert [int(number) for number, _ in common] == sorted(counters.values())
    for name, number in counters.items():
        assert name.lower() in dict(common)[str(number)], f"counter {number} is {name}"
    assert f"| {base} + carrier * 32 + direction * 16 + kind |" in section("6.3")
    kinds = listed[len(counters) :]
    assert [int(number) for number, _ in kinds] == list(range(len(codes.TRAFFIC_KINDS)))
    for (_, said), (name, unit) in zip(kinds, codes.TRAFFIC_KINDS, strict=True):
        assert name in said and unit in said


def test_spec_gives_the_clients_and_the_database() -> None:
    for id in (clients.READINGS_CLIENT_ID, clients.TELEMETRY_CLIENT_ID):
        assert id.hex() in section("1")
    [tables] = re.findall(r"```sql\n(.*?)```", section("8"), re.S)
    with contextlib.closing(database.empty()) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        lines = {" ".join(sql.split()) for (sql,) in made if "sqlite_sequence" not in sql}
    assert {" ".join(sql.split()) for sql in tables.split(";") if sql.strip()} == lines
    states = re.findall(r"^\| (\d) \| (\w+)", section("8"), re.M)
    known = named(store_states, "STATE_")
    known |= named(sqlite_store, "_STATE_") | named(reclaim, "_STATE_")
    assert sorted(known.values()) == [int(number) for number, _ in states]
    assert [word for _, word in states][:5] == [
        name.lower() for name in sorted(known, key=known.__getitem__)
    ][:5]
    text = spec_text()
    assert f"0x{schema.STORE.application_id:08x}" in text
    assert f"| host database | {schema.STORE.newest} |" in text
    assert f"| channel database | {schema.CHANNELS.newest} |" in text


# --- bytes: what follows knows SPEC.md only ---


def hash_of(*arguments: bytes) -> bytes:
    return blake2s(b"".join(struct.pack(">I", len(x)) + x for x in arguments)).digest()


GROUP = hash_of(b"GROUP_ID", CLIENT, b"docs")


def id_of(body: bytes) -> bytes:
    return hash_of(b"MESSAGE_ID", GROUP, STAMP, body)


def record(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 1, kind, len(payload)) + payload


def message(body: bytes) -> bytes:
    return record(1, GROUP + STAMP + body)


class Device:
    """A node with one peer on a cable; time stands still until `next_epoch`."""

    def __init__(
        self, mode: int = BATCH, visibility: int = SHARED, files: RamFiles | None = None
    ) -> None:
        self.store = FlashStore(files if files is not None else RamFiles())
        assert self.store.open() == 0
        self.node = Node(self.store, lambda: 0)
        self.group = self.node.join(CLIENT, b"docs")
        self.peer = self.node.add_peer(b"peer")
        self.node.share(self.group, self.peer, visibility)
        self.now_ms = 0
        self.boot = self.node.boot(0)
        self.link: Link = self.node.link(self.peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, mode)

    def put(self, body: bytes) -> int:
        handle = self.node.publish(self.group, body, len(body), STAMP, self.now_ms)
        assert handle > 0
        return handle

    def frames(self) -> list[bytes]:
        """All frames of the next epoch's payload."""
        self.now_ms += 1000
        buffer = bytearray(1024)
        found = []
        while (size := self.link.poll_into(buffer, self.now_ms)) > 0:
            found.append(bytes(buffer[:size]))
            assert len(found) < 100
        return found

    def take(self, frame: bytes) -> int:
        buffer = bytearray(frame) + bytes(1024 - len(frame))
        return self.link.receive(buffer, len(frame), self.now_ms)

    def log(self) -> list[bytes]:
        found, handle = [], self.store.next(0)
        while handle:
            assert self.store.load(handle) == OK
            found.append(bytes(self.store.id))
            handle = self.store.next(handle)
        return found


def test_records_on_a_frame_are_the_drawn_ones() -> None:
    device = Device(INTERACTIVE)
    device.put(b"\x00one")
    assert device.frames() == [b"\x40" + record(2, id_of(b"\x00one"))]
    theirs = id_of(b"\x00two")
    frame = record(3, id_of(b"\x00one")) + record(2, theirs)
    assert device.take(b"\x40" + frame) == OK
    assert device.frames() == [b"\x40" + record(3, theirs) + message(b"\x00one")]
    assert device.take(b"\x40" + record(0, id_of(b"\x00one")) + message(b"\x00two")) == OK
    assert device.frames() == [b"\x40" + record(0, theirs)]
    assert device.log() == [id_of(b"\x00one"), theirs]
    assert device.frames() == []


def test_batch_sends_without_an_offer() -> None:
    device = Device(BATCH)
    device.put(b"\x00one")
    assert device.frames() == [b"\x40" + message(b"\x00one")]


def test_what_is_offered_and_held_is_acknowledged() -> None:
    device = Device(INTERACTIVE)
    assert device.take(b"\x40" + message(b"\x00one")) == OK
    device.frames()
    assert device.take(b"\x40" + record(2, id_of(b"\x00one"))) == OK
    assert device.frames() == [b"\x40" + record(0, id_of(b"\x00one"))]


def test_unknown_unshared_and_pending_are_met_with_silence() -> None:
    device = Device(BATCH, VISIBLE)
    device.put(b"\x00one")
    child = b"\x01" + bytes(32) + b"child"
    assert device.take(b"\x40" + message(child)) == OK
    device.frames()
    asked = record(3, id_of(b"\x00one") + bytes(range(32)) + id_of(child))
    assert device.take(b"\x40" + asked) == OK
    assert all(frame[2] != 1 for frame in device.frames()), "a MESSAGE was sent"


GOOD = message(b"\x00good")
MALFORMED = {
    "version": b"\x02" + message(b"\x00a")[1:],
    "header cut": b"\x01\x01\x00",
    "payload cut": message(b"\x00a")[:-1],
    "no ids": record(0, b""),
    "not whole ids": record(2, bytes(33)),
    "short message": record(1, GROUP + STAMP[:7]),
    "negative timestamp": record(1, GROUP + b"\x80" + bytes(7) + b"\x00"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_record_ends_its_frame_and_what_was_before_stands(what: str) -> None:
    device = Device()
    after = b"" if "cut" in what else message(b"\x00after")
    assert device.take(b"\x40" + GOOD + MALFORMED[what] + after) == E_PEER
    assert device.node.malformed == 1
    assert device.log() == [id_of(b"\x00good")]


def test_an_unknown_type_is_skipped_and_an_unknown_kind_is_dropped() -> None:
    device = Device()
    assert device.take(b"\x40" + record(9, bytes(5)) + GOOD) == OK
    assert device.log() == [id_of(b"\x00good")]
    assert device.take(b"\x41" + GOOD) == E_PEER
    assert device.take(b"\x40") == E_PEER


@pytest.mark.parametrize("body", [b"\x09" + bytes(9 * 32), b"\x01" + bytes(31)])
def test_a_body_that_its_client_cannot_read_is_acknowledged_and_not_in_the_log(
    body: bytes,
) -> None:
    device = Device()
    assert device.take(b"\x40" + message(body) + GOOD) == OK
    assert device.node.malformed == 0 and device.log() == [id_of(b"\x00good")]
    acks = b"".join(device.frames())
    assert id_of(body) in acks and id_of(b"\x00good") in acks and len(acks) == 1 + 4 + 64


def test_a_message_waits_for_its_dependencies_which_are_asked_for() -> None:
    device = Device()
    parent = b"\x00parent"
    child = b"\x01" + id_of(parent) + b"child"
    assert device.take(b"\x40" + message(child)) == OK
    assert device.log() == []
    assert device.frames() == [b"\x40" + record(0, id_of(child)) + record(3, id_of(parent))]
    assert device.take(b"\x40" + message(parent)) == OK
    assert device.log() == [id_of(parent), id_of(child)]


def test_a_long_body_travels_as_the_drawn_segments() -> None:
    body = b"\x00" + bytes(i % 251 for i in range(2499))
    content = GROUP + STAMP + body
    device, other = Device(), Device()
    device.put(body)
    pieces = device.frames()
    assert [frame[:13] for frame in pieces] == [
        b"\x50" + id_of(body)[:8] + struct.pack(">HH", len(content), offset)
        for offset in (0, 1011, 2022)
    ]
    assert b"".join(frame[13:] for frame in pieces) == content
    assert other.take(pieces[0]) == OK
    assert other.take(pieces[2]) == OK  # a gap
    state = b"\x51" + id_of(body)[:8] + struct.pack(">H", 1011)
    assert other.frames() == [state]
    assert device.take(state) == OK
    again = device.frames()
    assert [frame[11:13] for frame in again] == [struct.pack(">H", n) for n in (1011, 2022)]
    assert [other.take(frame) for frame in again] == [OK, OK]
    assert other.log() == [id_of(body)]
    assert other.frames() == [b"\x40" + record(0, id_of(body))]


def test_a_piece_that_is_none_is_malformed() -> None:
    device = Device()
    for total, offset, piece in ((40, 0, b"x"), (32809, 0, b"x"), (50, 49, b"xx"), (50, 0, b"")):
        frame = b"\x50" + bytes(8) + struct.pack(">HH", total, offset) + piece
        assert device.take(frame) == E_PEER
    assert device.take(b"\x51" + bytes(9)) == E_PEER


def test_the_wake_state_is_the_drawn_one() -> None:
    device = Device()
    first, second = device.put(b"\x00one"), device.put(b"\x00two")
    device.frames()
    assert device.take(b"\x40" + record(0, id_of(b"\x00two"))) == OK
    device.node.done(first)
    assert device.node.save(0) == OK
    expected = struct.pack(">BBHI", 3, 1, device.boot, first)
    expected += struct.pack(">BIIIBII", device.peer, first, 0, 0, 1 << device.group, 0, 0)
    assert bytes(device.store.saved[: device.store.saved_size]) == expected + struct.pack(
        ">IB", second, 1
    )
    # The peer offers one, which it holds, and asks for the other: an ACK is owed, the message was
    # not sent since.
    assert device.take(b"\x40" + record(2, id_of(b"\x00two")) + record(3, id_of(b"\x00one"))) == OK
    assert device.node.save(0) == OK
    for handle in (second | 1 << 30, first | 1 << 31, second):
        expected += struct.pack(">IB", handle, 1)
    assert bytes(device.store.saved[: device.store.saved_size]) == expected


def test_after_a_reboot_nothing_unacknowledged_is_forgotten() -> None:
    files = RamFiles()
    device = Device(files=files)
    for number in range(3):
        device.put(b"\x00%d" % number)
    device.frames()
    assert device.take(b"\x40" + record(0, id_of(b"\x001"))) == OK
    assert device.node.save(0) == OK and device.store.barrier() == OK
    files.power_cut()
    again = Device(files=files)
    assert again.boot == device.boot + 1
    assert again.frames() == [b"\x40" + message(b"\x000") + message(b"\x002")]


# cli.md is made from the help.
PAGES_OF_COMMANDS = sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / "docs").rglob("*.md")
    if page.name != "cli.md" and "drupelet " in page.read_text("utf-8")
)


def test_the_pages_show_commands() -> None:
    shown = {page: len(list(shown_commands(ROOT / page))) for page in PAGES_OF_COMMANDS}
    assert shown["docs/tutorial.md"] > 5 and shown["docs/field-guide.md"] > 20


def shown_commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Each line of a page's code that calls `drupelet`, with its number, as words."""
    is_code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        is_code ^= line.startswith("```")
        command = re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?drupelet ([a-z-]+(?: .*)?)$", line)
        if command and (is_code or line.startswith("    ")):
            text = command[1].split(" > ")[0].rstrip("\\")
            try:
                yield number, shlex.split(text, comments=True)
            except ValueError:  # a text over several lines begins here
                yield number, text.split()


@pytest.mark.parametrize("page", ["README.md", *PAGES_OF_COMMANDS])
def test_commands_that_a_page_shows_have_their_options(page: str) -> None:
    texts = help_texts()
    for number, words in shown_commands(ROOT / page):
        unknown = unknown_options(words, texts)
        assert not unknown, f"{page}:{number}: {words[0]} has no {unknown}"
