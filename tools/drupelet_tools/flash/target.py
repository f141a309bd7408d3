"""Which port a board is on: names as mpremote takes them, and why a port cannot be opened.

auto                    the one board that is plugged in
/dev/ttyACM0            a serial port, or a pseudo-terminal
a0, u0                  /dev/ttyACM0, /dev/ttyUSB0
id:E66118604B           the board with this USB serial number
socket://host:port      a serial port behind TCP
"""

import os
import re
import stat
import termios

import serial
import serial.tools.list_ports

from drupelet_tools.flash.errors import FlashError
from drupelet_transports.host.serial_line import remedy

SOCKET = "socket://"
_SHORT = {"a": "/dev/ttyACM", "u": "/dev/ttyUSB"}
_SERIAL_NUMBER = "id:"


def device_of(target: str) -> str:
    """The device path or URL that `target` names; raises FlashError."""
    if target == "auto":
        return _only_board()
    if target.startswith(_SERIAL_NUMBER):
        wanted = target.removeprefix(_SERIAL_NUMBER)
        for port in serial.tools.list_ports.comports():
            if port.serial_number == wanted:
                return str(port.device)
        raise FlashError(f"{target}: no board with this serial number; {_there_are()}")
    if match := re.fullmatch("([au])([0-9]+)", target):
        return _SHORT[match[1]] + match[2]
    if not target.startswith((SOCKET, "/")):
        raise FlashError(
            f"{target}: names no port; give auto, a path such as /dev/ttyACM0, or"
            " socket://host:port"
        )
    return target


def _boards() -> list[str]:
    """Serial ports that are USB devices; one of the machine itself is no board."""
    ports = serial.tools.list_ports.comports()
    return sorted(str(port.device) for port in ports if port.vid is not None)


def _there_are() -> str:
    return "there are: " + (", ".join(_boards()) or "none; plug it in with a cable for data")


def _only_board() -> str:
    boards = _boards()
    if len(boards) == 1:
        return boards[0]
    if boards:
        raise FlashError(f"auto: more than one board is plugged in: name one of {_there_are()}")
    raise FlashError(f"auto: no board is plugged in; {_there_are()}")


def check_device(device: str) -> None:
    """Refuse what is no serial port before it is opened and written to."""
    if device.startswith(SOCKET):
        return
    try:
        mode = os.stat(device).st_mode
    except OSError as error:
        raise FlashError(remedy(device, error)) from None
    if not stat.S_ISCHR(mode):
        raise FlashError(f"{device}: is no serial port; give one such as /dev/ttyACM0")


def why_closed(device: str) -> str:
    """Why a port did not open, and what to do."""
    try:
        serial.serial_for_url(device, timeout=0, exclusive=True).close()
    except (OSError, ValueError, serial.SerialException, termios.error) as error:
        if device.startswith(SOCKET):
            return "nothing answers there; start what serves this port, then repeat"
        return remedy(device, error)
    return "did not open, and now it does: repeat"
