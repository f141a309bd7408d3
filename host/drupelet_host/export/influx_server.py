"""Exports messages to an InfluxDB over HTTP, versions 1 and 2.

A kill between the answer and the reader's commit sends a batch again. That changes nothing: a
point is its series and its time, and both are the message's own.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.export.line_protocol import line
from drupelet_host.export.reading import Reading
from drupelet_host.export.run import BATCH_MAX, Journal, UnavailableError

ANSWER_WAIT_S = 30.0
_ANSWER_SIZE_MAX = 4096
# What InfluxDB says of points that it will never take; the others of a batch it has taken.
_OF_THE_POINT = ("partial write", "unable to parse", "field type conflict", "beyond retention",
                 "points outside")  # fmt: skip


class UrlError(DrupeletError):
    """A URL that is none of an InfluxDB."""


def parse_write_url(text: str) -> SplitResult:
    """The URL of a server's write call; raises UrlError with one line."""
    url = urlsplit(text)
    forms = (
        "http://127.0.0.1:8086/write?db=farm (version 1) or"
        " https://host:8086/api/v2/write?org=farm&bucket=wells (version 2)"
    )
    try:
        is_whole = bool(url.hostname) and url.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.path.endswith("/write") or not url.query:
        raise UrlError(f"{text}: must be where points are written, as in {forms}")
    if url.username is not None or url.password is not None:
        raise UrlError("a password does not belong into a URL; put it into a --login-file")
    if "precision=" in url.query:
        raise UrlError(f"{text}: leave precision out; times are nanoseconds")
    return url


class InfluxTarget:
    """A server. on_refused: told one line of each point that the server does not take.

    login: [] for none, [token], or [user, password].
    """

    batch_max = BATCH_MAX

    def __init__(
        self, url: SplitResult, measurement: str, login: list[str],
        on_refused: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._url = url
        self._measurement = measurement
        self._headers = {"Content-Type": "text/plain; charset=utf-8"}
        if len(login) == 1:
            self._headers["Authorization"] = f"Token {login[0]}"
        elif login:
            coded = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {coded}"
        self._on_refused = on_refused
        self._where = f"{url.scheme}://{url.netloc}"

    def write(self, readings: list[Reading], journal: Journal) -> int:  # noqa: ARG002
        """Send messages, and return when the server has them."""
        if readings:
            self._send(readings)
        return 0

    def rest(self) -> None:
        """Nothing: each batch has a connection of its own."""

    def close(self) -> None:
        """Nothing is open."""

    def _send(self, readings: list[Reading]) -> None:
        code, text = self._post(b"".join(line(reading, self._measurement) for reading in readings))
        if 200 <= code < 300:
            return
        if code in (400, 422) and any(reason in text for reason in _OF_THE_POINT):
            if len(readings) == 1:
                self._on_refused(f"{readings[0].id[:8]} was not taken by {self._where}: {text}")
                return
            half = len(readings) // 2
            self._send(readings[:half])
            self._send(readings[half:])
        elif code in (401, 403):
            raise StorageError(
                f"{self._where}: not authorised ({text}); --login-file names a file with a token,"
                " or with user and password on two lines"
            )
        elif code == 429 or code >= 500:
            raise UnavailableError(f"{self._where}: cannot take points now ({code} {text})")
        else:
            raise StorageError(f"{self._where}: refuses the write ({code} {text}); mend the URL")

    def _post(self, data: bytes) -> tuple[int, str]:
        """The status and what is said of it."""
        url = self._url
        assert url.hostname is not None
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                url.hostname, url.port or 443, timeout=ANSWER_WAIT_S
            )
        else:
            connection = http.client.HTTPConnection(
                url.hostname, url.port or 80, timeout=ANSWER_WAIT_S
            )
        try:
            connection.request("POST", f"{url.path}?{url.query}", data, self._headers)
            answer = connection.getresponse()
            return answer.status, _reason(answer.read(_ANSWER_SIZE_MAX)) or answer.reason
        except ssl.SSLCertVerificationError as error:
            raise StorageError(
                f"{self._where}: its certificate is not trusted ({error.verify_message});"
                " SSL_CERT_FILE names the authority"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnavailableError(
                f"{self._where}: cannot be reached ({why}); what is due goes with the next export"
            ) from error
        finally:
            connection.close()


def _reason(body: bytes) -> str:
    """What a server says of an error, on one line."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        text = str(document.get("error") or document.get("message") or text)
    return " ".join(text.split())
