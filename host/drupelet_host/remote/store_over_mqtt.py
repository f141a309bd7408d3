"""The remote store over MQTT: topics, and a client that waits for its answers.

    <prefix>/store/<server>            calls, from anybody
    <prefix>/store/<server>/<client>   answers to one client

`server` and `client` are 8 hex digits, drawn at random per service and client: a broker learns
from them who talks often, not who it is.
"""

import time
from collections.abc import Callable

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_host.base import clock
from drupelet_host.remote.store_service import StoreService
from drupelet_transports.host.mqtt_host import MqttClient

# How long a client waits for the answer to one call.
ANSWER_S = 5.0
_POLL_S = 0.005
# Frames that a service answers in one turn.
_FRAMES_PER_TURN_MAX = 128


def topic(server: bytes, client: bytes = b"") -> bytes:
    """What stands behind the prefix."""
    name = b"store/" + server.hex().encode()
    return name + b"/" + client.hex().encode() if client else name


class MqttService:
    """A service on a connection to `prefix`; `turn` often, answers leave as the socket takes."""

    def __init__(
        self, client: MqttClient, prefix: str, server: bytes, service: StoreService
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._server = server
        self._service = service
        self._inbox = client.transport(topic(server), topic(server, server))
        self._answers: list[tuple[str, bytes]] = []

    def turn(self) -> int:
        """Answer what came; how many frames were taken in."""
        frame = bytearray(FRAME_SIZE_MAX)
        count = 0
        while count < _FRAMES_PER_TURN_MAX and not self._answers:
            size = self._inbox.receive_into(frame)
            if size <= 0:
                break
            count += 1
            for answer in self._service.answer(bytes(frame[:size])):
                name = f"{self._prefix}/{topic(self._server, answer[1:5]).decode()}"
                self._answers.append((name, answer))
        while self._answers and self._client.publish(*self._answers[0]) == OK:
            self._answers.pop(0)
        return count

    @property
    def poll_object(self) -> object | None:
        """What to wait on for calls."""
        return self._inbox.poll_object

    def close(self) -> None:
        """Stop listening."""
        self._inbox.close()


def exchange_over(
    client: MqttClient, server: bytes, own_id: bytes, idle: Callable[[], object] = lambda: None
) -> Callable[[list[bytes]], list[bytes]]:
    """What a StoreClient exchanges frames with: a connection of its own, waiting ANSWER_S.

    `idle` is called while it waits.
    """
    link = client.transport(topic(server, own_id), topic(server))
    frame = bytearray(FRAME_SIZE_MAX)

    def exchange(frames: list[bytes]) -> list[bytes]:
        waiting, answers = list(frames), []
        wanted = 0
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            client.maintain(clock.now_ms())
            while waiting and link.send(bytearray(waiting[0]), len(waiting[0])) == OK:
                waiting.pop(0)
            while (size := link.receive_into(frame)) > 0:
                if frame[5:9] == frames[0][5:9]:
                    answers.append(bytes(frame[:size]))
                    wanted = frame[10]
            if client.trouble or (wanted and len(answers) >= wanted):
                break
            idle()
            time.sleep(_POLL_S)
        return answers

    return exchange
