"""Restricts a broker to this machine, for example so that the demo uses no network."""

from drupelet_transports.common.transport import TransportError


def require_loopback(host: str) -> str:
    """Return the numeric address of `host` if it is this machine; else raise TransportError.

    `localhost` becomes 127.0.0.1 without asking a resolver.
    """
    if host == "localhost":
        return "127.0.0.1"
    if host == "::1" or _is_loopback_v4(host):
        return host
    raise TransportError(
        "broker " + host + " refused: it is not on this machine; use localhost, 127.0.0.1 or [::1]"
    )


def _is_loopback_v4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(_is_octet(part) for part in parts)


def _is_octet(text: str) -> bool:
    return is_digits(text) and len(text) <= 3 and int(text) <= 255


def is_digits(text: str) -> bool:
    """Whether the text is one or more of 0..9."""
    return len(text) > 0 and all(char in "0123456789" for char in text)
