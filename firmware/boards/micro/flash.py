"""What a micro board keeps on flash: the first bytes of each id that it is done with.

Without them a message that comes after a reboot, or long after its parent, would bring the whole
history with it. Two files of prefixes, the older one is removed when the newer is full.
"""

import os

from drupelet.base.compat import const
from drupelet.base.memory import copy, find
from drupelet.micro.member import Micro

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Config(Protocol):
        """The owner's module micro_config.py, see `boards.micro.main`."""

        GROUP: bytes
        EPOCH_MS: int
        IDS: str
        reading: Callable[[int], bytes]
        taken: Callable[[Micro, int], None]


# As in drupelet.clients.default, which is heap for what is not used here.
CLIENT_ID = bytes.fromhex("6f1d5e0b92c84a37b5e3f0a7d41c9826e57b3a90c6124df8a9e07bb15d83f264")
_PREFIX_SIZE = const(5)
_CHUNK_SIZE = const(100)
_FILE_SIZE_MAX = const(20000)  # 4,000 messages


class FlashMicro(Micro):
    """A micro member that knows after a reboot what it was done with."""

    def __init__(self, config: "Config", now_ms: int) -> None:
        Micro.__init__(self, CLIENT_ID, config.GROUP, epoch_ms=config.EPOCH_MS, now_ms=now_ms)
        self._path = config.IDS
        self._prefix = bytearray(_PREFIX_SIZE)
        self._chunk = bytearray(_CHUNK_SIZE)
        self._open()
        # An append that a power cut tore: fill it up, so that the next one begins at its place.
        self._file.write(bytes(-self._file.seek(0, 2) % _PREFIX_SIZE))

    def _open(self) -> None:
        self._old = open(self._path + ".old", "a+b")  # noqa: SIM115
        self._file = open(self._path, "a+b")  # noqa: SIM115

    def gone(self, id: bytearray, at: int) -> bool:
        """True for a message that was here; the files are read only for what RAM has not got."""
        return (
            Micro.gone(self, id, at) or self._in(self._file, id, at) or self._in(self._old, id, at)
        )

    def _in(self, file: object, id: bytearray, at: int) -> bool:
        file.seek(0)
        size = file.readinto(self._chunk)
        while size:
            if find(self._chunk, _PREFIX_SIZE, size // _PREFIX_SIZE, id, at, _PREFIX_SIZE) >= 0:
                return True
            size = file.readinto(self._chunk)
        return False

    def note(self, id: bytearray, at: int) -> None:
        """Append its prefix; durable before the acknowledgement leaves."""
        if self._file.seek(0, 2) >= _FILE_SIZE_MAX:
            self._old.close()
            self._file.close()
            os.rename(self._path, self._path + ".old")
            self._open()
        copy(self._prefix, 0, id, at, _PREFIX_SIZE)
        try:
            self._file.write(self._prefix)
            self._file.flush()
        except OSError:
            self.refused += 1  # a full flash may cost a copy after a reboot, not the board
