"""Topics of an agent: the readings over a carrier that all who listen there hear.

Each has sender keys, which go to the listeners through their own sealed links (docs/SPEC.md 12.8,
12.9), and a carrier that is kept up as a line to one peer is. Nothing leaves it plain.
"""

import hashlib
import os
from collections.abc import Callable
from typing import Any, Protocol

from drupelet import host_api
from drupelet.base.errors import E_STORAGE, OK, StorageError
from drupelet.base.limits import FRAME_SIZE_MAX, SENDER_KEY_MS
from drupelet.channel.key_distribution import TOPIC_SIZE, KeyDistribution
from drupelet.channel.sender_keys import OVERHEAD, SenderKeys
from drupelet.link.topic import Topic
from drupelet.node import BATCH, CARRIER_MQTT, CARRIER_UDP, PROFILE_BSP_1
from drupelet_host.agent.brokers import Brokers
from drupelet_host.agent.carrier_lines import Line
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.home.config import Config, Peer, Shared, can_listen
from drupelet_host.keys.key_folder import is_revoked
from drupelet_host.keys.sender_keys_file import ROWS, SenderFile
from drupelet_host.member.member import Member
from drupelet_host.member.report_shapes import SharedReport
from drupelet_host.member.status import UP
from drupelet_transports.common.transport import Transport
from drupelet_transports.common.url import parse_url
from drupelet_transports.seal.sealed_topic import SealedTopic

FRAME_SIZE = FRAME_SIZE_MAX - OVERHEAD
# In front of the group's id and the name, so that no topic is a channel.
TOPIC_LABEL = b"drupelet topic"
CHANNEL_LABEL = b"drupelet channel"


def _random_byte() -> int:
    return os.urandom(1)[0]


def topic_id(label: bytes, group_id: bytes, name: str) -> bytes:
    """What its members call it among themselves, and behind which it is found on a broker."""
    return hashlib.sha256(label + group_id + name.encode()).digest()[:TOPIC_SIZE]


class Spoken(Protocol):
    """What a shared line carries: a Topic or a channel."""

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int: ...
    def poll_into(self, frame: bytearray, now_ms: int) -> int: ...
    def wake_ms(self, now_ms: int) -> int: ...
    def sent(self, wire_size: int) -> None: ...
    def received(self, wire_size: int) -> None: ...
    def damaged(self, count: int) -> None: ...


class _Live:
    """What a Line asks of a live link, of something that many hear."""

    lost = False
    frame_size_max = FRAME_SIZE

    def __init__(self, link: Spoken) -> None:
        self.link = link

    def begin(self) -> None:
        """Nobody is greeted."""

    def receive(self, frame: bytearray, size: int, now_ms: int) -> None:
        """Hand a frame on."""
        self.link.receive(frame, size, now_ms)


class _Audience(KeyDistribution):
    """A distribution to which listeners are added while it runs; a board's are fixed."""

    def welcome(self, id: bytes) -> None:
        """Take in one more listener: it is handed our key as the others were."""
        self._ids = bytes(self._ids) + id
        self._states.append(0)
        self._tried_ms.append(-1)
        self._waits_ms.append(SENDER_KEY_MS)
        self.count += 1

    def readmit(self, row: int) -> None:
        """A listener that was shut out is handed our key as a new one is."""
        self._states[row] = 0
        self._tried_ms[row] = -1
        self._waits_ms[row] = SENDER_KEY_MS


