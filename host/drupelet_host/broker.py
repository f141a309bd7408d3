"""An MQTT broker on this machine for those who have none: amqtt in a process of its own.

    broker = Broker()
    url = broker.start()        # mqtt://127.0.0.1:<port>
    broker.stop()

It listens on 127.0.0.1 only, lets everybody in, keeps nothing, and ends with its starter: the
pipe to its standard input closes whichever way the starter ends.
"""

import asyncio
import contextlib
import logging
import os
import selectors
import socket
import subprocess
import sys
from importlib.util import find_spec

from drupelet.base.errors import DrupeletError

_HOST = "127.0.0.1"
_PACKAGE = "amqtt"
# Importing amqtt takes about a second on a slow machine under load.
_START_S_MAX = 20.0
_STOP_S_MAX = 0.5


class BrokerError(DrupeletError):
    """The embedded broker does not start; the message says why."""


class Broker:
    """The broker's process; after a first start it comes back on the same port."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens; add `/prefix`."""
        return f"mqtt://{_HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start and wait until it accepts connections; its URL.

        Raises BrokerError; ModuleNotFoundError where amqtt, an optional package, is not installed.
        """
        assert not self.running
        if find_spec(_PACKAGE) is None:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        command = [sys.executable, "-m", "drupelet_host.broker", str(self.port)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the starter, which stops us in its order
        )
        answer = self._answer()
        if not answer.startswith("port "):
            self.stop()
            raise BrokerError(
                f"the embedded MQTT broker did not start on port {self.port}:"
                f" {answer or 'no answer'}; choose another one"
            )
        self.port = int(answer.split()[1])
        return self.url

    def stop(self) -> None:
        """End it within a second; harmless when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(_START_S_MAX):
                return f"no answer within {_START_S_MAX:.0f} s"
        return self._process.stdout.readline().decode(errors="replace").strip()


async def _accepts(port: int) -> None:
    """Return once a connection is accepted; bounded."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(_HOST, port)
            writer.close()
            return
        await asyncio.sleep(0.02)


async def _serve(port: int) -> None:
    from amqtt.broker import Broker as AmqttBroker  # only the child pays for this import

    config = {
        "listeners": {"default": {"type": "tcp", "bind": f"{_HOST}:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    broker = AmqttBroker(config)
    await broker.start()
    await _accepts(port)
    print(f"port {port}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _main() -> None:
    """Serve until standard input ends; then leave at once, there is nothing to keep."""
    from amqtt.errors import BrokerError as AmqttBrokerError

    logging.disable(logging.CRITICAL)
    port = int(sys.argv[1]) or _free_port()
    try:
        asyncio.run(_serve(port))
    except AmqttBrokerError as error:
        print(f"{error.__cause__ or error}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    _main()
