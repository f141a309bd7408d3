"""Lines: a live carrier to one peer, kept up. A line that is down comes back by itself.

A carrier that fails is closed, its reason noted, and opened again after a back-off. The node needs
to know nothing of it: what was lost on the way is sent again in a later epoch.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from drupelet import host_api
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet.node import CARRIER_MQTT, CARRIER_SERIAL
from drupelet_host.agent.brokers import RETRY_MS_MAX, Brokers
from drupelet_host.base import clock
from drupelet_host.home.config import Peer
from drupelet_host.home.private_files import BusyError, PrivateError
from drupelet_host.keys.key_folder import KeysError
from drupelet_host.keys.sealing import RevokedError
from drupelet_host.member.live_link import LiveLink
from drupelet_host.member.status import CONNECTING, DOWN, REVOKED, UP
from drupelet_host.store.restored import Hold
from drupelet_transports.common.transport import Transport, TransportError
from drupelet_transports.common.url import parse_url
from drupelet_transports.seal.key_carrier import KeyCarrier
from drupelet_transports.seal.sealed_carrier import Sealed

if TYPE_CHECKING:
    from drupelet.channel.key_distribution import KeyDistribution
    from drupelet.seal.issue import Issuer
    from drupelet.seal.seal import Seal
    from drupelet_transports.host.mqtt_host import MqttClient, MqttTransport

CARRIERS = {"serial": CARRIER_SERIAL, "mqtt": CARRIER_MQTT}
# The first retries come sooner than RETRY_MS_MAX.
RETRY_MS_MIN = 200
# A carrier that was full is tried again after this.
BUSY_MS = 5
# While a peer's answer is waited for after a loss, our status is made due again this often.
HELD_MS = 200
# A seal tells the peer its status, or hands a sender key over, within this if nothing comes.
LOOK_MS = 100
# One peer's share of a turn, so that a chatty one does not starve the others.
FRAMES_PER_TURN_MAX = 64

log = logging.getLogger("drupelet.carrier")


class Line:
    """One peer on one carrier.

    `on_change` is called with the line whenever it comes up or goes down; `after_frame` after each
    frame, so that the black box can be emptied before its two blocks are full. `seal_of` gives
    the peer's seal, or raises KeysError; a plain cable has none. `save` makes what the node knows
    durable.
    """

    def __init__(
        self, peer: Peer, live: LiveLink, brokers: Brokers, on_change: Callable[["Line"], None],
        after_frame: Callable[[], None], seal_of: Callable[[Peer], "Seal"],
        save: Callable[[], None],
    ) -> None:  # fmt: skip
        self.peer = peer
        self.live = live
        self.link = live.link
        self.url = parse_url(peer.url)
        self.state = ""
        self.reason = ""
        self.heard_ms = 0  # wall clock of the last frame from the peer
        self.seal: Seal | None = None
        self.refused = False  # for want of keys
        self.distributions: list[
            tuple[KeyDistribution, int]
        ] = []  # topics that the peer listens to
        self._on_change = on_change
        self._after_frame = after_frame
        self._seal_of = seal_of
        self._save = save
        self._seal_buf = bytearray(FRAME_SIZE_MAX)
        self._sealed: Sealed | None = None
        self._hold: Hold | None = None
        self._brokers = brokers
        self._client: MqttClient | None = None
        self._transport: Transport | None = None
        self._mqtt: MqttTransport | None = None  # behind a seal
        self._looked_ms = -LOOK_MS
        self._frame_in = bytearray(FRAME_SIZE_MAX)
        self._frame_out = bytearray(live.frame_size_max)
        self._unsent = 0
        self._link_wait_ms = 0  # as of the last `hand_out`
        self._damaged = 0
        self._retry_from_ms = 0
        self._retry_ms = 0

    def maintain(self, now_ms: int) -> None:
        """Open the carrier if it is down and the time has come."""
        if self.seal is not None and self.seal.closed:
            self.seal = None
            self._lost(f"{self.peer.name}: was revoked", now_ms)
        if self._transport is None:
            if self.state and elapsed_ms(now_ms, self._retry_from_ms) < self._retry_ms:
                return
            try:
                self._transport = self._open()
            except (TransportError, KeysError, PrivateError, BusyError, StorageError) as error:
                self.refused = not isinstance(error, TransportError)
                # A revoked peer is told of once, not at each try.
                state = REVOKED if isinstance(error, RevokedError) else DOWN
                self._lost(str(error), now_ms, state)
                return
            self.refused = False
        if self.url.scheme == "mqtt":
            self._follow_broker()
        else:
            self._set_state(UP, "")

    def _open(self) -> Transport:
        transport: Transport
        if self.url.plain:
            transport = self._open_serial()
        else:
            self.seal = seal = self._seal_of(self.peer)
            # Who has our seal is one of our nodes, and reads segments in any profile.
            host_api.note_reads_segments(self.link)
            if self.url.scheme == "mqtt":
                self._mqtt = self._brokers.client(self.url).transport_of(seal)
            carrier: Transport = self._mqtt or self._open_serial()
            # After a loss the peer must hear of it, also when there is nothing else to say.
            self._hold = Hold(seal) if self.live.lost else None
            transport = key_carrier = KeyCarrier(carrier, seal, clock.now_ms, self._seal_buf)
            key_carrier.distributions = self.distributions
            self._sealed = key_carrier
        size_max = min(self.live.frame_size_max, transport.frame_size_max)
        if size_max != len(self._frame_out):
            self._frame_out = bytearray(size_max)
        return transport

    def _open_serial(self) -> Transport:
        from drupelet_transports.host.serial_line import open_serial

        return open_serial(self.url, self.url.frame_size_max)

    def _follow_broker(self) -> None:
        client = self._client = self._client or self._brokers.client(self.url)
        if client.up:
            self._set_state(UP, "")
            return
        self._unsent = 0
        if client.trouble:
            self._set_state(DOWN, f"{self.url.text}: {client.trouble}")
        elif not self.state:
            self.state = CONNECTING

    def _set_state(self, state: str, reason: str) -> None:
        before = (self.state, self.reason)
        self.state, self.reason = state, reason
        if state == UP:
            self._retry_ms = 0
            if before[0] != UP:
                self.live.begin()
        if before != (state, reason):
            self._on_change(self)

    def _lost(self, reason: str, now_ms: int, state: str = DOWN) -> None:
        self.drop()
        self._retry_from_ms = now_ms
        self._retry_ms = min(max(RETRY_MS_MIN, self._retry_ms * 2), RETRY_MS_MAX)
        self._set_state(state, reason)

    def drop(self) -> None:
        """Close the carrier."""
        self._unsent = 0
        if self._transport is not None:
            self._transport.close()
            self._transport = self._sealed = self._mqtt = None
            self._damaged = 0

    def instruct(self, issuer: "Issuer | None") -> None:
        """What the peer is to be told about keys; None for nothing."""
        if self._sealed is not None:
            self._sealed.issuer = issuer

    def poll_object(self) -> object | None:
        """What to wait on for incoming frames; None while there is nothing."""
        return self._transport.poll_object if self._transport is not None else None

    def wait_ms(self, now_ms: int, turned_ms: int) -> int:
        """How long the line may be left alone if nothing comes in.

        turned_ms: when `hand_out` was called last.
        """
        if self._transport is None:
            return max(0, self._retry_ms - elapsed_ms(now_ms, self._retry_from_ms))
        if self.busy:
            return BUSY_MS
        if self.is_held:
            return HELD_MS
        if self.state != UP:
            return RETRY_MS_MAX
        return min(RETRY_MS_MAX, self._link_wait_ms - elapsed_ms(now_ms, turned_ms))

    def take_in(self, now_ms: int) -> bool:
        """Hand frames that arrived to the node; True when more may wait."""
        transport = self._transport
        if transport is None or self._is_silent(now_ms):
            return False
        for _ in range(FRAMES_PER_TURN_MAX):
            size = transport.receive_into(self._frame_in)
            if size == 0:
                return False
            if size < 0:
                if self.url.scheme != "mqtt":
                    self._lost(f"{self.url.text}: the device went away; plug it in again", now_ms)
                return False
            self.heard_ms = clock.wall_ms()
            log.debug("%s: frame of %d bytes in", self.peer.name, size)
            self._count_damaged(transport)
            self.link.received(transport.last_wire_size)
            self.live.receive(self._frame_in, size, now_ms)
            self._after_frame()
            if self.seal is not None and self.seal.peer_lost:
                host_api.forget_holds(self.link)
                self.live.peer_lost()
                self._save()
                self.seal.settle()
        return True

    def _is_silent(self, now_ms: int) -> bool:
        """Whether nothing came, and the seal was looked at shortly before: an agent has many
        lines, and few of them hear something at once.
        """
        if self._mqtt is None or self._mqtt.may_receive:
            return False
        if elapsed_ms(now_ms, self._looked_ms) < LOOK_MS:
            return True
        self._looked_ms = now_ms
        return False

    def _count_damaged(self, transport: Transport) -> None:
        self.link.damaged(transport.damaged - self._damaged)
        self._damaged = transport.damaged

    def hand_out(self, now_ms: int) -> bool:
        """Send what the node has due for the peer; True when more may be due now.

        A link with nothing due is not polled: an agent has many, and few of them are due at once.
        """
        transport = self._transport
        if transport is None or self.state != UP:
            return False
        if self._hold is not None and not self._hold.is_over():
            return False
        self._hold = None
        if not self._unsent and not self._is_due(now_ms):
            return False
        is_more = self._send_due(transport, now_ms)
        self._link_wait_ms = self.link.wake_ms(now_ms)
        return is_more

    def _is_due(self, now_ms: int) -> bool:
        """Whether the link may have a frame; its clock goes on in `Member.epoch`, too."""
        self._link_wait_ms = self.link.wake_ms(now_ms)
        return not self._link_wait_ms

    def _send_due(self, transport: Transport, now_ms: int) -> bool:
        for _ in range(FRAMES_PER_TURN_MAX):
            if transport.pending_size:
                return False  # a frame that is sealed and then refused costs a number of its epoch
            size = self._unsent or self.link.poll_into(self._frame_out, now_ms)
            if not size:
                return False
            code = transport.send(self._frame_out, size)
            if code == E_CAPACITY:
                self._unsent = size  # the carrier is busy: the same frame goes first next turn
                return False
            self._unsent = 0
            if code == E_STORAGE and self.seal is not None:
                self._lost(
                    f"{self.peer.name}: its keys cannot be written; look at the disk", now_ms
                )
                return False
            if code != OK:
                if self.url.scheme != "mqtt":
                    self._lost(f"{self.url.text}: the device went away; plug it in again", now_ms)
                return False
            log.debug("%s: frame of %d bytes out", self.peer.name, size)
            self.link.sent(transport.last_wire_size)
            self._after_frame()
        return True

    @property
    def busy(self) -> bool:
        """True while bytes wait for a carrier that was full."""
        transport = self._transport
        return self._unsent > 0 or (transport is not None and transport.pending_size > 0)

    @property
    def is_held(self) -> bool:
        """True while nothing but our status leaves before the peer's answer."""
        return self._hold is not None
