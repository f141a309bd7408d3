"""Opens a board's client of an MQTT broker: login and TLS. Unloaded after the boot.

The key `brokers` of the board's configuration has the fields of a host's [[brokers]] table:

    [{"url": "mqtts://broker.example:8883", "ca_file": "ca.der", "login_file": "login",
      "certificate_file": "me.der", "key_file": "me.key"}]

`login_file` has two lines, user and password. TLS files are in PEM or DER format.
"""

import os

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drupelet_transports.board.mqtt_board import MqttClient

# The longest TLS or login file; a CA certificate has about 2 KB.
_FILE_SIZE_MAX = const(8192)
# User and password together, because CONNECT must fit into the client's buffer.
_LOGIN_SIZE_MAX = const(255)


def open_client(
    config: dict, url: str, random_byte: "Callable[[], int]", say: "Callable[[str], None]"
) -> "MqttClient":
    """Return a client for the broker of a URL; it reports failures to `say`. DrupeletError."""
    __import__("drupelet_transports.board.mqtt_packet")
    from drupelet_transports.board.mqtt_board import MqttClient

    where, prefix = url.split("://")[1].split("/", 1)
    host, port = where.rsplit(":", 1)
    settings: "dict[str, str]" = {}
    for broker in config.get("brokers", ()):
        if url.startswith(broker["url"] + "/"):
            settings = broker
    context = tls(settings) if url.startswith("mqtts:") else None
    client = MqttClient(host, int(port), prefix, random_byte, login(settings), context)
    client.say = say
    return client


def login(broker: "dict[str, str]") -> "tuple[bytes, ...]":
    """Return user and password, or () if the broker needs none. Raises DrupeletError."""
    path = broker.get("login_file", "")
    if not path:
        return ()
    _check(path)
    lines = _read(path).split(b"\n")
    if len(lines) == 3 and not lines[2]:
        lines.pop()
    if len(lines) != 2 or not all(lines) or len(lines[0]) + len(lines[1]) > _LOGIN_SIZE_MAX:
        raise DrupeletError(path + ": must be two lines, the user's name and the password")
    return (lines[0], lines[1])


def tls(broker: "dict[str, str]") -> "Any":  # noqa: ANN401 - a class of MicroPython's
    """Return the TLS context for mqtts://. Raises DrupeletError if there is no `ca_file`."""
    import tls

    path = broker.get("ca_file", "")
    if not path:
        raise DrupeletError("mqtts:// needs ca_file in brokers: a board trusts nobody by itself")
    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED
    try:
        context.load_verify_locations(_read(path))
        path = broker.get("certificate_file", "")
        if path:
            key = broker.get("key_file", "")
            _check(key)
            context.load_cert_chain(_read(path), _read(key))
    except ValueError:
        raise DrupeletError(path + ": holds no certificate or no key of it") from None
    return context


def _check(path: str) -> None:
    """Raise DrupeletError if others can read a file, on file systems with modes."""
    try:
        mode = os.stat(path)[0]
    except OSError:
        mode = 0
    if mode & 0o077:
        raise DrupeletError(path + ": others can get at it; run chmod 600 on it")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_SIZE_MAX + 1)
    except OSError:
        raise DrupeletError(path + ": cannot be read") from None
    if len(content) > _FILE_SIZE_MAX:
        raise DrupeletError(path + ": too long to be what it should be")
    return content
