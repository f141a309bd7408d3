"""Exports messages to an MQTT broker, each exactly once, with Home Assistant's discovery."""

import socket
from collections.abc import Iterable

from drupelet_host.export.home_assistant import Discovery
from drupelet_host.export.mqtt_sender import ANSWER_WAIT_S, RELEASED_LATER_MAX, MqttSender
from drupelet_host.export.reading import Reading
from drupelet_host.export.run import Journal, UnavailableError
from drupelet_host.home.broker_access import BrokerSettings, access
from drupelet_transports.common.url import Url

# The last messages of the log say how often each author sends.
RECENT_MAX = 500


class BrokerTarget:
    """A broker. client_id: it keeps our session under it, so it is the same in each run."""

    batch_max = RELEASED_LATER_MAX

    def __init__(
        self, url: Url, brokers: tuple[BrokerSettings, ...], client_id: str, discovery: Discovery,
        recent: Iterable[Reading],
    ) -> None:  # fmt: skip
        self._url = url
        self._brokers = brokers
        self._client_id = client_id
        self._discovery = discovery
        self._sender: MqttSender | None = None
        discovery.learn(recent)

    def write(self, readings: list[Reading], journal: Journal) -> int:
        """Publish messages, and return when the broker has handed them on."""
        if not readings and not journal.is_resumed:
            return 0
        try:
            sender = self._connected()
            self._discovery.learn(readings)
            announcements = self._discovery.announcements(readings)
            if announcements:
                sender.publish_once_more(announcements)
            if not journal.is_received:
                journal.sending()
                states = [self._discovery.state(reading) for reading in readings]
                sender.publish(states, journal.is_resumed)
                journal.received()
            sender.release(len(readings))
        except UnavailableError:
            self.rest()
            raise
        return 0

    def _connected(self) -> MqttSender:
        if self._sender is not None:
            return self._sender
        url = self._url
        where = f"mqtt{'s' if url.tls else ''}://{url.host}:{url.port}"
        entry = access(self._brokers, url)
        try:
            sock = socket.create_connection((url.host, url.port), ANSWER_WAIT_S)
            if entry.context is not None:
                sock = entry.context.wrap_socket(sock)
        except OSError as error:
            from drupelet_transports.host.mqtt_access import failed_to_connect

            raise UnavailableError(f"{where}: {failed_to_connect(error, url.tls)}") from error
        sender = MqttSender(sock, where)
        sender.connect(self._client_id, entry.user, entry.password)
        self._sender = sender
        return sender

    def rest(self) -> None:
        """Leave the broker: it would end a connection on which nothing is said."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def close(self) -> None:
        """Leave the broker."""
        self.rest()
