"""IPv4 addresses as text, and which hosts are this machine.

A broker that must be on this machine is one for the demo, which uses no network.
"""

from drupelet_transports.common.transport import TransportError


def require_loopback(host: str) -> str:
    """Return the numeric address of `host` if it is this machine; else raise TransportError.

    `localhost` becomes 127.0.0.1 without asking a resolver.
    """
    if host == "localhost":
        return "127.0.0.1"
    if host == "::1" or address_v4(host)[:1] == b"\x7f":
        return host
    raise TransportError(
        "broker " + host + " refused: it is not on this machine; use localhost, 127.0.0.1 or [::1]"
    )


def address_v4(text: str) -> bytes:
    """Return the four bytes of a dotted address; b"" if it is malformed."""
    octets = [number_of(part, 3) for part in text.split(".")]
    if len(octets) != 4 or min(octets) < 0 or max(octets) > 255:
        return b""
    return bytes(octets)


def number_of(text: str, digits_max: int) -> int:
    """Return the number that one to `digits_max` digits 0..9 write; -1: the text is no such."""
    if 0 < len(text) <= digits_max and all(char in "0123456789" for char in text):
        return int(text)
    return -1
