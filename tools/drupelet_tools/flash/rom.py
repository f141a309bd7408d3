"""A ROMFS image of a firmware set: a board runs it in place, so its code costs far less heap.

`write(target)` packs what `build_set` left in `target` into `target/firmware.romfs`. A port with
ROMFS (MicroPython 1.25, MICROPY_VFS_ROM) takes the image with `mpremote romfs deploy`; on this
machine `boards/unix/rom.py` maps it into memory, which costs the heap as little as flash does.
"""

from collections.abc import Sequence
from pathlib import Path

from mpremote.romfs import VfsRomWriter

from drupelet_tools.flash.build import ROOT, micropython_command
from drupelet_tools.flash.errors import BuildError

IMAGE = "firmware.romfs"
LAUNCHER = ROOT / "firmware/boards/unix/rom.py"


def write(target: Path) -> Path:
    """Pack the .mpy files below `target`; the image's path. Raises BuildError without any."""
    if not any(target.rglob("*.mpy")):
        raise BuildError(f"no .mpy files below {target}: build a firmware set there first")
    writer = VfsRomWriter()
    _pack(writer, target)
    image = target / IMAGE
    image.write_bytes(writer.finalise())
    return image


def _pack(writer: VfsRomWriter, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and any(path.rglob("*.mpy")):
            writer.opendir(path.name)
            _pack(writer, path)
            writer.closedir()
        elif path.suffix == ".mpy":
            writer.mkfile(path.name, path.read_bytes())


def board_command(
    image: Path, heap_kib: int, arguments: Sequence[str], arch: str = "x86"
) -> list[str]:
    """The command that runs a board of this machine from an image, on a heap of `heap_kib`."""
    start = [*micropython_command(arch), "-X", f"heapsize={heap_kib}K"]
    return [*start, str(LAUNCHER), str(image), *arguments]
