"""Carrier URLs: a string that describes a carrier, its address and its options.

    serial:///dev/ttyACM0?baud=115200        (&plain=1: no keys, on a cable only)
                                             (&frame=251: longest frame, for `micro` boards)
    uart:1?tx=4&rx=5&baud=115200             (a board's own UART; options as for serial:)
    console:                                 (a board's own console, such as a Pico's USB)
    serial://localhost:2217                  (a serial port that is served over TCP)
    mqtt://localhost:1883/prefix
    mqtts://broker.example:8883/prefix       (the same over TLS)
    stick:///media/usb
    udp://239.0.0.1:7447                     (?interface=192.168.1.5: the address to use)
    loop:

For boards and hosts. A wrong URL is the user's mistake: it raises TransportError with one line
that has the URL and the remedy.
"""

from drupelet.base.compat import const
from drupelet.base.limits import FRAME_SIZE_MAX, FRAME_SIZE_MIN
from drupelet_transports.common.loopback import number_of
from drupelet_transports.common.transport import TransportError

# The longest URL that is accepted: a path of 200 characters and all options fit.
_URL_SIZE_MAX = const(256)
# IANA's ports of MQTT without and with TLS.
_MQTT_PORT = const(1883)
_MQTTS_PORT = const(8883)
# A prefix is in front of every topic, so each frame carries it.
_PREFIX_SIZE_MAX = const(32)
# The longest label of a DNS name.
_LABEL_SIZE_MAX = const(63)

_SCHEMES = ("serial", "mqtt", "mqtts", "stick", "udp", "loop", "uart", "console")
# The options that each scheme may have; tuples, unlike a dictionary, take no heap of a board.
_OPTIONS = (
    ("baud", "frame", "plain"),
    (),  # mqtt
    (),  # mqtts
    (),
    ("interface",),
    (),
    ("tx", "rx", "baud", "frame", "plain"),
    ("frame", "plain"),
)
# Lines of a microcontroller; the host at the other end uses serial:///dev/...
BOARD_LINES = ("uart", "console")
# The highest number of a UART or a pin.
_PIN_MAX = const(127)


class Url:
    """The parts of a carrier URL; an absent `port` is 0, an absent `host` or `path` is ''.

    `scheme` is the carrier: "mqtt" for mqtts://, too, with `tls` set.
    """

    def __init__(self, text: str, scheme: str) -> None:
        self.text = text
        self.scheme = carrier_of(text)
        self.tls = scheme == "mqtts"
        self.host = ""
        self.port = 0
        self.path = ""
        self.options: dict[str, str] = {}

    @property
    def plain(self) -> bool:
        """Whether the carrier is to be used without keys; only a cable can be."""
        return "plain" in self.options

    @property
    def frame_size_max(self) -> int:
        """The longest frame that may be sent, in bytes; raises TransportError."""
        size = self.option_number("frame", FRAME_SIZE_MAX)
        if not FRAME_SIZE_MIN <= size <= FRAME_SIZE_MAX:
            allowed = str(FRAME_SIZE_MIN) + " to " + str(FRAME_SIZE_MAX)
            raise _wrong(self.text, "frame must be from " + allowed + ", 251 for a `micro` board")
        return size

    def option_number(self, name: str, default: int) -> int:
        """Return an option as a number above 0, `default` if it is absent; TransportError."""
        text = self.options.get(name)
        if text is None:
            return default
        value = number_of(text, 9)
        if value <= 0:
            raise _wrong(self.text, name + " must be a number above 0, as in ?" + name + "=115200")
        return value


def carrier_of(text: str) -> str:
    """Return the carrier of a URL: its scheme, but "mqtt" for mqtts:, too."""
    scheme = text.split(":")[0]
    return "mqtt" if scheme == "mqtts" else scheme


def parse_url(text: str) -> Url:
    """Parse a carrier URL and check what can be checked without opening it.

    Raises TransportError with one line for the user.
    """
    if len(text) > _URL_SIZE_MAX:
        raise TransportError("carrier URL is longer than 256 characters: shorten the path")
    colon = text.find(":")
    scheme = text[:colon] if colon > 0 else ""
    if scheme not in _SCHEMES:
        raise _wrong(
            text, "start it with serial:// mqtt:// mqtts:// stick:// udp:// uart: or console:"
        )
    if _login_size(text):
        raise _wrong(
            text,
            "leave out user and password: they stand in a file of mode 0600 that login_file of a"
            " [[brokers]] table in drupelet.toml names",
        )
    url = Url(text, scheme)
    rest = text[colon + 1 :]
    mark = rest.find("?")
    if mark >= 0:
        _parse_options(url, rest[mark + 1 :])
        rest = rest[:mark]
    if rest.startswith("//"):
        rest = rest[2:]
        slash = rest.find("/")
        _parse_authority(url, rest if slash < 0 else rest[:slash])
        rest = "" if slash < 0 else rest[slash:]
    url.path = _unquote(url, rest)
    _check(url)
    return url


