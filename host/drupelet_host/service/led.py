"""A light of the board that says what becomes of a stick (sysfs, /sys/class/leds).

It blinks while the stick is in use, is on once it is safe to unplug it, and shows what it showed
before when the stick is gone. A board without a light, or whose light is not ours, says it by log
and console alone.
"""

import logging
from pathlib import Path

FOLDER = Path("/sys/class/leds")
# The activity light of a Raspberry Pi, by its names since 5.10 and before.
USUAL = ("ACT", "led0")
_KEPT_NAME = "stick-led"
_TRIGGER_SIZE_MAX = 4096

log = logging.getLogger("drupelet.stick")


class Led:
    """name: below `folder`; "" takes a usual one if there is any.

    kept: the folder in which stands what the light showed before.
    """

    def __init__(self, name: str, kept: Path, folder: Path = FOLDER) -> None:
        names = [name] if name else [usual for usual in USUAL if (folder / usual).is_dir()]
        self._led = folder / names[0] if names else None
        self._kept = kept / _KEPT_NAME

    def busy(self) -> None:
        """The stick is in use; what the light showed is kept."""
        if self._led is None:
            return
        before = self._trigger()
        if before and not self._kept.exists():
            self._write(self._kept, before)
        self._write(self._led / "trigger", "timer")

    def safe(self) -> None:
        """It may be unplugged."""
        self._show("default-on", "max_brightness")

    def failed(self) -> None:
        """Something went wrong: the light is off."""
        self._show("none", "")

    def restore(self) -> None:
        """As it was before the stick came."""
        if self._led is None:
            return
        try:
            before = self._kept.read_text()
            self._kept.unlink()
        except OSError:
            return
        self._write(self._led / "trigger", before)

    def _show(self, trigger: str, brightness: str) -> None:
        if self._led is None:
            return
        self._write(self._led / "trigger", trigger)
        value = "0"
        if brightness:
            try:
                value = (self._led / brightness).read_text().strip() or "1"
            except OSError:
                value = "1"
        self._write(self._led / "brightness", value)

    def _trigger(self) -> str:
        """The trigger that is set: the one in brackets."""
        assert self._led is not None
        try:
            text = (self._led / "trigger").read_text()[:_TRIGGER_SIZE_MAX]
        except OSError:
            return ""
        return text.partition("[")[2].partition("]")[0]

    @staticmethod
    def _write(path: Path, text: str) -> None:
        try:
            path.write_text(text)
        except OSError as error:
            log.info("%s: cannot be set (%s)", path, error.strerror)
