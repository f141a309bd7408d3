"""`drupelet provision`: to a flash, to a home, over a real terminal to a real MicroPython."""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drupelet.base.errors import E_STORAGE, OK
from drupelet.seal.record import RECORD_SIZE, first_key
from drupelet_host.cli import exit_codes
from drupelet_host.cli.app import app
from drupelet_host.home import config
from drupelet_host.home.config import Peer
from drupelet_host.keys import overview, provision
from drupelet_host.keys.key_folder import KeysError, look
from drupelet_host.keys.provision import FlashKeys, RamKeys
from drupelet_tools.flash.build import build, micropython_command
from host.chain_keys import chain_keys, home_keys
from host.command_line import assert_refused
from host.conftest import Cable, Home, placed, wait_for

MakeHome = Callable[..., Home]
HOST, BOARD, OTHER = 0x40000000, 0xA0000001, 0xB0000002
BOARD_ID, OTHER_ID = BOARD.to_bytes(4), OTHER.to_bytes(4)


def flash_of(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def to_flash(flash: Path | str) -> str:
    """What `--to` says of the folder of a board's flash."""
    return f"flash:{flash}"


def test_to_a_flash(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("h", HOST, Peer("A", BOARD_ID, "stick:"))
    flash = flash_of(tmp_path, "flash")
    done = home.run("provision", "A", "--to", to_flash(flash))
    assert done.returncode == 0, done.stderr
    assert "the root is forgotten" in done.stdout
    path = flash / "40000000.KEY"
    assert path.stat().st_mode & 0o777 == 0o600
    theirs, ours = chain_keys(path.read_bytes()), home_keys(home, BOARD_ID)
    # What one sends the other receives, class by class, and all four differ.
    assert {row ^ 2: key for row, key in theirs.items()} == ours
    assert len(set(ours.values())) == 4
    states = {state.row: state for state in look(home.path / "keys", BOARD_ID)}
    assert not any(state.issuer for state in states.values())
    assert (states[0].tag_size, states[0].generation, states[0].epoch) == (8, 0, 0)
    assert_refused(
        home.run("provision", "A", "--to", to_flash(flash)), "has keys already", "rotate A"
    )
    again = home.run("provision", "A", "--to", to_flash(flash), "--again", "--tag", "16", "--json")
    assert json.loads(again.stdout)["with"] == "h"
    assert look(home.path / "keys", BOARD_ID)[0].tag_size == 16
    assert not set(home_keys(home, BOARD_ID).values()) & set(ours.values())
    rows = json.loads(home.run("peers", "--json").stdout)
    assert [(row["name"], row["keys"]) for row in rows] == [("A", "sealed")]


def test_the_root_is_kept_nowhere(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home("h", HOST, Peer("A", BOARD_ID, "stick:"))
    flash = flash_of(tmp_path, "flash")
    drawn: list[bytes] = []

    def urandom(size: int) -> bytes:
        drawn.append(random.Random(len(drawn)).randbytes(size))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    settings = provision.config.load(home.path)
    provision.provision_peer(settings, "A", to_flash(flash))
    root = next(value for value in drawn if len(value) == 32)
    ours = home_keys(home, BOARD_ID)
    assert ours[0] == first_key(root, 0, home.id, BOARD_ID)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert root not in path.read_bytes()
            assert root.hex().encode() not in path.read_bytes()


def test_to_a_home(make_home: MakeHome) -> None:
    one = make_home("a", BOARD, Peer("b", OTHER_ID, "mqtt://localhost/t"))
    other = make_home("b", OTHER, Peer("a", BOARD_ID, "mqtt://localhost/t"))
    assert one.run("provision", "b", "--to", str(other.path)).returncode == 0
    assert {row ^ 2: key for row, key in home_keys(other, BOARD_ID).items()} == home_keys(
        one, OTHER_ID
    )
    assert (other.path / "keys").stat().st_mode & 0o777 == 0o700
    rows = json.loads(other.run("peers", "--json").stdout)
    assert rows[0]["note"] == "the peer made these keys"
    assert_refused(other.run("rotate", "a"), "it made these keys", "ask its owner")
    wrong = make_home("c", HOST)
    assert_refused(
        one.run("provision", "b", "--to", str(wrong.path), "--again"), "not of b0000002"
    )


def test_a_home_of_another_group_is_no_peer(make_home: MakeHome) -> None:
    """Carriers would come up, and nothing would ever arrive."""
    a = make_home("a", BOARD, Peer("b", OTHER_ID, "stick:"))
    b = make_home("b", OTHER, Peer("a", BOARD_ID, "stick:"))
    path = b.path / "drupelet.toml"
    path.write_text(path.read_text().replace('"orchard"', '"Orchard"'))
    done = a.run("provision", "b", "--to", str(b.path))
    assert done.returncode == 1 and "its group is 'Orchard', ours is 'orchard'" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list((b.path / "keys").glob("*.live"))
    path.write_text(path.read_text().replace('"Orchard"', '"orchard"'))
    assert a.run("provision", "b", "--to", str(b.path)).returncode == 0


def test_two_boards_with_each_other(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("h", HOST, Peer("A", BOARD_ID, "stick:"))
    first, second = flash_of(tmp_path, "a"), flash_of(tmp_path, "b")
    done = home.run(
        "provision",
        "A",
        "--to",
        to_flash(first),
        "--with",
        "b0000002",
        "--with-to",
        to_flash(second),
    )
    assert done.returncode == 0, done.stderr
    theirs = chain_keys((second / "A0000001.KEY").read_bytes())
    ours = chain_keys((first / "B0000002.KEY").read_bytes())
    assert {row ^ 2: key for row, key in theirs.items()} == ours
    assert not list((home.path / "keys").glob("b0000002*")) if (home.path / "keys").exists() else 1
    assert home.run("provision", "A", "--to", to_flash(first), "--with", "x").returncode == 2


def test_keys_of_another_device_are_not_written_over(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("h", HOST, Peer("gate", BOARD_ID, "stick:"), Peer("well", OTHER_ID, "stick:"))
    flash = flash_of(tmp_path, "gate-flash")
    assert home.run("provision", "gate", "--to", to_flash(flash)).returncode == 0
    before = (flash / "40000000.KEY").read_bytes()
    assert_refused(
        home.run("provision", "well", "--to", to_flash(flash)),
        "gate-flash: holds the keys of gate; name the folder of well, or --again replaces them",
    )
    assert (flash / "40000000.KEY").read_bytes() == before
    assert not provision.has_keys(provision.config.load(home.path), OTHER_ID)
    # The same device again, and another one there on purpose.
    for name in ("gate", "well"):
        done = home.run("provision", name, "--to", to_flash(flash), "--again")
        assert done.returncode == 0, done.stderr
    # Somebody's with our id, of whom we know nothing.
    (home.path / "keys").rename(home.path / "lost")
    assert_refused(
        home.run("provision", "gate", "--to", to_flash(flash)),
        "gate-flash: has keys with h already; --again replaces them",
    )


def test_a_pair_that_has_keys_is_not_paired_again_by_mistake(make_home: MakeHome) -> None:
    one = make_home("a", BOARD, Peer("b", OTHER_ID, "stick:"))
    other = make_home("b", OTHER, Peer("a", BOARD_ID, "stick:"))
    third = make_home(
        "c", HOST, Peer("well", OTHER_ID, "stick:"), Peer("gate", BOARD_ID, "stick:")
    )
    assert one.run("provision", "b", "--to", str(other.path)).returncode == 0
    before = home_keys(other, BOARD_ID)
    pair = ("provision", "well", "--to", str(other.path), "--with", "gate", "--with-to",
            str(one.path))  # fmt: skip
    assert_refused(third.run(*pair), "b: has keys with gate already; --again replaces them")
    assert home_keys(other, BOARD_ID) == before
    assert third.run(*pair, "--again").returncode == 0
    ours = home_keys(one, OTHER_ID)
    assert {row ^ 2: key for row, key in home_keys(other, BOARD_ID).items()} == ours
    assert not set(ours.values()) & set(before.values())


def test_what_cannot_be_provisioned(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("h", HOST, Peer("A", BOARD_ID, "stick:"))
    folder = flash_of(tmp_path, "flash")
    flash = to_flash(folder)
    assert_refused(
        home.run("provision", "x", "--to", flash),
        "no such peer, there are: A",
        status=exit_codes.NOT_THERE,
    )
    assert_refused(home.run("provision", "40000000", "--to", flash), "is this home itself")
    assert_refused(home.run("provision", "A", "--to", flash + "x"), "no such folder")
    assert_refused(home.run("provision", "A", "--to", "mqtt://localhost/t"), "over serial:")
    assert_refused(home.run("provision", "A", "--to", "serial:///dev/none"), "there is no device")
    assert home.run("provision", "A", "--to", flash, "--tag", "12").returncode == 2
    assert not list(folder.iterdir())


def test_a_folder_that_is_no_home_gets_no_keys_that_no_host_reads(
    make_home: MakeHome, tmp_path: Path
) -> None:
    """Only who is said to be a board has its flash in a plain folder."""
    home = make_home(
        "h", HOST, Peer("bob", BOARD_ID, "stick:", board="host"),
        Peer("well", OTHER_ID, "stick:", board="esp32"), Peer("x", b"\xc0\0\0\3", "stick:"),
    )  # fmt: skip
    folder = flash_of(tmp_path, "empty")
    for name in ("bob", "x"):
        refused = home.run("provision", name, "--to", str(folder))
        assert_refused(refused, "is no home", "`drupelet invite`", f"--to flash:{folder}")
        assert not list(folder.iterdir())
        assert {row["keys"] for row in json.loads(home.run("peers", "--json").stdout)} == {"none"}
    done = home.run("provision", "well", "--to", str(folder))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["40000000.KEY"]


def test_a_flash_that_lies_is_found_out(tmp_path: Path) -> None:
    class Liar(FlashKeys):
        bad_row = 4

        def save(self, records: Mapping[int, bytes | bytearray]) -> int:
            bad = bytearray(records[self.bad_row])
            bad[20] ^= 1
            return super().save({**records, self.bad_row: bad})

    for row in (0, 2, 4, 6):
        theirs = Liar(tmp_path, BOARD_ID, OTHER_ID)
        theirs.bad_row = row
        ours = provision.HomeKeys(tmp_path / "keys", OTHER_ID, BOARD_ID)
        with pytest.raises(KeysError, match="a0000001: does not hold what was written"):
            provision.provision(ours, theirs, 8, issuer=True)
        ours.finish()


def test_new_keys_that_are_cut_anywhere_are_whole_or_known_not_to_be(
    make_home: MakeHome, tmp_path: Path
) -> None:
    usb = tmp_path / "usb"
    usb.mkdir()
    one = make_home("one", HOST, Peer("A", BOARD_ID, "stick:"))
    other = make_home("other", BOARD, Peer("h", one.id, "stick:"))
    place = str(other.path)
    settings = config.load(one.path)
    provision.provision_peer(settings, "A", place)
    kinds = set()
    for step in range(1, 5):  # two files at each side
        left = [step]
        real = os.replace

        def cut(*paths: Path, left: list[int] = left, real: Any = real) -> None:
            left[0] -= 1
            real(*paths) if left[0] else os._exit(9)

        child = os.fork()
        if not child:
            os.replace = cut  # type: ignore[assignment]
            provision.provision_peer(settings, "A", place, again=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 9 << 8, step
        for home, peer in ((one, BOARD_ID), (other, one.id)):
            states = look(home.path / "keys", peer)
            for number in (0, 1):
                kids = {state.kid & ~3 for state in states if state.carrier_class == number}
                assert len(kids) == 1, "half of a class"
            ids = {state.kid & ~3 for state in states}
            kind = "sealed" if len(ids) == 1 else "damaged"
            kinds.add(kind)
            (row,) = overview.peer_rows(config.load(home.path))
            assert row["keys"] == kind
            done = CliRunner().invoke(app, placed(("stick", str(usb)), home.path))
            assert ("are damaged or gone" in str(done.exception)) == (kind == "damaged")
        provision.provision_peer(settings, "A", place, again=True)
        assert overview.peer_rows(settings)[0]["keys"] == "sealed"
    assert kinds == {"sealed", "damaged"}


def test_key_ids_are_never_zero_and_never_twice() -> None:
    taken: set[int] = set()
    for _ in range(2000):
        kid = provision.new_kid(taken)
        assert 0 < kid < 1 << 16 and not kid & 3 and kid not in taken
        taken.add(kid)
    with pytest.raises(KeysError, match="too many key ids"):
        provision.new_kid(range(0, 1 << 16, 4))


def test_keys_in_memory_are_wiped() -> None:
    port = RamKeys(BOARD_ID, OTHER_ID)
    record = bytearray(range(RECORD_SIZE))
    assert port.save(0, record) == OK
    kept = port.records[0]
    port.wipe()
    assert not any(kept) and port.load(0, bytearray(RECORD_SIZE)) == E_STORAGE


# --- over a terminal ---


class Console:
    """A board on MicroPython whose console is one end of a cable; `text` is what it said."""

    def __init__(self, firmware: Path, config: Path, device: str) -> None:
        self._config = config
        self._log = config.with_suffix(".log")
        terminal = os.open(device, os.O_RDWR | os.O_NOCTTY)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*micropython_command("x86"), "-X", "heapsize=512K", "-m", "boards.unix.main",
                 str(config)],
                stdin=terminal, stdout=terminal, stderr=log,
                env=os.environ | {"MICROPYPATH": str(firmware)},
            )  # fmt: skip
        os.close(terminal)

    @property
    def text(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def whole_firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the firmware in one folder, compiled."""
    target = tmp_path_factory.mktemp("firmware")
    build(target, "x86")
    return target


@pytest.fixture
def board(whole_firmware: Path, tmp_path: Path, cable: Cable) -> Iterator[Callable[..., Console]]:
    consoles: list[Console] = []

    def start(url: str = "stick:///none") -> Console:
        flash = tmp_path / "board-flash"
        flash.mkdir(exist_ok=True)
        settings = {
            "name": "A", "id": f"{BOARD:08x}", "flash": str(flash), "group": "orchard",
            "epoch_ms": 100, "readings_max": 3, "rows": None, "heap_limit": 128 * 1024,
            "telemetry_to": [], "peers_max": 2, "messages_max": 24, "offers_max": 24,
            "filter_size": 512,
            "peers": [{"id": f"{HOST:08x}", "url": url, "mode": "batch"}],
        }  # fmt: skip
        path = tmp_path / "board.json"
        path.write_text(json.dumps(settings))
        consoles.append(Console(whole_firmware, path, cable.devices[0]))
        return consoles[-1]

    yield start
    for console in consoles:
        console.end()


def test_over_a_terminal_to_micropython(
    make_home: MakeHome, tmp_path: Path, cable: Cable, board: Callable[..., Console]
) -> None:
    home = make_home("h", HOST, Peer("A", BOARD_ID, "stick:", "batch", 50, "esp32"))
    to = cable.url(1, plain=False)
    console = board(f"stick://{tmp_path}/usb")
    done = home.run("provision", "A", "--to", to)
    assert done.returncode == 0, done.stderr + console.text
    path = tmp_path / "board-flash/40000000.KEY"
    theirs, ours = chain_keys(path.read_bytes()), home_keys(home, BOARD_ID)
    assert {row ^ 2: key for row, key in theirs.items()} == ours
    # The board went on with them: what it reads travels on a stick, sealed, to the host.
    texts: list[str] = []

    def carried() -> bool:
        (tmp_path / "usb").mkdir()
        wait_for(lambda: list((tmp_path / "usb").rglob("*.DRP")), "bundle")
        sealed = b"".join(p.read_bytes() for p in (tmp_path / "usb").rglob("*.DRP"))
        assert b'"board"' not in sealed
        (tmp_path / "usb").rename(tmp_path / "taken")
        assert home.run("stick", str(tmp_path / "taken")).returncode == 0
        (tmp_path / "taken").rename(tmp_path / f"old{len(texts)}")
        texts[:] = [entry["text"] for entry in home.log()]
        return len(texts) >= 1

    assert carried()
    assert '"board":"A"' in texts[0]
    # It has keys now, and takes no others, whoever is at the cable.
    console.end()
    board(f"stick://{tmp_path}/usb")
    before = path.read_bytes()
    refused = home.run("provision", "A", "--to", to, "--again")
    assert_refused(refused, "no board there waits for keys")
    assert chain_keys(path.read_bytes()).keys() == chain_keys(before).keys()


def test_another_board_than_was_meant(
    make_home: MakeHome, tmp_path: Path, cable: Cable, board: Callable[..., Console]
) -> None:
    home = make_home("h", HOST, Peer("B", OTHER_ID, "stick:"))
    board()
    done = home.run("provision", "B", "--to", cable.url(1, plain=False))
    assert_refused(done, "there is a0000001, not b0000002")
    assert not (tmp_path / "board-flash/40000000.KEY").exists()


def test_a_board_is_not_impressed_by_nonsense(cable: Cable, board: Callable[..., Console]) -> None:
    console = board()
    port = os.open(cable.devices[1], os.O_RDWR | os.O_NOCTTY)

    def ask(line: bytes) -> dict[str, object]:
        os.write(port, line + b"\n")
        while True:
            said = b""
            while not said.endswith(b"\n"):
                said += os.read(port, 1)
            found: dict[str, object] = json.loads(said)
            if found["event"] == "keys":
                return found

    try:
        assert ask(b"keys hello")["wants"] == [f"{HOST:08x}"]
        peer, record = f"{HOST:08x}".encode(), b"00" * RECORD_SIZE
        for line in (
            b"keys", b"keys ", b"keys give", b"keys put", b"keys put " + peer,
            b"keys put deadbeef 0 " + record, b"keys put " + peer + b" 10 " + record,
            b"keys put " + peer + b" -1 " + record, b"keys put " + peer + b" x " + record,
            b"keys put " + peer + b" 0 zz", b"keys put " + peer + b" 0 " + record[:-2],
            b"keys prove " + peer + b" 0 00", b"keys prove " + peer + b" 0 " + b"00" * 16,
            b"\xff\xfe\nkeys \xff\xfe", b"keys put " + b"x" * 400,
        ):  # fmt: skip
            os.write(port, b"what is this\n")
            assert ask(line)["step"] == "no", line
        assert ask(b"keys hello")["id"] == f"{BOARD:08x}"
        assert console.process.poll() is None
        os.write(port, b"stop\n")
        assert console.process.wait(20) == 1
        assert "no keys for 40000000: give it some with `drupelet provision`" in console.text
    finally:
        os.close(port)
