"""`/metrics` over HTTP, on this machine alone."""

import threading
from collections.abc import Callable
from http import HTTPStatus

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base.loopback_server import LOOPBACK, LoopbackHandler, LoopbackServer
from drupelet_host.export.prometheus_text import CONTENT_TYPE


class MetricsServer(LoopbackServer):
    """Serves what `render` returns, in a thread.

    port: 0 for any that is free; then the attribute `port` says which.
    Where `render` raises a DrupeletError, a scrape is answered by 503 and the error's line.
    """

    def __init__(self, port: int, render: Callable[[], str]) -> None:
        try:
            super().__init__(port, _Handler)
        except OSError as error:
            raise StorageError(
                f"{LOOPBACK}:{port}: cannot listen there ({error.strerror}); choose another port"
            ) from error
        self.render = render
        self.port = self.server_port
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(LoopbackHandler):
    server: MetricsServer

    def reply(self) -> None:
        """The metrics, or 404."""
        if self.path.partition("?")[0] != "/metrics":
            self.answer(HTTPStatus.NOT_FOUND, "only /metrics is here\n", "text/plain")
            return
        try:
            text = self.server.render()
        except DrupeletError as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")
        else:
            self.answer(HTTPStatus.OK, text, CONTENT_TYPE)
