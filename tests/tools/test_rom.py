"""The ROMFS image: the same firmware, run in place."""

import subprocess
from pathlib import Path

import pytest

import compiled
from drupelet_tools.flash import rom
from drupelet_tools.flash.build import build, micropython_command
from drupelet_tools.flash.errors import BuildError

MODULES = ("drupelet.node", "drupelet.store.flash_store", "boards.unix.main")
# Prints what the modules cost the heap; run from the image it starts where `rom.py` would.
IMPORT = """
import gc, sys
sys.path[:] = sys.argv[2:]
if sys.argv[1]:
    sys.path.append({launcher!r})
    import rom
    rom.start(sys.argv[1])
gc.threshold(2048)
gc.collect()
before = gc.mem_alloc()
import drupelet.base.limits, drupelet.base.time_ms, drupelet.engine.outbox
import drupelet.node, drupelet.store.flash_store
gc.collect()
print(gc.mem_alloc() - before, drupelet.node.__file__)
"""


def heap_cost(tmp_path: Path, image: str, folder: str = "") -> tuple[int, str]:
    script = tmp_path / "cost.py"
    script.write_text(IMPORT.format(launcher=str(rom.LAUNCHER.parent)))
    command = [*micropython_command("x86"), "-X", "heapsize=256K", str(script), image, folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    bytes_used, place = done.stdout.split()
    return int(bytes_used), place


def test_code_in_an_image_costs_about_half_the_heap(tmp_path: Path) -> None:
    target = tmp_path / "firmware"
    build(target, "x86")
    image = rom.write(target)
    plain, _ = heap_cost(tmp_path, "", str(target))
    in_place, place = heap_cost(tmp_path, str(image))
    assert place.startswith("/rom/")
    assert in_place < 0.6 * plain


def test_an_image_is_the_same_for_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = []
    for name in ("one", "two"):
        compiled.forget(monkeypatch)
        build(tmp_path / name, "x86", modules=MODULES)
        images.append(rom.write(tmp_path / name).read_bytes())
    assert images[0] == images[1]


def test_nothing_to_pack_is_said(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="build a firmware set there first"):
        rom.write(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no image", b"\xd2\xcd\x31"])
def test_a_board_says_that_a_file_is_no_image(tmp_path: Path, content: bytes) -> None:
    image = tmp_path / "firmware.romfs"
    image.write_bytes(content)
    command = rom.board_command(image, 64, ["none.json"])
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "firmware.romfs" in done.stderr
    assert "Traceback" not in done.stderr
