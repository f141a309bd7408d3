"""A channel of dialect `sds-nim`: the core's channel behind nim-sds's numbers, filter and hashes.

Lamport values are seconds there, and neither sync nor ephemeral messages exist.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from drupelet.base.errors import E_PEER, PeerError
from drupelet.base.hashes_sds import Identity
from drupelet.channel.channel import Channel
from drupelet.channel.ports import Buffer, KeeperPort, Key
from drupelet.channel.relay import repeat_newest_into
from drupelet.channel.settings import Settings
from drupelet.wire.sds.farmhash import nim_hash
from drupelet.wire.sds.nim import (
    Filter,
    NimBloom,
    NimTimes,
    decode,
    encode,
    from_sds,
    read_filter,
    to_sds,
)
from drupelet_host.channel.nim_outbox import LastingOutbox

_MASK = (1 << 64) - 1
# Ids whose keys may be in some table: many times what a channel has in RAM.
_KNOWN_MAX = 65536
# nim-sds's own: 10,000 ids at one in a thousand, 18,778 bytes on the wire.
CAPACITY = 10_000
ERROR_RATE = 0.001
# Who sent a message without a sender: the field came with SDS-R.
UNNAMED = b"-"


class NimFilter:
    """The rolling filter and the keys of ids, as `drupelet.channel.ports.BloomPort`.

    A key is the id's 64-bit hash; the id behind it is remembered, because its second hash and
    the parameters of a received filter are needed later.
    """

    def __init__(self, capacity: int, error_rate: float, murmur: bool) -> None:
        self._error_rate = error_rate
        self._bloom = NimBloom(capacity, error_rate, murmur=murmur)
        self._murmur = murmur
        self._ids: OrderedDict[bytes, bytes] = OrderedDict()
        self._filter: Filter | None = None
        self.capacity = capacity
        self.count = 0
        self.bits = bytearray(self._bloom.wire())

    def key_into(self, out: bytearray, at: int, id: Buffer, start: int, size: int) -> None:
        """Store the id's key, 8 bytes."""
        name = bytes(id[start : start + size])
        key = (nim_hash(name, self._murmur) & _MASK).to_bytes(8, "little")
        out[at : at + 8] = key
        self._ids[key] = name
        self._ids.move_to_end(key)
        if len(self._ids) > _KNOWN_MAX:
            self._ids.popitem(last=False)

    def _id(self, key: Key, at: int) -> bytes | None:
        return self._ids.get(bytes(key[at : at + 8]))

    def clear(self) -> None:
        """Forget all ids."""
        self._bloom = NimBloom(self.capacity, self._error_rate, murmur=self._murmur)
        self.bits[:] = self._bloom.wire()
        self.count = 0

    def add(self, key: Key, at: int) -> None:
        """Put in the id with this key."""
        id = self._id(key, at)
        if id is not None:
            self._bloom.add(id)
            self.bits[:] = self._bloom.wire()
        self.count += 1

    def usable(self, bits: Buffer, start: int, size: int) -> bool:
        """Whether received bytes are a filter that says something; `has` asks the last one."""
        self._filter = read_filter(bytes(bits[start : start + size]))
        return self._filter is not None

    def has(self, bits: Buffer, start: int, key: Key, at: int) -> bool:  # noqa: ARG002
        """Whether the filter that was looked at last seems to have the id with this key."""
        id = self._id(key, at)
        return self._filter is not None and id is not None and self._filter.has(id, self._murmur)


class NimIdentity(Identity):
    """T_req, T_resp and response groups by nim-sds's hashes; ids of our own are SHA-256."""

    def __init__(self, participant: bytes, murmur: bool) -> None:
        super().__init__(participant)
        self._times = NimTimes(participant, murmur)

    def t_req_ms(self, id: Buffer, at: int, size: int, t_min: int, t_max: int) -> int:
        """Milliseconds from now to T_req of the missing message id[at:at+size]."""
        return self._times.t_req(bytes(id[at : at + size]), t_min, t_max)

    def t_resp_ms(
        self, sender: Buffer, sender_at: int, sender_size: int, id: Buffer, at: int, size: int,
        t_max: int,
    ) -> int:  # fmt: skip
        """Milliseconds from now to T_resp for a message of that sender."""
        name = bytes(sender[sender_at : sender_at + sender_size])
        return self._times.t_resp(name, bytes(id[at : at + size]), t_max)

    def in_group(
        self, sender: Buffer, sender_at: int, sender_size: int, id: Buffer, at: int, size: int,
        groups: int,
    ) -> bool:  # fmt: skip
        """Whether we are in the response group of that sender's message."""
        name = bytes(sender[sender_at : sender_at + sender_size])
        return self._times.grouped(name, bytes(id[at : at + size]), groups)


class NimChannel:
    """One participant's side of a channel of dialect `sds-nim`; `channel` is what it is made of.

    `channel.clock.set_wall` takes seconds. Frames are bytes of that dialect.
    """

    def __init__(
        self, id: bytes, participant: bytes, keeper: KeeperPort, random_byte: Callable[[], int],
        settings: Settings | None = None, now_ms: int = 0, murmur: bool = False,
        capacity: int = CAPACITY, error_rate: float = ERROR_RATE,
    ) -> None:  # fmt: skip
        settings = settings or Settings()
        settings.unit_ms = 1000
        settings.send_sync = False
        settings.send_bloom = True  # it brings its parameters: every peer reads it
        settings.identity = NimIdentity(participant, murmur)
        bloom = NimFilter(capacity, error_rate, murmur)
        self.channel = Channel(id, participant, keeper, bloom, random_byte, settings, now_ms)
        self.channel.outbox = LastingOutbox(self.channel)
        self.channel.restore(now_ms)
        # A new participant, or one that lost its log, accepts messages of its own from others.
        log = self.channel.log
        log.recovering = log.recovering or not keeper.next(0)
        settings.ask_into = partial(repeat_newest_into, self.channel)
        self._frame = bytearray(len(keeper.work))

    def receive(self, frame: bytes, now_ms: int) -> int:
        """Take in one frame: OK or a code, as `Channel.receive`."""
        try:
            message = decode(frame)
        except PeerError:
            self.channel.malformed += 1
            return E_PEER
        if not message.content or message.lamport is None or message.lamport < 0:
            self.channel.malformed += 1
            return E_PEER
        if not message.bloom:
            message.bloom = None
        message.sender_id = message.sender_id or UNNAMED
        inner = bytearray(to_sds(message))
        return self.channel.receive(inner, len(inner), now_ms)

    def poll(self, now_ms: int) -> bytes:
        """The next frame due; nothing for none now."""
        size = self.channel.poll_into(self._frame, now_ms)
        return encode(from_sds(bytes(self._frame[:size]))) if size else b""
