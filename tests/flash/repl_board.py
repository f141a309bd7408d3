"""Runs on MicroPython's unix port: a board with a drive and the raw REPL of a microcontroller.

    micropython repl_board.py TTY MODE DISK [ROM]

TTY is the terminal that this process reads and writes, MODE `friendly` (run main.py, then the
REPL) or `raw`, DISK a file that holds a LittleFS, ROM one that stands for a partition of ROMFS.
The unix port has no raw REPL of its own. What is spoken here is MicroPython's side of it
(shared/runtime/pyexec.c), raw paste included. The board says that it is a Pico: programs see
`sys.platform` "rp2" and a `machine` with what the rp2 port of the firmware uses.

It ends with 10 or 11 for a soft reset into `friendly` or `raw`: whoever started it does so again.
"""

import gc
import io
import os
import sys
import termios
from collections import namedtuple

import ffi
import micropython
import uctypes
import vfs

BLOCK = 4096
WINDOW = 128
BANNER = b"raw REPL; CTRL-B to exit\r\n>"
CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E = b"\x01\x02\x03\x04\x05"
RESET_FRIENDLY, RESET_RAW = 10, 11
# What a program may end with: a prompt shows it.
_SHOWN = (
    ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, KeyboardInterrupt,
    LookupError, MemoryError, NameError, OSError, RuntimeError, StopIteration, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip
_IFLAG, _OFLAG, _LFLAG, _CC = 0, 1, 3, 6
_OPOST_ONLCR, _ISIG = 5, 1
_VINTR, _VQUIT, _VSUSP = 0, 1, 10


class Disk:
    """Blocks in a file."""

    def __init__(self, file, blocks):
        self.file, self.blocks = file, blocks

    def readblocks(self, number, buf, at=0):
        self.file.seek(number * BLOCK + at)
        self.file.readinto(buf)

    def writeblocks(self, number, buf, at=None):
        self.file.seek(number * BLOCK + (at or 0))
        self.file.write(buf)

    def ioctl(self, what, argument):
        if what == 6:  # erase
            self.writeblocks(argument, b"\xff" * BLOCK)
        return {4: self.blocks, 5: BLOCK}.get(what, 0)


class Terminal:
    """The line that the board is on; ctrl-C interrupts while a program runs, as on a chip."""

    def __init__(self, path):
        # A session's first terminal becomes its own.
        self.tty = open(path, "r+b")  # noqa: SIM115 - open as long as the board runs
        self.out = sys.stdout.buffer
        self.mode = None
        termios.setraw(0)
        self.interrupts(False)

    def interrupts(self, on):
        mode = termios.tcgetattr(0)
        # What a program prints gets its carriage returns, as on a chip.
        mode[_OFLAG] = (mode[_OFLAG] | _OPOST_ONLCR) if on else (mode[_OFLAG] & ~_OPOST_ONLCR)
        mode[_LFLAG] = (mode[_LFLAG] | _ISIG) if on else (mode[_LFLAG] & ~_ISIG)
        mode[_CC][_VINTR], mode[_CC][_VQUIT], mode[_CC][_VSUSP] = b"\x03", b"\0", b"\0"
        termios.tcsetattr(0, termios.TCSANOW, mode)

    def read(self):
        byte = self.tty.read(1)
        if not byte:
            sys.exit(0)
        return byte[0]

    def write(self, data):
        self.out.write(data)


class Stand:
    """A module, but for what the attributes of this object say."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class Adc:
    """The chip's thermometer: 0.7 V, 30 degrees."""

    def __init__(self, _number):
        pass

    def read_u16(self):
        return 13900


class Uart:
    """One whose line is open, but for UART 1 at pins 4 and 5, which a wire joins."""

    def __init__(self, number, tx, rx, **_rest):
        self.joined = (number, tx, rx) == (1, 4, 5)
        self.line = b""

    def write(self, data):
        self.line += data if self.joined else b""

    def read(self, size):
        data, self.line = self.line[:size], self.line[size:]
        return data or None

    def deinit(self):
        pass


class Registers:
    """Nothing in them."""

    def __getitem__(self, _address):
        return 0

    def __setitem__(self, _address, _value):
        pass


def be_a_pico(terminal, rom):
    """Replace the modules that tell a Pico from a process."""
    kinds = ("name", "version", "_machine", "_mpy", "_build")
    implementation = namedtuple("implementation", kinds)
    own = sys.implementation
    system = Stand(sys)
    system.platform = "rp2"
    system.implementation = implementation(
        own[0], own[1], "Raspberry Pi Pico with RP2040", own._mpy, "RPI_PICO"
    )
    machine = Stand(__import__("machine"))
    machine.ADC, machine.mem32 = Adc, Registers()
    machine.UART, machine.Pin = Uart, int
    machine.reset_cause, machine.PWRON_RESET = lambda: 1, 1
    machine.unique_id = lambda: b"\xe6\x61\x18\x60"
    keyboard = Stand(micropython)
    keyboard.kbd_intr = lambda number: terminal.interrupts(number == 3)
    disks = Stand(vfs)
    disks.rom_ioctl = lambda what, *_: (1 if what == 1 else rom) if rom else -1
    sys.modules.update({"sys": system, "machine": machine, "micropython": keyboard, "vfs": disks})


def mapped(path):
    """The bytes of a file, mapped outside of the heap as a chip's flash is."""
    libc = ffi.open("libc.so.6")
    size = os.stat(path)[6]
    number = libc.func("i", "open", "si")(path, 0)
    at = libc.func("l", "mmap", "PLiiil")(0, size, 1, 2, number, 0)
    return uctypes.bytearray_at(at, size)


def run(terminal, source, names):
    """Execute a program; the traceback that it ended with, or b""."""
    text = io.StringIO()
    try:
        program = compile(source, "<program>", "exec")
        terminal.interrupts(True)  # as pyexec.c does, after the compiler
        exec(program, names)
    except _SHOWN as error:
        sys.print_exception(error, text)
    terminal.interrupts(False)
    return text.getvalue().encode()


def raw_paste(terminal):
    """Take a program in windows of bytes, as pyexec.c does."""
    terminal.write(b"R\x01" + bytes([WINDOW & 255, WINDOW >> 8, 1]))
    source = bytearray()
    while True:
        byte = terminal.read()
        if byte == CTRL_D:
            terminal.write(b"\x04")
            return source
        if byte == CTRL_C:
            return None
        source.append(byte)
        if len(source) % WINDOW == 0:
            terminal.write(b"\x01")


def raw_repl(terminal, names):
    """Until ctrl-B, or a soft reset."""
    terminal.write(BANNER)
    source = bytearray()
    while True:
        byte = terminal.read()
        if byte == CTRL_A and bytes(source) == b"\x05A":
            source = raw_paste(terminal)
            if source is None:
                terminal.write(b">")
                source = bytearray()
                continue
        elif byte == CTRL_A:
            terminal.write(BANNER)
            source = bytearray()
            continue
        elif byte == CTRL_B:
            terminal.write(b"\r\n")
            return
        elif byte == CTRL_C:
            source = bytearray()
            continue
        elif byte == CTRL_D:
            terminal.write(b"OK")
            if not source:
                terminal.write(b"\r\nMPY: soft reboot\r\n")
                sys.exit(RESET_RAW)
        else:
            source.append(byte)
            continue
        source = str(source, "utf-8")
        error = run(terminal, source, names)
        terminal.write(b"\x04" + error + b"\x04>")
        source = bytearray()
        gc.collect()


def friendly_repl(terminal, names):
    """The prompt that a person sees; of what a person types only the control keys matter here."""
    terminal.write(b"MicroPython v1.25.0; unix with repl_board\r\n>>> ")
    while True:
        byte = terminal.read()
        if byte == CTRL_A:
            raw_repl(terminal, names)
            terminal.write(b">>> ")
        elif byte == CTRL_D:
            terminal.write(b"\r\nMPY: soft reboot\r\n")
            sys.exit(RESET_FRIENDLY)
        elif byte == 13:
            terminal.write(b"\r\n>>> ")


def main(tty, mode, disk_path, rom_path=None):
    terminal = Terminal(tty)
    disk = Disk(open(disk_path, "r+b"), os.stat(disk_path)[6] // BLOCK)  # noqa: SIM115
    rom = image = None
    if rom_path:
        rom = Disk(open(rom_path, "r+b"), os.stat(rom_path)[6] // BLOCK)  # noqa: SIM115
        image = mapped(rom_path)
    vfs.umount("/")
    try:
        drive = vfs.VfsLfs2(disk)
    except OSError:
        vfs.VfsLfs2.mkfs(disk)
        drive = vfs.VfsLfs2(disk)
    vfs.mount(drive, "/")
    os.chdir("/")
    sys.path[:] = ["", ".frozen", "/lib"]
    if image is not None and image[:3] == b"\xd2\xcd1":
        vfs.mount(vfs.VfsRom(image), "/rom")
        sys.path.extend(["/rom", "/rom/lib"])
    be_a_pico(terminal, rom)
    names = {"__name__": "__main__"}
    if mode == "raw":
        raw_repl(terminal, names)
        terminal.write(b">>> ")
    else:
        for name in ("boot.py", "main.py"):
            if name in os.listdir("/"):
                with open(name) as file:
                    source = file.read()
                terminal.write(run(terminal, source, names))
    friendly_repl(terminal, names)


main(*sys.argv[1:])
