"""`drupelet web`: one page on loopback, for who knows its address.

The address has a secret part, because every user of a machine reaches its loopback. A foreign Host
header is refused: by that, a web site that had its name point here (DNS rebinding) would read the
page in the owner's browser. Nothing can be changed through it.
"""

import hmac
import secrets
import sqlite3
import threading
from contextlib import closing
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from drupelet.base.errors import DrupeletError
from drupelet_host.view.log_view import LogView
from drupelet_host.view.web_page import ENTRIES_MAX, page, style

LOOPBACK = "127.0.0.1"
_SECRET_SIZE = 16
# Requests that are answered at the same time, and how long a client may take.
_CLIENTS_MAX = 8
_CLIENT_S_MAX = 10.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class WebServer(ThreadingHTTPServer):
    """Serves one home until `shutdown`. Raises OSError when the port is taken."""

    daemon_threads = True
    request_queue_size = _CLIENTS_MAX

    def __init__(self, home: Path, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.home = home
        self.secret = secrets.token_urlsafe(_SECRET_SIZE)
        self.places = threading.BoundedSemaphore(_CLIENTS_MAX)

    @property
    def url(self) -> str:
        """What to open."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"

    def hosts(self) -> tuple[str, ...]:
        """What a Host header may say."""
        return (f"{LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")

    def process_request(self, request: object, client_address: object) -> None:
        """Answer in a thread, if there is a place for one."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """The thread's work, and its place given back."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self.places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    timeout = _CLIENT_S_MAX
    server_version = "drupelet"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts():
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "this is another host\n", "text/plain")
            return
        head = f"/{self.server.secret}/"
        given = self.path[: len(head)]
        if not hmac.compare_digest(given.encode(), head.encode()):
            self._answer(HTTPStatus.NOT_FOUND, "open the whole address\n", "text/plain")
        elif self.path == f"{head}style.css":
            self._answer(HTTPStatus.OK, style(), "text/css")
        elif self.path == head:
            self._page()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is one page\n", "text/plain")

    def do_HEAD(self) -> None:
        """The same without the content."""
        self.do_GET()

    def _page(self) -> None:
        try:
            with closing(LogView(self.server.home)) as view:
                view.check_identity()
                text = page(view.status(), view.newest("readings", ENTRIES_MAX))
        except (DrupeletError, sqlite3.Error) as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")
            return
        self._answer(HTTPStatus.OK, text, "text/html")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode(errors="backslashreplace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Addresses have the secret in them: nothing is logged."""
