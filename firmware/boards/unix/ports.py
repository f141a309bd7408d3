"""What the unix port of MicroPython gives a board: clock, sleep, sensors, rows of a file."""

import os
import select
import sys
import time

_PROC_LOAD = "/proc/loadavg"
_PROC_MEMORY = "/proc/meminfo"
_THERMAL = "/sys/class/thermal/thermal_zone0/temp"


class Clock:
    """Milliseconds from any origin, and wall time for timestamps."""

    def now_ms(self) -> int:
        """Modulo 2^30, as MicroPython's ticks are."""
        return time.ticks_ms() & 0x3FFFFFFF

    def timestamp_into(self, out: bytearray) -> None:
        """Write the 8 bytes of a message timestamp: ms since the Unix epoch, big-endian."""
        now_ms = time.time_ns() // 1000000
        for at in range(7, -1, -1):
            out[at] = now_ms & 0xFF
            now_ms >>= 8

    def anchor_into(self, out: bytearray) -> None:
        """Write 6 bytes, little-endian: ms since the Unix epoch, for the black box."""
        now_ms = time.time_ns() // 1000000
        for at in range(6):
            out[at] = now_ms & 0xFF
            now_ms >>= 8


class Waiter:
    """Sleeps until a carrier or the console has bytes; the board's light sleep."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._objects = []

    def add(self, stream) -> None:
        """Wake up when this stream can be read."""
        self._poll.register(stream, select.POLLIN)
        self._objects.append(stream)

    def replace(self, old, new) -> None:
        """A carrier was opened again under another descriptor."""
        if old is new:
            return
        if old is not None:
            self._poll.unregister(old)
        if new is not None:
            self._poll.register(new, select.POLLIN)

    def wait(self, wait_ms: int) -> None:
        """Sleep at most `wait_ms`."""
        for _stream, _event in self._poll.ipoll(wait_ms):
            pass


class Console:
    """Commands of whoever started the process, one per line; end of input means stop."""

    def __init__(self) -> None:
        self.stream = sys.stdin.buffer
        self._poll = select.poll()
        self._poll.register(self.stream, select.POLLIN)
        self._line = bytearray()

    def command(self) -> str:
        """The next whole line, "" when there is none, "stop" at end of input."""
        for _byte in range(64):
            ready = False
            for _stream, _event in self._poll.ipoll(0):
                ready = True
            if not ready:
                return ""
            byte = self.stream.read(1)
            if not byte:
                return "stop"
            if byte == b"\n":
                line = bytes(self._line).decode()
                self._line = bytearray()
                return line
            if len(self._line) < 64:
                self._line.extend(byte)
        return ""

    def say(self, line: str) -> None:
        """One line of JSON; a listener that is gone does not stop the board."""
        try:
            print(line)
        except OSError:
            pass


def _first_line(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.readline()
    except OSError:
        return ""


class Sensors:
    """This machine's own sensors as a JSON text: load, memory, disk, temperature if present."""

    def __init__(self, name: str, readings_max: int) -> None:
        self._name = name
        self._readings_max = readings_max
        self._payload = b""
        self._at = 0

    def ready(self, number: int) -> bool:
        """True while there is a reading to take."""
        return number < self._readings_max

    def size(self, number: int) -> int:
        """Take reading `number`; its payload size."""
        load = _first_line(_PROC_LOAD).split(" ")[0] or "null"
        disk = os.statvfs("/")
        text = '{"board":"%s","n":%d,"load":%s,"mem_free_kb":%s,"disk_free_mb":%d' % (
            self._name, number, load, self._memory(), disk[0] * disk[3] >> 20,
        )  # fmt: skip
        millidegrees = _first_line(_THERMAL)
        if millidegrees:
            text += ',"temp_c":%.1f' % (int(millidegrees) / 1000)
        self._payload = (text + "}").encode()
        self._at = 0
        return len(self._payload)

    def _memory(self) -> str:
        try:
            with open(_PROC_MEMORY) as stream:
                for _ in range(8):
                    line = stream.readline()
                    if line.startswith("MemAvailable:"):
                        return line.split()[1]
        except OSError:
            pass
        return "null"

    def read_into(self, buf: bytearray, at: int, size: int) -> None:
        """The next `size` bytes of the payload."""
        buf[at : at + size] = self._payload[self._at : self._at + size]
        self._at += size


class Rows(Sensors):
    """Replays the rows of a file, one JSON text a line, one row a reading."""

    def __init__(self, path: str, readings_max: int) -> None:
        super().__init__("", readings_max)
        self._file = open(path, "rb")
        self._next = 0

    def size(self, number: int) -> int:
        """Read row `number`; its size."""
        if number < self._next:
            self._file.seek(0)
            self._next = 0
        while self._next <= number:
            self._payload = self._file.readline()
            self._next += 1
        if self._payload.endswith(b"\n"):
            self._payload = self._payload[:-1]
        self._at = 0
        return len(self._payload)
