"""Sealed carriers in a simulated world: the real seal, its wrappers, and keys that stay.

The AEAD remembers every key with its nonce: a pair that seals twice is S11. Keys are provisioned
before the first boot; what a chain makes durable is a step of the device's flash like any other.
"""

from typing import TYPE_CHECKING

from drupelet.errors import E_PEER, E_STORAGE, OK
from drupelet.link import CARRIER_STICK
from drupelet.seal import CLASS_BUNDLE, CLASS_LIVE, Seal, SealContext
from drupelet.seal_record import FLAG_ISSUER, install
from drupelet_host.aead import Aead, Cipher
from drupelet_tools.sim.oracle import Violation
from drupelet_transports.base import Transport
from drupelet_transports.sealed import Sealed

if TYPE_CHECKING:
    from drupelet_tools.sim.device import SimNode
    from drupelet_tools.sim.ends import End
    from drupelet_tools.sim.world import World

_FIRST_KID = 0x0100


class Keys:
    """The key port of a device for one peer; atomic and durable, as a file or a slot is."""

    def __init__(self, node: "SimNode", peer: "SimNode", kid: int) -> None:
        self.own_id = node.id
        self.peer_id = peer.id
        self.kid = kid
        self.records: dict[int, bytes] = {}
        self._node: SimNode | None = node

    def load(self, row: int, out: bytearray) -> int:
        """The record of a row into out[0:52]."""
        if row not in self.records:
            return E_STORAGE
        out[:52] = self.records[row]
        return OK

    def save(self, row: int, record: bytearray) -> int:
        """Keep a record; a power cut leaves the old one or the new one."""
        files = self._node.files if self._node is not None else None
        if files is None or files.begin_step():
            self.records[row] = bytes(record[:52])
        if files is not None:
            files.end_step()
        return OK

    def drop(self, row: int) -> int:
        """Forget a row."""
        self.records.pop(row, None)
        return OK

    def revoke(self, id: bytearray, at: int) -> int:  # noqa: ARG002 - nobody is revoked here
        """No such device."""
        return E_PEER

    def copied(self, node: "SimNode", peer: "SimNode") -> "Keys":
        """The same keys in the hands of somebody else."""
        other = Keys(node, peer, self.kid)
        other.records = dict(self.records)
        other._node = None
        return other


class WatchedCipher(Cipher):
    """A cipher that can say which key it is."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key


class WatchedAead(Aead):
    """AES-CCM that never seals twice under one key and nonce, or says so."""

    def __init__(self) -> None:
        self.sealed: set[int] = set()

    def cipher(self, key: bytes | bytearray, at: int, size: int = 16) -> WatchedCipher:
        """See Aead."""
        return WatchedCipher(bytes(key[at : at + size]))

    def seal(
        self, cipher: Cipher, nonce: bytes | bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> None:  # fmt: skip
        """See Aead."""
        assert isinstance(cipher, WatchedCipher)
        pair = hash((cipher.key, bytes(nonce)))
        if pair in self.sealed:
            raise Violation("S11", "world", "a key and nonce seal a second frame")
        self.sealed.add(pair)
        super().seal(cipher, nonce, buf, at, aad_size, size, tag_size)


class SimCarrier(Transport):
    """One end's wire as a carrier: what arrives waits in `inbox`."""

    def __init__(self, world: "World", end: "End") -> None:
        super().__init__(end.size_max)
        self.inbox: list[bytes] = []
        self._world = world
        self._end = end

    def send(self, frame: bytearray, size: int) -> int:
        """Put a frame on the wire."""
        self.last_wire_size = size
        self._world.fly(self._end, bytes(frame[:size]))
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """The next frame that arrived."""
        if not self.inbox:
            return 0
        data = self.inbox.pop(0)
        frame[: len(data)] = data
        self.last_wire_size = len(data)
        return len(data)

    def close(self) -> None:
        """Nothing is open."""


class WatchedLink:
    """A link whose frames the oracle sees before they are sealed for a stick."""

    def __init__(self, world: "World", end: "End") -> None:
        self._world = world
        self._end = end

    def __getattr__(self, name: str) -> object:
        return getattr(self._end.link, name)

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """See Link."""
        size = self._end.link.poll_into(frame, now_ms)
        if size:
            self._world.stick_frame(self._end, bytes(frame[:size]))
        return size


def provision(a: "SimNode", b: "SimNode", number: int, root: bytes) -> tuple[Keys, Keys]:
    """Give both devices the keys of a link; `a` may give `b` new ones later."""
    kid = _FIRST_KID + 4 * number
    ours, theirs = Keys(a, b, kid), Keys(b, a, kid)
    for keys, flags in ((ours, 0), (theirs, FLAG_ISSUER)):
        code = install(keys, root, kid, 0, flags)
        assert code == OK
    return ours, theirs


def unlock(world: "World", end: "End") -> None:
    """Load an end's keys at a boot: its epochs are new."""
    node = end.node
    assert end.keys is not None
    gen = node.store_gen.to_bytes(4, "big")
    context = SealContext(world.aead, lambda: node.draw(256), gen)
    stick = end.carrier == CARRIER_STICK
    end.seal = Seal(context, end.keys, CLASS_BUNDLE if stick else CLASS_LIVE)
    code = end.seal.load()
    assert code == OK
    if not stick:
        end.transport = Sealed(SimCarrier(world, end), end.seal, node.clock_ms, bytearray(1024))
