# host only: ssl
"""A host's access to a broker: TLS, user and password; and error texts with their remedies.

Each reason has a remedy of its own, so each has its own text.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet_transports.common.transport import TransportError

# The first byte of a TLS alert record (RFC 8446 section 5.1), which a server sends to a client
# without TLS. No MQTT packet of a broker begins with it.
_TLS_ALERT = b"\x15"

NO_ANSWER = "took the call and does not answer; is it an MQTT broker?"
HUNG_UP = "hung up without a word: it expects TLS, so write mqtts:// and its TLS port"
HUNG_UP_TLS = (
    "hung up during the TLS handshake: it does not speak TLS there (write mqtt://), or it wants a"
    " client certificate: name it as certificate_file and key_file in [[brokers]]"
)
BROKE = "the connection broke; it is made again"
# Reason codes of CONNACK as paho maps them (MQTT 3.1.1 section 3.2.2.3): bad user name or
# password, not authorised.
_UNAUTHORISED = (0x86, 0x87)


@dataclass(frozen=True)
class Access:
    """User, password and TLS context for a broker; `repr` does not show the password."""

    user: str = ""
    password: str = field(default="", repr=False)
    context: "NamedContext | None" = field(default=None, repr=False)

    def give_up(self) -> None:
        """Close the socket on which TLS failed."""
        if self.context is not None and self.context.wrapped is not None:
            self.context.wrapped.close()


class NamedContext(ssl.SSLContext):
    """A TLS context for one broker, whose certificate must have the name in the URL.

    paho would check the address that it connects to, which for localhost is 127.0.0.1.
    """

    name = ""
    wrapped: ssl.SSLSocket | None = None  # the last socket; paho leaves it open when TLS fails

    def wrap_socket(  # type: ignore[override]
        self,
        sock: socket.socket,
        **options: Any,  # noqa: ANN401 - as the base
    ) -> ssl.SSLSocket:
        """As ssl.SSLContext, with the URL's host as `server_hostname`."""
        options["server_hostname"] = self.name
        self.wrapped = super().wrap_socket(sock, **options)
        return self.wrapped


def tls_context(
    host: str, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> NamedContext:
    """Return a TLS context for `host`; `certificate` and `key` are our own.

    ca: the CA that signed the broker's certificate, None: those that this machine trusts. Raises
    TransportError with one line that names the file.
    """
    context = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = host
    if ca is None:
        context.load_default_certs()
    else:
        with _readable(ca, "certificates in PEM form"):
            context.load_verify_locations(ca)
    if certificate is not None:
        with _readable(certificate, "a certificate with its key, in PEM form and no passphrase"):
            # Do not ask for a passphrase: nobody may be there to answer.
            context.load_cert_chain(certificate, key, password=lambda: "")
    return context


@contextlib.contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        raise TransportError(f"{path}: does not hold {what}") from None
    except OSError as error:
        raise TransportError(f"{path}: cannot be read ({error.strerror})") from None


def failed_to_connect(error: Exception, tls: bool) -> str:
    """Return why a connection could not be opened, with the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); name who signed it as"
            " ca_file in [[brokers]]"
        )
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there; start the broker, or mend host and port"
    if isinstance(error, (socket.gaierror, ValueError)):
        return "there is no such host; mend its name"
    if isinstance(error, TimeoutError):
        return "does not answer; is it the right host, and does a firewall let us through?"
    if tls and isinstance(error, (ssl.SSLError, ConnectionResetError)):
        return HUNG_UP_TLS
    return f"cannot be reached ({getattr(error, 'strerror', None) or error})"


def refused_us(code: int, name: str, user: str) -> str:
    """Return why a broker refused CONNECT, from its CONNACK."""
    if code not in _UNAUTHORISED:
        return f"refuses us ({name})"
    if user:
        return f"not authorised: it does not know user {user!r} with this password"
    return (
        "not authorised: it wants user and password; name their file as login_file in [[brokers]]"
    )


def refused_topics(prefix: str) -> str:
    """Return why a broker refused SUBSCRIBE."""
    return f"not authorised to read {prefix}/#; have its administrator allow it to us"


def said_tls(sock: object) -> bool:
    """Whether the next byte of a plain socket is the TLS alert of a server that expects TLS."""
    try:
        return sock.recv(1, socket.MSG_PEEK) == _TLS_ALERT  # type: ignore[attr-defined, no-any-return]
    except OSError:
        return False
