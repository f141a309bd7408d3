"""`drupelet flash TARGET`: from a board with MicroPython to a member of the group, step by step.

Nothing is written to the board before it is known to be the right one and to have room. Each step
finds out what is done already, so a second run after a pulled cable goes on where it was.
"""

import contextlib
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drupelet.base.errors import DrupeletError
from drupelet_host.home import config, private_files
from drupelet_host.home.board_settings import text_of
from drupelet_tools.flash import alive, board_keys, rom, sets, settings
from drupelet_tools.flash.deliver import (
    Delivered,
    deliver_files,
    deliver_rom,
    empty_rom,
    read_json,
    write_file,
)
from drupelet_tools.flash.errors import CableError, FlashError
from drupelet_tools.flash.flatten import TRACE
from drupelet_tools.flash.probe import Facts, check_board, check_heap, probe
from drupelet_tools.flash.repl import BoardRepl
from drupelet_tools.flash.report import Report
from drupelet_tools.flash.selftest import Check, selftest
from drupelet_tools.flash.target import device_of

# What a home that is made for a board calls its member.
_HOST = "host"
# The first line of a main.py of ours: another one is its owner's.
_MAIN_HEAD = "# Started at power-on; `drupelet flash` wrote it."
# A byte 03 of a frame at the console must not stop the start; the node's port lets Ctrl-C in.
_MAIN = f"""{_MAIN_HEAD}
import micropython

micropython.kbd_intr(-1)
from boards.%s.main import run

run()
"""
# What main.py calls: nothing in the set mentions it.
_CALLED = ("run",)
_SETS = ("small", "full")
# A board whose watchdog may have reset it lets its program rest (firmware/boards/app.py).
_HUNG_S = 120
_PACKAGES = ("drupelet", "boards", "drupelet_transports")


@dataclass(frozen=True)
class Order:
    """What the command line asks for."""

    target: str
    home: Path
    board: str = ""
    set_name: str = "small"
    wish: settings.Wish = field(default_factory=settings.Wish)
    at: str = ""  # our end of the link, where it is not the cable
    uart: tuple[int, dict[str, int]] | None = None
    again: bool = False


@dataclass(frozen=True)
class Flashed:
    """What came of it."""

    facts: Facts
    name: str
    id: str
    code: Delivered
    in_place: bool
    configured: bool  # the configuration was written
    keyed: bool  # keys were exchanged
    checks: list[Check]
    reading: str = ""


def flash(order: Order, report: Report) -> Flashed:
    """Flash the board; raises FlashError, and the errors of config, keys and carriers."""
    if order.set_name not in _SETS:
        raise FlashError(f"--set {order.set_name}: give {' or '.join(_SETS)}")
    settings.check_wish(order.wish, order.at)
    home = _home(order)
    if config.locked(order.home):
        raise FlashError(f"{order.home}: its agent runs: stop it while a board is flashed")
    device = device_of(order.target)
    with BoardRepl(device) as repl:
        repl.enter()
        try:
            flashed, peer, period_s = _make_member(order, home, repl, report)
        except CableError:
            raise
        except (DrupeletError, KeyboardInterrupt):
            with contextlib.suppress(CableError):
                repl.start()  # a node that was there goes on
            raise
    if period_s > alive.WAIT_S:
        report.note(f"waiting for a reading, which the board takes every {period_s:.0f} s")
    reading = alive.first_reading(config.load(order.home), peer, period_s)
    report.note(f"alive: first reading received from {peer.name}: {reading}")
    return replace(flashed, reading=reading)


def _make_member(
    order: Order, home: config.Config, repl: BoardRepl, report: Report
) -> tuple[Flashed, config.Peer, float]:
    """Do all steps but the last, which waits for the first reading.

    Returns what was flashed, the board as a peer of the home, and the seconds between readings.
    """
    device = repl.device
    facts = probe(repl)
    report.note(f"{device}: {facts.line}")
    check_board(facts, device, order.board)
    check_heap(facts, device, order.set_name, in_place=facts.rom > 0)
    path = f"{facts.root}/{settings.PATH}"
    present = read_json(repl, path)
    wanted = settings.settings_for(
        device, present, order.wish, home, facts.root, board_keys.kind_of(facts)
    )
    settings.check_end(settings.link_of(wanted, home), order.at)
    board_keys.check(repl, home, wanted, order.again)
    _check_main(repl, facts)
    code = _deliver_code(order, repl, facts, wanted, report)
    if present != wanted:
        write_file(repl, path, text_of(wanted))
        report.note(f"configuration: {path} written")
    repl.enter()  # as it starts: what is mounted at boot is there
    checks = selftest(repl, facts.root, order.uart)
    report.table([(row.name, row.passed, row.seen) for row in checks])
    if failed := [row.name for row in checks if row.passed is False]:
        raise FlashError(
            f"{device}: its self-test failed ({', '.join(failed)}): see the table above;"
            " repeat, or use another board"
        )
    peer = board_keys.know(home, device, facts, wanted, order.at)
    keyed = board_keys.exchange(repl, config.load(order.home), peer, wanted, order.again)
    report.note("keys: exchanged and proved" if keyed else "keys: both sides have theirs")
    flashed = Flashed(
        facts, peer.name, peer.id.hex(), code, facts.rom > 0, present != wanted, keyed, checks
    )
    period_s = int(wanted.get("sample_ms", wanted["epoch_ms"])) / 1000
    return flashed, peer, period_s + (_HUNG_S if wanted.get("watchdog_ms") else 0)


