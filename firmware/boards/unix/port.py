"""The unix port: a board as a process on Linux."""

import os
import sys

from boards.base import BasePort
from drupelet.base.errors import DrupeletError
from drupelet.base.events import RESET_DEEP_SLEEP, RESET_POWER_ON
from drupelet.base.limits import FRAME_SIZE_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import DevicePort, Take
    from boards.unix.rtc import Rtc
    from drupelet_transports.board.terminal import SerialBoard


class Port(BasePort):
    """The port of a Linux machine; see `boards.ports.Port`."""

    board = 3  # docs/SPEC.md 6.1

    def reset_cause(self) -> int:
        """Return RESET_*: deep sleep if the last argument says so, else from the configuration."""
        if sys.argv[-1].startswith("woke="):
            return RESET_DEEP_SLEEP
        return self._config.get("reset_cause", RESET_POWER_ON)

    def rtc(self, settings: dict) -> "Rtc":
        """Return a file that replaces RTC memory."""
        from boards.unix.rtc import Rtc

        return Rtc(settings["rtc"], settings["rtc_size"])

    def open_line(self, url: str) -> "SerialBoard":
        """Open a terminal device; if stdin is the same device, turn the console off.

        Frames would be read as commands, and events sent as frames. A device may be plugged in
        later; a path that is no serial device raises DrupeletError.
        """
        if not url.startswith("serial://"):
            raise DrupeletError(url + ": is for microcontrollers: use serial:///dev/...")
        from drupelet_transports.board.terminal import SerialBoard

        where = url[9:].split("?")[0]
        size = url.split("frame=")[1].split("&")[0] if "frame=" in url else FRAME_SIZE_MAX
        line = SerialBoard(where, int(size))
        try:
            if os.stat(where)[1:3] == os.stat("/proc/self/fd/0")[1:3]:  # inode and file system
                self.console.stream = None
        except OSError:
            if not line.up:
                event = '{"event":"absent","carrier":"%s","why":"plug the device in"}'
                self.console.say(event % where)
            return line
        if not line.up:
            raise DrupeletError("serial " + where + " is no serial device: check the path")
        return line

    def attach(self, board: "DevicePort") -> None:
        """Add the battery, a file with microvolts; network and watchdog belong to the system."""
        if self._config.get("battery"):
            from boards.unix.sensors import Battery

            board.battery = Battery(self._config["battery"])

    def source(self, config: dict) -> "Take":
        """Return this machine's own sensors."""
        from boards.unix.sensors import Sensors

        return Sensors(config["name"], config["readings_max"]).take
