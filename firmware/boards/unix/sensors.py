"""Readings of this machine: load, free memory, free disk space, temperature if available."""

import os

_LOAD = "/proc/loadavg"
_MEMORY = "/proc/meminfo"
_THERMAL = "/sys/class/thermal/thermal_zone0/temp"


def _line(path: str, start: str = "") -> str:
    """Return the first line of a file that begins with `start`; "" if there is none."""
    try:
        with open(path) as stream:
            for line in stream:
                if line.startswith(start):
                    return line
    except OSError:
        pass
    return ""


class Battery:
    """The battery voltage that the kernel reports: microvolts in a file such as `voltage_now`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def millivolts(self) -> int:
        """Return the voltage in mV; 0 if the file does not have it."""
        try:
            return int(_line(self._path)) // 1000
        except ValueError:
            return 0


class Sensors:
    """Each reading is a JSON text; values that the machine does not have are null or absent."""

    def __init__(self, name: str, readings_max: int) -> None:
        self._name = name
        self._readings_max = readings_max

    def take(self, number: int) -> "bytes | None":
        """Return reading `number`; None after the last."""
        if number >= self._readings_max:
            return None
        load = _line(_LOAD).split(" ")[0] or "null"
        memory = (_line(_MEMORY, "MemAvailable:").split() + ["null", "null"])[1]
        disk = os.statvfs("/")
        text = '{"board":"%s","n":%d,"load":%s,"mem_free_kb":%s,"disk_free_mb":%d' % (
            self._name, number, load, memory, disk[0] * disk[3] >> 20,
        )  # fmt: skip
        millidegrees = _line(_THERMAL)
        if millidegrees:
            text += ',"temp_c":%.1f' % (int(millidegrees) / 1000)
        return (text + "}").encode()
