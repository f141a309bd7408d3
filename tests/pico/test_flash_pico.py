"""`drupelet flash socket://…` onto the emulated Pico, which runs our image."""

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import DrupeletError
from drupelet_host.home import config
from drupelet_tools.flash import alive, repl, rom, steps
from drupelet_tools.flash.errors import CableError
from drupelet_tools.flash.probe import Facts
from drupelet_tools.flash.settings import Wish
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import interrupt
from flash.flashing import Lines, build_once
from pico.board import ask, check_memory, flash_image, prompt

MakePico = Callable[..., Pico]
GROUP = "orchard"
ANSWER_S = 120.0


@pytest.fixture(autouse=True)
def _built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "build", build_once)
    # An emulated chip is slow, and slower on a machine that does other things.
    monkeypatch.setattr(repl, "ANSWER_S_MAX", ANSWER_S)
    monkeypatch.setattr(repl, "BOOT_S_MAX", ANSWER_S)


def order(pico: Pico, tmp_path: Path, board: str = "rp2") -> steps.Order:
    return steps.Order(pico.console, tmp_path / "home", board, wish=Wish("well-7", GROUP))


def other_code(
    set_name: str, facts: Facts, wanted: dict[str, Any], tail: bytes
) -> dict[str, bytes]:
    """A set that the image has not got, as `full` would be: in one module more."""
    modules = build_once(set_name, replace(facts, rom=0), wanted)
    return {rom.IMAGE: _packed({**modules, "later.mpy": tail})}


def _packed(modules: dict[str, bytes]) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        for path, data in modules.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return rom.write(Path(folder)).read_bytes()


class Enough(DrupeletError):
    """A test needs no more of it."""


def _enough(*_: object) -> None:
    raise Enough("selftest")


def test_fresh_board_and_once_more(make_pico: MakePico, tmp_path: Path) -> None:
    pico = make_pico()
    pico.wait("usb")
    with pytest.raises(DrupeletError, match=r"is rp2 .* not esp32"):
        steps.flash(order(pico, tmp_path, "esp32"), Lines())

    # The image has this very code: what is missing is a configuration and keys.
    first = steps.flash(order(pico, tmp_path), Lines())
    assert (first.code.parts_sent, first.configured, first.keyed) == (0, True, True)
    assert [row.name for row in first.checks if row.passed is not True] == ["uart"]
    assert '"board":"well-7"' in first.reading
    assert config.load(tmp_path / "home").peers[0].board == "rp2040"

    again = steps.flash(order(pico, tmp_path), Lines())
    assert (again.code.parts_sent, again.configured, again.keyed) == (0, False, False)
    assert again.id == first.id and again.reading != first.reading
    check_memory(pico.status())

    # An image of another set, dropped on the board: the same member goes on.
    pico.drop(flash_image(tmp_path / "full.uf2", "--set", "full"))
    home = config.load(tmp_path / "home")
    reading = alive.first_reading(home, home.peers[0], 0)
    # Then `small` comes over its cable, and runs in place of what the image has.
    small = steps.flash(order(pico, tmp_path), Lines())
    assert small.code.parts_sent > 0 and (small.configured, small.keyed) == (False, False)
    assert small.id == first.id
    readings = {first.reading, again.reading, reading, small.reading}
    assert len(readings) == 4 and all('"board":"well-7"' in text for text in readings)


def test_newer_code_with_the_power_cut(
    make_pico: MakePico, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pico = make_pico()
    pico.wait("usb")
    report = Lines()
    # Code that the image has not got goes to the ROMFS partition. The power fails meanwhile.
    monkeypatch.setattr(steps, "build", functools.partial(other_code, tail=b"1"))
    pico.cut(100, 0.5)
    with pytest.raises(CableError, match="only what is missing is sent"):
        steps.flash(order(pico, tmp_path), report)
    pico.power_on()
    pico.wait("usb")
    resumed = steps.flash(order(pico, tmp_path), report)
    assert 0 < resumed.code.parts_sent < resumed.code.parts
    assert '"board":"well-7"' in resumed.reading
    interrupt(pico)
    assert ask(pico, "__import__('boards.rp2.main').__path__").startswith("/rom/")

    # A module changes: its block is sent, and the first one.
    monkeypatch.setattr(steps, "selftest", _enough)
    monkeypatch.setattr(steps, "build", functools.partial(other_code, tail=b"2"))
    with pytest.raises(Enough):
        steps.flash(order(pico, tmp_path), report)
    assert _counts(report)[1] == 2

    # What was there goes on after a flash that ended early. The image's own code again: nothing
    # is sent, and the partition is empty.
    monkeypatch.setattr(steps, "build", build_once)
    with pytest.raises(Enough):
        steps.flash(order(pico, tmp_path), report)
    assert report.lines[-1].endswith("nothing to do")
    interrupt(pico)
    assert not ask(pico, "'/rom' in __import__('sys').path[:1]")


def _counts(report: Lines) -> tuple[int, int]:
    """Blocks of the code, and how many of them were sent."""
    words = report.lines[-1].split() if "code:" in report.lines[-1] else report.lines[-2].split()
    return int(words[3]), int(words[7])


FILL_S = 300
# A file that does not fit whole leaves nothing, so ever smaller ones follow.
FILL = """
count = 0
for size in (65536, 4096, 512):
    try:
        while True:
            count += 1
            with open("/mine%d" % count, "wb") as file:
                for _ in range(size // 512):
                    file.write(bytes(512))
    except OSError:
        pass
"""


def test_full_drive(make_pico: MakePico, tmp_path: Path) -> None:
    pico = make_pico()
    pico.wait("usb")
    with prompt(pico) as console:
        console.exec_raw_no_follow(FILL.encode())
        _, errors = console.follow(FILL_S)
    assert not errors
    with pytest.raises(DrupeletError, match=r"its drive is full: .* delete files of yours"):
        steps.flash(order(pico, tmp_path), Lines())


def test_digest_of_the_image_is_that_of_the_set(make_pico: MakePico, image: Path) -> None:
    pico = make_pico()
    pico.wait("usb")
    digest = ask(pico, "__import__('drupelet_built').DIGEST")
    assert re.fullmatch("[0-9a-f]{32}", digest) and image.is_file()
