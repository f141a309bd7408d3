"""An HTTP server on this machine alone: a bounded number of clients, and no foreign Host header.

By a foreign Host header, a web site whose name points here (DNS rebinding) would read the answers
in the owner's browser. Nothing can be changed through these servers: they answer GET and HEAD.
"""

import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"
# Requests that are answered at the same time, and how long a client may take.
_CLIENTS_MAX = 8
_CLIENT_S_MAX = 10.0


class LoopbackServer(ThreadingHTTPServer):
    """Serves until `shutdown`. port: 0 for any that is free; then `server_port` says it.

    Raises OSError when the port is taken.
    """

    daemon_threads = True
    request_queue_size = _CLIENTS_MAX

    def __init__(self, port: int, handler: "type[LoopbackHandler]") -> None:
        super().__init__((LOOPBACK, port), handler)
        self._places = threading.BoundedSemaphore(_CLIENTS_MAX)

    def hosts(self) -> tuple[str, ...]:
        """What a Host header may say."""
        return (f"{LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")

    def process_request(self, request: object, client_address: object) -> None:
        """Answer in a thread, if there is a place for one."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """The thread's work, and its place given back."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class LoopbackHandler(BaseHTTPRequestHandler):
    """Checks the Host header, then lets `reply` answer the path."""

    server: LoopbackServer
    timeout = _CLIENT_S_MAX
    server_version = "drupelet"
    sys_version = ""
    headers_sent: Mapping[str, str] = {}  # with each answer

    def reply(self) -> None:
        """Answer `self.path`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer one request."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts():
            self.answer(HTTPStatus.MISDIRECTED_REQUEST, "this is another host\n", "text/plain")
        else:
            self.reply()

    def do_HEAD(self) -> None:
        """The same without the content."""
        self.do_GET()

    def answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        """Send text; `kind`: its media type, to which the charset is added."""
        content = text.encode(errors="backslashreplace")
        self.send_response(status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: addresses may hold a secret, and a scrape every few seconds is no news."""
