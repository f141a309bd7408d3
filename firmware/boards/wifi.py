"""Wi-Fi that is kept up: joined when it can be, looked at every few seconds, joined again.

    "wifi": {"ssid": "orchard", "password_file": "/wifi.txt"}

The password is the file's first line; none for a network without one. No network is no error: a
board that finds none takes its readings, and tries again, longer apart each time.
"""

import network

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.time_ms import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Whether the network is still there is asked this often.
_LOOK_MS = const(2000)
# An attempt that has not joined by then is given up: an access point answers within seconds.
_JOIN_MS = const(20000)
# Between two attempts, at first and at most: the radio takes 100 mA while it tries.
_AGAIN_MS = const(10000)
_AGAIN_MS_MAX = const(640000)
_PASSWORD_SIZE_MAX = const(64)  # of WPA2

_DOWN = const(0)
_JOINING = const(1)
_UP = const(2)


class Wifi:
    """See `boards.ports.NetworkPort`."""

    poll_object = None

    def __init__(self, settings: dict, say: "Callable[[str], None]") -> None:
        self._ssid = settings["ssid"]
        self._password = _password(settings.get("password_file", ""))
        self._say = say
        self._radio = network.WLAN(network.STA_IF)
        self._state = _DOWN
        self._since_ms = 0  # the state's first moment
        self._looked_ms = 0
        self._wait_ms = 0  # the first attempt is made at once
        self._again_ms = _AGAIN_MS

    @property
    def up(self) -> bool:
        """Whether there is a network, as of the last look."""
        return self._state == _UP

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may be left alone."""
        return max(0, self._wait_ms - elapsed_ms(now_ms, self._looked_ms))

    def maintain(self, now_ms: int) -> None:
        """Join, look, or give up for a while; never waits."""
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
        """Let the radio rest; a network that was lost is looked for at once."""
        self._wait_ms = 0 if self._state == _UP else self._again_ms
        if self._state != _UP:
            self._again_ms = min(self._again_ms * 2, _AGAIN_MS_MAX)
        self._enter(_DOWN, now_ms)
        try:
            self._radio.active(False)
        except OSError:
            pass


def _password(path: str) -> "tuple[str, ...]":
    """What `connect` is given behind the network's name."""
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
