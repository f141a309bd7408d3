"""Keeps a Wi-Fi connection up: joins, checks it every few seconds, and joins again if it is lost.

    "wifi": {"ssid": "orchard", "password_file": "/wifi.txt"}

The password is the file's first line; an open network has no `password_file`. A missing network is
no error: the board takes its readings, and tries again at growing intervals.
"""

import network

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.time_ms import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# How often the connection is checked.
_LOOK_MS = const(2000)
# When an attempt to join is given up: an access point answers within seconds.
_JOIN_MS = const(20000)
# The first and the longest interval between attempts: the radio draws 100 mA while it tries.
_AGAIN_MS = const(10000)
_AGAIN_MS_MAX = const(640000)
_PASSWORD_SIZE_MAX = const(64)  # of WPA2

_DOWN = const(0)
_JOINING = const(1)
_UP = const(2)


class Wifi:
    """The KeeperPort (boards/ports.py) of Wi-Fi. Nothing is read from it."""

    poll_object = None

    def __init__(self, settings: dict, say: "Callable[[str], None]") -> None:
        self._ssid = settings["ssid"]
        self._password = _password(settings.get("password_file", ""))
        self._say = say
        self._radio = network.WLAN(network.STA_IF)
        self._state = _DOWN
        self._since_ms = 0  # when the state began
        self._looked_ms = 0
        self._wait_ms = 0  # the first attempt is made at once
        self._again_ms = _AGAIN_MS

    @property
    def up(self) -> bool:
        """Whether the network was connected at the last check."""
        return self._state == _UP

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until `maintain` has something to do, in ms."""
        return max(0, self._wait_ms - elapsed_ms(now_ms, self._looked_ms))

    def maintain(self, now_ms: int) -> None:
        """Join, check the connection, or give up for a while; never waits."""
        if self.wait_ms(now_ms):
            return
        self._looked_ms = now_ms
        self._wait_ms = _LOOK_MS
        try:
            if self._state == _DOWN:
                self._radio.active(True)
                self._radio.connect(self._ssid, *self._password)
                self._enter(_JOINING, now_ms)
            elif self._radio.isconnected():
                self._enter(_UP, now_ms)
                self._again_ms = _AGAIN_MS
            elif self._state == _UP or elapsed_ms(now_ms, self._since_ms) >= _JOIN_MS:
                self._give_up(now_ms)
        except OSError:  # a radio that does not answer may do so later
            self._give_up(now_ms)

    def _enter(self, state: int, now_ms: int) -> None:
        if state == self._state:
            return
        if _UP in (state, self._state):
            self._say('{"event":"network","up":%s}' % ("true" if state == _UP else "false"))
        self._state = state
        self._since_ms = now_ms

    def _give_up(self, now_ms: int) -> None:
        """Turn the radio off; retry at once if the network was up, else after a back-off."""
        self._wait_ms = 0 if self._state == _UP else self._again_ms
        if self._state != _UP:
            self._again_ms = min(self._again_ms * 2, _AGAIN_MS_MAX)
        self._enter(_DOWN, now_ms)
        try:
            self._radio.active(False)
        except OSError:
            pass


def _password(path: str) -> "tuple[str, ...]":
    """Return the arguments of `connect` after the network's name; raises DrupeletError."""
    if not path:
        return ()
    try:
        with open(path) as file:
            password = file.read(_PASSWORD_SIZE_MAX + 2).rstrip("\r\n")
    except OSError:
        raise DrupeletError("wifi: %s cannot be read: put the password there" % path) from None
    if not 0 < len(password) <= _PASSWORD_SIZE_MAX:
        raise DrupeletError("wifi: %s must hold the password, 1 to 64 characters" % path)
    return (password,)
