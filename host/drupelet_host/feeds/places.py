"""Where feeds are kept: folders, and agents that serve their SQLite on a broker (SPEC 15.4, 15.5).

Who serves makes the store's id and access key and announces both with its own feed: so all members
have them, and what a member knew of them outlives its store (`keys/store.key`). An agent connects
only to brokers that its own configuration names.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.channel.store_node import StoreNode
from drupelet_host.clients.feed_notices import ACCESS_SIZE, Feed
from drupelet_host.feeds.home_log import open_folder
from drupelet_host.feeds.root import STORE_KEY_NAME
from drupelet_host.home import private_files
from drupelet_host.home.broker_access import key_of
from drupelet_host.home.config import FOLDER_PLACE, Config
from drupelet_host.member.member import Member
from drupelet_host.remote.content_store import FolderStore, RemoteStore, SqliteRemoteStore
from drupelet_host.remote.helpers import Helpers, RemoteHistory, RemoteMail
from drupelet_host.remote.mailbox import Mailbox, MailServer, open_mail
from drupelet_host.remote.store_over_mqtt import MqttService, exchange_over
from drupelet_host.remote.store_service import StoreClient, StoreService
from drupelet_transports.common.url import Url, carrier_of, parse_url
from drupelet_transports.host.mqtt_host import MqttClient

# The mailbox of an agent that serves.
MAIL_NAME = "mail.db"
_ID_SIZE = 4
# Stores of other agents that one agent asks; more feeds than that are read by those who can.
STORES_MAX = 8


class Brokers(Protocol):
    """The connections of an agent, which its lines share."""

    def client(self, url: Url) -> MqttClient:
        """The connection to a broker. Raises TransportError, PrivateError or StorageError."""


def _broker(url: Url) -> tuple[object, ...]:
    return (*key_of(url), url.path)


class Places:
    """The stores that one agent can reach.

    idle: called again and again while an answer is waited for; StorageError from it ends the
    wait. Raises PrivateError or StorageError.
    """

    def __init__(
        self, member: Member, brokers: Brokers, idle: Callable[[], object],
        history: StoreNode | None = None,
    ) -> None:  # fmt: skip
        settings = member.config
        assert settings.feed is not None
        self._member = member
        self._brokers = brokers
        self._idle = idle
        self._place = settings.feed.place
        self._path = settings.keys_path / STORE_KEY_NAME
        self._own_id = os.urandom(_ID_SIZE)  # as a client, until the next start
        self._stores: dict[tuple[str, bytes], RemoteStore] = {}
        self._tries = 0
        self._service: MqttService | None = None
        self._client: MqttClient | None = None  # the connection of the service
        self._mail: MailServer | None = None
        self.access = b""  # of the store that our feed is in
        self._helpers: Helpers | None = None  # of who serves
        if settings.feed.serve:
            self._mail = open_mail(settings.home / MAIL_NAME)
            self._helpers = Helpers(self._mail, history)
            self._serve()

    def _serve(self) -> None:
        self.access = private_files.secret(
            self._path, ACCESS_SIZE, "put it back, or remove it for a new one"
        )
        member, url = self._member, parse_url(self._place)
        # What the node has open is committed first: a write that fails takes nothing of it along.
        store = SqliteRemoteStore(member.store.connection, settle=member.commit)
        self._stores[self._place, self.access] = store
        service = StoreService(store, self.access[_ID_SIZE:], member.commit, self._helpers)
        self._client = self._brokers.client(url)
        self._service = MqttService(self._client, url.path, self.access[:_ID_SIZE], service)

    def renew(self) -> bool:
        """Serve under another id and key if ours were made anew; whether they were."""
        kept = self._kept()
        if self._service is None or kept in (b"", self.access):
            return False
        self._service.close()
        self._stores.pop((self._place, self.access), None)
        self._serve()
        return True

    def serve(self) -> bool:
        """Answer who asks our store; True when more may wait."""
        return self._service is not None and self._service.turn() > 0

    def trouble(self) -> str:
        """Why nobody can ask the store that we serve, with the remedy; '' if they can."""
        trouble = self._client.trouble if self._client is not None else ""
        return trouble and f"{self._place}: {trouble}"

    def poll_object(self) -> object | None:
        """What to wait on for calls."""
        return self._service.poll_object if self._service is not None else None

    def close(self) -> None:
        """Let go of the mailbox's file."""
        if self._mail is not None:
            self._mail.close()

    def own(self, known: dict[bytes, Feed]) -> RemoteStore | None:
        """The store that our feed goes to; None: no member has told of one there yet.

        known: the feeds that were announced. `failed` makes the next call take another one.
        """
        if self._place.startswith(FOLDER_PLACE):
            return FolderStore(Path(self._place.removeprefix(FOLDER_PLACE)))
        if self._service is None:
            announced = [
                feed.access
                for device, feed in sorted(known.items())
                if self._place in feed.places and device != self._member.config.id
            ]
            accesses = [access for access in dict.fromkeys([*announced, self._kept()]) if access]
            if not accesses:
                return None
            self.access = accesses[self._tries % len(accesses)]
        return self.open(self._place, self.access)

    def failed(self) -> None:
        """Our store did not answer: another one may be at its place by now."""
        self._tries += 1

    def works(self) -> None:
        """Our store answers: it is found again after a loss. Raises StorageError."""
        if self.access and self._kept() != self.access:
            self._keep(self.access)

    def _kept(self) -> bytes:
        try:
            kept = private_files.read(self._path, ACCESS_SIZE)
        except DrupeletError:
            return b""
        return kept if len(kept) == ACCESS_SIZE else b""

    def _keep(self, access: bytes) -> None:
        private_files.make_folder(self._path.parent)
        private_files.replace(self._path, access)

    def open(self, place: str, access: bytes) -> RemoteStore | None:
        """The store of an announced place; None for one that we do not reach."""
        if place.startswith(FOLDER_PLACE):
            return open_folder(place)
        if (place, access) in self._stores:
            return self._stores[place, access]
        if len(access) != ACCESS_SIZE or len(self._stores) == STORES_MAX:
            return None
        try:
            url = parse_url(place)
        except DrupeletError:
            return None
        if url.scheme != "mqtt" or _broker(url) not in self._named(self._member.config):
            return None
        self._stores[place, access] = self._remote(url, access)
        return self._stores[place, access]

    def mailbox(self, place: str, access: bytes) -> Mailbox | None:
        """The mailbox at an announced place; None where we reach none."""
        if self._mail is not None and (place, access) == (self._place, self.access):
            return self._mail
        store = self.open(place, access)
        return RemoteMail(store) if isinstance(store, StoreClient) else None

    def histories(self, known: dict[bytes, Feed]) -> list[RemoteHistory]:
        """The stores of other agents that may have the history of a channel."""
        self.own(known)
        stores = self._stores.values()
        return [RemoteHistory(store) for store in stores if isinstance(store, StoreClient)]

    def _named(self, settings: Config) -> set[tuple[object, ...]]:
        """The brokers of our own configuration, as it is now."""
        urls = [peer.url for peer in settings.peers]
        urls += [shared.url for shared in (*settings.topics, *settings.channels)]
        urls.append(self._place)
        return {_broker(parse_url(url)) for url in urls if carrier_of(url) == "mqtt"}

    def _remote(self, url: Url, access: bytes) -> RemoteStore:
        client = self._brokers.client(url)
        exchange = exchange_over(client, access[:_ID_SIZE], self._own_id, self._idle)

        def ask(frames: list[bytes]) -> list[bytes]:
            answers = [] if client.trouble else exchange(frames)
            if client.trouble:
                raise StorageError(f"{url.text}: {client.trouble}")
            return answers

        return StoreClient(ask, access[_ID_SIZE:], self._own_id)
