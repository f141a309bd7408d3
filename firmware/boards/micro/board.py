"""A micro board: one group, a reading per epoch, serial lines; messages in RAM, ids on flash.

Flash holds the first bytes of each id that is done with. Without them, a message that is received
after a reboot, or long after its parent, would make the board request the whole history again.
There are two files of prefixes; the older one is removed when the newer one is full.
"""

import os
import time

from drupelet.base.compat import const
from drupelet.base.memory import copy, find
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.micro.link import MicroLink
from drupelet.micro.member import Micro
from drupelet.micro.serial_line import MicroSerial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Config(Protocol):
        """The owner's module micro_config.py; see `boards.micro.main`."""

        GROUP: bytes
        EPOCH_MS: int
        IDS: str
        reading: Callable[[int], bytes]
        taken: Callable[[Micro, int], None]


# READINGS_CLIENT_ID of drupelet.clients.default, which would take heap for unused code.
CLIENT_ID = bytes.fromhex("6f1d5e0b92c84a37b5e3f0a7d41c9826e57b3a90c6124df8a9e07bb15d83f264")
_PREFIX_SIZE = const(5)
_CHUNK_SIZE = const(100)
_FILE_SIZE_MAX = const(20000)  # 4,000 messages
# Seconds from 1970, the origin of timestamps, to the origin of this port's clock.
_ORIGIN_S = 946684800 if time.gmtime(0)[0] == 2000 else 0
_BACK_MS = const(1 << 29)


class FlashMicro(Micro):
    """A micro member that remembers over reboots which messages it is done with."""

    def __init__(self, config: "Config", now_ms: int) -> None:
        Micro.__init__(self, CLIENT_ID, config.GROUP, epoch_ms=config.EPOCH_MS, now_ms=now_ms)
        self._path = config.IDS
        self._prefix = bytearray(_PREFIX_SIZE)
        self._chunk = bytearray(_CHUNK_SIZE)
        self._open()
        # Fill up a prefix that a power cut truncated, so that the next one is aligned.
        self._file.write(bytes(-self._file.seek(0, 2) % _PREFIX_SIZE))

    def _open(self) -> None:
        self._file = open(self._path, "a+b")  # noqa: SIM115
        self._files = [self._file, open(self._path + ".old", "a+b")]  # noqa: SIM115

    def gone(self, id: bytearray, at: int) -> bool:
        """True if the message was here before; reads the files only if RAM does not know it."""
        if Micro.gone(self, id, at):
            return True
        chunk = self._chunk
        for file in self._files:
            file.seek(0)
            while size := file.readinto(chunk):
                if find(chunk, _PREFIX_SIZE, size // _PREFIX_SIZE, id, at, _PREFIX_SIZE) >= 0:
                    return True
        return False

    def note(self, id: bytearray, at: int) -> None:
        """Append the id's prefix durably, before its acknowledgement is sent."""
        if self._file.seek(0, 2) >= _FILE_SIZE_MAX:
            for file in self._files:
                file.close()
            os.rename(self._path, self._path + ".old")
            self._open()
        copy(self._prefix, 0, id, at, _PREFIX_SIZE)
        try:
            self._file.write(self._prefix)
            self._file.flush()
        except OSError:
            self.refused += 1  # if flash is full, a duplicate may be accepted after a reboot


class Board:
    """A running micro board: call `step` for ever; `boards.micro.main` describes `config`."""

    def __init__(self, config: "Config") -> None:
        self._due_ms = time.ticks_ms() & 0x3FFFFFFF
        self.node = FlashMicro(config, self._due_ms)
        self._config = config
        self.lines = []
        self.readings = 0

    def add(self, stream: object, interactive: int) -> None:
        """Serve a peer over a stream that never waits."""
        self.lines.append(MicroSerial(MicroLink(self.node, interactive), stream))

    def step(self) -> int:
        """Do everything that is due now; return how long to sleep at most, in ms."""
        now_ms = time.ticks_ms() & 0x3FFFFFFF
        if elapsed_ms(now_ms, self._due_ms) < _BACK_MS:
            self._due_ms = later_ms(now_ms, self._config.EPOCH_MS)
            try:
                payload = self._config.reading(self.readings)
            except (OSError, ValueError):
                payload = b""  # the sensor may answer again in the next epoch
            stamp = ((int(time.time()) + _ORIGIN_S) * 1000).to_bytes(8, "big")
            if payload and self.node.publish(payload, len(payload), stamp) >= 0:
                self.readings += 1
        wait_ms = elapsed_ms(self._due_ms, now_ms)
        for line in self.lines:
            wait_ms = min(wait_ms, line.pump(now_ms))
            while (row := self.node.next_event()) >= 0:
                self._config.taken(self.node, row)
                self.node.done(row)
                wait_ms = 0  # send its acknowledgement
        return wait_ms