class SharedKeys:
    """The sender keys of one topic or channel, and who gets ours. Raises DrupeletError."""

    def __init__(self, settings: Config, shared: Shared, id: bytes) -> None:
        self.id = id
        self._folder = settings.keys_path
        self.port = SenderFile(self._folder / f"{id.hex()}.senders")
        self.port.open()
        self.keys = SenderKeys(Aead(), self.port, settings.id, _random_byte, ROWS - 1)
        self.listeners = [peer.id for peer in settings.listeners(shared)]
        self.for_all = not shared.peers and not shared.is_cable
        self._begin()
        self.distribution = _Audience(self.keys, settings.id, id, b"".join(self.listeners))

    def _begin(self) -> None:
        """Have a chain, and a new one where somebody was taken out while no agent ran."""
        is_kept = self.keys.load() == OK
        gone = [id for id in self.port.readers() if id not in self.listeners]
        known = self.port.heard
        self.port.heard = [id for id in self.listeners if id not in self.port.out]
        code = OK
        if gone or not is_kept:
            code = self.keys.create()
        elif known != self.port.heard:
            code = self.port.keep()
        # Theirs go last: after a cut in between the next start does all of it again.
        if code != OK or any(self.keys.remove(id, 0) == E_STORAGE for id in gone):
            raise StorageError(self.port.failure)

    def take_in(self, peer: Peer) -> None:
        """A peer that was added listens from now on, if all do; also one that was here before."""
        if not self.for_all or not can_listen(peer):
            return
        row = self.distribution.row(peer.id)
        if row < 0:
            self.listeners.append(peer.id)
            self.welcome(peer.id)
            self.distribution.welcome(peer.id)
        elif self.distribution.is_excluded(row) and not is_revoked(self._folder, peer.id):
            self.welcome(peer.id)
            self.distribution.readmit(row)

    def was_shut_out(self, peer_id: bytes) -> bool:
        """Whether a device that listened has been shut out, and our chain is a later one."""
        return peer_id in self.port.out

    def welcome(self, peer_id: bytes) -> None:
        """A device that comes, or was shut out and has new keys of its own, is handed ours."""
        if peer_id in self.port.out:
            self.port.out.remove(peer_id)
        if peer_id not in self.port.heard:
            self.port.heard.append(peer_id)
            self.port.keep()  # else it goes with the next write: a key epoch's

    def shut_out(self, peer_id: bytes) -> None:
        """Begin a chain that a listener does not get. Raises StorageError: it still reads ours.

        It counts as shut out from the write of that chain on, and not with the one before, in
        which its own is dropped: after a cut in between the next start does it again.
        """
        self.distribution.exclude(self.distribution.row(peer_id))
        out, heard = self.port.out, self.port.heard
        self.port.out = [*(id for id in out if id != peer_id), peer_id]
        self.port.heard = [id for id in heard if id != peer_id]
        if self.distribution.renew() != OK:
            self.port.out, self.port.heard = out, heard
            raise StorageError(self.port.failure)

    def status(self) -> dict[str, Any]:
        """For the status: never a key."""
        keys = self.keys
        return {
            "told": [
                id.hex()
                for row, id in enumerate(self.listeners)
                if self.distribution.is_confirmed(row)
            ],
            "listeners": [id.hex() for id in self.listeners],
            "forged": keys.forged,
            "replayed": keys.replayed,
            "unknown": keys.unknown,
            "closed": keys.closed,
            "clones": keys.clones,
        }  # fmt: skip


class SharedLine(Line):
    """One topic or channel on its carrier, kept up as a line to one peer."""

    def __init__(
        self, shared: Shared, link: Spoken, keys: SharedKeys, brokers: Brokers,
        on_change: Callable[[Line], None], after_frame: Callable[[], None],
    ) -> None:  # fmt: skip
        peer = Peer(shared.name, keys.id, shared.url, "batch", shared.period_ms)
        super().__init__(
            peer, _Live(link), brokers, on_change, after_frame,  # type: ignore[arg-type]
            _no_seal, lambda: None,
        )  # fmt: skip
        self.keys = keys

    def _open(self) -> Transport:
        if self.url.scheme == "mqtt":
            # A broker learns which of its clients listen together, and no more.
            name = b"t" + self.keys.id.hex().encode()
            carrier: Transport = self._brokers.client(self.url).transport(name, name)
        else:
            from drupelet_transports.common.multicast import Multicast

            url = self.url
            carrier = Multicast(url.host, url.port, url.options.get("interface", ""))
        return SealedTopic(carrier, self.keys.keys, clock.now_ms, self._seal_buf)

    def _is_due(self, now_ms: int) -> bool:  # noqa: ARG002 - it is polled in any case
        """Always: nothing but a poll turns the clock of a topic or channel."""
        return True

    def status(self) -> SharedReport:
        """What is said of it."""
        return SharedReport(**self._said())

    def _said(self) -> dict[str, Any]:
        """Fields of the report that topics and channels have."""
        return {
            "name": self.peer.name,
            "url": self.peer.url,
            "state": self.state,
            "reason": self.reason,
            "heard_ms": self.heard_ms,
            **self.keys.status(),
        }