def _home(order: Order) -> config.Config:
    """The home of this machine's member; made where there is none and --group says which group."""
    if order.wish.group and not (order.home / config.CONFIG_NAME).exists():
        own_id = os.urandom(4)
        config.create(config.Config(order.home, _HOST, own_id, order.wish.group))
        private_files.make_folder(order.home / "keys")
    return config.load(order.home)


def _main_path(facts: Facts) -> str:
    return f"{facts.root}/main.py"


def _check_main(repl: BoardRepl, facts: Facts) -> None:
    """A program of the owner's that starts at power-on is not ours to replace."""
    path = _main_path(facts)
    text = str(repl.call("files", f"read({path!r})"))
    if text.strip() and not text.startswith(_MAIN_HEAD):
        raise FlashError(
            f"{repl.device}: has a {path} of its owner's: rename it on the board, then repeat"
        )


def build(set_name: str, facts: Facts, wanted: dict[str, Any]) -> dict[str, bytes]:
    """The set that this board's configuration asks for, compiled: path in it -> content.

    One ROMFS image where the board has a partition for it and its own image has other code. Beside
    it `trace.json`, which stays here.
    """
    choice = replace(sets.for_settings(set_name, wanted), board=facts.port, keep=_CALLED)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        in_place = facts.rom > 0 or facts.digest != ""
        sets.build_set(target, facts.arch, sets.resolve(choice), in_place=in_place)
        modules = sets.modules_in(target)
        trace = target / TRACE
        kept = {TRACE: trace.read_bytes()} if trace.is_file() else {}
        if facts.rom and sets.digest_of(modules) != facts.digest:
            return {rom.IMAGE: rom.write(target).read_bytes()} | kept
    return modules | kept


def _deliver_code(
    order: Order, repl: BoardRepl, facts: Facts, wanted: dict[str, Any], report: Report
) -> Delivered:
    """Send what of the set is missing."""
    code = build(order.set_name, facts, wanted)
    if trace := code.pop(TRACE, b""):
        # What `drupelet flash trace` reads a traceback of this board with.
        private_files.replace(order.home / f"trace-{wanted['id']}.json", trace)
    library = f"{facts.root}/lib"
    places = [f"{library}/{package}" for package in _PACKAGES]
    main = {} if facts.starts_itself else _starters(facts)
    places += dict.fromkeys((_main_path(facts), *main))
    with report.progress("code") as progress:
        if facts.digest and rom.IMAGE not in code:
            delivered = empty_rom(repl, code)
            deliver_files(repl, main, places, facts.root, progress)
        elif not facts.rom:
            files = {f"{library}/{path}": data for path, data in code.items()} | main
            delivered = deliver_files(repl, files, places, facts.root, progress)
        else:
            delivered = deliver_rom(repl, code[rom.IMAGE], facts.rom, progress)
            # What lies in /lib would be imported instead of what is in the image.
            deliver_files(repl, main, places, facts.root, lambda *_: None)
    kind = "blocks" if rom.IMAGE in code else "modules"
    sent = f"{delivered.parts_sent} sent ({delivered.sent:,} B)"
    report.note(
        f"code: set {order.set_name}, {delivered.parts} {kind}, {delivered.size:,} B;"
        f" {sent if delivered.parts_sent else 'nothing to do'}"
    )
    return delivered


def _starters(facts: Facts) -> dict[str, bytes]:
    """What starts the node at power-on, path -> content; main.py is the last."""
    text = _MAIN % facts.port
    # A Pyboard with a card in its slot starts from the card without this file.
    skip = {f"{facts.root}/SKIPSD": b""} if facts.port == "stm32" else {}
    return skip | {_main_path(facts): text.encode()}


def fields(flashed: Flashed) -> dict[str, Any]:
    """For --json."""
    return {
        "board": flashed.facts.port, "machine": flashed.facts.machine,
        "micropython": ".".join(str(part) for part in flashed.facts.version),
        "heap": flashed.facts.heap, "rom": flashed.facts.rom,
        "name": flashed.name, "id": flashed.id,
        "in_place": flashed.in_place, "parts": flashed.code.parts, "bytes": flashed.code.size,
        "parts_sent": flashed.code.parts_sent, "bytes_sent": flashed.code.sent,
        "configured": flashed.configured, "keyed": flashed.keyed,
        "checks": [
            {"check": row.name, "passed": row.passed, "seen": row.seen} for row in flashed.checks
        ],
        "alive": True, "reading": flashed.reading,
    }  # fmt: skip
