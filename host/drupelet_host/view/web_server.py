"""`drupelet web`: one page on loopback, for who knows its address.

The address has a secret part, because every user of a machine reaches its loopback.
"""

import hmac
import secrets
import sqlite3
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

from drupelet.base.errors import DrupeletError
from drupelet_host.base.loopback_server import LOOPBACK, LoopbackHandler, LoopbackServer
from drupelet_host.view.log_view import LogView
from drupelet_host.view.web_page import ENTRIES_MAX, page, style

_SECRET_SIZE = 16
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class WebServer(LoopbackServer):
    """Serves one home until `shutdown`. Raises OSError when the port is taken."""

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(port, _Handler)
        self.home = home
        self.secret = secrets.token_urlsafe(_SECRET_SIZE)

    @property
    def url(self) -> str:
        """What to open."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"


class _Handler(LoopbackHandler):
    server: WebServer
    headers_sent = _HEADERS

    def reply(self) -> None:
        """The page or its style, if the address has the secret."""
        head = f"/{self.server.secret}/"
        given = self.path[: len(head)]
        if not hmac.compare_digest(given.encode(), head.encode()):
            self.answer(HTTPStatus.NOT_FOUND, "open the whole address\n", "text/plain")
        elif self.path == f"{head}style.css":
            self.answer(HTTPStatus.OK, style(), "text/css")
        elif self.path == head:
            self._page()
        else:
            self.answer(HTTPStatus.NOT_FOUND, "there is one page\n", "text/plain")

    def _page(self) -> None:
        try:
            with closing(LogView(self.server.home)) as view:
                view.check_identity()
                text = page(view.status(), view.newest("readings", ENTRIES_MAX))
        except (DrupeletError, sqlite3.Error) as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")
            return
        self.answer(HTTPStatus.OK, text, "text/html")
