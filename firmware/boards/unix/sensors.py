"""This machine's own sensors as readings: load, memory, disk, temperature where there is one."""

import os

_LOAD = "/proc/loadavg"
_MEMORY = "/proc/meminfo"
_THERMAL = "/sys/class/thermal/thermal_zone0/temp"
# MemAvailable is the third line today.
_MEMORY_LINES_MAX = 8


def _first_line(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.readline()
    except OSError:
        return ""


def _memory() -> str:
    try:
        with open(_MEMORY) as stream:
            for _ in range(_MEMORY_LINES_MAX):
                line = stream.readline()
                if line.startswith("MemAvailable:"):
                    return line.split()[1]
    except OSError:
        pass
    return "null"


class Battery:
    """The voltage that the kernel tells: microvolts in a file such as `voltage_now`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def millivolts(self) -> int:
        """What it has now; 0 when the file does not say."""
        try:
            return int(_first_line(self._path)) // 1000
        except ValueError:
            return 0


class Sensors:
    """A JSON text per reading; what the machine does not tell is null or left out."""

    def __init__(self, name: str, readings_max: int) -> None:
        self._name = name
        self._readings_max = readings_max

    def take(self, number: int) -> "bytes | None":
        """Reading `number`; None behind the last."""
        if number >= self._readings_max:
            return None
        load = _first_line(_LOAD).split(" ")[0] or "null"
        disk = os.statvfs("/")
        text = '{"board":"%s","n":%d,"load":%s,"mem_free_kb":%s,"disk_free_mb":%d' % (
            self._name, number, load, _memory(), disk[0] * disk[3] >> 20,
        )  # fmt: skip
        millidegrees = _first_line(_THERMAL)
        if millidegrees:
            text += ',"temp_c":%.1f' % (int(millidegrees) / 1000)
        return (text + "}").encode()
