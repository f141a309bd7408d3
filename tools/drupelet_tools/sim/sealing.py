"""Sealed carriers in a simulated world: the real seal, its wrappers, and keys that stay.

The AEAD remembers every key with its nonce: a pair that seals twice is S11. What a chain makes
durable is a step of the device's flash like any other.
"""

from drupelet import host_api
from drupelet.base.errors import OK
from drupelet.link.link import CARRIER_STICK
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import CLASS_BUNDLE, CLASS_LIVE, Seal, SealContext
from drupelet_host.base.aead import Aead, Cipher
from drupelet_tools.sim.ends import End, WorldPort
from drupelet_tools.sim.oracle import Violation
from drupelet_transports.common.transport import Transport
from drupelet_transports.seal.sealed_carrier import Sealed


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

    def __init__(self, world: WorldPort, end: End) -> None:
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
    """A link on a stick: the oracle sees its frames before they are sealed, and who was heard."""

    def __init__(self, world: WorldPort, end: End) -> None:
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

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """See Link."""
        self._world.oracle.heard(self._end.node.name, self._end.peer.name)
        return self._end.link.receive(frame, size, now_ms)


def unlock(world: WorldPort, end: End) -> None:
    """Load an end's keys at a boot: its epochs are new."""
    node = end.node
    assert end.keys is not None
    gen = node.store_gen.to_bytes(4, "big")
    context = SealContext(world.aead, lambda: node.draw(256), gen)
    stick = end.carrier == CARRIER_STICK
    end.seal = Seal(context, end.keys, CLASS_BUNDLE if stick else CLASS_LIVE)
    code = end.seal.load()
    assert code == OK
    # As boards do with an empty log, and hosts with one that was put back.
    put_back = node.database is not None and node.name in world.oracle.resets
    end.seal.anew = put_back or not node.store.next(0)
    if not stick:
        end.transport = Sealed(SimCarrier(world, end), end.seal, node.clock_ms, bytearray(1024))
    issue(end)


def issue(end: End) -> None:
    """Go on with a rotation that is under way; after each boot again."""
    if end.rotation is not None and end.transport is not None and end.seal is not None:
        root, generation = end.rotation
        if end.seal.generation_in < generation:
            end.transport.issuer = Issuer(end.seal)
            end.transport.issuer.rekey(root, generation)


def show_again(world: WorldPort, end: End) -> None:
    """If the peer has lost its store: what it acknowledged goes to it again, at once."""
    seal = end.seal
    if seal is not None and seal.peer_lost:
        world.oracle.heard(end.node.name, end.peer.name)
        host_api.forget_holds(end.link)
        if end.node.save():
            seal.settle()
