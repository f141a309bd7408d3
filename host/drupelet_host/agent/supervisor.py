"""What systemd is told of the agent (sd_notify(3)): ready, alive, stopping.

A datagram to the socket that `NOTIFY_SOCKET` names; without one, as in a terminal, nothing is
said. A supervisor that cannot be told is no reason to stop: it will see to that itself.
"""

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from drupelet.base.time_ms import elapsed_ms

# Word that we are alive goes out three times in the time after which we would be restarted.
_WORDS_PER_PERIOD = 3
# Without a watchdog nobody waits for our word.
_NEVER_MS = 1 << 28

log = logging.getLogger("drupelet.supervisor")


class Supervisor:
    """environment: what systemd gave us, as os.environ."""

    def __init__(self, environment: Mapping[str, str], now_ms: int) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._period_ms = _NEVER_MS
        self._said_ms = now_ms
        # It may be for the process that started us.
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with suppress(ValueError):
                watchdog_us = int(environment.get("WATCHDOG_USEC", "0"))
                if self._address and watchdog_us > 0:
                    self._period_ms = max(1, watchdog_us // 1000 // _WORDS_PER_PERIOD)

    def ready(self, text: str) -> None:
        """We serve. text: one line for `systemctl status`."""
        self._say(f"READY=1\nSTATUS={text}")

    def alive(self, now_ms: int) -> None:
        """We go on; said as often as the watchdog wants to hear it. Call it in each turn."""
        if elapsed_ms(now_ms, self._said_ms) >= self._period_ms:
            self._said_ms = now_ms
            self._say("WATCHDOG=1")

    def wait_ms(self, now_ms: int) -> int:
        """How long we may sleep before `alive` has something to say."""
        return max(0, self._period_ms - elapsed_ms(now_ms, self._said_ms))

    def stopping(self) -> None:
        """We end by ourselves."""
        self._say("STOPPING=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("systemd could not be told %s (%s)", text.split("\n")[0], error.strerror)
