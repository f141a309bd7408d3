"""An S3 server on loopback: moto's, and in front of it faults that one asks for."""

import logging
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "not-for-anybody",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# What a fault does to a request.
BUSY, BROKEN, DENIED = "503 Service Unavailable", "500 Internal Server Error", "403 Forbidden"
CUT, LOST, VANISHED = "cut in the middle of its body", "carried out, no answer", "404 Not Found"
_CODES = {BUSY: "SlowDown", BROKEN: "InternalError", DENIED: "AccessDenied", VANISHED: "NoSuchKey"}

# Given method, path and how many such requests there were before; what goes wrong.
Fault = Callable[[str, str, int], str | None]


class S3Server:
    """The server; `close` ends it."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[tuple[str, str]] = []
        self.faults: Counter[str] = Counter()
        self._fault: Fault | None = None
        self._counts: Counter[str] = Counter()
        # Moto looks whether a key is there and then writes it; S3 does both at once.
        self._conditional = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def make_bucket(self, name: str) -> str:
        """An empty bucket; its URI."""
        ask = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(ask).close()
        return f"s3://{name}"

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Have requests go wrong while the block runs."""
        self._fault, self._counts = fault, Counter()
        self.faults.clear()
        try:
            yield
        finally:
            self._fault = None

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Requests by method while the block ran, once it is left."""
        self.requests.clear()
        counts: Counter[str] = Counter()
        yield counts
        counts.update(method for method, _ in self.requests)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        fault = self._fault(method, path, self._counts[method]) if self._fault else None
        self._counts[method] += 1
        if fault:
            self.faults[fault] += 1
        if fault in _CODES:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(fault, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{_CODES[fault]}</Code></Error>".encode()]
        if "HTTP_IF_NONE_MATCH" in environ:
            with self._conditional:
                body = list(self._moto(environ, start))
        else:
            body = list(self._moto(environ, start))
        if fault == LOST:
            environ["werkzeug.socket"].shutdown(2)
            raise ConnectionResetError
        return _cut(body, environ["werkzeug.socket"]) if fault == CUT else body


def _cut(body: list[bytes], socket: Any) -> Iterator[bytes]:
    whole = b"".join(body)
    yield whole[: len(whole) // 2]
    socket.shutdown(2)
    raise ConnectionResetError


def every(number: int, fault: str, *methods: str) -> Fault:
    """Every so manyth request of these methods goes wrong."""
    return lambda method, _, before: (
        fault if method in methods and before % number == number - 1 else None
    )
