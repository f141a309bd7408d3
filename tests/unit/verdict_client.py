"""A client whose bodies name the verdict on themselves, and a device with a group of it."""

from devices import Bsp, Device
from drupelet.base.errors import E_PEER
from drupelet.engine.body import DELETE, INVALID, KEEP, SHARE
from drupelet.node import BATCH

OTHER_CLIENT = bytes(range(100, 132))
VERDICTS = {b"S": SHARE, b"K": KEEP, b"D": DELETE, b"I": INVALID}


class Client:
    """Its bodies: a verdict's letter, a count of dependencies, their ids, any text.

    Unlike the default client's, so that only it can read them.
    """

    def __init__(self) -> None:
        self.parsed: list[bytes] = []
        self.validated: list[bytes] = []

    @staticmethod
    def body(reader, at: int = 0, size: int = -1) -> bytes:
        out = bytearray(reader.size - at if size < 0 else size)
        assert reader.read_into(at, out, 0, len(out)) == len(out)
        return bytes(out)

    def dependencies(self, reader) -> int:
        if reader.size < 2 or self.body(reader, 0, 1) not in VERDICTS:
            return E_PEER
        count = self.body(reader, 1, 1)[0]
        if count > 8 or reader.size < 2 + 32 * count:
            return E_PEER
        self.parsed.append(self.body(reader))
        return count

    def dependency_into(self, reader, row: int, out: bytearray) -> bool:
        return reader.read_into(2 + 32 * row, out, 0, 32) == 32

    def validate(self, reader) -> int:
        self.validated.append(self.body(reader))
        return VERDICTS[self.validated[-1][:1]]


def body_of(verdict: str, *parents: bytes, text: bytes = b"") -> bytes:
    return verdict.encode() + bytes([len(parents)]) + b"".join(parents) + text


class Devices(Device):
    """A device whose group is of a `Client` of the test."""

    def __init__(self, peers: str = "B", mode: int = BATCH, **node: object) -> None:
        self.client = Client()
        super().__init__(peers, mode, wire=Bsp(), **node)

    def join(self, descriptor: bytes) -> int:
        return self.node.join(bytes(range(32)), descriptor, 0, self.client)

    def give(self, *bodies: bytes, name: str = "B") -> list[bytes]:
        """Take these in from a peer, one after the other; their ids."""
        for body in bodies:
            self.hear(name, messages=[(7, body)])
        return [self.id_of(body) for body in bodies]

    def give_long(self, body: bytes) -> bytes:
        """Take in a message that is longer than a frame, in pieces (docs/SPEC.md 3.2)."""
        content = self.group_id + (7).to_bytes(8, "big") + body
        id = self.id_of(body)
        for at in range(0, len(content), 1000):
            head = len(content).to_bytes(2, "big") + at.to_bytes(2, "big")
            self.hear_raw(b"\x50" + id[:8] + head + content[at : at + 1000])
        return id

    def handle(self, id: bytes) -> int:
        handle = self.store.find(id, 0)
        assert handle > 0
        return handle

    def given_to(self, name: str, epochs: int = 4) -> list[bytes]:
        """The bodies that a peer gets in the next epochs, asking for what it is offered."""
        found = []
        for _ in range(epochs):
            sent = self.next(name)
            found += [body for body in sent.bodies if body not in found]
            if sent.offers:
                self.hear(name, requests=sent.offers)
        return found
