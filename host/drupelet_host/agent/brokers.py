"""The connections of an agent to MQTT brokers, which its lines share."""

from typing import TYPE_CHECKING

from drupelet_host.home.broker_access import BrokerSettings, access, key_of
from drupelet_transports.common.url import Url

if TYPE_CHECKING:
    from drupelet_transports.host.mqtt_host import MqttClient

# A cable or broker that is back is noticed within this.
RETRY_MS_MAX = 5000


class Brokers:
    """The connections to MQTT brokers; peers behind the same broker and prefix share one.

    settings: how this host gets into them (`[[brokers]]`).
    """

    def __init__(self, settings: tuple[BrokerSettings, ...] = ()) -> None:
        self._settings = settings
        self._clients: dict[tuple[object, ...], MqttClient] = {}

    def client(self, url: Url) -> "MqttClient":
        """The client for a broker, made on first use.

        Raises TransportError, PrivateError or StorageError: a file of [[brokers]] is at fault.
        """
        from drupelet_transports.host.mqtt_host import MqttClient

        key = (*key_of(url), url.path)
        if key not in self._clients:
            self._clients[key] = MqttClient(
                url.host, url.port, url.path, access=access(self._settings, url)
            )
        return self._clients[key]

    def maintain(self, now_ms: int) -> None:
        """Connect or reconnect where it is time."""
        for client in self._clients.values():
            client.maintain(now_ms)

    @property
    def connecting(self) -> bool:
        """Whether some broker took our call and has not answered yet."""
        return any(client.connecting for client in self._clients.values())

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may wait if no bytes come in."""
        waits = [client.wait_ms(now_ms) for client in self._clients.values()]
        return min(waits, default=RETRY_MS_MAX)

    def close(self) -> None:
        """Say goodbye to every broker."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