def _no_seal(_: Peer) -> Any:  # noqa: ANN401 - never called
    raise AssertionError("a topic has sender keys")


class Topics:
    """All topics of an agent, and whatever else has sender keys. Raises DrupeletError.

    `add` what there is, then `attend` the lines to its peers.
    """

    def __init__(
        self, member: Member, brokers: Brokers, on_change: Callable[[Line], None]
    ) -> None:
        self._member = member
        self.lines: list[SharedLine] = []
        self._topics: dict[bytes, Topic] = {}
        settings = member.config
        group = host_api.group_id(member.node, member.readings)
        for shared in settings.topics:
            if not settings.listeners(shared):
                continue
            keys = SharedKeys(settings, shared, topic_id(TOPIC_LABEL, group, shared.name))
            topic = self._topic(shared, keys)
            self._topics[keys.id] = keys.distribution.audience = topic
            self.add(SharedLine(shared, topic, keys, brokers, on_change, member.drain_box))

    def _topic(self, shared: Shared, keys: SharedKeys) -> Topic:
        member = self._member
        carrier = CARRIER_UDP if parse_url(shared.url).scheme == "udp" else CARRIER_MQTT
        links = [
            member.node.link(
                member.numbers[id], PROFILE_BSP_1, carrier, shared.period_ms, BATCH,
                clock.now_ms(),
            )
            for id in keys.listeners
        ]  # fmt: skip
        return Topic(
            member.node, member.readings, links, b"".join(keys.listeners), member.config.id,
            _random_byte,
        )  # fmt: skip

    def add(self, line: SharedLine) -> None:
        """Serve one more shared line; who of its listeners was revoked is shut out."""
        self.lines.append(line)
        folder = self._member.config.keys_path
        for id in line.keys.listeners:
            if is_revoked(folder, id):
                if line.keys.was_shut_out(id):
                    line.keys.distribution.exclude(line.keys.distribution.row(id))
                else:
                    line.keys.shut_out(id)
            else:
                line.keys.welcome(id)

    def attend(self, line: Line) -> None:
        """Hand keys over through a peer's line, and spare it what a topic carries.

        A peer that came after the start listens to channels; a topic has links of its own to
        those who were there.
        """
        id = line.peer.id
        line.distributions.clear()
        for shared in self.lines:
            if shared.keys.id not in self._topics:
                shared.keys.take_in(line.peer)
            row = shared.keys.distribution.row(id)
            if row >= 0 and not line.url.plain:
                line.distributions.append((shared.keys.distribution, row))
        for topic in self._topics.values():
            topic.beside(line.link)

    def revoked(self, peer_id: bytes) -> None:
        """A peer is not trusted any more, or none: what we send from now on it cannot read."""
        for line in self.lines:
            if line.keys.distribution.row(peer_id) >= 0 and not line.keys.was_shut_out(peer_id):
                line.keys.shut_out(peer_id)

    def turn(self, now_ms: int) -> None:
        """What is not up carries nothing."""
        for line in self.lines:
            topic = self._topics.get(line.keys.id)
            if topic is not None and line.state != UP:
                topic.turn(now_ms)