def _wrong(text: str, remedy: str) -> TransportError:
    size = _login_size(text)
    if size:  # keep a password out of logs
        start = text.find("://") + 3
        text = text[:start] + "...@" + text[start + size :]
    return TransportError("carrier URL " + text + ": " + remedy)


def _login_size(text: str) -> int:
    """Return the size of user, password and @ in front of a host; 0: there are none.

    A password may contain any character, so the last @ counts. After three slashes there is only a
    path, which may contain an @ of its own.
    """
    start = text.find("://")
    if start < 0 or text[start + 3 : start + 4] == "/":
        return 0
    return max(0, text.rfind("@") - start - 2)


def _parse_options(url: Url, text: str) -> None:
    for pair in text.split("&"):
        equals = pair.find("=")
        if equals <= 0:
            raise _wrong(url.text, "write options as ?name=value&name=value")
        url.options[pair[:equals]] = pair[equals + 1 :]


def _parse_authority(url: Url, text: str) -> None:
    if text.startswith("["):
        end = text.find("]")
        if end < 0:
            raise _wrong(url.text, "close the address with ]")
        url.host = text[1:end]
        port = text[end + 1 :]
    else:
        colon = text.find(":")
        url.host = text if colon < 0 else text[:colon]
        port = "" if colon < 0 else text[colon:]
    if not port:
        return
    value = number_of(port[1:], 5)
    if port[0] != ":" or not 0 < value < 65536:
        raise _wrong(url.text, "the port must be a number from 1 to 65535")
    url.port = value


def _unquote(url: Url, path: str) -> str:
    """Return a path with %XX decoded; characters need not be encoded."""
    pieces = path.split("%")
    if len(pieces) == 1:
        return path
    raw = bytearray(pieces[0].encode())
    for piece in pieces[1:]:
        try:
            raw.append(int(piece[:2], 16))
        except ValueError:
            raise _wrong(url.text, "write a percent sign as %25") from None
        raw.extend(piece[2:].encode())
    try:
        return bytes(raw).decode()
    except ValueError:  # UnicodeError on boards and hosts alike
        raise _wrong(url.text, "the path is not UTF-8") from None


def _check(url: Url) -> None:
    for name in url.options:
        if name not in _OPTIONS[_SCHEMES.index(url.scheme)]:
            raise _wrong(url.text, "there is no option " + name + ", leave it out")
    if url.options.get("plain", "1") != "1":
        raise _wrong(url.text, "write ?plain=1 for a cable without keys, or leave plain out")
    url.frame_size_max  # noqa: B018 - raises TransportError if it is wrong
    if url.scheme == "uart":
        _check_uart(url)
    elif url.scheme == "console":
        if url.path or url.host:
            raise _wrong(url.text, "a board has one console: write console: and its options")
    elif url.scheme == "serial" and url.host:
        if not url.port or url.path:
            raise _wrong(url.text, "give host and port, as in serial://localhost:2217")
    elif url.scheme in ("serial", "stick"):
        if url.host or not url.path.startswith("/") or len(url.path) < 2:
            raise _wrong(
                url.text, "give a whole path after three slashes, as in stick:///media/usb"
            )
    elif url.scheme == "mqtt":
        _check_mqtt(url)
    elif url.scheme == "udp" and not (url.host and url.port):
        raise _wrong(url.text, "give address and port, as in udp://239.0.0.1:7447")


def _check_uart(url: Url) -> None:
    for text in (url.path, url.options.get("tx", "0"), url.options.get("rx", "0")):
        if not 0 <= number_of(text, 3) <= _PIN_MAX:
            raise _wrong(url.text, "give number and pins, as in uart:1?tx=4&rx=5&baud=115200")
    url.option_number("baud", 1)
    if ("tx" in url.options) != ("rx" in url.options):
        raise _wrong(url.text, "give both pins, tx and rx, or none for the chip's own")


def _check_host(url: Url) -> None:
    """Check that the host is a valid DNS name or an address; one with a colon is an address."""
    for char in url.host:
        if char <= " " or char == "\x7f":
            raise _wrong(url.text, "the broker's name holds a space or a control character")
    labels = url.host.split(".")
    if len(labels) > 1 and not labels[-1]:
        labels.pop()  # a dot at the end is the DNS root
    for label in labels:
        if ":" not in url.host and not 0 < len(label) <= _LABEL_SIZE_MAX:
            raise _wrong(url.text, "between its dots the broker's name has 1 to 63 characters")


def _check_mqtt(url: Url) -> None:
    if not url.host:
        raise _wrong(url.text, "name the broker, as in mqtt://localhost:1883/prefix")
    _check_host(url)
    url.port = url.port or (_MQTTS_PORT if url.tls else _MQTT_PORT)
    url.path = url.path.strip("/")
    if not url.path or len(url.path) > _PREFIX_SIZE_MAX:
        raise _wrong(url.text, "give a topic prefix of 1 to 32 characters after the port")
    for char in url.path:
        if not ("a" <= char <= "z" or "A" <= char <= "Z" or char in "0123456789_-/"):
            raise _wrong(url.text, "the topic prefix may hold letters, digits, _ - and / only")
